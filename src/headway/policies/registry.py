"""Policies by name: Headway's own, and those that installed packages add under the entry point `headway.policies`."""

from __future__ import annotations

import ast
import inspect
import math
import pkgutil
import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from importlib.machinery import EXTENSION_SUFFIXES
from typing import TYPE_CHECKING, Any, Final

from headway.errors import HeadwayError, InvalidInput, did_you_mean
from headway.model.policy import Policy, PolicyFactory, is_top_level

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

POLICY_HINT: Final = "A policy is an object that is called with a view and returns a plan, as `Easy()` does."

POLICY_FIELD: Final = "policy"
"""The field of the error where no policy has a name."""

POLICIES_GROUP: Final = "headway.policies"
"""Entry point under which a package offers policies: name = a callable that makes one from its parameters."""


def conservative(order: str = "release", per_instant: bool = False) -> Policy:
    """Conservative backfilling: every waiting job is promised a start, never a later one while estimates hold."""
    from headway.policies.backfill import Easy

    return Easy(order, math.inf, per_instant)


@dataclass(frozen=True, slots=True)
class BuiltIn:
    """Where a policy of Headway's own is. Its module is loaded when the policy is asked for: a run needs one of many.

    Attributes:
        place: the module in this package, and the factory in it.
        first: the first parameter, if the name fixes it.
    """

    place: str
    first: str = ""

    def factory(self) -> PolicyFactory:
        """Loads it."""
        module, _, name = self.place.partition(".")
        found: PolicyFactory = getattr(import_module(f"headway.policies.{module}"), name)
        return partial(found, self.first) if self.first else found


BUILT_IN: Final = {
    "fcfs": BuiltIn("backfill.Strict"),
    "sjf": BuiltIn("backfill.Strict", "shortest"),
    "easy": BuiltIn("backfill.Easy"),
    "conservative": BuiltIn("registry.conservative"),
    "keasy": BuiltIn("tiered.TieredEasy", "kill"),
    "reasy": BuiltIn("tiered.TieredEasy", "wait"),
    "measy": BuiltIn("tiered.TieredEasy", "migrate"),
    "edf": BuiltIn("lin14.Fill", "due"),
    "priority": BuiltIn("lin14.Priority"),
    "proportion": BuiltIn("lin14.Proportion"),
    "workload": BuiltIn("lin14.ByWorkload"),
    "deadline": BuiltIn("lin14.Deadline"),
    "greedy": BuiltIn("listed.Listed", "greedy"),
    "lst": BuiltIn("listed.Listed", "lst"),
    "lstr": BuiltIn("listed.Listed", "lstr"),
    "hprf": BuiltIn("listed.Listed", "hprf"),
    "wspt": BuiltIn("listed.Listed", "wspt"),
    "atc": BuiltIn("listed.Listed", "atc"),
    "anneal": BuiltIn("listed.Annealed"),
    "heft": BuiltIn("heft.Heft"),
    "peft": BuiltIn("heft.Peft"),
    "tempo": BuiltIn("tempo.Tempo"),
    "sites": BuiltIn("sites.sites"),
    "services": BuiltIn("services.Services"),
    "instances": BuiltIn("instances.Instances"),
}
"""Headway's own policies by name."""


BY_DUE_DATE: Final = frozenset({"edf", "deadline", "tempo", "greedy", "lst", "lstr", "atc", "anneal"})
"""Those that decide by due dates whatever their parameters are."""


def needs_due_dates(text: str) -> bool:
    """Whether a policy decides by due dates, as far as its text says.

    >>> needs_due_dates("edf"), needs_due_dates("easy:order=due"), needs_due_dates("easy")
    (True, True, False)
    >>> needs_due_dates("sites:each=heft,at=east/easy:order=due|west/easy"), needs_due_dates("sites:top=prefer")
    (True, True)
    """
    return any(word in BY_DUE_DATE or word in ("due", "prefer") for word in _words(text))


BY_PRIORITY: Final = frozenset({"priority", "proportion", "workload", "deadline", "tempo"})
"""Those that decide by priorities whatever their parameters are."""


def ignores_priorities(text: str) -> bool:
    """Whether a policy decides without priorities, as far as its text says; of added policies it says nothing.

    >>> ignores_priorities("easy"), ignores_priorities("easy:order=priority"), ignores_priorities("tempo")
    (True, False, False)
    >>> ignores_priorities("sites:each=easy,at=east/tempo"), ignores_priorities("mine.py:Mine")
    (False, False)
    """
    words = _words(text)
    if words[0] not in BUILT_IN or any(word in BY_PRIORITY or word.endswith(".py") for word in words):
        return False
    added = factories().keys() - BUILT_IN.keys()
    return added.isdisjoint(words)


def by_priority_instead(text: str) -> str:
    """The policy nearest to one that ignores priorities which does not.

    >>> by_priority_instead("easy:depth=2"), by_priority_instead("edf")
    ('easy:order=priority', 'tempo')
    """
    name = _words(text)[0]
    orders_others = ("heft", "sites")  # tasks, and sites
    has_order = name not in orders_others and any(
        one.name == "order" for one in parameters_of(BUILT_IN[name].factory())
    )
    return f"{name}:order=priority" if has_order else "tempo"


def _words(text: str) -> list[str]:
    """The names and values in the text of a policy, also those of the policies of a top level."""
    return [word.strip() for word in re.split("[:,;|=/]", text)]


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a policy: its name and its default; "" for a parameter that must be given."""

    name: str
    default: object
    required: bool = False

    @property
    def plain(self) -> str | int | float | bool:
        """The default in JSON: infinity as the text that stands for it."""
        default = self.default
        is_plain = isinstance(default, str | int) or (isinstance(default, float) and math.isfinite(default))
        return default if is_plain else str(default)  # type: ignore[return-value]  # it is one of them


@dataclass(frozen=True, slots=True)
class KnownPolicy:
    """A policy that can be named: in one line what it does, and its parameters."""

    name: str
    summary: str
    parameters: tuple[Parameter, ...]


def factories() -> dict[str, Callable[[], PolicyFactory]]:
    """Every installed policy by name; an added one is loaded only when it is asked for. Built-in names come first."""
    from importlib.metadata import entry_points  # seldom wanted, and slow to load

    found: dict[str, Callable[[], PolicyFactory]] = {}
    for entry in entry_points(group=POLICIES_GROUP):
        found[entry.name] = partial(_load, entry)
    return found | {name: known.factory for name, known in BUILT_IN.items()}


def _load(entry: EntryPoint) -> PolicyFactory:
    try:
        factory: PolicyFactory = entry.load()
        parameters_of(factory)
    except Exception as raised:
        hint = f"It is {entry.value}. A server that was started before this was installed must be started again."
        raise HeadwayError(f"policy {entry.name} cannot be loaded: {raised}", hint) from raised
    return factory


def _added(name: str) -> PolicyFactory:
    known = factories()  # reads what every installed package offers: only where no built-in policy has the name
    if name not in known:
        raise InvalidInput(POLICY_FIELD, name, ", ".join(sorted(known)), hint=_hint(name, known))
    return known[name]()


def _hint(name: str, known: Iterable[str]) -> str:
    """What to do where none of these policies has a name."""
    if name.endswith(".py"):
        return "Only simulations take a policy from a file; servers and other policies, an installed one, by its name."
    return did_you_mean(name, known) or "`headway policies` says what each of them does."


def parameters_of(factory: PolicyFactory) -> tuple[Parameter, ...]:
    """The parameters with which a factory can be called, without those that it fixes."""
    fixed = len(factory.args) if isinstance(factory, partial) else 0
    made = factory.func if isinstance(factory, partial) else factory
    found = (_signature(made) if isinstance(made, type) else inspect.signature(made)).parameters.values()
    return tuple(
        Parameter(known.name, "", required=True)
        if known.default is known.empty
        else Parameter(known.name, known.default)
        for known in list(found)[fixed:]
        if known.kind not in (known.VAR_POSITIONAL, known.VAR_KEYWORD)
    )


@cache
def _signature(of: type) -> inspect.Signature:
    """How a class is called. It takes long to find out, and a top level asks for each of its pools."""
    return inspect.signature(of)


def installed() -> list[KnownPolicy]:
    """The policies that can be named, in order of name."""
    offers = []
    for name, load in sorted(factories().items()):
        try:
            factory = load()
        except HeadwayError as failure:
            offers.append(KnownPolicy(name, str(failure.args[0]).removeprefix(f"policy {name} "), ()))
            continue
        made = factory.func if isinstance(factory, partial) else factory
        fixed = ""
        if isinstance(factory, partial):
            (name_fixed, *_) = inspect.signature(made).parameters
            fixed = f" {name_fixed.capitalize()}: {factory.args[0]}."
        summary = _docstring(made).partition("\n")[0]
        offers.append(KnownPolicy(name, summary + fixed, parameters_of(factory)))
    return offers


def _docstring(made: Any) -> str:
    """The docstring of a class or function; of a compiled module only the source beside it has it."""
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
        InvalidInput: no policy has this name, it has no such parameter, one must be given, or the value is not of the
            parameter's type or range; similar names are suggested.
        HeadwayError: the package that added the policy cannot be loaded, or what it gives is not a policy.

    >>> find("easy:order=shortest").order
    'shortest'
    """
    name, _, arguments = text.strip().partition(":")
    return made(name, BUILT_IN[name].factory() if name in BUILT_IN else _added(name), arguments)


def find_below(field: str, given: str, allowed: str, *words: str) -> Policy:
    """The policy of a pool, as a parameter of a top level names it: its parameters are separated by semicolons.

    Args:
        field: the parameter.
        given: its value, or a part of it.
        allowed: what it may be, where it deals to pools itself.
        words: what it may be besides names of policies.

    Raises:
        InvalidInput: there is no such policy, or it deals to pools itself.
        HeadwayError: see `find`.
    """
    try:
        policy = find(given.replace(";", ","))
    except InvalidInput as wrong:
        if wrong.field != POLICY_FIELD:
            raise
        names = [*words, *filter(_may_be_below, sorted(factories()))]
        raise InvalidInput(field, wrong.value, ", ".join(names), hint=_hint(str(wrong.value), names)) from None
    if is_top_level(policy):
        raise InvalidInput(field, given, allowed)
    return policy


def once_an_instant(text: str) -> str:
    """A policy that holds one round for all events of an instant; one without the parameter holds what it holds.

    >>> once_an_instant("easy"), once_an_instant("easy:depth=2")
    ('easy:per_instant=true', 'easy:depth=2,per_instant=true')
    """
    name, separator, _ = text.partition(":")
    if name not in BUILT_IN:
        made = factories().get(name)
        if made is not None and all(one.name != "per_instant" for one in parameters_of(made())):
            return text
    return f"{text}{',' if separator else ':'}per_instant=true"


def _may_be_below(name: str) -> bool:
    """Whether a policy does not deal to pools, as far as is known: some cannot be made without parameters."""
    try:
        return not is_top_level(find(name))
    except HeadwayError:
        return True


def made(name: str, factory: PolicyFactory, arguments: str) -> Policy:
    """The policy that a factory makes of `key=value,...`.

    Args:
        name: what it is called in errors.

    Raises:
        InvalidInput: it has no such parameter, one has to be given, or the value is not of the parameter's type or
            range; names that are near are offered.
        HeadwayError: what the factory gives is not a policy.
    """
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
    except InvalidInput as wrong:
        field = f"{wrong.field} of policy {name}"
        raise InvalidInput(field, wrong.value, wrong.allowed, hint=wrong.hint) from None
    except HeadwayError:
        raise
    except Exception as raised:
        raise HeadwayError(f"policy {name} cannot be made: {type(raised).__name__}: {raised}") from raised
    check_policy(policy, f"policy {name}")
    return policy


def check_policy(policy: object, called: str) -> None:
    """See that something is a policy.

    Raises:
        HeadwayError: it is none.
    """
    if not callable(policy):
        raise HeadwayError(f"{called} is {type(policy).__name__}, which cannot be called", POLICY_HINT)
    for field in ("per_instant", "task_rounds"):
        if not isinstance(getattr(policy, field, None), bool):
            raise HeadwayError(f"{called} has no {field}", "A policy says of each of these whether it wants them.")


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
