"""The Engine protocol: what a driver asks of something that really runs tasks, and what it reports in return.

An engine never chooses: the driver names node and slots. It may run an attempt more than once, or report an attempt
the core no longer needs (attempts are numbered; the core ignores late answers), but it never loses an end:

- Each launched attempt gets exactly one `Ended`, unless one of its nodes is lost first: `NodeLost` stands for the
  ends of all attempts that had a member there.
- Whatever a task does (it crashes, exits, exceeds its limits, sends something unreadable), it becomes an ending of its
  own kind, with the output that was written. It never ends the engine or its node.
- When `Ended` is reported, no process of the attempt runs any more and its slots can be used again. What an attempt
  leaves behind (background processes) is ended with it.
- What is launched on a slot where another attempt runs waits for the end of that one. A driver does this with tasks
  that it expects to be short. If the one that runs takes longer than `BEHIND_SECONDS`, the engine gives back those
  that wait, by themselves and for one slot, as KILLED: they may run elsewhere.
- An end is kept until the driver acknowledges it. So if a driver dies before the result is durable, the end is
  reported again.
- A node that is back (`NodeBack`) runs nothing that it ran before.
- A node that takes nothing new for a while (`NodeShut`, until `NodeReady`) goes on with what has begun there.
- An engine may find nodes by itself: it reports `NodeFound` for each that is there and was not named at its start, also
  for one that was lost and is there again, and `NodeGone` for one that has left for good. What a node can do is said in
  its `NodeSpec.capabilities`; nothing else is asked of it.
- A slot has two places. What runs in its background place, with all processes that it starts, uses what the foreground
  leaves of the processor. Changing the tier of an attempt restarts nothing. If the operating system refuses it, all
  members of the attempt stay as they were, and `TierRefused` says so.
- What a task saves (`headway.checkpoint` in a function, files in the folder HEADWAY_CHECKPOINT of a command) is there
  for its later attempts, whichever node they run on, until `forget`. An earlier attempt that still runs somewhere
    can no longer change it once a later one uses it.
- No two nodes have the same name: a node that another engine's process already serves is not taken into service.
- The protocol names no paths of the driver's machine, except those that users themselves wrote. Files that the server
  keeps have names (`Files`), and what attempts write has names (`Outputs`). Where engine and driver are on the same
  machine, each says where these files are, and the other may open them there.

All methods are called, and all reports made, in the thread of the driver's event loop. `report` is never called from
within `launch`, `kill` or `acknowledge`.
"""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import msgspec

from headway.model.instant import Duration
from headway.model.outcome import Outcome
from headway.model.tier import Tier

if TYPE_CHECKING:
    from pathlib import Path

    from headway.model.job import JobId
    from headway.model.node import NodeSpec

    Pickled = bytes | memoryview
else:
    Pickled = bytes  # that is what decoders make

AttemptKey = tuple[int, int, int]
"""Job, task, attempt."""

RESULT_MAX = (64 << 20) + (4 << 10)
"""Bytes that a result may have by default: 64 MiB, and what pickling adds to one array or text of that size."""

OUTSIDE = frozenset({signal.SIGKILL, signal.SIGTERM, signal.SIGHUP})
"""Signals that a person, a shutdown of the machine, or the kernel when memory runs out sends to end a process."""

BEHIND_SECONDS = 5.0
"""A task that waits on its slot behind one that runs for longer than this is given back: killed before it began."""

TAIL_MAX = 8192
"""Bytes of output that come with an ending; the engine keeps the whole output under a name."""


class Function(msgspec.Struct, frozen=True):
    """A function pickled by cloudpickle, shared by the calls of a job: it is sent to each process only once.

    Attributes:
        name: the same for the same bytes, different for different ones.
    """

    name: str
    pickled: bytes

    @classmethod
    def of(cls, pickled: bytes) -> Function:
        """Name a function by the SHA-256 of its bytes."""
        import hashlib  # a slot's process does not need it, and it is large

        return cls(hashlib.sha256(pickled).hexdigest(), pickled)


class Call(msgspec.Struct, frozen=True):
    """A Python function to be called, in a process that has run nothing except calls of its family.

    As a rule, the calls of one family on one slot run in the same process. The call may import modules of `paths`
    and of the folder the driver was started in. As a member of a gang it finds HEADWAY_RANK, HEADWAY_WIDTH and
    HEADWAY_NODE in its environment, as a command does.

    Attributes:
        arguments: `(args, kwargs)`, pickled.
        family: a name; calls of the same family may share what they leave in a process.
        paths: folders to import modules from, before those that every process here has (`sys.path`); folders after an
            empty text come after them.
        alone: no other call of its family will come, so its process can be replaced as soon as it has ended.
        cwd: folder it runs in; empty: the folder where the driver was started.
        anywhere: if it cannot run in `cwd`, it runs in the driver's folder; otherwise it ends as REFUSED.
        env: variables in addition to those that all tasks get.
        results: what stands for `headway.given.result_of` in the arguments: pickled results of other tasks, by number.
        files: where files of other tasks are: URLs by those that the arguments name (`headway.given.task_file`).
    """

    function: Function
    arguments: bytes
    family: str = ""
    paths: tuple[str, ...] = ()
    alone: bool = False
    cwd: str = ""
    anywhere: bool = False
    env: dict[str, str] = {}
    results: dict[int, bytes] = {}
    files: dict[str, str] = {}


class Command(msgspec.Struct, frozen=True):
    """A program to be run, with everything substituted already; no shell is involved.

    Attributes:
        argv: program, searched on PATH, and its arguments; at least one text.
        cwd: folder it runs in; empty: the folder where the driver was started.
        env: variables added to those that all tasks get (`local.driver.environment`), and to HEADWAY_JOB, HEADWAY_TASK,
            HEADWAY_ATTEMPT, HEADWAY_RANK and HEADWAY_WIDTH (of a rigid job), HEADWAY_NODE, HEADWAY_CHECKPOINT (a folder
            that the later attempts of the task, of the same rank, find as this one left it) and, with inputs or
            outputs, HEADWAY_SCRATCH. When it is to go on elsewhere it is sent SIGTERM.
        stdin, stdout, stderr: paths of files, relative ones from `cwd`. Empty: nothing to read; output kept by the
            engine, see `Ending`.
        inputs: files to be fetched before it starts into a folder of the attempt's own: URLs by path there.
        outputs: files of that folder to be put somewhere when it has succeeded: URLs by path. With inputs or outputs
            the folder is where it runs if `cwd` is empty. Its program may then be one of the inputs, as `./PATH`.
    """

    argv: tuple[str, ...]
    cwd: str = ""
    env: dict[str, str] = {}
    stdin: str = ""
    stdout: str = ""
    stderr: str = ""
    inputs: dict[str, str] = {}
    outputs: dict[str, str] = {}


Work = Call | Command


class Member(msgspec.Struct, frozen=True):
    """One process of an attempt.

    Attributes:
        node: name of the node it runs on.
        slots: slots of that node of which it has a place, counted from 0 on each node; at least one.
    """

    node: str
    slots: tuple[int, ...]
    work: Work


class Assignment(msgspec.Struct, frozen=True):
    """An attempt to be run on exactly these slots.

    A task of a bag has one member with one slot; a task of a workflow one member with several slots of one node; a
    rigid job a member a slot, on one node or several. Several members are a gang: they start together or not at all,
    and the first that does not succeed ends the others.

    Attributes:
        members: in order of their ranks, 0 to width - 1.
        time_limit: of each member, from its start.
        memory_limit: bytes of memory of each member with all its processes.
        result_max: the most bytes that a pickled result may have.
        files: whether the command or the arguments of the call name files (`headway.files`), perhaps some that the
            server keeps (`Files`).
        fetches: whether it has inputs; if so, `Started` is reported when they have been fetched on every node.
        tier: which of the places of its slots it has at first.
        account: name of the account that it runs as, where an engine runs each task as that of its job's user; empty:
            that of the engine.
    """

    job: JobId
    task: int
    attempt: int
    members: tuple[Member, ...]
    time_limit: Duration | None = None
    memory_limit: int | None = None
    result_max: int = RESULT_MAX
    files: bool = False
    fetches: bool = False
    tier: Tier = Tier.FOREGROUND
    account: str = ""

    @property
    def key(self) -> AttemptKey:
        """Job, task, attempt."""
        return (self.job, self.task, self.attempt)


class Output(msgspec.Struct, frozen=True, array_like=True):
    """What an attempt wrote to one of its streams.

    Attributes:
        name: what the engine calls all of it, see `Outputs`; it is kept until the driver discards it. Empty if the
            tail is all of it, if it could not be kept (see `lost`), or if the task itself named a file for it, which is
            its user's.
        size: bytes written.
        tail: its last part, `TAIL_MAX` bytes at most.
        cut: how many of them are not kept. What is kept has the first and the last ones, and says between them what is
            missing.
        sha256: of the kept bytes, in hexadecimal; empty without a name.
        lost: why only the tail is kept, such as a full disk; empty: for no such reason.
    """

    name: str
    size: int
    tail: bytes
    cut: int = 0
    sha256: str = ""
    lost: str = ""


class Ending(msgspec.Struct, frozen=True, array_like=True):
    """How an attempt, or one member of a gang, ended.

    Attributes:
        result: pickled: what the function returned (SUCCEEDED), or the exception it raised (RAISED, OUT_OF_MEMORY) if
            that can be pickled. None for commands and for all other outcomes. If large, a view of where it has arrived.
        detail: for people: the traceback if there is one, else a line such as `exit status 3`.
        exit_code: as `subprocess` has it: negative for a signal. None if no process ended by itself.
        stdout, stderr: None if nothing was written.
        seconds: from start to end, >= 0.
        cpu_seconds: of processor time; 0 if it is not known.
        outputs: where each output was put: for a command, its URL by its path; for a call, by the URL that was asked
            for.
        outside: it need not be the task's own failure: SIGNALLED by a signal that is often sent from outside
            (`OUTSIDE`); or the disk of its node was full, so that its files had no room (REFUSED), or what it wrote
            (RAISED, EXITED).
    """

    outcome: Outcome
    result: Pickled | None = None
    detail: str = ""
    exit_code: int | None = None
    stdout: Output | None = None
    stderr: Output | None = None
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    outputs: dict[str, str] = {}
    outside: bool = False


class Started(msgspec.Struct, frozen=True):
    """An attempt runs. Reported only if a node of it reports starts (`NodeSpec.reports_start`), or it fetches input."""

    job: JobId
    task: int
    attempt: int


class Ended(msgspec.Struct, frozen=True):
    """An attempt has ended. Kept by the engine until it is acknowledged.

    Attributes:
        ending: of a gang: SUCCEEDED if all members did (its result is then None), else the ending of the first member
            that did not.
        members: of a gang: the ending of each member, by rank; empty if there is one member.
    """

    job: JobId
    task: int
    attempt: int
    ending: Ending
    members: tuple[Ending, ...] = ()

    @property
    def key(self) -> AttemptKey:
        """Job, task, attempt."""
        return (self.job, self.task, self.attempt)


class Saved(msgspec.Struct, frozen=True):
    """An attempt, with all its members, has saved a checkpoint; reported at most once a second."""

    job: JobId
    task: int
    attempt: int


class Stalled(msgspec.Struct, frozen=True):
    """An attempt waits for room on the disk of its node, for its inputs or outputs; it may end as `Ending.outside`.

    Attributes:
        detail: for people: what there is no room for; empty: it goes on.
        node: the one whose disk it is; empty: it is the server's.
    """

    job: JobId
    task: int
    attempt: int
    detail: str = ""
    node: str = ""


class Pending(msgspec.Struct, frozen=True):
    """An attempt that was launched waits in the queue of the engine's system; reported again if the reason changes.

    Attributes:
        reason: for people: why, in the words of that system, and what may help.
    """

    job: JobId
    task: int
    attempt: int
    reason: str


class TierRefused(msgspec.Struct, frozen=True):
    """The operating system did not let an attempt change to this tier: it continues in the other one.

    Attributes:
        detail: for people: why, and what to do about it.
    """

    job: JobId
    task: int
    attempt: int
    tier: Tier
    detail: str = ""


class NodeLost(msgspec.Struct, frozen=True):
    """A node died or became silent, and all attempts that had a member there are lost; no `Ended` follows for them.

    Attributes:
        excused: what ran there cannot have been the cause, so the loss counts against none of it.
    """

    node: str
    detail: str = ""
    excused: bool = False


class NodeBack(msgspec.Struct, frozen=True):
    """A node that was lost is back, running nothing."""

    node: str


class NodeShut(msgspec.Struct, frozen=True):
    """A node takes nothing new for now; what has begun there goes on. `NodeReady` when it takes something again.

    The driver kills what was launched there and has not begun.
    """

    node: str
    detail: str = ""


class NodeReady(msgspec.Struct, frozen=True):
    """A node that was closed takes something again."""

    node: str


class NodeFound(msgspec.Struct, frozen=True):
    """A node that the engine found by itself can be launched on and runs nothing; also one that it had lost.

    The driver takes it into service under its name, for good: at the next start it is named to the engine. If it is
    known with other terms, it becomes another node; with another number of slots, it is resized.

    Attributes:
        node: what it is. The driver marks it as found (`NodeSpec.found`).
    """

    node: NodeSpec


class NodeGone(msgspec.Struct, frozen=True):
    """A node that the engine found has left for good; no `Ended` follows for what had a member there."""

    node: str
    detail: str = ""


class Heard(msgspec.Struct, frozen=True):
    """Heartbeats of nodes with a lease (`NodeSpec.lease`), at least three times in the shortest lease."""

    nodes: tuple[str, ...]


class Noticed(msgspec.Struct, frozen=True):
    """Something an operator should know, see `headway.model.events.Incident`."""

    kind: str
    subject: str
    detail: str
    by: str = ""


NodeReport = NodeLost | NodeBack | NodeShut | NodeReady | NodeFound | NodeGone
"""What becomes of a node."""

Report = Started | Ended | Saved | Stalled | Pending | TierRefused | NodeReport | Heard | Noticed


class Found(msgspec.Struct, frozen=True):
    """What an engine still had of an earlier driver's attempts when it started.

    The driver kills what runs and is not wanted, and treats each end like a reported one. Attempts that it believes to
    run but that are not here are lost.

    Attributes:
        saved: jobs that have checkpoints; the driver has those deleted whose jobs are not open.
        background: those of `running` that are in the background.
        absent: those of the named nodes that cannot be launched on now; `NodeBack`, or `NodeFound`, when they can.
        closed: those of the others that take nothing new for now, see `NodeShut`.
    """

    running: frozenset[AttemptKey] = frozenset()
    ended: tuple[Ended, ...] = ()
    saved: frozenset[JobId] = frozenset()
    background: frozenset[AttemptKey] = frozenset()
    absent: frozenset[str] = frozenset()
    closed: frozenset[str] = frozenset()


class Files(Protocol):
    """The files that the server keeps, uploads and outputs of tasks, each named by the SHA-256 of its bytes."""

    @property
    def folder(self) -> Path | None:
        """Where they are, each under its name: an engine of the same machine reads them there and may move one there.

        None: nowhere that other processes could open.
        """
        ...

    async def read(self, name: str, offset: int, size: int) -> bytes:
        """A piece of a file: at most this many bytes, none only at its end.

        Raises:
            NoSuchUpload: it is not kept.
            HeadwayError: it cannot be read.
        """
        ...

    async def put(self, name: str, parts: AsyncIterator[bytes]) -> None:
        """Keep an output of an attempt, whose end is reported afterwards. When this returns, the file is durable.

        Raises:
            InvalidInput: its bytes have another SHA-256.
            HeadwayError: there is no room for it, or it is too large.
        """
        ...


class Outputs(Protocol):
    """What attempts wrote to their streams, by names that the engine gives.

    A name tells nothing to others; the journal keeps it with the ending, also for later processes of the engine.
    """

    def show(self, job: JobId, task: int, attempt: int, rank: int | None, stream: str) -> str:
        """Let what a running attempt writes be read from now on.

        Args:
            rank: of a member of a gang; None for an attempt with one member.
            stream: `stdout` or `stderr`.

        Returns:
            A name under which it can be read until the attempt ends; empty if it does not run.
        """
        ...

    async def read(self, name: str, offset: int, size: int) -> bytes:
        """A piece of an output: at most this many bytes, none only at its end; of a running attempt, as it is now.

        Raises:
            NoSuchOutput: nothing is kept under this name.
            EngineError: it cannot be read now.
        """
        ...

    def locate(self, name: str) -> Path | None:
        """The file of this machine that has an output, so that it can be opened instead of read in pieces.

        It need not exist: it may be gone, or nothing may have been written yet. None: there is no such file.
        """
        ...

    def discard(self, names: Iterable[str]) -> None:
        """Delete outputs that nobody needs any more, without waiting; unknown names are ignored."""
        ...

    def outputs(self, idle: float) -> Iterator[tuple[JobId, Iterator[str]]]:
        """The names of what is kept, by job; from time to time the driver discards those that no result names.

        It is asked for slowly, while other things happen. An engine may give nothing if it deletes by itself what was
        written by attempts whose end was never reported.

        Args:
            idle: only jobs of which nothing was written or discarded for this many seconds.
        """
        ...


@runtime_checkable
class UsesAnother(Protocol):
    """An engine that asks another system which nodes there are, or has it run what it launches."""

    @property
    def silence(self) -> str:
        """Why that system does not answer now; empty: it does. What runs may go on meanwhile."""
        ...


@runtime_checkable
class FindsNodes(Protocol):
    """An engine that finds nodes by itself. One that was told to leave is not found again until it is let in."""

    @property
    def kept_out(self) -> frozenset[str]:
        """The names of the nodes that were told to leave, also of those that have been let in since."""
        ...

    async def let_in(self, name: str, slots: int | None = None) -> bool:
        """Let one of `kept_out` be found again: at once if it is there, else when it comes. `NodeFound` is reported.

        Args:
            slots: how many it should have; None: as many as it has.

        Returns:
            Whether it was kept out until now.

        Raises:
            InvalidInput: it has another number of slots, or this is not known.
        """
        ...


class Engine(Outputs, Protocol):
    """Runs attempts on the nodes of a site. Its duties are in this module's text."""

    async def start(self, nodes: Iterable[NodeSpec], report: Callable[[Report], None], files: Files) -> Found:
        """Take the nodes into service and report what still runs, or has ended unacknowledged, of an earlier driver.

        Returns when all nodes can be launched on, except those that it says are absent: nodes that it finds by itself,
        or that another system runs, may be there later. `report` is called from then on. A node that an earlier driver
        had with more slots or fewer is resized as by `resize`; one that is not named leaves.

        Args:
            files: a task's `headway:SHA256` is read from there, and a `headway:NAME` that it gives is put there.

        Raises:
            InvalidInput: see `check_fit`.
            EngineError: a node cannot be taken into service.
        """
        ...

    def check_fit(self, node: NodeSpec) -> None:
        """Check that this engine can run such a node, with this size.

        Raises:
            InvalidInput: a term is out of its range; the message says what is allowed.
        """
        ...

    async def join(self, node: NodeSpec) -> None:
        """Take one more node into service, with a name that this engine does not serve; nothing runs there.

        Returns when it can be launched on.

        Raises:
            InvalidInput: see `check_fit`.
            EngineError: it cannot be taken into service; nothing of it remains.
        """
        ...

    async def leave(self, name: str) -> None:
        """End a node with everything that runs there, and report none of it; an unknown node is ignored.

        It is unknown from the call on. Returns when nothing of it remains, so that its name can be used again. A node
        that the engine found is not found again before it is let in, see `FindsNodes`.
        """
        ...

    def resize(self, name: str, slots: int, *, at_once: bool = False) -> None:
        """Give a node more or fewer slots, without waiting; new launches may use the slots it gains.

        A slot that it loses goes when everything that runs on it or waits for it has ended; with `at_once` that is
        killed, and its `Ended` says KILLED. A node that is lost comes back with this many slots.
        """
        ...

    def launch(self, assignment: Assignment) -> None:
        """Start an attempt, without waiting. If another attempt still has one of its places, it starts after that one.

        An unknown or lost node, or a slot that it does not have, is not an error: the attempt's `Ended` says LOST.
        """
        ...

    def kill(self, job: JobId, task: int, attempt: int) -> None:
        """End an attempt now, with all its processes. `Ended` follows: KILLED, or what came before.

        An attempt that is not running (it ended, it was lost) is ignored.
        """
        ...

    def change(self, job: JobId, task: int, attempt: int, tier: Tier) -> None:
        """Give an attempt the place of this tier on each of its slots, without restarting it. See `TierRefused`.

        The attempt in that place changes to the other one: a swap is two changes, in either order. An attempt that is
        not running, or is there already, is ignored.
        """
        ...

    def suspend(self, job: JobId, task: int, attempt: int) -> None:
        """Let an attempt save what it has done and end, because it continues elsewhere; after a while it is killed.

        A function saves at its next `headway.checkpoint`, and ends there. All processes of a program are sent SIGTERM,
        and what it leaves in its folder counts. Then follow `Saved` if it saved, and `Ended`: KILLED, unless it had
        ended before, or a function returned in the meantime. In a gang each member saves for itself. An attempt that
        has not begun is killed; one that is not running is ignored.
        """
        ...

    def acknowledge(self, job: JobId, task: int, attempt: int) -> None:
        """The driver has made the end durable, or does not want it: the engine may forget it."""
        ...

    def forget(self, job: JobId, task: int | None = None) -> None:
        """Nothing more of this task, or of the whole job, runs: delete what it has saved."""
        ...

    async def stop(self) -> None:
        """End everything: what runs is killed and not reported. After this no process of the engine is left."""
        ...
