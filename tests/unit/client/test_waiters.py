"""A waiter alone: results go in, futures are filled."""

from __future__ import annotations

import pickle
from concurrent.futures import CancelledError

import pytest

from headway.client.waiters import Waiter
from headway.errors import TaskFailed
from headway.model.actions import JobStatus
from headway.model.events import Outcome
from headway.wire import TaskEnding, TaskResult


def gave(value: object) -> TaskEnding:
    return TaskEnding(Outcome.SUCCEEDED, value=pickle.dumps(value))


def waiter(tasks: int) -> Waiter:
    return Waiter("job", tasks, lambda _: False)


def test_every_member_of_a_gang_has_its_own_result_before_the_job_is_over() -> None:
    gang = waiter(3)
    early = gang.tasks
    result = TaskResult(1, 0, 1, TaskEnding(Outcome.SUCCEEDED), (gave("a"), gave("b"), gave("c")))
    gang.settled(result)
    gang.settled(result)  # reported twice
    assert [future.result(0) for future in early] == ["a", "b", "c"]
    assert gang.progress == (3, 0)
    assert list(gang) == ["a", "b", "c"]
    assert not gang.done()
    gang.concluded(JobStatus.SUCCEEDED)
    assert gang.result(0) == ["a", "b", "c"]


def test_of_a_failed_gang_each_member_fails_but_those_that_had_succeeded() -> None:
    gang = waiter(3)
    exited = TaskEnding(Outcome.EXITED, detail="exit status 3", exit_code=3)
    gang.settled(TaskResult(1, 0, 1, exited, (gave("a"), exited, TaskEnding(Outcome.KILLED))))
    assert gang.progress == (3, 2)
    assert gang.tasks[0].result(0) == "a"
    for rank in (1, 2):
        assert "exit status 3" in str(gang.tasks[rank].exception(0))
    gang.concluded(JobStatus.FAILED)
    assert isinstance(gang.exception(0), TaskFailed)


def test_a_cancelled_task_cancels_its_future_and_leaves_the_others() -> None:
    bag = waiter(3)
    early = bag.tasks
    bag.settled(TaskResult(1, 1, 0, TaskEnding(Outcome.CANCELLED)))
    bag.settled(TaskResult(1, 0, 1, gave(7)))
    assert early[1].cancelled()
    assert early[0].result(0) == 7
    assert bag.progress == (2, 0)  # a cancelled task has not failed
    bag.concluded(JobStatus.CANCELLED)
    assert early[2].cancelled()  # it comes after a failed one, or was cancelled with the job
    with pytest.raises(CancelledError):
        bag.result(0)


def test_all_members_of_a_cancelled_gang_are_cancelled() -> None:
    gang = waiter(2)
    gang.settled(TaskResult(1, 0, 1, TaskEnding(Outcome.CANCELLED)))
    gang.concluded(JobStatus.CANCELLED)
    assert [future.cancelled() for future in gang.tasks] == [True, True]
