"""Which due date can be kept: by hand, where run times are known; and where they are not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from headway.core.record import StateRecord
from headway.core.scheduler import Scheduler
from headway.foresight.advice import RUN_TIME_UNKNOWN, SUBMITTED_WITHIN, TOO_FAR, Adviser, needed
from headway.foresight.chances import Chances
from headway.foresight.futures import Exactly, Floats, RunTime, draw_futures
from headway.model.events import JobSubmitted, NodeDown, NodeJoined
from headway.model.forecast import Advice, Chance
from headway.model.instant import NEVER, SECOND, Instant
from headway.model.job import AnyJob, JobId
from headway.model.node import Capabilities, NodeSpec
from headway.policies.registry import find
from headway.testing import job

from ...effort import one_in
from .test_futures import Evenly
from .test_renting import OFFERED
from .test_renting import state as rentable
from .test_whatif import RUN_TIMES, three


class Told:
    """Foresees with run times as they are told; of job 9 nothing is known."""

    def __init__(self, *, evenly: bool = False) -> None:
        self._evenly = evenly

    def unknown(self, state: StateRecord) -> set[JobId]:
        return {one.spec.id for one in state.jobs if one.spec.name == "unknown"}

    def _run_time(self, job: AnyJob, task: int) -> RunTime:
        seconds = RUN_TIMES.get(job.id, 7.0)
        return Evenly(0, 2 * seconds) if self._evenly and job.id == 3 else Exactly(seconds)

    def outlook_on(self, state: StateRecord, job: JobId, due: Instant) -> tuple[Floats, Chance]:
        return Chances().of_one(draw_futures(state, find, self._run_time, count=20), job, due)


class TenMinutes(Told):
    """Each task runs for ten minutes."""

    def _run_time(self, job: AnyJob, task: int) -> RunTime:
        return Exactly(600.0)

    def adviser(self) -> Adviser:
        return Adviser(self, find)


def by_due_date() -> StateRecord:
    """The same jobs, from now on under edf."""
    return replace(three(), policy="edf")


class Few(Told):
    """So many futures are drawn; job 3 runs for 0 to 14 s."""

    def __init__(self, count: int) -> None:
        super().__init__(evenly=True)
        self._count = count

    def outlook_on(self, state: StateRecord, job: JobId, due: Instant) -> tuple[Floats, Chance]:
        return Chances().of_one(draw_futures(state, find, self._run_time, count=self._count), job, due)


def adviser(*, evenly: bool = False, waited: float = 0.0) -> Adviser:
    return Adviser(Told(evenly=evenly), find, lambda: round(waited * SECOND))


def test_a_due_date_that_is_missed_is_kept_later_or_with_one_more_slot() -> None:
    """Under fcfs job 2 is the last of three, and ends at 35; with another slot at 15, and it is due at 16."""
    found = adviser().of(three(), 2, 0.9)
    assert found.chance is not None
    assert (found.chance.on_time, found.due, found.slots) == (0, 35 * SECOND, 1)


def test_more_slots_for_a_gang_are_of_an_engine_that_has_some() -> None:
    """Three slots of the east run job 1. The gang behind it needs three together: the fourth and two more."""
    core = Scheduler(find, "easy")
    for name, slots, site in (("a", 3, "east"), ("b", 1, "east"), ("c", 2, "west")):
        core.handle(NodeJoined(0, NodeSpec(name, slots, site=site, capabilities=Capabilities(spans=False))))
    core.handle(JobSubmitted(0, job(1, width=3, estimate=20)))
    wanted = job(2, width=3, estimate=5, due=10)
    assert adviser().of(core.dump(), wanted, 0.9).slots == 2
    core.handle(NodeDown(0, "b"))
    assert adviser().of(core.dump(), wanted, 0.9).slots == 3
    core.handle(NodeDown(0, "a"))
    gone = adviser().of(core.dump(), wanted, 0.9)
    assert (gone.due, gone.slots, gone.lack) == (None, None, f"{TOO_FAR}, while nodes a, b are down")


def test_a_due_date_that_is_kept_needs_nothing() -> None:
    found = adviser().of(by_due_date(), 2, 0.9)
    assert found.chance is not None
    assert (found.chance.on_time, found.due, found.slots) == (1, 15 * SECOND, None)


def test_a_job_that_could_be_submitted_goes_last_or_as_its_date_lets_it() -> None:
    assert adviser().of(three(), job(1, estimate=7), 0.9).due == 42 * SECOND + SUBMITTED_WITHIN
    # Under edf it goes last without a due date, at 42; due then it still does; job 1 is due at 40.
    assert adviser().of(by_due_date(), job(1, estimate=7), 0.9).due == 42 * SECOND + SUBMITTED_WITHIN
    urgent = adviser().of(by_due_date(), job(1, estimate=7, due=30), 0.9)
    assert urgent.chance is not None
    assert (urgent.chance.on_time, urgent.due) == (1, 22 * SECOND + SUBMITTED_WITHIN)


@pytest.mark.parametrize("count", [9, 40])
def test_futures_tell_no_more_than_that_one_more_of_their_kind_is_not_the_latest(count: int) -> None:
    """Whatever is asked for: the latest of n ends is late enough in n cases of n + 1."""
    told = Adviser(Few(count), find)
    most = told.of(three(), job(3, estimate=7), 0.9999)
    assert most.sure == count / (count + 1)
    assert most.due is not None
    surest = told.of(three(), job(3, estimate=7), most.sure)
    assert (surest.sure, surest.due) == (most.sure, most.due)
    assert told.of(three(), job(3, estimate=7), 0.9).sure == 0.9, "so much they all tell"


def test_a_date_is_kept_as_often_as_it_says() -> None:
    """Of 40 ends, drawn at random, the one that is told for 90 % is late enough for the 41st in nine cases of ten."""
    draws = np.random.default_rng(1).random((20_000, 41))
    for sure in (0.5, 0.9, 0.97):
        told = np.sort(draws[:, :40], axis=1)[:, needed(sure, 40) - 1]
        assert sure - 0.005 <= np.mean(draws[:, 40] <= told) <= sure + 1 / 41 + 0.005


class Idle(Told):
    """Each task runs for 0.2 s."""

    def _run_time(self, job: AnyJob, task: int) -> RunTime:
        return Exactly(0.2)


def idle() -> StateRecord:
    """Nothing is open."""
    return replace(three(), jobs=())


@pytest.mark.parametrize("waited", [0.0, 1.2, 2.5, 44.0])
def test_a_date_that_is_given_has_not_passed_and_counts_from_when_the_job_is_submitted(waited: float) -> None:
    """The question was asked at 4 s. The job is submitted up to a second after the answer, and then runs for 0.2 s."""
    answered = 4 * SECOND + round(waited * SECOND)
    found = Adviser(Idle(), find, lambda: answered - 4 * SECOND).of(idle(), job(1), 0.9)
    assert found.due is not None
    assert found.due >= answered + SUBMITTED_WITHIN + SECOND // 5
    assert found.due <= answered + SUBMITTED_WITHIN + 2 * SECOND, "no later than it must be"
    assert found.chance is not None
    assert found.chance.end is not None
    assert found.chance.end.median == answered + SECOND // 5


def test_a_due_date_is_kept_as_surely_as_if_the_job_is_submitted_when_the_answer_is_there() -> None:
    """Behind the others it ends 38 s after the question, and 41 s after it if the answer takes 3 s."""
    wanted = job(1, estimate=7, due=44)
    for waited, on_time, slots in ((0.0, 1.0, None), (3.0, 0.0, 1)):
        found = adviser(waited=waited).of(three(), wanted, 0.9)
        assert found.chance is not None
        assert (found.chance.on_time, found.slots) == (on_time, slots)


def test_an_open_job_loses_nothing_by_the_question() -> None:
    assert adviser(waited=20.0).of(three(), 2, 0.9).due == 35 * SECOND
    assert adviser(waited=40.0).of(three(), 2, 0.9).due == 45 * SECOND, "a date that has passed is of no use"


@pytest.mark.parametrize("sure", [0.5, 0.8, 0.95])
def test_the_surer_the_later(sure: float) -> None:
    """It starts at 35 and runs 0 to 14 s, all alike: a quantile of these."""
    found = adviser(evenly=True).of(three(), job(3, estimate=7), sure)
    assert found.due is not None
    assert (found.due - SUBMITTED_WITHIN) / SECOND == pytest.approx(35 + 14 * sure, abs=1.8)


@pytest.mark.parametrize("due", one_in(2, [60, None]))
def test_where_machines_can_be_rented_the_date_is_one_that_they_make(due: float | None) -> None:
    """Six tasks of ten minutes behind twenty others on two slots: hours; on rented machines, a minute and one run.

    A date that is too early, or none, makes no policy rent; dates between do.
    """
    wanted = job(9, tasks=6, estimate=600, due=due)
    without = TenMinutes().adviser().of(rentable(None), wanted, 0.9).due
    found = TenMinutes().adviser().of(rentable(OFFERED), wanted, 0.9).due
    assert without is not None
    assert found is not None
    assert without > 6000 * SECOND
    assert found <= (660 + 600 + 300) * SECOND
    kept = TenMinutes().adviser().of(rentable(OFFERED), replace(wanted, due=found), 0.9)
    assert kept.chance is not None
    assert kept.chance.on_time == 1


def test_nothing_is_changed() -> None:
    state = three()
    before = replace(state)
    adviser().of(state, 2, 0.9)
    assert state == before


def test_what_is_not_known_is_not_promised() -> None:
    unknown = replace(job(1), name="unknown")
    assert adviser().of(three(), unknown, 0.9).lack == RUN_TIME_UNKNOWN
    state = three()
    first = replace(state.jobs[0], spec=replace(state.jobs[0].spec, name="unknown"))
    after = replace(job(1, estimate=7), after=(first.spec.id,))
    assert adviser().of(replace(state, jobs=(first, *state.jobs[1:])), after, 0.9).lack == RUN_TIME_UNKNOWN
    first = replace(first, spec=replace(first.spec, estimate=None))  # it runs on all slots
    behind = replace(state, jobs=(first, *state.jobs[1:]))
    assert adviser().of(behind, job(9, estimate=7), 0.9) == Advice(0.9, lack=RUN_TIME_UNKNOWN)
    assert adviser().of(replace(state, policy="edf"), job(9, estimate=7), 0.9).due is not None
    assert "has ended" in adviser().of(state, 77, 0.9).lack


def test_what_never_starts_has_no_date() -> None:
    state = three()
    nodes = tuple(replace(node, draining=True) for node in state.nodes)
    found = adviser().of(replace(state, nodes=nodes), 2, 0.9)
    assert (found.due, found.lack) == (None, TOO_FAR)
    assert found.chance is not None
    assert (found.chance.end, found.chance.on_time) == (None, 0)


def test_corrected_chances_are_those_of_the_corrected_ends() -> None:
    """Bounds of twenty forecasts, which told that all ends in 10 s, while it took 100: later ones are moved there."""
    chances = Chances()
    state = three()
    for number in range(20):
        at = number * 3600 * SECOND
        drawn = draw_futures(state, find, lambda job, task: Exactly(10.0), count=4)
        told = replace(drawn, at=at, end=np.full_like(drawn.end, 10.0))
        chances.of(told, {})
        chances.learn({}, dict.fromkeys(drawn.jobs, at + 100 * SECOND), at + 3000 * SECOND)
    ends, chance = chances.of_one(replace(drawn, end=np.full_like(drawn.end, 10.0)), 1, drawn.at + 50 * SECOND)
    assert ends == pytest.approx([100.0] * 4, rel=0.1)
    assert chance.on_time == 0


def test_bounds_that_have_passed_widen_the_next_ones_before_anything_has_ended() -> None:
    """Jobs ended after 50 to 150 s, and 100 s was told. Then jobs are there of which none ends."""
    chances, drawn = Chances(), draw_futures(three(), find, lambda job, task: Exactly(100.0), count=4)

    def forecast(at: float) -> float:
        told = replace(drawn, at=round(at * SECOND), end=np.full_like(drawn.end, 100.0))
        end = chances.of(told, {})[1].end
        assert end is not None
        assert end.high_90 is not None
        return end.high_90 / SECOND - at

    ended: dict[int, int] = {}
    for number in range(40):
        forecast(number * 3600)
        ended = dict.fromkeys(drawn.jobs, round((number * 3600 + 50 + 100 * number / 39) * SECOND))
        chances.learn({}, ended, (number + 1) * 3600 * SECOND)
    before = forecast(1e6)
    assert 130 < before < 151
    for number in range(5):
        forecast(1e6 + 40 * (number + 1))
    chances.learn({}, {}, round((1e6 + 120) * SECOND))
    assert forecast(1e6 + 250) == pytest.approx(before), "no bound has passed yet"
    chances.learn({}, {}, round((1e6 + 1000) * SECOND))
    assert forecast(1e6 + 1001) > before


def test_a_single_forecast_and_jobs_that_failed_teach_next_to_nothing() -> None:
    chances, drawn = Chances(), draw_futures(three(), find, lambda job, task: Exactly(600.0), count=4)
    ten_minutes = replace(drawn, end=np.full_like(drawn.end, 600.0))
    chances.of(ten_minutes, {})
    chances.learn({}, {}, 10 * SECOND, void=drawn.jobs)  # all were cancelled, or failed at once
    assert chances.open_jobs == set(), "nothing more is awaited of them"
    assert chances.of_one(ten_minutes, 1, NEVER)[0].tolist() == pytest.approx([600.0] * 4)
    chances.of(replace(ten_minutes, at=60 * SECOND), {})
    chances.learn({}, dict.fromkeys(drawn.jobs, 61 * SECOND), 62 * SECOND)
    assert chances.of_one(ten_minutes, 1, NEVER)[0] == pytest.approx([600.0] * 4, rel=0.2)
