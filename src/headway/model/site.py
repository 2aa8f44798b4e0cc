"""What policies know of sites: in which order they are preferred, and how long a task takes there before it begins."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

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
