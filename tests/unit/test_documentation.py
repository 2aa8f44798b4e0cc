"""What README and docs describe exists and works."""

from __future__ import annotations

import ast
import doctest
import importlib
import re
import shlex
import sys
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import pytest

from headway import Client, Job, Waiter
from headway.cli.main import COMMANDS, headway
from headway.cli.workload import FEITELSON96, LUBLIN99, option_name
from headway.core.scheduler import Scheduler
from headway.live.forecasts import FORECAST_JOBS_MAX
from headway.model.job import Kind
from headway.model.node import NodeSpec
from headway.model.plan import Plan, Reason
from headway.model.policy import Policy, is_top_level, uses_tiers
from headway.model.schedule import Schedule
from headway.model.snapshot import Snapshot
from headway.model.workload import Workload, workload_us
from headway.policies import registry
from headway.sim.kernel import Simulation
from headway.sim.tiers import TwoTiers
from headway.sim.world import World

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks of a page that are marked with this language."""
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE)


def names_of(module: str) -> set[str]:
    """The names in a module of Headway. If an extra for it is missing, the names that its source defines."""
    try:
        return set(dir(importlib.import_module(module)))
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] == "headway":
            raise
        source = (ROOT / "src" / Path(*module.split("."))).with_suffix(".py").read_text("utf-8")
        return {node.name for node in ast.parse(source).body if isinstance(node, ast.FunctionDef | ast.ClassDef)}


def test_extras_that_are_named_exist_and_all_has_those_of_users() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    sources = (ROOT / "src" / "headway").rglob("*.py")
    texts = [path.read_text("utf-8") for path in (*PAGES, *sources)]
    named = {name for text in texts for group in re.findall(r"headway\[([a-z,]+)\]", text) for name in group.split(",")}
    assert named <= extras.keys()
    ours = {"all", "bench", "dev", "mutants", "peers"}
    assert set(re.findall(r"\w+", extras["all"][0])) - {"headway"} == extras.keys() - ours


@pages
def test_python_on_a_page_can_be_read_and_imports_what_there_is(page: Path) -> None:
    for block in blocks(page, "python"):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "headway":
                for alias in node.names:
                    assert alias.name in names_of(node.module), f"{node.module} has no {alias.name}"


@pytest.mark.parametrize(
    "page", ["CHANGELOG.md", "docs/explanation/live.md", "docs/reference/cli.md", "docs/reference/http-api.md"]
)
def test_pages_say_of_how_many_open_jobs_there_are_forecasts(page: str) -> None:
    text = (ROOT / page).read_text("utf-8")
    said = re.findall(r"(?:more than|up to) ([\d,]+)\s+(?:jobs are open|open\s+jobs)", text)
    assert set(said) == {f"{FORECAST_JOBS_MAX:,}"}


SESSIONS = [page for page in PAGES if blocks(page, "pycon")]


@pytest.mark.parametrize("page", SESSIONS, ids=lambda page: str(page.relative_to(ROOT)))
def test_sessions_on_a_page_print_what_they_show(page: Path) -> None:
    source = "".join(blocks(page, "pycon"))
    session = doctest.DocTestParser().get_doctest(source, {}, str(page), str(page), 0)
    printed: list[str] = []
    assert not doctest.DocTestRunner().run(session, out=printed.append).failed, "".join(printed)


def test_the_example_of_the_readme_asks_for_what_there_is() -> None:
    (example,) = blocks(ROOT / "README.md", "python")
    asked = {node.attr for node in ast.walk(ast.parse(example)) if isinstance(node, ast.Attribute)}
    assert asked
    for name in asked:
        assert any(hasattr(owner, name) for owner in (Client, Job, Waiter)), name


@pages
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text("utf-8")):
        assert (page.parent / target).exists(), target


def modules_of(page: Path) -> Iterator[tuple[str, list[str]]]:
    """The modules that a page names with a folder, each with the names that follow it directly."""
    prose = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    for path, names in re.findall(r"`((?:\w+/)+\w+\.py)`((?:,? `\w+`)*)", prose):
        yield path, re.findall(r"\w+", names)


@pages
def test_modules_on_a_page_exist_and_have_the_names_that_follow(page: Path) -> None:
    for path, names in modules_of(page):
        found = [folder / path for folder in (ROOT / "src" / "headway", ROOT / "src", ROOT) if (folder / path).exists()]
        assert found, path
        source = found[0].read_text("utf-8")
        assert [name for name in names if not re.search(rf"\b{name}\b", source)] == [], path


def test_modules_are_found_on_the_pages() -> None:
    found = list(modules_of(ROOT / "docs" / "explanation" / "data-flow.md"))
    assert ("core/pool.py", ["launch"]) in found


def commands_of(page: Path) -> Iterator[list[str]]:
    """The words of each `headway COMMAND ...` line in the unmarked blocks of a page."""
    for block in blocks(page, ""):
        for line in block.splitlines():
            if match := re.match(r"(?:\$ |\w+=\$\()?headway (.*)", line):
                yield shlex.split(match[1].removesuffix(")"), comments=True)


@pages
def test_commands_on_a_page_have_the_options_they_are_given(page: Path) -> None:
    context = click.Context(headway)
    for words in commands_of(page):
        assert words[0] in COMMANDS, words
        command = headway.get_command(context, words[0])
        while isinstance(command, click.Group):
            _, *words = words
            command = command.get_command(context, words[0])
        assert command is not None, words
        options = {option for parameter in command.params for option in parameter.opts}
        own = words[: words.index("--")] if "--" in words else words
        for word in own:
            assert not word.startswith("--") or word in options, f"headway {words[0]} has no option {word}"


@pages
def test_commands_in_the_text_of_a_page_exist(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    assert {word for word in re.findall(r"`headway\s+([a-z]+)\b", text) if word not in COMMANDS} == set()


def each_command(group: click.Group = headway, words: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    """All commands, also those of groups, with the words that name them."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from each_command(command, (*words, name))
        else:
            yield " ".join((*words, name)), command


def test_the_reference_has_each_command_and_option() -> None:
    page = (ROOT / "docs" / "reference" / "cli.md").read_text("utf-8")
    on_page = set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", page))
    constants = {option_name(name) for name in (*FEITELSON96, *LUBLIN99)}  # the page says that their help has them
    lacking = [
        f"headway {words} {option.opts}"
        for words, command in each_command()
        for option in command.params
        if isinstance(option, click.Option) and not option.hidden
        if not {*option.opts, *option.secondary_opts} & (on_page | constants)
    ]
    assert lacking == []
    assert [name for name in COMMANDS if f"headway {name}" not in page] == []
    assert len(on_page) > 100


def test_commands_are_found_on_the_pages() -> None:
    assert sum(1 for page in PAGES for _ in commands_of(page)) > 10


# The policy of the how-to


@pytest.fixture
def shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module that the how-to shows, as a reader would have it."""
    return module_shown("my_policies", tmp_path, monkeypatch)


def module_shown(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    page = ROOT / "docs" / "how-to" / "add-a-policy.md"
    (source,) = (block for block in blocks(page, "python") if block.startswith(f"# {name}.py"))
    (folder / f"{name}.py").write_text(source, "utf-8")
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, name, raising=False)
    return importlib.import_module(name)


@dataclass
class Watched:
    """A policy that is checked for changes of its snapshot and for answers that differ."""

    policy: Policy
    dump: Callable[[], object]
    rounds: int = 0

    @property
    def per_instant(self) -> bool:
        return self.policy.per_instant

    @property
    def task_rounds(self) -> bool:
        return self.policy.task_rounds

    @property
    def tiers(self) -> bool:
        return uses_tiers(self.policy)

    def __call__(self, view: Snapshot) -> Plan:
        before = self.dump()
        plan = self.policy(view)
        assert plan == self.policy(view)
        assert self.dump() == before
        self.rounds += 1
        return plan


def rigid(width: list[int], runtime: list[int], release: list[int]) -> Workload:
    return workload_us(width=width, runtime=runtime, release=release, kind=int(Kind.RIGID))


def simulated(policy: Policy, workload: Workload, world: World | None = None) -> tuple[Schedule, int]:
    """The schedule of jobs on four slots, and the number of rounds. The whole state is checked after every event."""
    running: list[Simulation] = []
    watched = Watched(policy, lambda: running[0].scheduler.dump())
    nodes = [NodeSpec("n", slots=4)]
    running.append(Simulation(workload, nodes, lambda _: watched, "shown", world=world, audit=Scheduler.check))
    schedule = running[0].run()
    assert not running[0].scheduler.refusals
    return schedule, watched.rounds


def test_the_policy_of_the_how_to_starts_the_widest_that_fits(shown: ModuleType) -> None:
    # All four slots are taken until 10. Of the waiting jobs the widest go first, and 1 slot beside 3 is not left idle.
    workload = rigid([4, 1, 3, 2], [10, 5, 5, 5], [0, 1, 2, 3])
    schedule, rounds = simulated(shown.WidestFit(), workload)
    assert schedule.start.tolist() == [0, 10, 10, 15]
    assert rounds > 3


def test_the_policy_of_the_how_to_keeps_its_limit_and_says_why_jobs_wait(shown: ModuleType) -> None:
    schedule, _ = simulated(shown.WidestFit(most=2), rigid([3, 2], [5, 5], [0, 0]))
    assert schedule.start.tolist() == [-1, 0]
    reasons: list[Reason] = []

    def listen(scheduler: Scheduler) -> None:
        if 1 in scheduler.state.jobs and scheduler.state.running:
            reasons.append(scheduler.explain(1).reason)

    workload, nodes = rigid([4, 4], [5, 5], [0, 0]), [NodeSpec("n", slots=4)]
    Simulation(workload, nodes, lambda _: shown.WidestFit(), "shown", audit=listen).run()
    assert reasons[0] is Reason.NO_ROOM_NOW


def test_the_policy_of_the_how_to_is_had_by_name_with_its_parameter(
    shown: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Entry:
        name = "widest_fit"

        @staticmethod
        def load() -> Any:
            return shown.WidestFit

    monkeypatch.setattr(
        "importlib.metadata.entry_points", lambda group: [Entry] if group == registry.POLICIES_GROUP else []
    )
    assert registry.find("widest_fit:most=64") == shown.WidestFit(most=64)
    assert "widest_fit" in [offer.name for offer in registry.installed()]
    for top in (
        "sites:top=lb,each=",
        "sites:top=fill,each=easy,at=east/",
        "services:top=dp,batch=",
    ):  # one round an instant
        assert is_top_level(registry.find(f"{top}widest_fit:most=64"))


def test_the_policy_of_the_how_to_with_a_background_swaps_and_moves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The third and the fourth run behind the first, at 40 %. The fifth waits, as none may be behind the second: it
    # uses its processor whole. At 50 it has ended: the third moves there with 16 done, and leaves its place to the
    # fifth. At 100 the first ends, and the fourth comes to the foreground where it is, with 32 done.
    policy = module_shown("run_behind", tmp_path, monkeypatch).RunBehind()
    workload = workload_us(
        release=[0, 0, 10, 20, 30],
        width=[3, 1, 1, 1, 2],
        runtime=[100, 50, 76, 82, 8],
        cpu=[0.5, 1.0, 0.5, 0.5, 0.5],
        kind=int(Kind.RIGID),
    )
    tiers = TwoTiers(loss=(0, 0), single=(0.4, 0.4), several=(0.4, 0, 0.4, 0.4))
    schedule, rounds = simulated(policy, workload, World(tiers=tiers, migration_cost=0))
    assert schedule.start.tolist() == [0, 0, 10, 20, 50]
    assert schedule.end.tolist() == [100, 50, 110, 150, 70]
    assert (schedule.migrations, schedule.kills) == (1, 0)
    assert rounds > 3


def test_every_kind_of_incident_is_on_its_page_and_no_other() -> None:
    kinds = set()
    sources = [path.read_text("utf-8") for path in (ROOT / "src").rglob("*.py")]
    for source in (source for source in sources if re.search("ncident|Noticed", source)):
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Call):
                name = getattr(node.func, "attr", getattr(node.func, "id", ""))
                words = [word.value for word in node.args if isinstance(word, ast.Constant)]
                if name.lstrip("_") in ("incident", "Incident", "Noticed") and words:
                    kinds.add(words[0])
    page = (ROOT / "docs" / "reference" / "incidents.md").read_text("utf-8")
    assert sorted(kinds) == sorted(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))


def test_every_module_of_the_live_system_is_in_its_table() -> None:
    page = (ROOT / "docs" / "explanation" / "live.md").read_text("utf-8")
    modules = {path.name for path in (ROOT / "src" / "headway" / "live").glob("*.py")} - {"__init__.py"}
    assert modules
    assert [name for name in sorted(modules) if f"`{name}`" not in page] == []


# Plain English

HARD_TO_READ = {
    r"\brounds? (?:is|are|was|were|be) held\b": "the policy runs",
    r"\b(?:is|are|was|were) let be\b": "is ignored",
    r"\bnot walked\b": "skipped",
    r"\bheld against\b": "counts against",
    r"\blet(?:s|ting)? go of\b": "deletes, drops",
    r"\b(?:is|are|to be) had\b": "is available",
    r"\bstands? in for\b": "replaces, runs instead",
    r"\bwhoever\b": "the person who, the client that",
    r"\b[Nn]obody (?:knows|can know|else)\b": "it is unknown, no other client",
    r"\b(?:anew|thereof|whence|lest)\b": "again, of it, from where, so that not",
    r"\bspare slots?\b": "leftover slots",
    r"\bplanning rounds?\b": "rounds",
    r"\b[Hh](?:e|is|im)\b": "a program is it",
}
"""What newcomers stumbled over or had to read twice, and what to write; see docs/glossary.md."""


def hard_to_read(text: str) -> list[str]:
    """The phrases of a text that should be reworded; blocks, code and paths of pictures are left out."""
    prose = re.sub(r"```.*?```|`[^`\n]*`|\]\([^)]*\)", " ", text, flags=re.DOTALL)
    return [f"{found[0]!r}: {better}" for rule, better in HARD_TO_READ.items() for found in re.finditer(rule, prose)]


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CHANGELOG.md"], ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_are_in_plain_english(page: Path) -> None:
    assert hard_to_read(page.read_text("utf-8")) == []


def helps(command: click.Command, name: str) -> Iterator[tuple[str, str]]:
    """The help of a command and of all its subcommands."""
    context = click.Context(command, info_name=name)
    yield name, command.get_help(context)
    if isinstance(command, click.Group):
        for below in command.list_commands(context):
            found = command.get_command(context, below)
            assert found is not None
            yield from helps(found, f"{name} {below}")


def test_the_help_of_commands_is_in_plain_english() -> None:
    found = {name: hard_to_read(" ".join(text.split())) for name, text in helps(headway, "headway")}
    assert len(found) > 30
    assert {name: phrases for name, phrases in found.items() if phrases} == {}


def test_phrases_that_are_hard_to_read_are_found() -> None:
    assert hard_to_read("A round is held at every end.\n```\na round is held\n```\n`let go of`") == [
        "'round is held': the policy runs"
    ]


def test_the_glossary_has_the_words_that_newcomers_stumbled_over() -> None:
    glossary = (ROOT / "docs" / "glossary.md").read_text("utf-8")
    words = ("round", "allocation", "leftover slots", "capacity", "load", "decision", "plan")
    assert [word for word in words if f"\n| {word} |" not in glossary] == []
