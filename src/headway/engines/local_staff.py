"""The processes of a node's slots: one a place, warm, forked from the agent, replaced when they die."""

from __future__ import annotations

import contextlib
import math
import os
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from typing import Any, Final, NoReturn, Protocol

from msgspec import Raw

from headway.engines import local_output as output
from headway.engines import local_slot
from headway.engines import local_tiers as tiers
from headway.engines.base import OUTSIDE, Ending, Output
from headway.engines.local_frames import Done, Fetched, Launch, Saved, Unreadable, Want, decode_command, encode
from headway.engines.local_porter import bring_in, dropped_name, named
from headway.engines.local_processes import children, close_others, kill_trees
from headway.engines.local_run import Channel, Place, Run
from headway.engines.local_seal import CLOSED, FOREIGN, Forged, flaw, read
from headway.engines.local_streams import DROP_SECONDS, Stream
from headway.engines.local_terms import Account, Terms
from headway.model.events import Outcome
from headway.model.tier import Tier

Handlers = dict[int, Callable[[int], None]]
"""What is called when a descriptor is ready, with what it is ready for."""

_FORK_AGAIN_SECONDS: Final = 1.0

_DEAF_SECONDS: Final = 1.0
"""How long a process may outlive its end of the channel: it is dying, unless it has closed that end."""


class Owner(Protocol):
    """The agent, whose runs these processes run."""

    def let_go(self) -> None:
        """In a process that was just forked: close what is the agent's."""

    def waits_for(self, place: Place) -> bool:
        """Whether a run waits for this place."""

    def on_staffed(self, place: Place) -> None:
        """A place has a new process."""

    def on_said(self, run: Run, said: Fetched | Saved | Unreadable | Want) -> None:
        """The process of a run has said something of it."""

    def kill(self, run: Run, outcome: Outcome, detail: str) -> None:
        """End a run, whatever it is doing."""

    def finish(self, run: Run, ending: Raw, *, wrote: bool = True) -> None:
        """A run is over; `wrote`: it may have written what has not been read yet."""


class Staff:
    """The slots of a node and their processes.

    Args:
        owner: the agent.
        epoll, handlers: where processes are listened to.
        terms: of the node.

    Attributes:
        slots: places by tier; also of slots beyond `count`, idle ones without a process.
        count: how many slots the node has.
        dropping: streams that are over their bound and read every `DROP_SECONDS`.
        used_up: places whose process has run what nothing of the same family follows.
        fork_again: when it is tried again to fork what could not be forked; None: all could be.
    """

    def __init__(self, owner: Owner, epoll: select.epoll, handlers: Handlers, terms: Terms) -> None:
        self.slots: list[list[Place]] = []
        self.count = 0
        self.fork_again: float | None = None
        self.dropping: set[Stream] = set()
        self.used_up: set[Place] = set()
        self._owner = owner
        self._epoll = epoll
        self._handlers = handlers
        self._terms = terms
        self._drop_at = 0.0
        self._pid = os.getpid()
        self._by_pid: dict[int, Place] = {}
        self._porters: dict[int, tuple[Run, Done]] = {}
        self._deaf: dict[int, float] = {}

    def resize(self, count: int) -> None:
        """Have so many slots; those beyond as long as something runs there or waits for them."""
        self.count = count
        while len(self.slots) < count:
            number = len(self.slots)
            stem = os.path.join(self._terms.scratch, f"slot-{number}")
            self.slots.append([Place(number, Tier.FOREGROUND, stem), Place(number, Tier.BACKGROUND, f"{stem}-behind")])
        for places in self.slots[:count]:
            self.fill(places)
        self.retire()

    def _is_wanted(self, place: Place) -> bool:
        """Whether a place needs a process; one in the background only from when it is first used."""
        if place.run is not None or (place.tier is Tier.FOREGROUND and place.number < self.count):
            return True
        return self._owner.waits_for(place)

    def fill(self, places: Iterable[Place]) -> None:
        """Give processes to those of some places that have none and need one."""
        for place in places:
            if place.pid == 0 and self.fork_again is None and self._is_wanted(place):
                self._fork(place)

    def retire(self) -> None:
        """Let the processes of slots go that the node does not have any more."""
        for places in self.slots[self.count :]:
            for place in places:
                if place.pid and not place.dying and not self._is_wanted(place):
                    self.replace(place)

    def _fork(self, place: Place) -> None:
        """Give a place a new process, warm at once: it is a copy of this one. What waited for it goes on."""
        ours, theirs = socket.socketpair()
        reading, writing = zip(os.pipe(), os.pipe(), strict=True)
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGCHLD))
        try:
            pid = os.fork()
            if pid == 0:
                self._be(place, theirs, writing, blocked)
        except OSError as error:
            print(f"cannot fork: {error}", file=sys.stderr, flush=True)
            self.fork_again = time.monotonic() + _FORK_AGAIN_SECONDS
            ours.close()
            for fd in reading:
                os.close(fd)
            return
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
            theirs.close()
            for fd in writing:
                os.close(fd)
        channel = Channel(ours, self._epoll)
        self._handlers[ours.fileno()] = lambda mask: self._on_slot(place, channel, mask)
        terms = self._terms
        streams = tuple(Stream(fd, number, terms.kept, terms.output_max) for number, fd in enumerate(reading, 1))
        for stream in streams:
            os.set_blocking(stream.fd, False)
            self._listen(stream)
        self._by_pid[pid] = place
        place.renew(pid, channel, streams)
        self._owner.on_staffed(place)

    def _be(self, place: Place, theirs: socket.socket, writing: tuple[int, int], blocked: Any) -> NoReturn:
        """In the forked process: let go of what is the agent's, then be the slot's process."""
        try:
            self._owner.let_go()
            for number, fd in enumerate(writing, 1):
                os.dup2(fd, number)
            close_others({0, 1, 2, theirs.fileno()})
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
            local_slot.serve(theirs, self._pid, place.stem, self._terms)
        except BaseException:  # noqa: BLE001 - the process ends here, whatever it was
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(70)

    def _listen(self, stream: Stream) -> None:
        """Have a stream read when there is something."""
        self._epoll.register(stream.fd, select.EPOLLIN)
        self._handlers[stream.fd] = lambda _: self._on_stream(stream)

    def _ignore(self, stream: Stream) -> None:
        """Listen to a stream no more."""
        if self._handlers.pop(stream.fd, None):
            self._epoll.unregister(stream.fd)

    def _on_stream(self, stream: Stream) -> None:
        """A process has written something, or has ended."""
        stream.pump()
        if stream.closed:
            self._ignore(stream)
        elif stream.is_over:
            self._ignore(stream)
            stream.widen()
            self.dropping.add(stream)

    def _drop(self, now: float) -> None:
        """Read what has come of streams that are over their bound, if it is time to."""
        if self._drop_at <= now:
            self._drop_at = now + DROP_SECONDS
            for stream in self.dropping:
                stream.drop()

    def taken(self, place: Place, *, wrote: bool) -> list[Output | None]:
        """What a run has written to the streams of its place; `wrote`: there may be more of it in the pipes."""
        found = [stream.end(wrote=wrote) for stream in place.streams]
        if self.dropping:
            for stream in self.dropping.intersection(place.streams):
                self.dropping.remove(stream)
                self._listen(stream)
        return found

    def _on_slot(self, place: Place, channel: Channel, mask: int) -> None:
        """A slot's process says that it is done. If it is dead instead, a signal says so."""
        if mask & select.EPOLLOUT:
            channel.resume()
        try:
            for is_now, body in place.reader.feed(channel.read()):
                self._hear(place, is_now, body)
            if place.reader.broken:
                raise Forged(FOREIGN)
        except Forged as forged:
            self._hang_up(channel)
            self._end(place, str(forged))
        if channel.closed and self._hang_up(channel) and place.pid:
            self._deaf[place.pid] = time.monotonic() + _DEAF_SECONDS

    def _hear(self, place: Place, is_now: bool, body: bytes) -> None:
        """See to what a slot's process says; `is_now`: of what it was given last.

        Raises:
            Forged: nothing but our code says that, and not in that way.
        """
        said, ending = read(body)
        run = self._run_in(place)
        if run is None or not is_now:
            if ending is not None:  # it has been said to have ended before: what runs in that process nobody knows
                self.replace(place)
        elif not isinstance(said, Done):
            self._owner.on_said(run, said)
        else:
            assert ending is not None
            if wrong := flaw(ending, run.launch, asked=run.asked):
                raise Forged(f"{FOREIGN}: an ending whose {wrong}")
            if said.spent:
                self.replace(place)
            if self._terms.account is not None and ending.outputs and (names := named(ending.outputs.values())):
                self._bring_in(run, names, said)
            else:
                self._owner.finish(run, said.ending, wrote=said.wrote)
            if run.launch.alone:
                self.used_up.add(place)

    def _bring_in(self, run: Run, names: list[str], said: Done) -> None:
        """Have a process bring in outputs that the server shall keep; the run ends with it."""
        launch = run.launch
        try:
            pid = os.fork()
            if pid == 0:
                self._carry(launch, names)
        except OSError as error:
            self._owner.finish(run, Raw(encode(Ending(Outcome.REFUSED, detail=f"outputs cannot be kept: {error}"))))
            return
        self._porters[pid] = run, said

    def _carry(self, launch: Launch, names: list[str]) -> NoReturn:
        """In the forked process: bring in outputs."""
        try:
            self._owner.let_go()
            for name in names:
                source = dropped_name(name, launch.job, launch.task, launch.rank)
                bring_in(os.path.join(self._terms.dropped, source), self._terms.uploads, name)
            os._exit(0)
        except BaseException:  # noqa: BLE001 - the process ends here, whatever it was
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)

    def _brought(self, run: Run, said: Done, status: int) -> None:
        """Outputs were brought in, or could not be."""
        if run.places[0].run is not run or run.verdict is not None:  # it was killed meanwhile, and has ended, or will
            return
        ending = said.ending
        if status != 0:
            why = (
                "outputs cannot be kept: they were changed while they were put, or there is no room; see the node's log"
            )
            ending = Raw(encode(Ending(Outcome.REFUSED, detail=why)))
        self._owner.finish(run, ending, wrote=said.wrote)

    def _run_in(self, place: Place) -> Run | None:
        """What the process of a place was given."""
        run = place.run
        return run if run is not None and run.since is not None and run.places[0] is place else None

    def _end(self, place: Place, detail: str) -> None:
        """End a process that does not keep to what was agreed, and what it runs."""
        run = self._run_in(place)
        if run is not None:
            self._owner.kill(run, Outcome.EXITED, detail)
        if not place.dying:
            self.replace(place)

    def _hang_up(self, channel: Channel) -> bool:
        """Listen no more to a slot's process that has closed its side, or is dead; whether that was not so before."""
        if self._handlers.pop(channel.socket.fileno(), None) is None:
            return False
        channel.close()
        return True

    def _leave(self, place: Place) -> None:
        """Have nothing to do any more with the process of a place."""
        assert place.channel is not None
        self._hang_up(place.channel)
        for stream in place.streams:
            self.dropping.discard(stream)
            self._ignore(stream)
            stream.close()
        place.renew(0, None, ())

    def replace(self, place: Place) -> None:
        """Kill a slot's process with all that is below it; a new one follows when it is buried."""
        place.dying = True
        if place.pid:
            _kill(place.pid, place.priority)

    def renew(self) -> None:
        """Exchange processes that are of no more use to anybody, so that who comes next need not wait for that."""
        for place in self.used_up:
            if place.run is None and place.used and not place.dying and place.number < self.count:
                self.exchange(place)
        self.used_up.clear()

    def exchange(self, place: Place) -> None:
        """Give a place whose process is idle a clean one at once; the other is killed, and buried when it has ended."""
        del self._by_pid[place.pid]
        self._deaf.pop(place.pid, None)
        pid, priority = place.pid, place.priority
        self._leave(place)
        self._fork(place)  # first, for somebody waits for it
        _kill(pid, priority)

    def reap(self) -> None:
        """See to the processes that have ended."""
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
        """When something has to be seen to even if nothing happens, an instant of `time.monotonic`."""
        again = math.inf if self.fork_again is None else self.fork_again
        if not (self.dropping or self._deaf):
            return again
        drop = self._drop_at if self.dropping else math.inf
        return min(again, drop, *self._deaf.values())

    def look(self, now: float) -> None:
        """See to what is due: processes that live on without their channel, streams over their bound, new forks."""
        if self.dropping:
            self._drop(now)
        for pid in [pid for pid, until in self._deaf.items() if until <= now]:
            del self._deaf[pid]
            self._end(self._by_pid[pid], CLOSED)
        if self.fork_again is not None and self.fork_again <= now:
            self.fork_again = None
            for places in self.slots:
                self.fill(places)

    def _bury(self, place: Place, status: int) -> None:
        """A slot's process is dead: tell what became of its run, and give the place a new one."""
        channel = place.channel
        assert channel is not None
        channel.drained = False
        while not (channel.closed or channel.drained):  # it may have been done just before
            for is_now, body in place.reader.feed(channel.read()):
                run = self._run_in(place)
                with contextlib.suppress(Forged):  # the run wrote that; its process's end counts
                    said, ending = read(body)
                    if run is None or not is_now or not isinstance(said, Done) or ending is None:
                        continue
                    if not flaw(ending, run.launch, asked=run.asked):
                        self._owner.finish(run, said.ending)
        well = place.used or place.dying
        run = self._run_in(place)
        place.dying = True
        if run is not None:
            ending = _ending(run, os.waitstatus_to_exitcode(status), self._terms.account)
            self._owner.finish(run, Raw(encode(ending)))
        self._leave(place)
        if not self._is_wanted(place):
            return
        if well:
            self._fork(place)
        elif self.fork_again is None:  # it cannot even begin: try less often
            self.fork_again = time.monotonic() + _FORK_AGAIN_SECONDS


def _kill(pid: int, priority: Tier) -> None:
    """Kill a slot's process with all that is below it."""
    if priority is Tier.BACKGROUND:
        tiers.move((pid,), Tier.FOREGROUND)  # else it may take seconds to die; if refused, it does
    kill_trees([pid])


def _ending(run: Run, code: int, account: Account | None) -> Ending:
    """The ending of a run whose process died, by our hand or otherwise."""
    place, launch, since = run.places[0], run.launch, run.since
    assert since is not None
    home = local_slot.scratch(place.stem) if launch.uploads else ""
    paths = ("", "") if launch.function else output.streams(decode_command(launch.work), home)
    with account.acting() if account else contextlib.nullcontext():  # a link may lead where it may not look
        stdout, stderr = (output.named(path) if path else None for path in paths)
    exit_code: int | None = None
    if run.verdict:
        outcome, detail = run.verdict
    elif code < 0:
        outcome, detail, exit_code = Outcome.SIGNALLED, local_slot.died_of(code), code
    else:
        outcome, exit_code = Outcome.EXITED, code
        detail = f"exit status {code}, before it returned"
    outside = exit_code is not None and -exit_code in OUTSIDE
    return Ending(outcome, None, detail, exit_code, stdout, stderr, time.monotonic() - since, outside=outside)
