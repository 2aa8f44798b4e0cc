"""Who waits for a result goes on before what is left to do for nobody."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from headway.client import inbox
from headway.client.address import Address
from headway.client.connection import Connection, Server
from headway.client.inbox import FEW_MESSAGES, _last_wanted
from headway.client.waiters import Waiter
from headway.model.actions import JobStatus
from headway.model.outcome import Outcome
from headway.wire import Message, TaskEnding, TaskResult


def ends(job: int, tasks: int, first: int = 1) -> list[Message]:
    """The messages of a job whose tasks all end."""
    told = [Message(first + task, job, task) for task in range(tasks)]
    return [*told, Message(first + tasks, job, status=JobStatus.SUCCEEDED)]


def waiter(tasks: int) -> Waiter:
    return Waiter("job", tasks, lambda _: False)


def test_of_a_job_its_end_is_waited_for_unless_somebody_has_asked_for_its_tasks() -> None:
    whole, single = waiter(2), waiter(2)
    assert single.tasks
    assert _last_wanted(ends(1, 2), {1: whole}) == 3
    assert _last_wanted(ends(1, 2), {1: single}) == 2
    assert _last_wanted(ends(1, 2), {2: whole}) == 0
    assert _last_wanted([*ends(1, 1), *ends(2, 2, 3)], {1: whole, 2: single}) == 4


def test_where_many_come_at_once_nobody_is_let_before() -> None:
    sinks = {1: waiter(FEW_MESSAGES)}
    assert _last_wanted(ends(1, FEW_MESSAGES - 1), sinks) == FEW_MESSAGES
    assert _last_wanted(ends(1, FEW_MESSAGES), sinks) == 0


@dataclass
class Seen:
    """A sink that notes what it is told."""

    by_task: bool
    told: list[str] = field(default_factory=list)

    def accepted(self, job: int) -> None:
        self.told.append("accepted")

    def settled(self, result: TaskResult) -> None:
        self.told.append("settled")

    def concluded(self, status: JobStatus) -> None:
        self.told.append("concluded")

    def broken(self, error: BaseException) -> None:
        self.told.append("broken")

    def orphaned(self, error: BaseException) -> None:
        self.told.append("orphaned")


@pytest.mark.parametrize(
    ("by_task", "tasks", "told"),
    [
        (True, 2, ["settled", "settled", "gave way", "concluded"]),
        (False, 2, ["settled", "settled", "concluded", "gave way"]),
        (True, FEW_MESSAGES, [*["settled"] * FEW_MESSAGES, "concluded"]),
    ],
)
def test_a_thread_that_has_woken_the_one_that_waits_lets_it_go_on(
    monkeypatch: pytest.MonkeyPatch, by_task: bool, tasks: int, told: list[str]
) -> None:
    sink = Seen(by_task)
    monkeypatch.setattr(inbox, "time", SimpleNamespace(sleep=lambda seconds: sink.told.append("gave way")))
    box = inbox.Inbox(Server(lambda: Address("", "")), "c", acknowledge=False)
    taker = inbox._MessageTaker((("client", "c"),), 0, {1: sink}, Connection(lambda: Address("", "")))
    gave = TaskEnding(Outcome.SUCCEEDED, value=b"")
    messages = [
        message if message.task is None else replace(message, result=TaskResult(1, message.task, 1, gave))
        for message in ends(1, tasks)
    ]
    box._tell_all(taker, deque(messages), None)
    assert sink.told == told
