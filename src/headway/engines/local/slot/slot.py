"""The process of a slot: it runs what it is given, one run after another, and reports how each ended.

It is forked from its node's agent, stays warm, and dies with it. Functions run in the process itself; a command is its
child. If a call is the only one of its family, it runs in a child too, and another clean one is then ready for the next
(`_Slot.keep`). As subreaper it stays the ancestor of all processes that an attempt starts, so its end ends all of them.
A process that cannot be sure that nothing of an attempt remains says so and is replaced.
"""

from __future__ import annotations

import _socket
import contextlib
import errno
import faulthandler
import fcntl
import functools
import os
import resource
import signal
import sys
import termios
import time
from collections.abc import Callable
from io import TextIOWrapper
from typing import TYPE_CHECKING, Final, NoReturn, TypeVar

import msgspec
from msgspec import Raw

from headway.engines.base import OUTSIDE, Ending
from headway.engines.local.shared import checkpoints as places
from headway.engines.local.shared import descriptors, output
from headway.engines.local.shared.frames import (
    SEND_BUFFER,
    Body,
    CallFrame,
    CommandFrame,
    Fetched,
    FileGiven,
    Launch,
    RunEnded,
    Shelf,
    Splitter,
    Stalled,
    Want,
    decode_call,
    decode_command,
    decode_to_slot,
    encode,
)
from headway.engines.local.shared.processes import (
    adopt_orphans,
    children,
    die_with_parent,
    flush_c_streams,
    kill_trees,
)
from headway.engines.local.shared.seal import ALONE_HEAD, is_alone, opened, sealed, sealed_end
from headway.engines.local.shared.terms import NO_ROOM, ROOM_SECONDS, Account, NoRoomForFiles, Terms
from headway.engines.local.slot import programs
from headway.errors import FileTrouble
from headway.model.outcome import Outcome

if TYPE_CHECKING:
    from headway.engines.local.slot.calls import ReceivedFunction
    from headway.engines.local.slot.files import AttemptFiles

T = TypeVar("T")

_CHUNK = 1 << 16
_LARGE_CHUNK = 1 << 20
_FILES_USUAL = 1024
_FROM_THE_END = 24
_NO_ROOM: Final = frozenset({errno.EAGAIN, errno.ENFILE})
"""Why a program cannot be started when the machine, or its user, has too many processes or open files."""
_DETAIL_OF_ROOM: Final = 1000
_ROOM_LEAST: Final = 1 << 16
"""With less than this free, in bytes, a program that fails in a folder of its attempt may have failed for that."""
_ROOM_AGAIN: Final = 1 << 20
"""With so much free there is room again, if that is more than there was when the run began."""
_PAUSES: Final = (0.05, 1.0)
"""The first and the longest pause before it is tried again, in seconds."""
LEFT = "told to save and end, to go on elsewhere"


def serve(channel: _socket.socket, keeping: _socket.socket, agent: int, stem: str, terms: Terms) -> NoReturn:
    """Run what arrives on `channel` until it ends.

    Args:
        channel: to the agent.
        keeping: to the agent too, see `_Slot.keep`.
        agent: its process.
        stem: path of the folder for its runs, without `.files`.
        terms: of the node.
    """
    _stand_alone()
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.set_wakeup_fd(-1)
    _prefer_for_the_oom_killer()
    if terms.account is not None:
        _change_hands(terms.account)
    die_with_parent(agent)  # a process that changes its user forgets this
    if os.path.exists(scratch(stem)):
        _remove(scratch(stem))
    slot = _Slot(_out_of_the_way(channel), _out_of_the_way(keeping), stem, terms)
    while chunk := slot.receive():
        slot.teller.ahead.extend(slot.splitter.feed(chunk))
        while slot.teller.ahead:
            its_seal, body = opened(slot.teller.ahead.popleft())
            said = decode_to_slot(body)
            if isinstance(said, Launch):  # else it concerns a run that has ended already
                slot.teller.seal = its_seal
                slot.run(said)
                if said.alone and slot.is_kept:
                    os._exit(0)
    os._exit(0)


def _stand_alone() -> None:
    """Adopt the orphans of what is started here, and be a group of processes."""
    adopt_orphans()
    os.setpgid(0, 0)  # not a session: sessions do not leave the processor to one another (`agent.priorities`)


def _change_hands(account: Account) -> None:
    """Become the account, in a folder that it may use, with the variables that its login would set."""
    for number in (1, 2):
        os.fchown(number, account.uid, account.gid)  # to open /dev/stdout needs permission again
    account.become()
    os.environ.update(account.environment)
    for folder in (".", account.home, "/"):
        with contextlib.suppress(OSError):  # then the next one
            os.chdir(folder)
            os.close(os.open(".", os.O_RDONLY | os.O_DIRECTORY))
            return


def _out_of_the_way(channel: _socket.socket) -> _socket.socket:
    """The channel under a high number, so that tasks that count descriptors from 3 do not meet it."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    most = _FILES_USUAL if most == resource.RLIM_INFINITY else min(most, _FILES_USUAL)
    moved = fcntl.fcntl(channel, fcntl.F_DUPFD_CLOEXEC, max(3, most - _FROM_THE_END))
    channel.close()
    found = _socket.socket(fileno=moved)
    found.setsockopt(_socket.SOL_SOCKET, _socket.SO_SNDBUF, SEND_BUFFER)
    return found


def scratch(stem: str) -> str:
    """The folder of the files that a slot's runs get and give."""
    return f"{stem}.files"


def _remove(folder: str) -> None:
    """Remove what a killed attempt left."""
    import shutil  # large, and rarely needed

    shutil.rmtree(folder, ignore_errors=True)


def _prefer_for_the_oom_killer() -> None:
    """When memory runs out, the kernel shall end a task, not the agent or the driver."""
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("500")
    except OSError:
        return  # only a preference


class _Slot:
    def __init__(self, channel: _socket.socket, keeping: _socket.socket, stem: str, terms: Terms) -> None:
        self.channel = channel
        self.keeping = keeping
        self.stem = stem
        self.terms = terms
        self.saves = terms.checkpoints
        self.teller = places.Teller(channel)
        self.splitter = Splitter()
        self.pid = os.getpid()
        self.functions: Shelf[ReceivedFunction] = Shelf()
        self.home = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
        os.environ["HEADWAY_NODE"] = terms.name
        self.environment = dict(os.environ)
        self.spent = False
        self.free = 0
        self.patience = ROOM_SECONDS
        self.is_kept = False
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)
        self.streams = _identities()
        sys.path.insert(0, os.getcwd())
        self.own_paths = list(sys.path)
        self.paths: tuple[str, ...] = ()
        self.stdin = sys.stdin = open(0, encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115
        self.stdout, self.stderr = _text(1), _text(2)
        sys.stdout = self.stdout
        sys.stderr = self.stderr
        faulthandler.enable(2)

    def receive(self) -> bytes:
        """What arrives next, empty at the end; a call that is alone is received by a child of this process."""
        may_keep = self.keeping.fileno() >= 0 and self.splitter.is_empty
        if may_keep and is_alone(self.channel.recv(ALONE_HEAD, _socket.MSG_PEEK)):
            self.keep()
        return self.channel.recv(_CHUNK if self.splitter.missing <= _CHUNK else _LARGE_CHUNK)

    def keep(self) -> None:
        """Run nothing here: keep a clean child ready, and another one when that has ended. Returns in each of them.

        Each has a channel of its own, of which nothing is open here: the first one that of this process, with the call
        that has come. What would end this process, if it ran here, ends the child, and then this one in the same way.
        """
        keeper, agents = self.pid, None
        while True:
            child = when_there_is_room(os.fork, lambda: False)
            if child == 0:
                _stand_alone()
                die_with_parent(keeper)
                self.pid, self.is_kept = os.getpid(), True
                if agents is not None:
                    agents.close()
                    self.rehearse()
                return
            self.channel.close()
            if agents is not None:
                descriptors.send(self.keeping, b"\0", agents.fileno())
                agents.close()
            pid = status = 0
            while pid != child:
                pid, status = os.waitpid(-1, 0)
            if status:
                _end_as(status)
            while self.has_children():  # begun when the run had been reported
                kill_trees(children(keeper))
                os.waitpid(-1, 0)
            agents, its = _socket.socketpair()
            self.channel = _out_of_the_way(its)
            self.teller.use(self.channel)

    def rehearse(self) -> None:
        """Call a function that does nothing, and forget it: the first call of a process takes ten times as long.

        A forked process copies each page of memory when it first writes to it, and looks up those of libraries again.
        """
        from headway.engines.local.slot import calls

        if calls.closed(self.terms):
            return
        launch = calls.rehearsal()
        ended = self.call(launch, decode_call(launch.work), None)
        sealed_end(self.teller.seal, _done(*ended, self.has_children(), _is_pending(1) or _is_pending(2)))
        self.functions = Shelf()

    def run(self, launch: Launch) -> None:
        """Run one member and report how it ended."""
        files, result = None, None
        self.patience = ROOM_SECONDS
        try:
            if launch.uploads:
                files = self.files(launch)
            if launch.function:
                ending, result = self.call(launch, decode_call(launch.work), files)
            else:
                ending = self.command(launch, decode_command(launch.work), files)
        except FileTrouble as trouble:
            ending = _refused(trouble)
        if files:
            files.remove()
        if ending.outside and ending.outcome in (Outcome.RAISED, Outcome.EXITED):
            self.wait_for_room(ending)
        if ending.outside and ending.outcome is not Outcome.SIGNALLED and self.teller.asked():
            ending, result = Ending(Outcome.KILLED, detail=LEFT), None
        spent = self.spent or self.has_children() or (launch.alone and not self.is_kept)
        done = _done(ending, result, spent, spent or _is_pending(1) or _is_pending(2))
        for part in sealed_end(self.teller.seal, done):
            self.channel.sendall(part)

    def files(self, launch: Launch) -> AttemptFiles:
        """The files that a member names."""
        from headway.engines.local.slot.files import AttemptFiles  # most runs name none

        place = (scratch(self.stem), self.terms.fences, launch)
        if self.terms.account is None and not self.terms.apart and not self.terms.asks:
            return AttemptFiles(*place, with_room=self.with_room)
        dropped = self.terms.dropped if self.terms.account is not None else ""
        return AttemptFiles(*place, self.wanted, dropped, self.with_room)

    def with_room(self, step: Callable[[], T]) -> T:
        """Do what needs room on the disk; while there is none, wait and try again.

        That is not the task's doing, so it does not fail for it, and what it has done is kept meanwhile.

        Returns:
            What `step` returns.

        Raises:
            NoRoomForFiles: there was none for `ROOM_SECONDS` in all, or it is asked to end.
            OSError, FileTrouble: `step` cannot be done for another reason.
        """
        pause, told = _PAUSES[0], False
        while True:
            try:
                done = step()
                break
            except (OSError, NoRoomForFiles) as error:
                if isinstance(error, OSError) and error.errno not in NO_ROOM:
                    raise
                if self.patience <= 0 or self.teller.asked():
                    raise NoRoomForFiles(f"{error}; there was no room for it for {ROOM_SECONDS:g} s") from error
                if not told:
                    told = True
                    self.channel.sendall(sealed(self.teller.seal, Stalled(str(error)[:_DETAIL_OF_ROOM])))
            began = time.monotonic()
            time.sleep(pause)
            self.patience -= time.monotonic() - began
            pause = min(2 * pause, _PAUSES[1])
        if told:
            self.channel.sendall(sealed(self.teller.seal, Stalled("")))
        return done

    def wanted(self, name: str) -> int:
        """Let the agent open a file that the server keeps.

        Raises:
            FileNotFoundError: it is no longer kept.
            OSError: the disk of this node has no room for it.
        """
        self.channel.sendall(sealed(self.teller.seal, Want(name)))
        file: int | None = None
        while True:
            chunk, received = descriptors.receive(self.channel, _CHUNK)
            if not chunk:
                os._exit(0)  # the agent is gone
            file = received if file is None else file
            self.teller.ahead.extend(self.splitter.feed(chunk))
            for body in tuple(self.teller.ahead):
                if isinstance(given := decode_to_slot(opened(body)[1]), FileGiven):
                    self.teller.ahead.remove(body)
                    if given.no_room:
                        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), name)
                    if file is None:
                        raise FileNotFoundError(name)
                    return file

    def wait_for_room(self, ending: Ending) -> None:
        """The disk was full when a run wrote to it: wait until there is room again, for it is run again at once."""
        last = ending.detail.strip().rpartition("\n")[2]
        enough = max(_ROOM_AGAIN, self.free + _ROOM_LEAST)
        said = f"the disk was full when it wrote something; it is run again when there is room: {last}"
        self.channel.sendall(sealed(self.teller.seal, Stalled(said[:_DETAIL_OF_ROOM])))
        while True:
            time.sleep(_PAUSES[1])
            self.patience -= _PAUSES[1]
            if self.patience <= 0 or self.teller.asked():
                return
            if _free(os.path.dirname(self.stem)) >= enough:
                self.channel.sendall(sealed(self.teller.seal, Stalled("")))
                return

    def begin(self, launch: Launch) -> None:
        """Its inputs are here: now it runs."""
        with contextlib.suppress(OSError):  # the folder is gone: the run itself will say so, if it matters
            self.free = _free(os.path.dirname(self.stem))
        if launch.fetches:
            self.channel.sendall(sealed(self.teller.seal, Fetched()))

    def has_children(self) -> bool:
        """Whether processes of the last run remain; those that ended are reaped."""
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return False
        return True

    def call(self, launch: Launch, call: CallFrame, files: AttemptFiles | None) -> tuple[Ending, Body | None]:
        """Call a function; its ending, and apart from that its result."""
        from headway import checkpoints
        from headway.engines.local.slot import calls  # programs need neither

        self.keeping.close()  # it is not for tasks; a process in which one ran keeps no clean ones
        function = self.functions.get(launch.function)
        if function is None:
            assert launch.pickled is not None, "the agent knows what this process holds"
            function = calls.ReceivedFunction(launch.pickled)
            self.functions.put(launch.function, len(launch.pickled), function)
        if call.paths != self.paths:  # they may differ within a family that several jobs share
            self.import_from(call.paths)
        before = {name: os.environ.get(name) for name in call.env}
        os.environ.update(call.env)
        assert launch.arguments is not None, "only commands have none"
        loaded = calls.placed(call, self.terms) or calls.loaded(function, launch.arguments, call, files)
        wall, cpu, outside = time.perf_counter(), time.process_time(), False
        if isinstance(loaded, str):
            outcome, result, detail, code = Outcome.REFUSED, None, loaded, None
        elif isinstance(loaded, NoRoomForFiles):
            outcome, result, detail, code, outside = Outcome.REFUSED, None, str(loaded), None, True
        else:
            self.begin(launch)
            self.teller.begin()
            place = places.place(self.saves, launch)
            checkpoints.current = saving = checkpoints.Checkpoints(place, launch.attempt, self.teller)
            if launch.width > 1:
                os.environ.update(_seat(launch))
            outcome, result, detail, code, outside = calls.called(*loaded, call.result_max)
            checkpoints.current = None
            if saving.has_left:  # even if the function ignored it
                outcome, result, detail, code, outside = Outcome.KILLED, None, LEFT, None, False
            if launch.width > 1:
                for name in _seat(launch):
                    os.environ.pop(name, None)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        if os.getpid() != self.pid:  # a child that the function forked and did not end
            os._exit(0)
        calls.reset(before)
        self.restore()
        ending = Ending(outcome, None, detail, code, seconds=wall, cpu_seconds=cpu, outside=outside)
        if files:
            ending = _put(files, ending)
        return ending, None if ending.outcome is Outcome.REFUSED else result

    def import_from(self, paths: tuple[str, ...]) -> None:
        """Import modules from these folders besides those of every process here, see `base.Call.paths`."""
        self.paths = paths
        before = paths[: paths.index("")] if "" in paths else paths
        own = [path for path in self.own_paths if path not in before]
        sys.path[:] = [*before, *own, *(path for path in paths[len(before) + 1 :] if path not in own)]

    def restore(self) -> None:
        """Restore the process after a function, as far as possible; else it is replaced."""
        try:
            sys.stdout.flush()
            sys.stderr.flush()
            flush_c_streams()
            os.fchdir(self.home)
            for timer in (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF):
                signal.setitimer(timer, 0)
            self.spent |= _identities() != self.streams
        except Exception:  # noqa: BLE001 - whatever the function did to its streams, its ending is reported
            self.spent = True
        sys.stdout, sys.stderr, sys.stdin = self.stdout, self.stderr, self.stdin

    def command(self, launch: Launch, command: CommandFrame, files: AttemptFiles | None) -> Ending:
        """Run a program and wait for its end.

        Raises:
            FileTrouble: an input is not available.
        """
        home = files.folder if files else ""
        if files:
            for path, url in command.inputs.items():
                files.fetch(url, path, f"inputs[{path!r}]")
            program = os.path.normpath(command.argv[0])
            if not command.cwd and "/" in command.argv[0] and program in command.inputs:
                os.chmod(os.path.join(home, program), 0o700)
            for path, url in command.outputs.items():
                files.expect(path, path, url, f"outputs[{path!r}]")
        self.begin(launch)
        wall = time.perf_counter()
        cwd = command.cwd or home
        paths = output.streams(command, home)
        opened = []
        saves = ""
        env = {
            **self.environment,
            "HEADWAY_JOB": str(launch.job),
            "HEADWAY_TASK": str(launch.task),
            "HEADWAY_ATTEMPT": str(launch.attempt),
            **_seat(launch),
            **({"HEADWAY_SCRATCH": home} if home else {}),
            **command.env,
        }
        try:
            saves = self.with_room(lambda: places.begin(self.saves, launch))
            stdin = os.open(output.resolved(command.stdin, cwd) if command.stdin else os.devnull, os.O_RDONLY)
            opened.append(stdin)
            for number, path in enumerate(paths, 1):
                opened.append(self.with_room(functools.partial(_opened, path)) if path else os.dup(number))
            variables = {**env, "HEADWAY_CHECKPOINT": saves}
            start = functools.partial(programs.start, command.argv, opened, cwd, self.home, variables)
            started = when_there_is_room(start, self.teller.asked)
            if started is None:
                places.end(saves)
                return Ending(Outcome.KILLED, detail=LEFT)
        except NoRoomForFiles:
            places.end(saves)
            raise
        except (OSError, ValueError) as error:
            places.end(saves)
            detail = f"cannot start {command.argv[0]!r}: {_why_not(error, command.argv[0], cwd, env, self.terms)}"
            return Ending(Outcome.REFUSED, detail=detail)
        finally:
            for number in opened:
                os.close(number)
        if self.teller.asked():
            os.kill(started, signal.SIGTERM)
        pid = 0
        while pid != started:  # orphans of the command are reaped here too
            pid, status, usage = os.wait4(-1, 0)
        code = os.waitstatus_to_exitcode(status)
        if left := self.teller.asked():  # the remaining processes may be the ones that save
            with contextlib.suppress(ChildProcessError):
                while True:
                    os.waitpid(-1, 0)
        places.end(saves)
        stdout, stderr = (output.named(path) if path else None for path in paths)
        ending = Ending(
            Outcome.SUCCEEDED if code == 0 else Outcome.EXITED if code > 0 else Outcome.SIGNALLED,
            detail=programs.died_of(code),
            exit_code=code,
            stdout=stdout,
            stderr=stderr,
            seconds=time.perf_counter() - wall,
            cpu_seconds=usage.ru_utime + usage.ru_stime,
            outside=-code in OUTSIDE or (code > 0 and files is not None and _free(files.folder) < _ROOM_LEAST),
        )
        if left:  # ended by itself or not, its folder has what it has done
            return msgspec.structs.replace(ending, outcome=Outcome.KILLED, detail=LEFT, exit_code=None, outside=False)
        return _put(files, ending) if files else ending


def _done(ending: Ending, result: Body | None, spent: bool, wrote: bool) -> RunEnded:
    """What is reported of a run that has ended so."""
    return RunEnded(spent, Raw(encode(ending)), wrote, None if result is None else memoryview(result))


def _free(folder: str) -> int:
    """Free bytes of the disk of a folder."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


def _opened(path: str) -> int:
    """A file for the output of a program."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)


def _refused(trouble: FileTrouble) -> Ending:
    """The ending of an attempt whose files are not available; a full disk is no fault of its task."""
    return Ending(Outcome.REFUSED, detail=str(trouble), outside=isinstance(trouble, NoRoomForFiles))


def _end_as(status: int) -> NoReturn:
    """End this process as another one has ended; `status` as `os.waitpid` has it."""
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # there is one already, if there is to be one
        if -code not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def when_there_is_room(start: Callable[[], T], is_over: Callable[[], object]) -> T | None:
    """Start a program; while the machine has no room for another process, wait and try again.

    That is not the task's doing, so it does not fail for it.

    Returns:
        What `start` returns; None if `is_over` is true before there is room.

    Raises:
        OSError: it cannot be started for another reason.
    """
    pause = _PAUSES[0]
    while True:
        try:
            return start()
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise
            if is_over():
                return None
            if pause == _PAUSES[0]:
                os.write(2, f"headway: it cannot be started yet, and is tried again: {error.strerror}\n".encode())
        time.sleep(pause)
        pause = min(2 * pause, _PAUSES[1])


_APART: Final = (
    ", which has no files in common with the server; --cwd names a folder that is there, --input gives each task a "
    "folder of its own with the files that it needs, and shared = true of a site says that paths mean the same there"
)
_PROGRAM_APART: Final = (
    ", which has no files in common with the server; it comes there as an input: --input NAME=URL -- ./NAME, "
    "with the URL of headway upload"
)


def _why_not(error: OSError | ValueError, program: str, cwd: str, env: dict[str, str], terms: Terms) -> str:
    """Why a program could not be started, and what may help; in one line, because some lists show only the last."""
    if not isinstance(error, OSError):
        return str(error)
    if cwd and error.filename == cwd:
        return f"it {programs.no_folder(cwd, error, terms)}{_APART if terms.apart else '; --cwd names another one'}"
    if error.errno == errno.ENOEXEC:
        return f"{error.strerror}; a script begins with a line such as #!/bin/sh"
    if error.filename != program:
        return str(error)
    if isinstance(error, PermissionError):
        return f"{error.strerror}; is it a program that may be executed (chmod +x)?"
    if any(char.isspace() for char in program):
        from shlex import quote  # rarely needed

        return f"there is no program of this name; a line for a shell is run by sh -c {quote(program)}"
    if "/" not in program:
        path = env.get("PATH", os.defpath)
        return f"there is no such program on the PATH of tasks, {path}; --env PATH gives them that of the submitter"
    why = f"{error.strerror}, or the program that its first line names is not there"
    return f"{why}, on node {terms.name!r}{_PROGRAM_APART}" if terms.apart else why


def _seat(launch: Launch) -> dict[str, str]:
    """Which process of its job a member is, as environment variables."""
    return {"HEADWAY_RANK": str(launch.rank), "HEADWAY_WIDTH": str(launch.width)}


def _put(files: AttemptFiles, ending: Ending) -> Ending:
    """Put the outputs of a successful run in their places; if that fails, the run has not succeeded."""
    if ending.outcome is not Outcome.SUCCEEDED:
        return ending
    try:
        return msgspec.structs.replace(ending, outputs=files.put())
    except FileTrouble as trouble:
        refused = _refused(trouble)
        return msgspec.structs.replace(ending, outcome=refused.outcome, detail=refused.detail, outside=refused.outside)


def _identities() -> list[tuple[int, int]]:
    """Which files the streams of this process are."""
    return [(status.st_dev, status.st_ino) for status in map(os.fstat, (1, 2))]


def _is_pending(number: int) -> bool:
    """Whether something written to a stream of this process is still unread."""
    return any(fcntl.ioctl(number, termios.FIONREAD, b"\0\0\0\0"))


def _text(number: int) -> TextIOWrapper:
    """A text stream that writes every full line at once, because the process may die at any moment."""
    return open(number, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)
