"""The outcome of tasks: results, messages about them, files."""

from __future__ import annotations

import msgspec

from headway.model.actions import JobStatus
from headway.model.job import JobId
from headway.model.outcome import Outcome
from headway.wire.base import Answer, Number, Request


class TaskEnding(Answer, frozen=True, omit_defaults=True):
    """How an attempt, or one member of a gang, ended.

    Attributes:
        value: what a function returned, or the exception it raised, pickled; None for a command, and where there is
            none or it cannot be pickled.
        detail: for people: the traceback if there is one, else a line such as `exit status 3`.
        exit_code: negative for a signal; None where no process ended of itself.
        stdout, stderr: the last part of what it wrote.
        stdout_path, stderr_path: files on the server's machine that have all of it, if that is more; see `OUTPUT`.
        stdout_cut, stderr_cut: how many bytes of it were not kept. If it wrote too much, files have the first and the
            last part, and say between them what is missing.
        stdout_lost, stderr_lost: why only the last part was kept, such as a full disk; empty: for no such reason.
        stdout_sha256, stderr_sha256: of the bytes of these files, in hexadecimal; empty if there are none.
        seconds, cpu_seconds: from start to end, and of processor time.
        outputs: where each output was stored: its URL, by its path for a program, by the URL it was asked for
            otherwise.
    """

    outcome: Outcome
    value: bytes | None = None
    detail: str = ""
    exit_code: int | None = None
    stdout: bytes = b""
    stderr: bytes = b""
    stdout_path: str = ""
    stderr_path: str = ""
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    outputs: dict[str, str] = msgspec.field(default_factory=dict)
    stdout_cut: int = 0
    stderr_cut: int = 0
    stdout_sha256: str = ""
    stderr_sha256: str = ""
    stdout_lost: str = ""
    stderr_lost: str = ""


class TaskResult(Answer, frozen=True, omit_defaults=True):
    """The result of a task, kept once.

    Attributes:
        ending: of a rigid job on several slots: SUCCEEDED without a value if all members succeeded, else the ending
            of the first that did not.
        members: of such a job: the ending of each member, by rank.
        slots: where it ran, as `NODE/SLOT`, in the order of its processes; empty where no attempt settled it, and of
            results from before this was kept.
    """

    job: JobId
    task: int
    attempt: int
    ending: TaskEnding
    members: tuple[TaskEnding, ...] = ()
    slots: tuple[str, ...] = ()

    @property
    def endings(self) -> tuple[TaskEnding, ...]:
        """The ending of the task, then those of its members."""
        return (self.ending, *self.members)


class TaskRange(Request, frozen=True):
    """Tasks of a job from number `first` on, up to but without `last`; None: to its end."""

    job: Number
    first: Number = 0
    last: Number | None = None


class ResultsWanted(Request, frozen=True):
    """Results of many tasks at once."""

    wanted: tuple[TaskRange, ...]


class Results(Answer, frozen=True):
    """Results that exist, in the order asked for; `more`: the answer was cut at its size limit, ask for the rest."""

    results: tuple[TaskResult, ...]
    more: bool = False


class Acknowledgement(Request, frozen=True):
    """A client has received the results of these tasks; they need not be kept for it any longer.

    Attributes:
        client: the text with which their jobs were submitted.
    """

    client: str
    results: tuple[TaskRange, ...]


class Upload(Answer, frozen=True):
    """A file that the server keeps; `name` is the SHA-256 of its bytes, in hexadecimal."""

    name: str
    size: int


class Message(Answer, frozen=True, omit_defaults=True):
    """A task has its final outcome (`task`, `outcome`), or nothing more will happen to a job (`status`).

    Attributes:
        number: messages are numbered in order, for ever.
        result: the task's result, where the caller asked for results and it is small.
    """

    number: int
    job: JobId
    task: int | None = None
    outcome: Outcome | None = None
    status: JobStatus | None = None
    result: TaskResult | None = None


class Messages(Answer, frozen=True):
    """Messages in order; ask again with `cursor` and nothing is missed and nothing comes twice.

    Attributes:
        forgotten: messages up to this number are gone, because they were not acknowledged while the server kept them.
            A client that asked for messages after a lower number may have missed the end of a job.
    """

    messages: tuple[Message, ...]
    cursor: int
    forgotten: int = 0
