"""The errors that are meant for people, each with a code for programs; docs/reference/errors.md lists them.

All are here, but `headway.pool.InitializerFailed`: this module is imported by each process that runs tasks, and must be
light. Others that are below `HeadwayError` are signals from one part of the server or of a task to the next, which
catches them: only their sentences are told, so they are beside what raises them.
"""

from __future__ import annotations

from _pickle import PicklingError  # that of `pickle`, which is larger
from collections.abc import Iterable
from typing import Any


class HeadwayError(Exception):
    """An error meant for a person: what is wrong, and in `hint` what to do next.

    Commands print it without a traceback and end with exit status 2; the HTTP interface answers with its
    message and code.

    Attributes:
        code: which kind of error it is: the name of its class in small letters, `no_such_job`.
    """

    code: str = "headway_error"

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.code = "".join(f"_{char}" if char.isupper() else char for char in cls.__name__).lstrip("_").lower()

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint

    def __str__(self) -> str:
        message = str(self.args[0])
        return f"{message}\n{self.hint}" if self.hint else message


class InvalidInput(HeadwayError):
    """A field of a file or a request has a value that is not allowed."""

    def __init__(
        self,
        field: str,
        value: object,
        allowed: str,
        *,
        source: str = "",
        line: int | None = None,
        hint: str = "",
    ) -> None:
        place = f"{source}:{line}: " if source and line is not None else f"{source}: " if source else ""
        super().__init__(f"{place}{cut(field)} is {shown(value)}; allowed: {allowed}", hint)
        self.field = field
        self.value = value
        self.allowed = allowed
        self.source = source
        self.line = line

    @classmethod
    def saying(cls, message: str, hint: str = "") -> InvalidInput:
        """The error with this message, which names the field and what is allowed, as `flaw` of a job's terms does.

        >>> InvalidInput.saying("width is 3; allowed: at most 2").allowed
        'at most 2'
        """
        field, _, rest = message.partition(" is ")
        value, _, allowed = rest.partition("; allowed: ")
        made = cls(field, value, allowed, hint=hint)
        made.args = (message,)
        return made


SHOWN_MAX = 400
"""Characters of a value that an error shows."""


def cut(text: str) -> str:
    """A text as it can stand in an error, however long it is.

    >>> len(cut("x" * 1_000_000))
    400
    """
    return text if len(text) <= SHOWN_MAX else f"{text[: SHOWN_MAX - 20]}{' ... (cut)':>20}"[:SHOWN_MAX]


def shown(value: object) -> str:
    """A value as an error shows it, whatever was given.

    >>> shown("a"), shown(10**5000)
    ("'a'", 'a whole number of thousands of digits')
    """
    try:
        return cut(repr(value))
    except ValueError:  # Python writes no number of more than 4,300 digits
        return "a whole number of thousands of digits"
    except RecursionError:
        return "something of many layers"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A hint that offers the known names nearest to a name that is not known; empty when none is near.

    >>> did_you_mean("prioritty", ["priority", "due"])
    'Did you mean priority?'
    """
    from difflib import get_close_matches  # rarely needed

    near = get_close_matches(name[:SHOWN_MAX].lower(), list(known))
    return f"Did you mean {' or '.join(near)}?" if near else ""


def in_short(text: str) -> str:
    """What others have said, as it can stand in a table, a log and the journal: one line that can be printed, cut.

    >>> in_short("out of\\nmemory"), len(in_short("x" * 1_000_000))
    ('out of\\\\nmemory', 500)
    """
    line = "".join(char if char.isprintable() else repr(char)[1:-1] for char in text[:500])
    return line if len(line) <= 500 and len(text) <= 500 else f"{line[:497]}..."


class CertificateRefused(HeadwayError):
    """The certificate of a server is not the one that is expected, or cannot be used; the message says why."""


class CannotGoOn(HeadwayError):
    """Going on would break a promise; the message says which. The journal is right, so a start continues from it."""

    def __init__(self, promise: str, why: str) -> None:
        super().__init__(
            f"going on would break the promise that {promise}: {why}",
            "Nothing that was accepted is lost. Start the server again; its log says what happened.",
        )


class Conflict(HeadwayError):
    """A request contradicts an earlier one."""


class Contradiction(HeadwayError):
    """A question to a decider describes a state that cannot be; the message names the field."""


class Damaged(HeadwayError):
    """What was stored is not as it was; the message says what, the hint what can be done."""


class EngineError(HeadwayError):
    """An engine cannot do its work at all: its nodes do not start, its directory is not usable."""


class FileTrouble(HeadwayError):
    """An input is not available, or an output cannot be put in its place."""


class Forbidden(HeadwayError):
    """The role of a user does not allow a request, or the job is another user's."""


class HandlerFailed(HeadwayError):
    """The handler of a service raised, ended with an error, or gave an answer that cannot be sent."""


class InstanceDied(HeadwayError):
    """The instance of a service that had a request died; so did the one that was given it next."""


class Malformed(HeadwayError):
    """A request that contradicts the description of the interface."""


class MissingBlobs(HeadwayError):
    """A submission names functions that it does not bring and that are not here."""

    def __init__(self, names: tuple[str, ...]) -> None:
        super().__init__(
            f"the submission names {len(names)} functions that the server does not have: {', '.join(names)}",
            "Send the submission again with these blobs.",
        )
        self.names = names


class NameTaken(EngineError):
    """A node cannot be taken into service because another one with its name is running."""

    def __init__(self, name: str, by: str) -> None:
        super().__init__(f"the name {name!r} is taken by {by}", "Choose another name, or end that node first.")
        self.name = name


class NoAdvice(HeadwayError):
    """A decider gave no usable answer."""


class NoForecast(HeadwayError):
    """The process that makes forecasts did not give one."""


class NoPort(HeadwayError):
    """The file that should name a port does not."""


class NoRoom(HeadwayError):
    """There is no room for anything new. Nothing was kept; the same can be sent again."""


class NoSuchJob(HeadwayError):
    """A job was asked for that was never accepted, or has been deleted."""

    def __init__(self, job: int) -> None:
        hint = "`headway jobs` lists them. Jobs that ended earlier than `headway up --keep-jobs` allows are forgotten."
        super().__init__(f"there is no job {job}", hint)


class NoSuchNode(HeadwayError):
    """A request names a node that is not in service."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        super().__init__(f"there is no node {name!r}", did_you_mean(name, known) or "`headway nodes` lists them.")


class NoSuchOutput(HeadwayError):
    """The output that was asked for is not kept."""


class NoSuchService(HeadwayError):
    """A request names a service that does not run."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        super().__init__(f"there is no service {shown(name)}", did_you_mean(name, known))


class NoSuchToken(HeadwayError):
    """A request names a token that there is not."""

    def __init__(self, token: str, known: Iterable[str]) -> None:
        hint = did_you_mean(token, known) or "`headway token list` lists them."
        super().__init__(f"there is no token {shown(token)}", hint)


class NoSuchUpload(HeadwayError):
    """The file that was asked for is not kept."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"there is no upload {name}",
            "It is kept while an open job or a result names it, and after that for `headway up --keep-uploads`.",
        )


class NotNow(HeadwayError):
    """The journal cannot be written now. Nothing was recorded; the same can be tried again."""


class JournalBusy(NotNow):
    """Another program has locked the file."""


class JournalFull(NotNow):
    """The disk is full."""


class NotPicklable(HeadwayError, PicklingError):
    """A function or an argument cannot be sent where a task runs."""


class NotReadable(HeadwayError):
    """A file is in none of the formats that can be read."""


class NotTheirs(HeadwayError):
    """A client acknowledges the result of a job that another client submitted."""

    def __init__(self, client: str, job: int) -> None:
        super().__init__(
            f"client {client!r} acknowledges results of job {job}, which another client submitted",
            "Only the client that submitted a job acknowledges its results; any caller of this server can clear them.",
        )


class NotTrusted(HeadwayError):
    """A result of another client's job, which is unpickled only on request (`trust`)."""


class PolicyRaised(HeadwayError):
    """The policy failed on a snapshot."""


class PortTaken(HeadwayError):
    """Another program listens on a port."""


class QuotaExceeded(HeadwayError):
    """A user would have more of something than the operator of the server allows.

    Attributes:
        field, value, limit: of what, how much there would be, and how much there may be.
        retry_after: seconds after which there may be room; None: never, for the request alone is too large.
    """

    def __init__(
        self, field: str, value: float, limit: float, whose: str, hint: str, *, retry_after: float | None = None
    ) -> None:
        super().__init__(f"{field} is {value:g}; allowed: at most {limit:g} for {whose}", hint)
        self.field = field
        self.value = value
        self.limit = limit
        self.retry_after = retry_after


class Refused(HeadwayError):
    """The server refused.

    Attributes:
        status: of HTTP, 400 or above.
        missing: names of blobs that the submission must bring.
        code: that of the server's error, if it has one.
        retry_after: seconds after which it may be asked again; None: it does not say.
    """

    def __init__(
        self,
        message: str,
        hint: str = "",
        *,
        status: int,
        missing: tuple[str, ...] = (),
        code: str = "",
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message, hint)
        self.status = status
        self.missing = missing
        self.code = code or type(self).code
        self.retry_after = retry_after


class OtherEpoch(Refused):
    """The server's journal is not the one to which this client has spoken: its jobs and numbers mean something else."""


class RequestTimedOut(HeadwayError):
    """A request to a service waited, or its handler worked, for longer than allowed."""


class ServiceEnded(HeadwayError):
    """A service ended before it answered a request."""


class ServiceFull(HeadwayError):
    """As many requests wait for a service as may. This one was not kept; it can be sent again.

    Attributes:
        retry_after: seconds after which there may be room.
    """

    def __init__(self, message: str, retry_after: float) -> None:
        super().__init__(message, f"Send it again in {retry_after:.0f} s, or give the service more instances.")
        self.retry_after = retry_after


class TaskFailed(HeadwayError):
    """A task ended without a result.

    Attributes:
        job, task: of which task.
        ending: how it ended, a `headway.wire.TaskEnding`: `outcome`, `detail` in words, `exit_code`, the last part of
            `stdout` and `stderr`; None if it never ran because a task before it failed.
    """

    def __init__(self, message: str, hint: str = "", *, job: int, task: int, ending: Any = None) -> None:
        super().__init__(message, hint)
        self.job = job
        self.task = task
        self.ending = ending


class TooLarge(HeadwayError):
    """A request brings more bytes than it may."""


class TooOften(HeadwayError):
    """A user sends more requests than the operator of the server allows.

    Attributes:
        retry_after: seconds after which the next is answered.
    """

    def __init__(self, field: str, value: float, limit: float, whose: str, retry_after: float) -> None:
        said = f"{field} is {value:g}; allowed: at most {limit:g} for {whose}"
        super().__init__(said, f"Send the next in {retry_after:.3g} s.")
        self.retry_after = retry_after


class Unauthorised(HeadwayError):
    """The token is missing or wrong."""


class Unavailable(HeadwayError):
    """The server is about to stop and accepts nothing."""


class Unreachable(HeadwayError):
    """No server answers, or none is known; it may be starting again."""
