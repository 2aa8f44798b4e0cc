"""After a loss core and journal agree again: which jobs end, which begin again, and whose slots are free."""

from __future__ import annotations

from headway.core.scheduler import Scheduler
from headway.live.reconciling import Reconciled, reconcile
from headway.live.store.journal import JobRow
from headway.model.events import Event, Incident, JobSubmitted, NodeJoined, Woke
from headway.model.job import JobId
from headway.policies.registry import find
from headway.testing import job, node


class Salvaged:
    """A core with a node of two slots, on which the jobs that it knows wait or run, and rows of a journal."""

    def __init__(self, known: int, rows: dict[JobId, int]) -> None:
        self.core, self.fed = Scheduler(find, "fcfs"), list[Event]()
        self.core.handle(NodeJoined(0, node(slots=2)))
        for number in range(1, known + 1):
            self.core.handle(JobSubmitted(0, job(number)))
        self.core.handle(Woke(0))
        self.rows = {
            number: JobRow(number, 7, None, 0, None, None, None, None, job(number, tasks=tasks))
            for number, tasks in rows.items()
        }

    def reconcile(
        self, progress: dict[JobId, tuple[int, int, int]] | None = None, lacking: dict[JobId, str] | None = None
    ) -> Reconciled:
        def feed(event: Event) -> None:
            self.fed.append(event)
            self.core.handle(event)

        made = reconcile(self.core, 5, feed, self.rows, progress or {}, lacking or {}, 40)
        self.core.check()
        return made

    @property
    def running(self) -> list[JobId]:
        return [attempt.job.id for attempt in self.core.state.attempts()]


def test_a_job_that_runs_and_that_the_journal_does_not_know_gives_its_slot_back() -> None:
    world = Salvaged(3, {1: 1, 3: 1})
    assert world.running == [1, 2]
    made = world.reconcile()
    assert sorted(world.core.state.jobs) == [1, 3]
    assert (made.ended, made.messages) == ([], [])
    world.core.handle(Woke(5))
    assert world.running == [1, 3]


def test_a_job_whose_work_is_gone_is_cancelled_with_a_message() -> None:
    world = Salvaged(1, {1: 1})
    made = world.reconcile(lacking={1: "its functions are gone"})
    assert (world.running, list(world.core.state.jobs)) == ([], [])
    assert made.ended == [("cancelled", None, 5, 0, 0, False, None, 1)]
    assert made.messages == [(41, 7, 1, None, 5, "cancelled", 0, None)]
    (told,) = (event for event in world.fed if isinstance(event, Incident))
    assert told.detail == "it was ended: its functions are gone"


def test_a_job_of_which_nothing_had_happened_begins_again() -> None:
    world = Salvaged(0, {1: 3})
    assert world.reconcile().ended == []
    assert [type(event) for event in world.fed] == [JobSubmitted, Incident]
    world.core.handle(Woke(5))
    assert world.running == [1, 1]


def test_a_job_with_other_results_than_the_core_knows_ends() -> None:
    world = Salvaged(2, {1: 1, 2: 1})
    made = world.reconcile(progress={1: (1, 0, 0)})
    assert [row[-1] for row in made.ended] == [1]
    assert world.running == [2]


def test_a_job_that_the_core_does_not_know_and_that_has_results_ends() -> None:
    world = Salvaged(0, {1: 3})
    made = world.reconcile(progress={1: (2, 1, 0)})
    assert made.ended == [("cancelled", None, 5, 2, 1, False, None, 1)]
