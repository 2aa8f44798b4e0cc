"""Every error has a code, and the page on errors lists all of them."""

from __future__ import annotations

import re
from pathlib import Path

from headway import errors
from headway.errors import HeadwayError, NoSuchJob, Refused

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "errors.md"


def test_the_page_lists_every_error_with_its_code() -> None:
    known = {made for made in vars(errors).values() if isinstance(made, type) and issubclass(made, HeadwayError)}
    listed = re.findall(r"^\| `([a-z_]+)` \| `(\w+)` \| \S", PAGE.read_text(), flags=re.MULTILINE)
    assert sorted(listed) == sorted((made.code, made.__name__) for made in known)
    assert len({made.code for made in known}) == len(known)


def test_an_answer_of_the_server_has_the_servers_code() -> None:
    assert NoSuchJob(3).code == "no_such_job"
    assert Refused("there is no job 3", status=404, code="no_such_job").code == "no_such_job"
    assert Refused("what?", status=400).code == "refused"
