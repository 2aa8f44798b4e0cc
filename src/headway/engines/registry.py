"""Kinds of engines by name: Headway's own, and those that packages add under the entry point `headway.engines`.

An entry point names an `EngineKind`. The names of kinds, and what they are told, are known without loading an engine:
what an engine needs is imported when it is made.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from headway.errors import HeadwayError, InvalidInput, did_you_mean

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from headway.engines.base import Engine
    from headway.engines.local.driver.settings import LocalSettings

ENGINES_GROUP: Final = "headway.engines"
"""Entry point under which a package offers engines: name = an `EngineKind`."""

LOCAL: Final = "local"
"""The engine of this machine, and the site of nodes that name none."""

TLS_FILES: Final = ("ca.crt", "node.crt", "node.key")
"""What a folder for TLS has: who vouches for others, and what this side shows of itself."""


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value) and value.isprintable()


@dataclass(frozen=True, slots=True)
class Option:
    """Something that an engine is told in the table of its site.

    Attributes:
        name: in a cluster file, and of the parameter of the engine's settings.
        allowed: for people: which values are.
        fits: whether a value is allowed.
        default: without it.
        required: whether it has to be given.
        files: it is a folder, in which these have to be; a relative one counts from the file that names it.
        is_folder: it is a folder, which need not be there yet.
        of_one: no two sites have the same, for both would find the same nodes.
    """

    name: str
    allowed: str
    fits: Callable[[Any], bool] = _is_text
    default: object = None
    required: bool = False
    files: tuple[str, ...] = ()
    is_folder: bool = False
    of_one: bool = False

    def value(self, given: object, base: Path) -> object:
        """A value as it is kept: a folder as its full path.

        Raises:
            InvalidInput: it is not allowed, or its files are missing.
        """
        if not self.fits(given):
            raise InvalidInput(self.name, given, self.allowed)
        if not (self.files or self.is_folder):
            return given
        folder = base.absolute() / str(given)
        if self.files and not folder.is_dir():
            raise InvalidInput(self.name, given, self.allowed, hint=f"There is no folder {folder}.")
        if missing := [name for name in self.files if not (folder / name).is_file()]:
            raise InvalidInput(self.name, given, self.allowed, hint=f"There is no {' or '.join(missing)} in {folder}.")
        return str(folder)


@dataclass(frozen=True, slots=True)
class EnginePlace:
    """Where an engine is made.

    Attributes:
        site: the name of its site.
        folder: its own on this machine; it need not be there yet.
        tasks: how tasks are treated at all sites, as `headway up` says; None: as by default.
    """

    site: str
    folder: Path
    tasks: LocalSettings | None = None


Build = Callable[[EnginePlace, Mapping[str, Any]], "Engine"]
"""Makes an engine of its options."""


def _agree(_: Mapping[str, Any]) -> None:
    """Any values of different options can stand together."""


@dataclass(frozen=True, slots=True)
class EngineKind:
    """A kind of engine.

    Attributes:
        name: in a cluster file.
        summary: in a line, what it runs tasks on.
        build: makes one.
        options: what it can be told.
        finds: whether it finds its nodes by itself; then nobody names them. Otherwise a cluster file does.
        needs: modules that have to be installed for it.
        extra: what installs these with pip: `headway[dask]`.
        owners: whether it runs each task as the account that its assignment names.
        run_as: whether it runs all tasks as the account of `LocalSettings.run_as`.
        one_disk: whether the files of tasks on all nodes of a site are on one disk.
        agree: refuses values of options that contradict each other, by raising `InvalidInput`.
    """

    name: str
    summary: str
    build: Build
    options: tuple[Option, ...] = ()
    finds: bool = True
    needs: tuple[str, ...] = ()
    extra: str = ""
    owners: bool = False
    run_as: bool = False
    one_disk: bool = False
    agree: Callable[[Mapping[str, Any]], None] = field(default=_agree, compare=False)

    @property
    def is_installed(self) -> bool:
        """Whether what it needs is there."""
        return all(_is_there(module) for module in self.needs)

    def taken(self, given: Mapping[str, object], base: Path) -> dict[str, object]:
        """Options as they are kept, with defaults.

        Args:
            base: where relative folders count from.

        Raises:
            InvalidInput: one is unknown, missing or not allowed; its field is the option.
        """
        known = {option.name: option for option in self.options}
        for name, value in given.items():
            if name not in known:
                allowed = f"an option of engine {self.name}: {', '.join(known) or 'it has none'}"
                raise InvalidInput(name, value, allowed, hint=did_you_mean(name, known))
        found = {}
        for name, option in known.items():
            if name in given:
                found[name] = option.value(given[name], base)
            elif option.required:
                raise InvalidInput(name, None, option.allowed)
            else:
                found[name] = option.default
        self.agree(found)
        return found


@dataclass(frozen=True, slots=True)
class SiteSpec:
    """A place under one engine, as a cluster file declares it.

    Attributes:
        name: of the site, as its nodes name it.
        engine: the name of its kind of engine.
        options: what the engine is told, with full paths and without what is left at its default.
    """

    name: str
    engine: str = LOCAL
    options: Mapping[str, Any] = field(default_factory=dict)


def site(name: str, engine: str = LOCAL, options: Mapping[str, object] | None = None, base: Path = Path()) -> SiteSpec:
    """A site with these options.

    Raises:
        InvalidInput: there is no such engine, it is not installed, the name is not allowed, or an option is unknown,
            missing or not allowed.
    """
    chosen = kind(engine)
    if engine != LOCAL and (name == LOCAL or ":" in name):  # the first is this machine's, the second ends names
        raise InvalidInput("name", name, f"another name than {LOCAL!r}, without a colon, as its engine is {engine}")
    if not chosen.is_installed:
        raise _absent(chosen)
    defaults = {option.name: option.default for option in chosen.options}
    taken = chosen.taken(options or {}, base)
    return SiteSpec(name, engine, {key: value for key, value in taken.items() if value != defaults[key]})


def check_apart(spec: SiteSpec, others: Iterable[SiteSpec]) -> None:
    """Check that a site is not one of the others under another name.

    Raises:
        InvalidInput: it is; the field is the option that both have.
    """
    alike = [other for other in others if other.engine == spec.engine]
    for name in (option.name for option in kind(spec.engine).options if option.of_one and option.name in spec.options):
        for other in alike:
            if other.options.get(name) == spec.options[name]:
                raise InvalidInput(name, spec.options[name], f"one that no other site has; site {other.name!r} has it")


def check_owners(spec: SiteSpec, tasks: LocalSettings | None) -> None:
    """Check that the engine of a site can run tasks as the accounts that are asked for: of their users, or of one.

    Raises:
        HeadwayError: it cannot.
    """
    if tasks is not None and tasks.run_as and not kind(spec.engine).run_as:
        hint = "Leave out that site or --run-as."
        said = f"site {spec.name!r} cannot run tasks as {tasks.run_as}: engine {spec.engine} has an account of its own"
        raise HeadwayError(said, hint)
    if tasks is not None and tasks.run_as_owner and not kind(spec.engine).owners:
        hint = "Leave out that site or --run-as-owner."
        said = f"site {spec.name!r} cannot run each task as the account of its user: engine {spec.engine} has one"
        raise HeadwayError(f"{said} for all", hint)


def make(spec: SiteSpec, folder: Path, tasks: LocalSettings | None = None) -> Engine:
    """The engine of a site.

    Args:
        folder, tasks: see `EnginePlace`.

    Raises:
        InvalidInput: as `site`, in its own words.
        HeadwayError: it cannot be made.
    """
    chosen = kind(spec.engine)
    try:
        if not chosen.is_installed:
            raise _absent(chosen)
        check_owners(spec, tasks)
        return chosen.build(EnginePlace(spec.name, folder, tasks), chosen.taken(spec.options, folder))
    except InvalidInput as wrong:
        field = f"{wrong.field} of site {spec.name!r}"
        raise InvalidInput(field, wrong.value, wrong.allowed, hint=wrong.hint) from None
    except ModuleNotFoundError as missing:
        hint = _how_to_install(chosen) or "The package that offers it is not installed as a whole."
        raise HeadwayError(f"engine {chosen.name} of site {spec.name!r} is not installed: {missing}", hint) from missing


def kind(name: str) -> EngineKind:
    """The kind of this name.

    Raises:
        InvalidInput: there is none; its field is `engine`.
        HeadwayError: the package that offers it cannot be loaded.
    """
    if name in BUILT_IN_ENGINES:
        return BUILT_IN_ENGINES[name]
    known = _offered()  # reads what every installed package offers: only where no built-in kind has the name
    if name not in known:
        names = sorted({*BUILT_IN_ENGINES, *known})
        raise InvalidInput("engine", name, ", ".join(names), hint=did_you_mean(name, names))
    return known[name]()


def names() -> list[str]:
    """The names of all kinds, installed or not: Headway's own first."""
    return [*BUILT_IN_ENGINES, *sorted(_offered().keys() - BUILT_IN_ENGINES.keys())]


def _offered() -> dict[str, Callable[[], EngineKind]]:
    from importlib.metadata import entry_points  # seldom wanted, and slow to load

    return {entry.name: partial(_load, entry) for entry in entry_points(group=ENGINES_GROUP)}


def _load(entry: EntryPoint) -> EngineKind:
    hint = f"It is {entry.value}. A server that was started before this was installed must be started again."
    try:
        found = entry.load()
    except Exception as raised:
        raise HeadwayError(f"engine {entry.name} cannot be loaded: {raised}", hint) from raised
    if not isinstance(found, EngineKind):
        raise HeadwayError(
            f"engine {entry.name} is {type(found).__name__}, and not headway.engines.registry.EngineKind", hint
        )
    return replace(found, name=entry.name)


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):  # of a package that is not there, or is being taken apart
        return False


def _how_to_install(chosen: EngineKind) -> str:
    return f"Install it: pip install {chosen.extra!r}." if chosen.extra else ""


def _absent(chosen: EngineKind) -> InvalidInput:
    """Why a kind that is known cannot be used here."""
    missing = [module for module in chosen.needs if not _is_there(module)]
    hint = f"It needs {' and '.join(missing)}. {_how_to_install(chosen)}".rstrip()
    return InvalidInput("engine", chosen.name, "an engine that is installed", hint=hint)


# Headway's own


def _local(place: EnginePlace, _: Mapping[str, Any]) -> Engine:
    from headway.engines.local.driver.engine import LocalEngine
    from headway.engines.local.driver.settings import LocalSettings

    return LocalEngine(place.folder, place.tasks or LocalSettings())


def _dask(place: EnginePlace, options: Mapping[str, Any]) -> Engine:
    from headway.engines.dask.engine import DaskEngine
    from headway.engines.dask.settings import DaskSettings

    given = {name: value for name, value in options.items() if value is not None}
    if "tls" in given:
        given["tls"] = Path(given["tls"])
    if place.tasks is not None:
        given["agents"] = replace(place.tasks, ground=None, pin=False, accounts=False)
    return DaskEngine(place.folder, DaskSettings(site=place.site, **given))


def _slurm(place: EnginePlace, options: Mapping[str, Any]) -> Engine:
    from headway.engines.slurm.engine import SlurmEngine
    from headway.engines.slurm.settings import SlurmSettings

    given = {name: value for name, value in options.items() if value is not None}
    named = "folder" in given
    if place.tasks is not None and place.tasks.run_as_owner and not named:
        hint = "With --run-as-owner the accounts of users use it, and the data directory is closed (--slurm-folder)."
        raise InvalidInput("folder", None, _SHARED, hint=hint)
    folder = Path(given.pop("folder", place.folder))
    if "commands" in given:
        given["commands"] = Path(given["commands"])
    if place.tasks is not None:
        alike = ("task_output_max", "pass_env", "run_as_owner", "allow_root")
        given |= {name: getattr(place.tasks, name) for name in alike}
        given["accounts"] = place.tasks.accounts and named
    options_of_sbatch = tuple(given.pop("options", ()))
    return SlurmEngine(folder, SlurmSettings(site=place.site, options=options_of_sbatch, **given))


_ADDRESS: Final = re.compile(r"(tcp|tls)://([^\s/:\[\]@]+|\[[0-9a-fA-F:.]+\]):([0-9]{1,5})")


def _is_address(value: Any) -> bool:
    found = _ADDRESS.fullmatch(value) if isinstance(value, str) else None
    return found is not None and 0 < int(found[3]) < 1 << 16


def _is_full_path(value: Any) -> bool:
    return _is_text(value) and value.startswith("/")


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_partition(value: Any) -> bool:
    return _is_text(value) and not set(value) & set(" ,") and not value.startswith("-")


def _is_options(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(_is_text(word) and word.startswith("--") for word in value)


def _whole(least: int, most: int) -> Callable[[Any], bool]:
    return lambda value: type(value) is int and least <= value <= most


def _number(least: float, most: float) -> Callable[[Any], bool]:
    return lambda value: type(value) in (int, float) and least <= value <= most


def _is_class(value: Any) -> bool:
    """Whether it may be the class of a cluster: `local`, `ssh`, or MODULE.CLASS of a package that is installed."""
    if value in ("local", "ssh"):
        return True
    parts = value.split(".") if isinstance(value, str) else []
    return len(parts) > 1 and all(part.isidentifier() for part in parts) and _is_there(parts[0])


def _is_plain_table(value: Any) -> bool:
    """Whether it is a table of what JSON has."""

    def is_plain(value: Any) -> bool:
        if isinstance(value, Mapping):
            return all(isinstance(name, str) and is_plain(one) for name, one in value.items())
        return is_sequence(value) if isinstance(value, list | tuple) else isinstance(value, str | int | float | bool)

    def is_sequence(values: Any) -> bool:
        return all(map(is_plain, values))

    return isinstance(value, Mapping) and is_plain(value)


def _dask_agrees(options: Mapping[str, Any]) -> None:
    if options["start"] is not None:
        for name in ("address", "tls"):
            if options[name] is not None:
                raise InvalidInput(name, options[name], "none where `start` says that a cluster is started")
        return
    for name in ("options", "workers"):
        if options[name] is not None:
            raise InvalidInput(name, options[name], "none unless `start` says that a cluster is started")
    if options["address"] is None:
        raise InvalidInput("address", None, f"{_SCHEDULER}; or `start`, which says how a cluster is started")
    secure = options["address"].startswith("tls:")
    if secure and options["tls"] is None:
        raise InvalidInput("tls", None, f"a folder with {', '.join(TLS_FILES)}, because the address begins with tls:")
    if not secure and options["tls"] is not None:
        allowed = "an address that begins with tls:, because there is a folder for TLS"
        raise InvalidInput("address", options["address"], allowed)


_YES_OR_NO: Final = "true or false, without quotes"
_SCHEDULER: Final = "tcp://HOST:PORT or tls://HOST:PORT, where the scheduler listens"
_SHARED: Final = "a folder that the server and all nodes of the site share, in quotes"
_SBATCH: Final = 'a list of options of sbatch in quotes, as ["--account=physics"]'

BUILT_IN_ENGINES: Final = {
    LOCAL: EngineKind(LOCAL, "Processes of the server's own machine.", _local, finds=False, owners=True, run_as=True),
    "dask": EngineKind(
        "dask",
        "Workers of a Dask cluster: each is a node.",
        _dask,
        (
            Option("address", _SCHEDULER, _is_address, of_one=True),
            Option("start", '"local", "ssh", or MODULE.CLASS of a package that is installed', _is_class),
            Option("options", "a table with the arguments of that class", _is_plain_table),
            Option("workers", "a whole number from 1 to 100000", _whole(1, 100_000)),
            Option("tls", f"a folder with {', '.join(TLS_FILES)}, in quotes", files=TLS_FILES),
            Option("shared", _YES_OR_NO, _is_flag, default=False),
            Option("folder", "a full path on the workers' machines, in quotes", _is_full_path),
            Option("gone_after", "seconds, 1 to 86400", _number(1, 86400)),
        ),
        needs=("distributed",),
        extra="headway[dask]",
        agree=_dask_agrees,
    ),
    "slurm": EngineKind(
        "slurm",
        "Nodes of a partition of Slurm.",
        _slurm,
        (
            Option("partition", "the name of a partition, in quotes", _is_partition, required=True, of_one=True),
            Option("folder", _SHARED, is_folder=True),
            Option("slots", "a whole number from 1 to 1000", _whole(1, 1000)),
            Option("memory", "MiB for each slot, a whole number from 0", _whole(0, 1 << 40)),
            Option("options", _SBATCH, _is_options),
            Option("python", "the Python with Headway on the nodes, a full path in quotes", _is_full_path),
            Option("commands", "the folder of Slurm's commands, a full path in quotes", _is_full_path),
            Option("address", "of this machine as the nodes see it, in quotes"),
            Option("poll", "seconds, 0.1 to 60", _number(0.1, 60)),
            Option("command_limit", "seconds, 1 to 600", _number(1, 600)),
            Option("read_ahead", "0 or 1", _whole(0, 1)),
        ),
        owners=True,
        one_disk=True,
    ),
}
"""Headway's own kinds by name. What else an engine's settings have is for programs."""
