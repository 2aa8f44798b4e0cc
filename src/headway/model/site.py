"""What policies know of sites: in which order they are preferred, and how long a task takes there before it begins."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from headway.errors import InvalidInput, did_you_mean
from headway.model.instant import Duration
from headway.model.value import value


@value
class SiteTerms:
    """One site of a cluster.

    Attributes:
        name: as its nodes name it.
        startup: how long a task holds its slots there before it begins its work, >= 0: until a job of a batch system
            has begun, a machine has booted, or an image is there.
    """

    name: str
    startup: Duration = 0


NO_SITES: Final[Mapping[str, SiteTerms]] = MappingProxyType({})
"""Nothing is known of sites but the names that nodes give."""


def by_name(sites: Iterable[SiteTerms]) -> dict[str, SiteTerms]:
    """The terms by the name of their site, the preferred site first."""
    return {one.name: one for one in sites}


def named_by(policy: object) -> Sequence[str]:
    """The sites that a policy names: its attribute `named_sites`, if it has one. There must be such sites."""
    return tuple(getattr(getattr(policy, "policy", policy), "named_sites", ()))


def of_services(policy: object) -> Sequence[str]:
    """The sites between whose slots a policy shares out services: its attribute `service_sites`; empty: all sites."""
    return tuple(getattr(getattr(policy, "policy", policy), "service_sites", ()))


def check_sites(policy: object, known: Iterable[str]) -> None:
    """See that there are the sites that a policy names.

    Args:
        known: the names of the sites of the cluster.

    Raises:
        InvalidInput: one is not there.
    """
    names = list(dict.fromkeys(known))
    for name in named_by(policy):
        if name not in names:
            allowed = f"a site of this cluster: {', '.join(names)}"
            raise InvalidInput("site that the policy names", name, allowed, hint=did_you_mean(name, names))
