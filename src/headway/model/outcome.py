"""How attempts end. A module of its own: the processes of nodes need no events, and so start sooner."""

from __future__ import annotations

from enum import Enum


class Outcome(Enum):
    """How an attempt ended."""

    SUCCEEDED = "succeeded"
    RAISED = "raised"
    """The function raised an exception."""
    EXITED = "exited"
    """The command ended with an exit status other than 0."""
    SIGNALLED = "signalled"
    """The process died by a signal that Headway did not send."""
    OUT_OF_TIME = "out of time"
    OUT_OF_MEMORY = "out of memory"
    TOO_LARGE = "too large"
    """The result is larger than results may be."""
    REFUSED = "refused"
    """The engine could not start it: its function cannot be read, its program is not found."""
    KILLED = "killed"
    """Ended because the core asked for it."""
    LOST = "lost"
    """Its node or process vanished; how much it did is unknown."""
    CANCELLED = "cancelled"
    """Of a task, never of an attempt: a user with the right to do so asked that it should not start, or end."""

    @property
    def is_own_doing(self) -> bool:
        """Whether the task itself caused the end, so that the job's `retries` count."""
        return self not in _NOT_ITS_DOING


_NOT_ITS_DOING = frozenset({Outcome.SUCCEEDED, Outcome.KILLED, Outcome.LOST})
