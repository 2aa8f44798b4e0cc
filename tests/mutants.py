"""Makes small changes to the sources, and finds which of them the tests notice (`make mutants COUNT=200 SEED=1`).

    python tests/mutants.py --count 200 --seed 1 [--only core/rounds.py] [--again]

A sample is drawn, with a seed, from all changes of one token or statement in `core`, `policies`, `sim` and `live`: a
comparison or an operator is replaced, a condition is negated or a part of it left out, a number is increased by one, a
statement is left out. Constants of modules are not changed, because a test of one would only repeat it. The tests that
run the changed line are run, quickest first, until one fails that passes without the change. Which tests run which line
is found out once (`.mutants/lines.json`); if only tests have changed since, only those are examined again.

There are two passes. The first (`mutants_inside.py`) makes each change in a fork of one process that has collected all
tests, and runs the quick ones: most changes are noticed within a second. The second runs more tests for the remaining
changes, in a copy of the sources. The search for which tests run which line does not see servers that tests start. So
for a change in `live`, the second pass also runs the test files that start servers.

The findings are kept in `.mutants/`, so an interrupted run continues. `--again` repeats the changes that went unnoticed
in an earlier run, after tests were written for them.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import hashlib
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from queue import Queue
from typing import Any
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "headway"
KEPT = ROOT / ".mutants"
FOLDERS = ("core", "policies", "sim", "live")

CASES_MAX = 3
"""Cases that are tried of one test function; those that run the line and take least time."""

SECONDS_OF_TESTS = 200.0
"""What the tests that are tried may have taken together when nothing was changed."""

SECONDS_AT_FIRST = 15.0
"""The same in the first pass."""

SECONDS_MAX = 600
"""What one change may take."""

SECONDS_A_TEST = 30
"""After which a test has failed: a change that makes it hang is noticed."""

FIRST = 25
"""So many are asked first: to collect more takes longer than to run them."""

MEMORY_MAX = 6 << 30
"""Bytes of addresses that tests may use: a loop without end may not take the machine down."""

LEFT_OUT = "not slow and not data and not peers and not schemathesis"
"""The tests that are never asked."""

SERVERS = re.compile(r'\bup: |own_server|"headway", "up"|"-m", "headway"')
"""What a test file of `tests/live` has in it that starts a server of its own."""

COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
REPLACED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Add,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
NAMES = {"min": "max", "max": "min", "any": "all", "all": "any"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Change:
    """One small change.

    Attributes:
        file: its path below `src/headway`.
        lines: the first and the last changed line; for a compound statement those of its head.
        entry: the first line of the body, if the changed line is the head of a function; else 0.
        where: the function or class.
        before, after: the changed part before and after, in one line each.
    """

    file: str
    lines: tuple[int, int]
    entry: int
    where: str
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.file}:{self.lines[0]} {self.where}: {self.before}  →  {self.after}"


class Site:
    """A node of a syntax tree that can be replaced, and put back."""

    def __init__(self, owner: Any, field: str, index: int | None, new: Any) -> None:
        self.owner, self.field, self.index, self.new = owner, field, index, new

    def swap(self) -> None:
        """Make the change, or undo it."""
        if self.index is None:
            old = getattr(self.owner, self.field)
            setattr(self.owner, self.field, self.new)
        else:
            old = getattr(self.owner, self.field)[self.index]
            getattr(self.owner, self.field)[self.index] = self.new
        self.new = old


def in_expression(node: ast.AST) -> Iterator[Site]:
    """The changes of an expression itself, without those of its parts."""
    match node:
        case ast.Compare():
            for place, sign in enumerate(node.ops):
                if type(sign) in COMPARED:
                    yield Site(node, "ops", place, COMPARED[type(sign)]())
        case ast.BinOp(op=op) if type(op) in REPLACED and not any(
            isinstance(part, ast.Constant) and isinstance(part.value, str) for part in (node.left, node.right)
        ):
            yield Site(node, "op", None, REPLACED[type(op)]())
        case ast.BoolOp():
            yield Site(node, "op", None, ast.And() if isinstance(node.op, ast.Or) else ast.Or())
            if len(node.values) > 2:
                for place in range(len(node.values)):
                    yield Site(node, "values", None, [one for at, one in enumerate(node.values) if at != place])
        case ast.IfExp():
            yield Site(node, "test", None, ast.UnaryOp(ast.Not(), node.test))
        case ast.Constant(value=bool()):
            yield Site(node, "value", None, not node.value)
        case ast.Constant(value=int() | float()):
            yield Site(node, "value", None, node.value + 1)
        case ast.UnaryOp(op=ast.Not()):
            yield Site(node, "operand", None, ast.UnaryOp(ast.Not(), node.operand))
        case ast.Call(func=ast.Name(id=name)) if name in NAMES and not (name in ("min", "max") and node.keywords):
            yield Site(node.func, "id", None, NAMES[name])


def in_statement(body: list[ast.stmt], place: int) -> Iterator[Site]:
    """The changes of a statement as a whole."""
    statement = body[place]
    owner = _Body(body)
    match statement:
        case ast.Expr(value=ast.Call() | ast.Await()):
            yield Site(owner, "body", place, ast.Pass())
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]) | ast.AugAssign() | ast.Delete():
            yield Site(owner, "body", place, ast.Pass())
        case ast.Continue():
            yield Site(owner, "body", place, ast.Break())
        case ast.Break():
            yield Site(owner, "body", place, ast.Continue())
        case ast.If() | ast.While():
            if not isinstance(statement.test, ast.Constant):
                yield Site(statement, "test", None, ast.UnaryOp(ast.Not(), statement.test))
    if isinstance(statement, ast.AugAssign) and type(statement.op) in REPLACED:
        yield Site(statement, "op", None, REPLACED[type(statement.op)]())


class _Body:
    """A list of statements as a field of a node."""

    def __init__(self, body: list[ast.stmt]) -> None:
        self.body = body


def parts(statement: ast.stmt) -> Iterator[ast.AST]:
    """The expressions of a statement, without those of statements in it, annotations and messages for people."""
    waiting: list[ast.AST] = []
    if isinstance(statement, Function):
        waiting += [*statement.args.defaults, *(one for one in statement.args.kw_defaults if one is not None)]
    elif isinstance(statement, ast.AnnAssign):
        waiting += [statement.value] if statement.value is not None else []
    elif not isinstance(statement, ast.ClassDef):
        waiting += [one for one in ast.iter_child_nodes(statement) if not isinstance(one, ast.stmt | ast.excepthandler)]
    while waiting:
        node = waiting.pop(0)
        if isinstance(node, ast.match_case):
            if node.guard is not None:
                waiting.append(node.guard)
            continue
        if isinstance(node, ast.JoinedStr | ast.pattern):
            continue
        yield node
        waiting += [one for one in ast.iter_child_nodes(node) if not isinstance(one, ast.stmt)]


def for_people(statement: ast.stmt) -> bool:
    """Whether a statement is only a message for people, or only repeats what the types say."""
    if isinstance(statement, ast.Raise | ast.Assert | ast.Import | ast.ImportFrom | ast.Global | ast.Nonlocal):
        return True
    if isinstance(statement, ast.If):
        return ast.unparse(statement.test) == "TYPE_CHECKING"
    return isinstance(statement, ast.Expr) and ast.unparse(statement).startswith("log.")


def sites(tree: ast.Module) -> Iterator[tuple[Site, ast.stmt, str, int]]:
    """Every place of a module that can be changed: the site, its statement, its function, and the function's entry."""

    def bodies(node: ast.AST, where: str) -> Iterator[tuple[Site, ast.stmt, str, int]]:
        for field in ("body", "orelse", "finalbody"):
            body = getattr(node, field, None)
            if isinstance(body, list):
                yield from of(body, where)
        for inner in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
            yield from bodies(inner, where)

    def of(body: list[ast.stmt], where: str) -> Iterator[tuple[Site, ast.stmt, str, int]]:
        for place, statement in enumerate(body):
            if for_people(statement) or (body is tree.body and isinstance(statement, ast.Assign | ast.AnnAssign)):
                continue
            name, entry = where, 0
            if isinstance(statement, Function | ast.ClassDef):
                if statement.name.startswith("__repr"):
                    continue
                name = f"{where}.{statement.name}".strip(".")
                entry = statement.body[-1].lineno if isinstance(statement, Function) else 0
            for site in in_statement(body, place):
                yield site, statement, name, entry
            for node in parts(statement):
                for site in in_expression(node):
                    yield site, statement, name, entry
            yield from bodies(statement, name)

    yield from of(tree.body, "")


def head(statement: ast.stmt) -> str:
    """A statement in one line, without the statements in it."""
    if hasattr(statement, "body"):
        statement = copy.copy(statement)
        statement.body = [ast.Expr(ast.Constant(...))]
        for field in ("orelse", "finalbody", "handlers"):
            if hasattr(statement, field):
                setattr(statement, field, [])
        if isinstance(statement, Function | ast.ClassDef):
            statement.decorator_list = []
    elif isinstance(statement, ast.Match):
        statement = ast.Match(statement.subject, [])
    return " ".join(ast.unparse(ast.fix_missing_locations(statement)).split())


def changed(file: str, tree: ast.Module) -> Iterator[Change]:
    """The changes of a module. Each is in effect in the tree until the next is taken."""
    for site, statement, where, entry in sites(tree):
        whole = isinstance(site.owner, _Body)
        before = head(statement)
        site.swap()
        after = head(site.owner.body[site.index]) if whole else head(statement)
        nested = [one for field in ("body", "cases") for one in getattr(statement, field, [])]
        end = statement.lineno if nested else statement.end_lineno or statement.lineno
        if before != after:
            yield Change(file, (statement.lineno, end), entry, where, before, after)
        site.swap()


def text_of(change: Change, tree: ast.Module) -> str:
    """The text of a module with a change."""
    found = changed(change.file, tree)
    while next(found) != change:
        pass
    return ast.unparse(ast.fix_missing_locations(tree))


# Which tests run which line


def digest(*paths: Path) -> str:
    """Of the text of files."""
    return hashlib.sha256(b"".join(path.read_bytes() for path in sorted(paths))).hexdigest()


def lines(jobs: str) -> tuple[dict[str, dict[str, list[str]]], dict[str, float]]:
    """The tests that run each line, by file and line, and how long each takes. Measured if that is not known yet."""
    tests = set(ROOT.glob("tests/**/test_*.py"))
    others = [path for path in ROOT.glob("tests/**/*.py") if path not in tests and not path.name.startswith("mutants")]
    sources = digest(*PACKAGE.rglob("*.py"), *others)
    now = {str(test.relative_to(ROOT)): digest(test) for test in sorted(tests)}
    for path in server_tests():
        del now[path]
    kept = KEPT / "lines.json"
    known = json.loads(kept.read_text()) if kept.exists() else {}
    if known.get("sources") != sources:
        known = {"tests": {}, "lines": {}, "seconds": {}}
    news = [file for file, text in now.items() if known["tests"].get(file) != text]
    gone = {name for name in known["seconds"] if now.get(file := name.split("::")[0], "") != known["tests"][file]}
    found = {
        file: {line: sorted(set(names) - gone) for line, names in of_line.items()}
        for file, of_line in known["lines"].items()
    }
    times = {name: took for name, took in known["seconds"].items() if name not in gone}
    if news:
        print(f"Finding out which lines {len(news)} test files run; of all of them it takes half an hour.", flush=True)
        run_by, took = measured(news, jobs)
        times |= took
        for file, of_line in run_by.items():
            here = found.setdefault(file, {})
            for line, names in of_line.items():
                here[line] = sorted({*here.get(line, ()), *names})
    KEPT.mkdir(exist_ok=True)
    kept.write_text(json.dumps({"sources": sources, "tests": now, "lines": found, "seconds": times}))
    return found, times


def measured(files: list[str], jobs: str) -> tuple[dict[str, dict[str, list[str]]], dict[str, float]]:
    """The tests of some files that run each line, and how long each passing test takes."""
    from coverage import CoverageData  # from the extra `mutants`; drawing a sample does not need it

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "rc").write_text(f"[run]\nsource = {PACKAGE}\ndata_file = {folder / 'coverage'}\n")
        options = (
            *("-q", "-n", jobs, "--dist", "loadfile", "-m", LEFT_OUT, "-p", "no:cacheprovider"),
            *(f"--cov-config={folder / 'rc'}", f"--cov={PACKAGE}", "--cov-context=test", "--cov-report="),
            *(f"--junit-xml={folder / 'junit'}", "-o", "junit_duration_report=total"),
        )
        subprocess.run(
            [sys.executable, "-m", "pytest", *options, *files],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(PACKAGE.parent), "HEADWAY_EFFORT": "quick"},
            check=False,
            stdout=subprocess.DEVNULL,
        )
        seen = CoverageData(str(folder / "coverage"))
        seen.read()
        found: dict[str, dict[str, list[str]]] = {}
        times = seconds(folder / "junit")
        for file in seen.measured_files():
            inside = str(Path(file).relative_to(PACKAGE))
            if inside.split("/")[0] in FOLDERS:
                found[inside] = {
                    str(line): sorted({test.rsplit("|", 1)[0] for test in names if test} & times.keys())
                    for line, names in seen.contexts_by_lineno(file).items()
                }
    return found, times


def seconds(path: Path) -> dict[str, float]:
    """How long each passing test took, from a JUnit report."""
    times = {}
    for case in ElementTree.parse(path).iter("testcase"):
        if len(case) == 0:
            words = case.attrib["classname"].split(".")  # the file, then the class if there is one
            files = (n for n in range(len(words), 0, -1) if ROOT.joinpath(*words[:n]).with_suffix(".py").exists())
            of_file = next(files)
            name = "::".join(("/".join(words[:of_file]) + ".py", *words[of_file:], case.attrib["name"]))
            times[name] = float(case.attrib["time"])
    return times


def asked(change: Change, found: dict[str, dict[str, list[str]]], times: dict[str, float]) -> list[str]:
    """The tests that run the changed line, quickest first. If the line runs outside tests, the tests of its file."""
    here = found.get(change.file, {})
    first, last = change.lines
    names = {name for line in range(first, last + 1) for name in here.get(str(line), ())}
    if change.entry:
        names |= set(here.get(str(change.entry), ()))
    names = names or {name for of_line in here.values() for name in of_line}
    chosen, cases = [], Counter[str]()
    for name in sorted(names, key=lambda name: (times[name], name)):
        cases[name.split("[")[0]] += 1
        if cases[name.split("[")[0]] <= CASES_MAX:
            chosen.append(name)
    return within(chosen, times, SECONDS_OF_TESTS)


def within(tests: list[str], times: dict[str, float], most: float) -> list[str]:
    """The first tests that together take no longer than this."""
    return [name for name, took in zip(tests, accumulate(times[name] for name in tests), strict=True) if took <= most]


# Whether it is noticed


def notice(change: Change, text: str, asking_each: list[list[str]], sources: Path) -> str:
    """The test that noticed a change, or another reason; empty if nothing did. The lists of tests are run in turn."""
    path = sources / "headway" / change.file
    original = path.read_text("utf-8")
    for asking in asking_each:
        while asking:
            path.write_text(text, "utf-8")
            failed = ask(asking, sources)
            path.write_text(original, "utf-8")
            if not failed:
                break
            if "::" not in failed or not ask([failed], sources):  # it passes without the change
                return failed
            place = asking.index(failed if failed in asking else failed.split("::")[0])  # a test, or a whole file
            asking = asking[place + 1 :]
    return ""


def server_tests() -> list[str]:
    """The test files that start servers of their own."""
    paths = sorted((ROOT / "tests" / "live").glob("test_*.py"))
    return [str(path.relative_to(ROOT)) for path in paths if SERVERS.search(path.read_text("utf-8"))]


def ask(tests: list[str], sources: Path) -> str:
    """Run tests on these sources until one fails. Returns its name, or what else went wrong; empty if all pass."""

    def bound() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_MAX, MEMORY_MAX))

    with tempfile.TemporaryDirectory() as folder:
        names = Path(folder) / "tests"
        names.write_text("\n".join(tests))
        options = ("-q", "-x", "-rfE", "-p", "no:cacheprovider", "-m", LEFT_OUT, f"--timeout={SECONDS_A_TEST}")
        running = subprocess.Popen(
            [sys.executable, "-m", "pytest", *options, f"--basetemp={folder}/base", f"@{names}"],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(sources), "PYTHONDONTWRITEBYTECODE": "1", "HEADWAY_EFFORT": "quick"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            preexec_fn=bound,
            start_new_session=True,
            text=True,
        )
        try:
            said, _ = running.communicate(timeout=SECONDS_MAX)
        except subprocess.TimeoutExpired:
            return f"{SECONDS_MAX} s were not enough"
        finally:
            with contextlib.suppress(ProcessLookupError):  # all its processes may have ended
                os.killpg(running.pid, signal.SIGKILL)
            running.wait()
    if running.returncode == 0:
        return ""
    found = re.search(r"^(?:FAILED|ERROR) (\S+\.py(?:::.+?)?)(?: - .*)?$", said, re.MULTILINE)
    if found is None and running.returncode not in (1, 2, -signal.SIGABRT, -signal.SIGSEGV):
        raise SystemExit(f"pytest ended with {running.returncode}:\n{said}")
    return found.group(1) if found else f"status {running.returncode}"


@dataclass(frozen=True)
class Question:
    """A change to try in the first pass.

    Attributes:
        change: what is changed.
        number: the number of the change, among all those of its file.
        tests: the tests to run.
    """

    change: Change
    number: int
    tests: list[str]


def inside(questions: list[Question], jobs: int) -> Iterator[tuple[Change, str | None]]:
    """Try changes in forks of a process that has collected all tests (`mutants_inside.py`). Yields the findings."""
    files = sorted({test.split("::")[0] for question in questions for test in question.tests})
    if not files:
        return
    with tempfile.TemporaryDirectory() as name:
        asking, told = Path(name, "wanted"), Path(name, "wanted.said")
        wanted = [
            {"number": number, "file": one.change.file, "change": one.number, "tests": one.tests}
            for number, one in enumerate(questions)
        ]
        asking.write_text(json.dumps({"jobs": jobs, "questions": wanted}))
        told.touch()
        options = ("-q", "-s", "-p", "mutants_inside", "-p", "no:cacheprovider", "-m", LEFT_OUT)
        paths = f"{PACKAGE.parent}{os.pathsep}{Path(__file__).parent}"
        with told.open(encoding="utf-8") as news, (KEPT / "inside.log").open("w") as log:
            running = subprocess.Popen(
                [sys.executable, "-m", "pytest", *options, f"--timeout={SECONDS_A_TEST}", *files],
                cwd=ROOT,
                env=os.environ
                | {"PYTHONPATH": paths, "HEADWAY_EFFORT": "quick", "HEADWAY_MUTANTS": str(asking)}
                | {"PYTHONDONTWRITEBYTECODE": "1"},
                stdout=log,
                stderr=log,
            )
            try:
                while True:
                    over = running.poll() is not None
                    for line in news:
                        number, said = json.loads(line)
                        yield questions[number].change, said
                    if over:
                        break
                    time.sleep(0.2)
            finally:
                running.kill()
                running.wait()
        if running.returncode not in (0, 5):
            raise SystemExit(f"the first pass ended with {running.returncode}; see {KEPT / 'inside.log'}")


def main() -> None:
    """Draw a sample, run the tests, and report what went unnoticed."""
    known = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    known.add_argument("--count", type=int, default=200, help="how many changes (200)")
    known.add_argument("--seed", type=int, default=1, help="of the sample (1)")
    known.add_argument("--only", default="", help="only in files whose path below src/headway has this in it")
    known.add_argument("--again", action="store_true", help="ask again for what went unnoticed with this seed")
    known.add_argument("--jobs", default="2", help="processes that run tests at a time (2)")
    known.add_argument("--draw", action="store_true", help="only show the sample")
    chosen = known.parse_args()
    places: list[Change] = []
    place: dict[Change, int] = {}
    trees = {}
    for folder in FOLDERS:
        for path in sorted((PACKAGE / folder).glob("*.py")):
            file = f"{folder}/{path.name}"
            if chosen.only in file:
                trees[file] = ast.parse(path.read_text("utf-8"))
                of_file = list(changed(file, copy.deepcopy(trees[file])))
                place |= {change: number for number, change in enumerate(of_file)}
                places += of_file
    sample = random.Random(chosen.seed).sample(places, min(chosen.count, len(places)))
    print(f"{len(places)} changes are possible; {len(sample)} are drawn with seed {chosen.seed}.", flush=True)
    if chosen.draw:
        print(*sample, sep="\n")
        return
    found, times = lines(chosen.jobs)
    results = KEPT / f"found-{chosen.seed}.json"
    # What noticed each change; None: nothing in the first pass, and there was no second; "": nothing at all.
    noticed: dict[str, str | None] = json.loads(results.read_text()) if results.exists() else {}
    if chosen.again:
        noticed = {change: said for change, said in noticed.items() if said}
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(int(chosen.jobs)) as crew:
        copies: Queue[Path] = Queue()
        for crewman in range(int(chosen.jobs)):
            sources = Path(folder, str(crewman))
            shutil.copytree(PACKAGE, sources / "headway", ignore=shutil.ignore_patterns("__pycache__"))
            copies.put(sources)

        def say(change: Change, said: str | None) -> None:
            noticed[str(change)] = said
            results.write_text(json.dumps(noticed, indent=1))
            word = said or ("to be asked again" if said is None else "UNNOTICED")
            number, took = sample.index(change) + 1, time.monotonic() - began
            print(f"{number:4} {took:6.0f} s  {word}  {change}", flush=True)

        def tried(change: Change) -> str:
            tests = asked(change, found, times)
            servers = server_tests() if change.file.startswith("live/") else []
            sources = copies.get()
            try:
                text = text_of(change, copy.deepcopy(trees[change.file]))
                return notice(change, text, [tests[:FIRST], tests[FIRST:], servers], sources)
            finally:
                copies.put(sources)

        waiting = [change for change in sample if str(change) not in noticed]
        questions = [
            Question(change, place[change], within(asked(change, found, times), times, SECONDS_AT_FIRST))
            for change in waiting
        ]
        for change, said in inside(questions, int(chosen.jobs)):
            say(change, said or None)
        running = {crew.submit(tried, change): change for change in sample if noticed[str(change)] is None}
        for future in as_completed(running):
            say(running[future], future.result())
    left = [change for change in sample if not noticed[str(change)]]
    print(
        f"\n{len(sample) - len(left)} of {len(sample)} changes were noticed. Unnoticed:"
        if left
        else "All were noticed."
    )
    print(*left, sep="\n")


if __name__ == "__main__":
    main()
