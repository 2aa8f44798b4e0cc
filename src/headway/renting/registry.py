"""Kinds of providers by name, and what each is told.

| kind | options |
| --- | --- |
| `processes` | `folder`, `command` |
| `slurm` | `partition`, `command`; maybe `options` |
| `aws` | `region`, `image`; maybe `user_data`, `subnet`, `security_groups`, `key`, `role`, `endpoint`, `profile` |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any, Final

from headway.errors import HeadwayError, InvalidInput, did_you_mean
from headway.renting.provider import Provider


@dataclass(frozen=True, slots=True)
class ProviderSpec:
    """Who rents machines out at a site, as a cluster file declares it.

    Attributes:
        site: where.
        kind: the name of the kind of provider.
        options: what it is told, with full paths.
    """

    site: str
    kind: str
    options: Mapping[str, Any] = field(default_factory=dict)


FOLDER_OPTIONS: Final = ("folder",)
"""Options that are folders; a relative one counts from the file that names it."""

USER_DATA_MAX: Final = 16 << 10
"""Bytes of user data that EC2 takes."""


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value) and value.isprintable()


def _is_list(value: object) -> bool:
    return isinstance(value, list | tuple) and bool(value) and all(isinstance(one, str) and one for one in value)


def _is_script(value: object) -> bool:
    return isinstance(value, str) and len(value.encode()) <= USER_DATA_MAX


def _is_address(value: object) -> bool:
    return _is_text(value) and str(value).startswith(("http://", "https://"))


_TEXT: Final = (_is_text, "a text that is not empty, in quotes")
_Options = Mapping[str, tuple[Callable[[object], bool], str]]

PROVIDER_KINDS: Final[Mapping[str, tuple[frozenset[str], _Options]]] = {
    "processes": (
        frozenset({"folder", "command"}),
        {"folder": _TEXT, "command": (_is_list, "a list of words in quotes: a program and its arguments")},
    ),
    "slurm": (
        frozenset({"partition", "command"}),
        {
            "partition": _TEXT,
            "command": (_is_list, "a list of words in quotes: a program and its arguments"),
            "options": (_is_list, "a list of words in quotes, for sbatch"),
        },
    ),
    "aws": (
        frozenset({"region", "image"}),
        {
            **dict.fromkeys(("region", "image", "subnet", "key", "role", "profile"), _TEXT),
            "user_data": (_is_script, f"a script, at most {USER_DATA_MAX} bytes"),
            "security_groups": (_is_list, "a list of names in quotes"),
            "endpoint": (_is_address, "an address, http:// or https://"),
        },
    ),
}
"""For each kind which options it must have, and for each option whether a value is allowed, and which are."""


def check(kind: str, options: Mapping[str, object]) -> None:
    """Refuse a provider that cannot be.

    Raises:
        InvalidInput: there is no such kind, or an option is unknown, missing or not allowed; it names the option, the
            value and what is allowed.
    """
    if kind not in PROVIDER_KINDS:
        raise InvalidInput("provider", kind, " or ".join(PROVIDER_KINDS), hint=did_you_mean(kind, PROVIDER_KINDS))
    needed, known = PROVIDER_KINDS[kind]
    for name, value in options.items():
        if name not in known:
            allowed = f"an option of provider {kind}: {', '.join(known)}"
            raise InvalidInput(name, value, allowed, hint=did_you_mean(name, known))
        fits, allowed = known[name]
        if not fits(value):
            raise InvalidInput(name, value, allowed)
    for name in known:
        if name in needed and name not in options:
            raise InvalidInput(name, None, known[name][1])


def make(kind: str, site: str, options: Mapping[str, Any], cluster: str) -> Provider:
    """The provider of a site.

    Args:
        site: what errors call it.
        cluster: what the tokens of this cluster begin with.

    Raises:
        InvalidInput: as `check`.
        HeadwayError: it cannot be used here.
    """
    check(kind, options)
    if kind == "processes":
        from headway.renting.processes import Processes

        return Processes(options["folder"], options["command"], cluster)
    if kind == "slurm":
        from headway.renting.slurm import Allocations

        return Allocations(cluster, **options)
    if find_spec("boto3") is None:
        raise HeadwayError(
            f"site {site!r} rents machines of AWS, which needs boto3", "Install it: pip install 'headway[aws]'."
        )
    from botocore.exceptions import BotoCoreError

    from headway.renting.ec2 import EC2

    try:
        return EC2(cluster, **options)
    except (BotoCoreError, ValueError) as error:
        raise HeadwayError(f"site {site!r} cannot rent machines of AWS: {error}") from error
