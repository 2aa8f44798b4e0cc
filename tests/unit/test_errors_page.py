"""Every error has a code, and the page on errors lists all of them."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from headway import errors
from headway.errors import HeadwayError, NoSuchJob, Refused
from headway.pool import InitializerFailed

SOURCES = Path(errors.__file__).parent
PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "errors.md"

# An error that a caller of a function, a command or the HTTP interface may get is in `headway.errors`. These are
# signals from one part to the next: the caller catches them, and only their sentences are told, in incidents, in
# answers that lack something, and in ends of tasks. Nobody gets their codes, so they are beside what raises them.
CAUGHT = {
    *("CommandFailed", "NoReply", "NoThread", "NotRented", "NotSwitched", "Unsure"),
    *("NeverLaunched", "NoRoomForFiles", "NotGiven", "NotThere"),
}


def test_the_page_lists_every_error_with_its_code() -> None:
    known = {made for made in vars(errors).values() if isinstance(made, type) and issubclass(made, HeadwayError)}
    known.add(InitializerFailed)  # its bases are too much to import for a process that runs tasks
    listed = re.findall(r"^\| `([a-z_]+)` \| `(\w+)` \| \S", PAGE.read_text(), flags=re.MULTILINE)
    assert sorted(listed) == sorted((made.code, made.__name__) for made in known)
    assert len({made.code for made in known}) == len(known)


def test_errors_are_made_in_one_module() -> None:
    bases = {
        found.name: {ast.unparse(base).rpartition(".")[2] for base in found.bases}
        for path in SOURCES.rglob("*.py")
        if path != SOURCES / "errors.py"
        for found in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(found, ast.ClassDef)
    }
    ours, before = {name for name, made in vars(errors).items() if isinstance(made, type)}, set[str]()
    while ours != before:
        before = set(ours)
        ours |= {name for name, above in bases.items() if above & ours}
    assert ours & bases.keys() == CAUGHT | {"InitializerFailed"}


def test_an_answer_of_the_server_has_the_servers_code() -> None:
    assert NoSuchJob(3).code == "no_such_job"
    assert Refused("there is no job 3", status=404, code="no_such_job").code == "no_such_job"
    assert Refused("what?", status=400).code == "refused"
