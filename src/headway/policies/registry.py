"""Policies by name: Headway's own, and those that installed packages add under the entry point `headway.policies`."""

from __future__ import annotations

import ast
import inspect
import math
import pkgutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.machinery import EXTENSION_SUFFIXES
from typing import TYPE_CHECKING, Any, Final

from headway.errors import HeadwayError, InvalidInput, did_you_mean
from headway.model.snapshot import Policy, PolicyFactory
from headway.policies import backfill, heft, lin14, tempo, tiers

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP: Final = "headway.policies"
"""Entry point under which a package offers policies: name = a callable that makes one from its parameters."""


def conservative(order: str = "release", per_instant: bool = False) -> Policy:
    """Conservative backfilling: every waiting job is promised a start, while estimates hold never a later one."""
    return backfill.Easy(order, math.inf, per_instant)


BUILT_IN: Final[dict[str, PolicyFactory]] = {
    "fcfs": backfill.Strict,
    "sjf": partial(backfill.Strict, "shortest"),
    "easy": backfill.Easy,
    "conservative": conservative,
    "keasy": partial(tiers.TieredEasy, "kill"),
    "reasy": partial(tiers.TieredEasy, "wait"),
    "measy": partial(tiers.TieredEasy, "migrate"),
    "edf": partial(lin14.Fill, "due"),
    "priority": lin14.Priority,
    "proportion": lin14.Proportion,
    "workload": lin14.Workload,
    "deadline": lin14.Deadline,
    "heft": heft.Heft,
    "tempo": tempo.Tempo,
}


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a policy: its name and the value it has unless one is given; "" for one that has to be given."""

    name: str
    default: object
    required: bool = False

    @property
    def plain(self) -> str | int | float | bool:
        """The default as JSON can hold it: infinity as the text that is given for it."""
        default = self.default
        is_plain = isinstance(default, str | int) or (isinstance(default, float) and math.isfinite(default))
        return default if is_plain else str(default)  # type: ignore[return-value]  # it is one of them


@dataclass(frozen=True, slots=True)
class Offer:
    """A policy that can be named: in one line what it does, and its parameters."""

    name: str
    summary: str
    parameters: tuple[Parameter, ...]


def factories() -> dict[str, Callable[[], PolicyFactory]]:
    """Every installed policy by name; an added one is loaded only when it is asked for. Built-in names win."""
    from importlib.metadata import entry_points  # seldom wanted, and slow to load

    found: dict[str, Callable[[], PolicyFactory]] = {}
    for entry in entry_points(group=GROUP):
        found[entry.name] = partial(_load, entry)
    return found | {name: partial(_known, name) for name in BUILT_IN}


def _load(entry: EntryPoint) -> PolicyFactory:
    try:
        factory: PolicyFactory = entry.load()
        parameters_of(factory)
    except Exception as raised:
        hint = f"It is {entry.value}. A server that was started before this was installed must be started again."
        raise HeadwayError(f"policy {entry.name} cannot be loaded: {raised}", hint) from raised
    return factory


def _known(name: str) -> PolicyFactory:
    return BUILT_IN[name]


def _added(name: str) -> PolicyFactory:
    known = factories()  # reads what every installed package offers: only where no built-in policy has the name
    if name not in known:
        raise InvalidInput("policy", name, ", ".join(sorted(known)), hint=did_you_mean(name, known))
    return known[name]()


def parameters_of(factory: PolicyFactory) -> tuple[Parameter, ...]:
    """The parameters by which a factory can be called, those it fixes left out."""
    fixed = len(factory.args) if isinstance(factory, partial) else 0
    found = inspect.signature(factory.func if isinstance(factory, partial) else factory).parameters.values()
    return tuple(
        Parameter(known.name, "", required=True)
        if known.default is known.empty
        else Parameter(known.name, known.default)
        for known in list(found)[fixed:]
        if known.kind not in (known.VAR_POSITIONAL, known.VAR_KEYWORD)
    )


def installed() -> list[Offer]:
    """What can be named, in order of name."""
    offers = []
    for name, load in sorted(factories().items()):
        try:
            factory = load()
        except HeadwayError as failure:
            offers.append(Offer(name, str(failure.args[0]).removeprefix(f"policy {name} "), ()))
            continue
        made = factory.func if isinstance(factory, partial) else factory
        fixed = ""
        if isinstance(factory, partial):
            (name_fixed, *_) = inspect.signature(made).parameters
            fixed = f" {name_fixed.capitalize()}: {factory.args[0]}."
        summary = _docstring(made).partition("\n")[0]
        offers.append(Offer(name, summary + fixed, parameters_of(factory)))
    return offers


def _docstring(made: Any) -> str:
    """What a class or function says of itself; in compiled modules only its source does, which stands beside them."""
    file = getattr(sys.modules.get(made.__module__), "__file__", None) or ""
    if not file.endswith(tuple(EXTENSION_SUFFIXES)):
        return inspect.getdoc(made) or ""
    package, _, name = made.__module__.rpartition(".")
    source = ast.parse(pkgutil.get_data(package, f"{name}.py") or b"")
    named = (part for part in source.body if isinstance(part, ast.ClassDef | ast.FunctionDef))
    return next((ast.get_docstring(part) or "" for part in named if part.name == made.__name__), "")


def find(text: str) -> Policy:
    """The policy that `NAME[:key=value,...]` stands for.

    Raises:
        InvalidInput: no policy has this name, it has no such parameter, one has to be given, or the value is not of
            the parameter's type or range; names that are near are offered.
        HeadwayError: the package that added the policy cannot be loaded, or what it gives is no policy.

    >>> find("easy:order=shortest").order
    'shortest'
    """
    name, _, arguments = text.strip().partition(":")
    factory = BUILT_IN.get(name) or _added(name)
    offered = {parameter.name: parameter for parameter in parameters_of(factory)}
    given: dict[str, object] = {}
    for part in filter(None, (part.strip() for part in arguments.split(","))):
        key, separator, value = part.partition("=")
        key = key.strip()
        if key not in offered:
            allowed = ", ".join(offered) or "none: it has no parameters"
            raise InvalidInput(f"parameter of policy {name}", key, allowed, hint=did_you_mean(key, offered))
        if not separator:
            raise InvalidInput(f"parameter of policy {name}", part, f"{key}=VALUE")
        if key in given:
            raise InvalidInput(f"parameter of policy {name}", part, f"{key} once")
        given[key] = _value(name, offered[key], value.strip())
    for key, parameter in offered.items():
        if parameter.required and key not in given:
            raise InvalidInput(f"parameter of policy {name}", "", f"{key}=VALUE")
    try:
        policy = factory(**given)
    except HeadwayError:
        raise
    except Exception as raised:
        raise HeadwayError(f"policy {name} cannot be made: {type(raised).__name__}: {raised}") from raised
    for field in ("per_instant", "task_rounds"):
        if not isinstance(getattr(policy, field, None), bool):
            raise HeadwayError(f"policy {name} has no {field}", "A policy says of each of these whether it wants them.")
    return policy


def _value(policy: str, parameter: Parameter, text: str) -> object:
    """The text as a value of the type that the parameter's default has."""
    kind: Any = type(parameter.default)
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise InvalidInput(f"{parameter.name} of policy {policy}", text, "true or false")
        return text.lower() == "true"
    if kind not in (int, float):
        return text
    try:
        value = kind(text)
        if value != value:  # no number
            raise ValueError
        return value
    except ValueError:
        allowed = "a whole number" if kind is int else "a number"
        raise InvalidInput(f"{parameter.name} of policy {policy}", text, allowed) from None
