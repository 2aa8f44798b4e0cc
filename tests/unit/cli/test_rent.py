"""What `headway rent` and `headway sites` print."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from headway import wire
from headway.cli import reach

OFFER = wire.OfferReport(
    *("public", "small", 2, 1.0, 0.085, 1.0, 60.0, 90.0, 3, True, 2),
    trouble="none is left",
    again=1_800_000_000.0,
)
RENTAL = wire.RentalReport(
    *(7, "public-r7", "public", "small", 4, "ann", "4 tasks of job 4", "serves"),
    *(1_700_000_000.0, 1_700_000_000.0, 1_700_000_060.0, 0.0125),
    machine="i-0abc",
)
NOTHING = wire.RentingReport((), (), None, None, 0.0, {}, 0, 0)
SOME = wire.RentingReport((OFFER,), (RENTAL,), 20.0, 5.0, 1.5, {"": 0.5, "ann": 1.0}, 9, 1)


class Server:
    def __init__(self, renting: wire.RentingReport) -> None:
        self._renting = renting

    def rentals(self) -> wire.RentingReport:
        return self._renting

    def sites(self) -> list[wire.SiteDetail]:
        return [
            wire.SiteDetail("desk", "local", "", 2, 1, 4, 3, 0, 0),
            wire.SiteDetail("public", "dask", "it does not answer", 0, 0, 0, 0, 1, 2),
        ]


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[wire.RentingReport]:
    """What the server says of renting; a test may put something else in."""
    said = [SOME]

    @contextmanager
    def reached(url: str | None, data: str | None, tls_ca: str | None, patience: float = 0.0) -> Iterator[Server]:
        yield Server(said[0])

    monkeypatch.setattr(reach, "reached", reached)
    return said


def test_rent_shows_the_machines_the_offers_and_what_was_paid(headway: Any, answers: list[wire.RentingReport]) -> None:
    out = headway("rent").out
    for word in ("public-r7", "small", "serves", "ann", "0.0125", "4 tasks of job 4", "2 of 3", "spot", "none is left"):
        assert word in out, word
    assert "by 1 s, 60 s at least" in out
    assert "Paid today: 1.50 of 20.00. A job may cost 5.00. So far, by user: nobody 0.50, ann 1.00." in out
    assert "Of 9 machines 1 never joined." in out
    assert json.loads(headway("rent", "--json").out)["rentals"][0]["machine"] == "i-0abc"


def test_where_nothing_can_be_rented_it_says_so(headway: Any, answers: list[wire.RentingReport]) -> None:
    answers[0] = NOTHING
    assert headway("rent").out == "Nothing can be rented: the cluster file has no [[offer]].\n"


def test_options_of_a_dry_run_are_for_dry_runs(headway: Any, answers: list[wire.RentingReport]) -> None:
    ran = headway("rent", "--policy", "edf")
    assert (ran.status, "--cluster and --policy are for --dry-run" in ran.err) == (2, True)


def test_sites_shows_what_is_there_and_what_is_gone(headway: Any, answers: list[wire.RentingReport]) -> None:
    desk, public = [line for line in headway("sites").out.splitlines() if line.startswith(("desk", "public"))]
    assert desk.split() == ["desk", "local", "1", "of", "2", "3", "of", "4", "busy"]
    assert public.split()[-6:] == ["1", "2", "it", "does", "not", "answer"]
    assert json.loads(headway("sites", "--json").out)[1]["gone"] == "it does not answer"
