"""The processes of a node's slots: one for each place, warm, forked from the agent, replaced when they die."""

from __future__ import annotations

import _socket
import contextlib
import math
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any, Final, NoReturn, Protocol

from msgspec import Raw

from headway.engines.base import OUTSIDE, Ending, Output
from headway.engines.local.agent import priorities
from headway.engines.local.agent.porter import bring_in, named
from headway.engines.local.agent.run import Channel, MemberRun, SlotPlace
from headway.engines.local.agent.said import say
from headway.engines.local.agent.streams import DROP_SECONDS, OutputStream
from headway.engines.local.shared import descriptors, output
from headway.engines.local.shared.frames import (
    Body,
    Fetched,
    Launch,
    RunEnded,
    Saved,
    Stalled,
    Unreadable,
    Want,
    decode_command,
    encode,
)
from headway.engines.local.shared.processes import children, close_others, kill_trees
from headway.engines.local.shared.seal import CLOSED, FOREIGN, Forged, flaw, read
from headway.engines.local.shared.terms import NO_ROOM, ROOM_SECONDS, Account, Terms, dropped_name
from headway.engines.local.slot import fresh, programs
from headway.engines.local.slot import slot as slot_process
from headway.model.outcome import Outcome
from headway.model.tier import Tier

Handlers = dict[int, Callable[[int], None]]
"""Called when a descriptor is ready, with what it is ready for."""

_FORK_AGAIN_SECONDS: Final = 1.0

_ROOM_AGAIN_SECONDS: Final = 0.5
_NO_ROOM_STATUS: Final = 28
"""The exit status of a process that brings in outputs, if the disk is full."""

_DEAF_SECONDS: Final = 1.0
"""How long a process may live on after its end of the channel is closed: it is dying, unless it closed that end.
Also how long it may take until another clean child is ready.
"""


class StaffOwner(Protocol):
    """The agent, whose runs these processes run."""

    def let_go(self) -> None:
        """In a process that was just forked: close what belongs to the agent."""

    def waits_for(self, place: SlotPlace) -> bool:
        """Whether a run waits for this place."""

    def on_staffed(self, place: SlotPlace) -> None:
        """A place has a new process."""

    def on_said(self, run: MemberRun, said: Fetched | Saved | Unreadable | Want | Stalled) -> None:
        """The process of a run has reported something about it."""

    def kill(self, run: MemberRun, outcome: Outcome, detail: str) -> None:
        """End a run, whatever it is doing."""

    def finish(self, run: MemberRun, ending: Raw, *, wrote: bool = True, result: memoryview | None = None) -> None:
        """A run is over; `wrote`: it may have written something that is still unread."""


class Staff:
    """The slots of a node and their processes.

    Args:
        owner: the agent.
        epoll, handlers: where processes are listened to.
        terms: of the node.

    Attributes:
        slots: places by tier; also of slots beyond `count`, idle ones without a process.
        count: how many slots the node has.
        dropping: streams over their limit, which are read every `DROP_SECONDS`.
        fork_again: when failed forks are tried again; None: none failed.
    """

    def __init__(self, owner: StaffOwner, epoll: select.epoll, handlers: Handlers, terms: Terms) -> None:
        self.slots: list[list[SlotPlace]] = []
        self.count = 0
        self.fork_again: float | None = None
        self.dropping: set[OutputStream] = set()
        self._owner = owner
        self._epoll = epoll
        self._handlers = handlers
        self._terms = terms
        self._drop_at = 0.0
        self._pid = os.getpid()
        self._by_pid: dict[int, SlotPlace] = {}
        self._porters: dict[int, tuple[MemberRun, RunEnded]] = {}
        self._to_bring: list[tuple[MemberRun, list[str], RunEnded]] = []
        self._deaf: dict[int, float] = {}

    def resize(self, count: int) -> None:
        """Keep this many slots. Slots beyond that remain while something runs there or waits for them."""
        self.count = count
        while len(self.slots) < count:
            number = len(self.slots)
            words = ((Tier.FOREGROUND, f"slot-{number}"), (Tier.BACKGROUND, f"slot-{number}-behind"))
            self.slots.append([SlotPlace(number, tier, word, self._terms) for tier, word in words])
        for places in self.slots[:count]:
            self.fill(places)
        self.retire()

    def _is_wanted(self, place: SlotPlace) -> bool:
        """Whether a place needs a process; in the background only from its first use on."""
        if place.run is not None or (place.tier is Tier.FOREGROUND and place.number < self.count):
            return True
        return self._owner.waits_for(place)

    def fill(self, places: Iterable[SlotPlace]) -> None:
        """Give processes to those of some places that need one and have none."""
        for place in places:
            if place.pid == 0 and self.fork_again is None and self._is_wanted(place):
                self._fork(place)

    def retire(self) -> None:
        """End the processes of slots that the node no longer has."""
        for places in self.slots[self.count :]:
            for place in places:
                if place.pid and not place.dying and not self._is_wanted(place):
                    self.replace(place)

    def _fork(self, place: SlotPlace) -> None:
        """Give a place a new process, warm at once: it is a copy of this one. Runs that waited continue."""
        self._entitle(place)
        ours, theirs = _socket.socketpair()
        keeping, kept = _socket.socketpair()
        reading, writing = zip(os.pipe(), os.pipe(), strict=True)
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGCHLD))
        try:
            pid = os.fork()
            if pid == 0:
                self._be(place, (theirs, kept), writing, blocked)
        except OSError as error:
            say(f"cannot fork: {error}")
            self.fork_again = time.monotonic() + _FORK_AGAIN_SECONDS
            ours.close()
            keeping.close()
            for fd in reading:
                os.close(fd)
            return
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
            theirs.close()
            kept.close()
            for fd in writing:
                os.close(fd)
        keeping.setblocking(False)
        self._epoll.register(keeping, select.EPOLLIN)
        self._handlers[keeping.fileno()] = lambda _: self._on_kept(place, keeping)
        terms = self._terms
        streams = tuple(
            OutputStream(fd, number, terms.output, terms.output_max) for number, fd in enumerate(reading, 1)
        )
        for stream in streams:
            os.set_blocking(stream.fd, False)
            self._listen(stream)
        self._by_pid[pid] = place
        place.renew(pid, self._channel(place, ours), keeping, streams)
        self._owner.on_staffed(place)

    def _entitle(self, place: SlotPlace) -> None:
        """Choose as which account the next process of a place runs: that of the run that waits for it.

        Without one it is the agent's own, and nothing will run in it.
        """
        place.account, place.terms = "", self._terms
        run = place.run
        if self._terms.accounts and run is not None and run.places[0] is place and run.account is not None:
            place.account, place.terms = run.launch.account, self._terms.of(run.account)

    def _channel(self, place: SlotPlace, ours: _socket.socket) -> Channel:
        """A channel to the process of a place, which is listened to from now on."""
        channel = Channel(ours, self._epoll)
        self._handlers[ours.fileno()] = lambda mask: self._on_slot(place, channel, mask)
        return channel

    def _be(
        self, place: SlotPlace, theirs: tuple[_socket.socket, _socket.socket], writing: tuple[int, int], blocked: Any
    ) -> NoReturn:
        """In the forked process: close what belongs to the agent, then be the slot's process."""
        try:
            self._owner.let_go()
            for number, fd in enumerate(writing, 1):
                os.dup2(fd, number)
            close_others({0, 1, 2, *(one.fileno() for one in theirs)})
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
            be = fresh.execute if place.account else slot_process.serve
            be(*theirs, self._pid, place.stem, place.terms)
        except BaseException:  # noqa: BLE001 - the process ends here in any case
            import traceback

            traceback.print_exc()
            sys.stderr.flush()
            os._exit(70)

    def _listen(self, stream: OutputStream) -> None:
        """Read a stream when there is something to read."""
        self._epoll.register(stream.fd, select.EPOLLIN)
        self._handlers[stream.fd] = lambda _: self._on_stream(stream)

    def _ignore(self, fd: int) -> None:
        """Stop reading a descriptor."""
        if self._handlers.pop(fd, None):
            self._epoll.unregister(fd)

    def _on_stream(self, stream: OutputStream) -> None:
        """A process has written something, or has ended."""
        stream.pump()
        if stream.closed:
            self._ignore(stream.fd)
        elif stream.is_over:
            self._ignore(stream.fd)
            stream.widen()
            self.dropping.add(stream)

    def _drop(self, now: float) -> None:
        """Read what has come of streams over their limit, if it is time."""
        if self._drop_at <= now:
            self._drop_at = now + DROP_SECONDS
            for stream in self.dropping:
                stream.drop()

    def taken(self, place: SlotPlace, *, wrote: bool) -> list[Output | None]:
        """What a run has written to the streams of its place; `wrote`: there may be more in the pipes."""
        found = [stream.end(wrote=wrote) for stream in place.streams]
        if self.dropping:
            for stream in self.dropping.intersection(place.streams):
                self.dropping.remove(stream)
                self._listen(stream)
        return found

    def _on_slot(self, place: SlotPlace, channel: Channel, mask: int) -> None:
        """A slot's process reports that it is done. If it has died instead, a signal says so."""
        if mask & select.EPOLLOUT:
            channel.resume()
        try:
            for is_now, body in place.reader.feed(channel.read(place.reader.missing)):
                self._hear(place, is_now, body)
            if place.reader.broken:
                raise Forged(FOREIGN)
        except Forged as forged:
            self._hang_up(channel)
            self._end(place, str(forged))
        if channel.closed and self._hang_up(channel) and place.pid:
            self._deaf[place.pid] = time.monotonic() + _DEAF_SECONDS

    def _hear(self, place: SlotPlace, is_now: bool, body: Body) -> None:
        """Handle what a slot's process says; `is_now`: about its current run.

        Raises:
            Forged: our code never says this, or not in this way.
        """
        said, ending = read(body)
        run = self._run_in(place)
        if run is None or not is_now:
            if ending is not None:  # it reported an end before: what runs in that process now is unknown
                self.replace(place)
        elif not isinstance(said, RunEnded):
            self._owner.on_said(run, said)
        else:
            assert ending is not None
            if wrong := flaw(ending, said.result, run.launch, asked=run.asked):
                raise Forged(f"{FOREIGN}: an ending whose {wrong}")
            if run.launch.alone and not said.spent:  # the process that had the call ends by itself
                self._await_next(place)
            if place.terms.account is not None and ending.outputs and (names := named(ending.outputs.values())):
                self._bring_in(run, names, said)
            else:
                self._finish(run, said)

    def _await_next(self, place: SlotPlace) -> None:
        """The child of a place's process that had a call ends now, and another one follows."""
        place.clears = True
        self._deaf[place.pid] = time.monotonic() + _DEAF_SECONDS
        if place.priority is Tier.BACKGROUND and not priorities.move((place.pid,), Tier.FOREGROUND):
            place.priority = Tier.FOREGROUND  # else it may take seconds

    def _on_kept(self, place: SlotPlace, keeping: _socket.socket) -> None:
        """A place's process has another clean child ready: the one before has ended with status 0."""
        try:
            said, file = descriptors.receive(keeping, 1)
        except OSError:
            said, file = b"", None
        if not said:  # it has closed its end; if it has died, a signal says so
            self._ignore(keeping.fileno())
            return
        channel = place.channel
        if file is None or not place.keeps or channel is None:
            if file is not None:
                os.close(file)
            self._end(place, FOREIGN)
            return
        channel.drained = False
        while not (channel.closed or channel.drained or place.dying):  # the end of the call may be still unread
            self._on_slot(place, channel, select.EPOLLIN)
        if place.clears and not place.dying:
            self._hang_up(channel)
            self._deaf.pop(place.pid, None)
            place.clean(self._channel(place, _socket.socket(fileno=file)))
            self._owner.on_staffed(place)
            return
        os.close(file)
        if not place.dying:
            place.exited = self._run_in(place) is not None  # the run itself has ended its process
            self.replace(place)

    def _bring_in(self, run: MemberRun, names: list[str], said: RunEnded) -> None:
        """Let a process bring in outputs that the server keeps; the run ends with it."""
        launch = run.launch
        if run.places[0].run is not run or run.verdict is not None:  # it was killed while it waited
            return
        try:
            pid = os.fork()
            if pid == 0:
                self._carry(launch, names, run.places[0].terms)
        except OSError as error:
            say(f"cannot fork: {error}")
            self._to_bring.append((run, names, said))
            self.fork_again = time.monotonic() + _FORK_AGAIN_SECONDS
            return
        self._porters[pid] = run, said

    def _carry(self, launch: Launch, names: list[str], terms: Terms) -> NoReturn:
        """In the forked process: bring in outputs."""
        try:
            self._owner.let_go()
            until = time.monotonic() + ROOM_SECONDS
            for name in names:
                source = dropped_name(name, launch.job, launch.task, launch.rank)
                while True:
                    try:
                        bring_in(os.path.join(terms.dropped, source), terms.uploads, name)
                        break
                    except OSError as error:
                        if error.errno not in NO_ROOM:
                            raise
                        if time.monotonic() >= until:
                            os._exit(_NO_ROOM_STATUS)
                    time.sleep(_ROOM_AGAIN_SECONDS)
            os._exit(0)
        except BaseException:  # noqa: BLE001 - the process ends here in any case
            import traceback

            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)

    def _brought(self, run: MemberRun, said: RunEnded, status: int) -> None:
        """Outputs were brought in, or could not be."""
        if run.places[0].run is not run or run.verdict is not None:  # it was killed meanwhile, and ends
            return
        if os.waitstatus_to_exitcode(status) == _NO_ROOM_STATUS:
            why = f"outputs cannot be kept: there was no room on the disk for {ROOM_SECONDS:g} s"
            said = RunEnded(said.spent, Raw(encode(Ending(Outcome.REFUSED, detail=why, outside=True))), said.wrote)
        elif status != 0:
            why = (
                "outputs cannot be kept: they were changed while they were put, or are not readable; see the node's log"
            )
            said = RunEnded(said.spent, Raw(encode(Ending(Outcome.REFUSED, detail=why))), said.wrote)
        self._finish(run, said)

    def _finish(self, run: MemberRun, said: RunEnded) -> None:
        """A run is over, and with it its process if something of the run remains there."""
        if said.spent:
            self.replace(run.places[0])
        self._owner.finish(run, said.ending, wrote=said.wrote, result=said.result)

    def _run_in(self, place: SlotPlace) -> MemberRun | None:
        """The run that the process of a place has."""
        run = place.run
        return run if run is not None and run.since is not None and run.places[0] is place else None

    def _end(self, place: SlotPlace, detail: str) -> None:
        """End a process that breaks the rules, and its run."""
        run = self._run_in(place)
        if run is not None:
            self._owner.kill(run, Outcome.EXITED, detail)
        if not place.dying:
            self.replace(place)

    def _hang_up(self, channel: Channel) -> bool:
        """Stop listening to a slot's process that closed its side or died; returns whether this is new."""
        if self._handlers.pop(channel.socket.fileno(), None) is None:
            return False
        channel.close()
        return True

    def _leave(self, place: SlotPlace) -> None:
        """Forget the process of a place."""
        assert place.channel is not None
        assert place.keeping is not None
        self._hang_up(place.channel)
        self._ignore(place.keeping.fileno())
        place.keeping.close()
        for stream in place.streams:
            self.dropping.discard(stream)
            self._ignore(stream.fd)
            stream.close()
        place.renew(0, None, None, ())

    def replace(self, place: SlotPlace) -> None:
        """Kill a slot's process with all below it; a new one follows when its end is seen."""
        place.dying = True
        if place.pid:
            _kill(place.pid, place.priority)

    def exchange(self, place: SlotPlace) -> None:
        """Give a place with an idle process a clean one at once; the old one is killed, and reaped later."""
        del self._by_pid[place.pid]
        self._deaf.pop(place.pid, None)
        pid, priority = place.pid, place.priority
        self._leave(place)
        self._fork(place)  # first, because a run waits for it
        _kill(pid, priority)

    def reap(self) -> None:
        """Handle the processes that have ended."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            self._deaf.pop(pid, None)
            if place := self._by_pid.pop(pid, None):
                self._bury(place, status)
            elif porter := self._porters.pop(pid, None):
                self._brought(*porter, status)
        if strays := [pid for pid in children(self._pid) if pid not in self._by_pid and pid not in self._porters]:
            kill_trees(strays)

    def next_look(self) -> float:
        """When something must be checked even if nothing happens, an instant of `time.monotonic`."""
        again = math.inf if self.fork_again is None else self.fork_again
        if not (self.dropping or self._deaf):
            return again
        drop = self._drop_at if self.dropping else math.inf
        return min(again, drop, *self._deaf.values())

    def look(self, now: float) -> None:
        """Do what is due: processes that outlive their channel, streams over their limit, new forks."""
        if self.dropping:
            self._drop(now)
        for pid in [pid for pid, until in self._deaf.items() if until <= now]:
            del self._deaf[pid]
            place = self._by_pid[pid]
            if place.clears:
                self.replace(place)
            else:
                self._end(place, CLOSED)
        if self.fork_again is not None and self.fork_again <= now:
            self.fork_again = None
            waiting, self._to_bring = self._to_bring, []
            for which in waiting:
                self._bring_in(*which)
            for places in self.slots:
                self.fill(places)

    def _bury(self, place: SlotPlace, status: int) -> None:
        """A slot's process has died: report what became of its run, and give the place a new process."""
        channel = place.channel
        assert channel is not None
        channel.drained = False
        while not (channel.closed or channel.drained):  # it may have finished just before
            for is_now, body in place.reader.feed(channel.read(place.reader.missing)):
                run = self._run_in(place)
                with contextlib.suppress(Forged):  # the run itself wrote that; the end of its process counts
                    said, ending = read(body)
                    if run is None or not is_now or not isinstance(said, RunEnded) or ending is None:
                        continue
                    if not flaw(ending, said.result, run.launch, asked=run.asked):
                        self._owner.finish(run, said.ending, result=said.result)
        well = place.used or place.dying
        run = self._run_in(place)
        place.dying = True
        if run is not None:
            code = 0 if place.exited else os.waitstatus_to_exitcode(status)
            ending = _ending(run, code, place.terms.account)
            _take_down_fence(run, place.terms)
            self._owner.finish(run, Raw(encode(ending)))
        self._leave(place)
        if not self._is_wanted(place):
            return
        if well:
            self._fork(place)
        elif self.fork_again is None:  # it cannot even begin: try less often
            self.fork_again = time.monotonic() + _FORK_AGAIN_SECONDS


def _kill(pid: int, priority: Tier) -> None:
    """Kill a slot's process with all below it."""
    if priority is Tier.BACKGROUND:
        priorities.move((pid,), Tier.FOREGROUND)  # else it may take seconds to die; if refused, it does
    kill_trees([pid])


def _take_down_fence(run: MemberRun, terms: Terms) -> None:
    """Do what the process of a run would have done at its end: it puts no outputs any more."""
    from headway.engines.local.slot.fence import Fence  # most processes end by themselves

    with (
        contextlib.suppress(OSError, ValueError),  # a task can write anything there
        terms.account.acting() if terms.account else contextlib.nullcontext(),
    ):
        Fence(terms.fences, run.launch).take_down()


def _ending(run: MemberRun, code: int, account: Account | None) -> Ending:
    """The ending of a run whose process died, killed by us or otherwise."""
    place, launch, since = run.places[0], run.launch, run.since
    assert since is not None
    home = slot_process.scratch(place.stem) if launch.uploads else ""
    paths = ("", "") if launch.function else output.streams(decode_command(launch.work), home)
    with account.acting() if account else contextlib.nullcontext():  # a link may lead where the account may not look
        stdout, stderr = (output.named(path) if path else None for path in paths)
    exit_code: int | None = None
    if run.verdict:
        outcome, detail = run.verdict
    elif code < 0:
        outcome, detail, exit_code = Outcome.SIGNALLED, programs.died_of(code), code
    else:
        outcome, exit_code = Outcome.EXITED, code
        detail = f"exit status {code}, before it returned"
    outside = exit_code is not None and -exit_code in OUTSIDE
    return Ending(outcome, None, detail, exit_code, stdout, stderr, time.monotonic() - since, outside=outside)
