"""The agent of a node of this machine: one process with one thread, between the driver and the slots' processes.

It owns a warm child process a slot, and another for what runs in the background of the slot (`local_tiers`), gives each
what the driver sends, kills what runs too long, takes too much memory or is not wanted any more, and replaces processes
that died. It needs no driver: without one, what runs goes
on, and ends are kept until a driver acknowledges them. Only when none has been heard for long does it end everything.

Every process of a slot is below the slot's process (a subreaper), so that killing is killing a tree. Where a slot's
process itself dies, what it had started falls to the agent (a subreaper too), whose only children otherwise are slots'
processes: any other child is a stray, and killed.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import socket
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

import msgspec
from msgspec import Raw

from headway.engines import local_output as output
from headway.engines import local_slot
from headway.engines import local_tiers as tiers
from headway.engines.base import Ending
from headway.engines.local_frames import (
    VERSION,
    Acknowledge,
    Change,
    Done,
    Fetched,
    Go,
    Hello,
    Kill,
    Launch,
    Limited,
    MemberEnded,
    MemberSaved,
    MembersRefused,
    MemberStarted,
    MemberUnreadable,
    Ping,
    Pong,
    Ready,
    Resize,
    Saved,
    Shelf,
    Standing,
    Stop,
    Suspend,
    Taken,
    ToAgent,
    Unreadable,
    Welcome,
    decode_command,
    decode_from_slot,
    encode,
    frame,
    framed,
    to_agent_decoder,
)
from headway.engines.local_processes import adopt_orphans, children, kill_trees, memory, send, tree
from headway.engines.local_run import Channel, Place, Run
from headway.engines.local_watch import Watch
from headway.model.events import Outcome
from headway.model.tier import Tier

Key = tuple[int, int, int]

_FORK_AGAIN_SECONDS = 1.0
_STRANGERS_MAX = 8


def serve(name: str, folder: str, kept: str, slots: int, orphaned_after: float, listener: int, lock: int) -> NoReturn:
    """Be the agent of a node until the driver stops it, a signal ends it, or no driver is heard for long.

    Args:
        name: of the node.
        folder: of the node; the secret is in the one above.
        kept: folder of the output of attempts.
        slots: how many slots the node has.
        orphaned_after: seconds without a driver.
        listener: socket that drivers connect to.
        lock: descriptor that holds the lock on the folder as long as a process of agent or guard has it open.
    """
    try:
        adopt_orphans()
        with open(os.path.join(folder, os.pardir, os.pardir, "secret"), "rb") as file:
            secret = file.read()
        agent = _Agent(name, folder, kept, slots, orphaned_after, secret, socket.socket(fileno=listener), lock)
        agent.serve()
        os._exit(0)
    except BaseException:  # noqa: BLE001 - the process ends here, whatever it was
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)


class _Agent:
    def __init__(
        self,
        name: str,
        folder: str,
        kept: str,
        slots: int,
        orphaned_after: float,
        secret: bytes,
        listener: socket.socket,
        lock: int,
    ) -> None:
        self.name = name
        self.kept = kept
        self.orphaned_after = orphaned_after
        self.secret = secret
        self.lock = lock
        self.pid = os.getpid()
        self.guard = os.getppid()
        self.heard = time.monotonic()
        self.stopping = False

        self.epoll = select.epoll()
        self.listener = listener
        listener.setblocking(False)
        self.wake, waker = socket.socketpair()
        self.wake.setblocking(False)
        waker.setblocking(False)
        self.waker = waker
        signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, lambda *_: None)
        self.handlers: dict[int, Callable[[int], None]] = {
            listener.fileno(): self.on_caller,
            self.wake.fileno(): self.on_signal,
        }
        for fd in self.handlers:
            self.epoll.register(fd, select.EPOLLIN)

        self.driver: Channel | None = None
        self.starts = False
        self.strangers: list[Channel] = []
        self.decode = to_agent_decoder().decode
        self.functions: Shelf[bytes] = Shelf()
        self.outbox: list[bytes] = []

        self.waiting: deque[Run] = deque()
        self.runs: dict[Key, list[Run]] = {}
        self.ended: dict[Key, list[MemberEnded]] = {}
        self.watch = Watch(kept)
        self.fork_again: float | None = None

        self.folder = folder
        self.count = 0
        self.slots: list[list[Place]] = []  # places by tier; also of slots beyond `count`, idle ones without a process
        self.by_pid: dict[int, Place] = {}
        self.limits_told = False
        tiers.raise_limit()
        gc.collect()
        gc.freeze()
        self.resize(slots)

    def serve(self) -> None:
        """Work until there is a reason to stop; then end everything."""
        while not self.stopping:
            for fd, mask in self.epoll.poll(self.patience()):
                if handler := self.handlers.get(fd):
                    handler(mask)
            if self.watch.is_wanted or self.fork_again is not None:
                self.on_time()
            if time.monotonic() - self.heard > self.orphaned_after:
                self.stopping = True
            if self.outbox:
                sent = b"".join(self.outbox)
                self.outbox.clear()
                if self.driver:
                    self.driver.send(sent)
        self.listener.close()
        while left := children(self.pid):
            kill_trees(left)
            os.waitpid(-1, 0)

    def patience(self) -> float:
        """Seconds until something has to be done even if nothing happens."""
        until = [self.heard + self.orphaned_after, self.watch.next_look()]
        if self.fork_again is not None:
            until.append(self.fork_again)
        return max(0.0, min(until) - time.monotonic())

    # The driver

    def on_caller(self, _: int) -> None:
        """Somebody connects; who it is, is seen when they speak."""
        try:
            connected, _address = self.listener.accept()
        except BlockingIOError:
            return
        stranger = Channel(connected, self.epoll)
        self.strangers.append(stranger)
        self.handlers[connected.fileno()] = lambda _: self.on_stranger(stranger)
        if len(self.strangers) > _STRANGERS_MAX:
            self.dismiss(self.strangers[0])

    def on_stranger(self, stranger: Channel) -> None:
        """Let a driver in that knows the secret, and nobody else; one at a time."""
        hello = None
        for body in stranger.receive()[:1]:
            with contextlib.suppress(msgspec.DecodeError):
                hello = self.decode(body)
        if not isinstance(hello, Hello) or hello.secret != self.secret:
            self.dismiss(stranger)
            return
        if self.driver:
            self.on_driver(0)  # it may have died, unseen yet
        if self.driver:
            stranger.send(frame(Taken()))
            self.dismiss(stranger)
        else:
            self.strangers.remove(stranger)
            self.welcome(stranger, hello)

    def dismiss(self, channel: Channel) -> None:
        """Hang up."""
        if channel in self.strangers:
            self.strangers.remove(channel)
        if channel is self.driver:
            self.driver = None
        del self.handlers[channel.socket.fileno()]
        channel.close()

    def welcome(self, driver: Channel, hello: Hello) -> None:
        """Tell a new driver what there is."""
        self.driver = driver
        self.handlers[driver.socket.fileno()] = self.on_driver
        self.heard = time.monotonic()
        self.starts = hello.starts
        self.functions = Shelf()
        self.outbox.clear()
        self.limits_told = False
        standing = [
            Standing(
                *run.key,
                run.launch.rank,
                run.launch.width,
                run.ready,
                run.since is not None,
                run.started and (self.starts or run.launch.fetches),
                run.tier,
                run.asked,
            )
            for runs in self.runs.values()
            for run in runs
        ]
        ended = [member for members in self.ended.values() for member in members]
        driver.send(frame(Welcome(VERSION, self.pid, self.guard, self.count, standing, ended)))

    def on_driver(self, mask: int) -> None:
        """The driver has sent something, or is gone: then what runs goes on."""
        driver = self.driver
        assert driver is not None
        if mask & select.EPOLLOUT:
            driver.resume()
        self.heard = time.monotonic()
        for body in driver.receive():
            self.obey(self.decode(body), body)
        if driver.closed:
            self.dismiss(driver)

    def obey(self, message: ToAgent, body: bytes) -> None:
        """Do what the driver wants."""
        match message:
            case Launch():
                self.on_launch(message, body)
            case Acknowledge():
                for key in message.keys:
                    self.ended.pop(key, None)
            case Kill():
                for run in tuple(self.runs.get((message.job, message.task, message.attempt), ())):
                    self.kill(run, Outcome.KILLED, "")
            case Go():
                for run in self.runs.get((message.job, message.task, message.attempt), ()):
                    if run.ready:
                        run.ready = False
                        self.begin(run)
            case Change():
                self.change((message.job, message.task, message.attempt), message.tier)
            case Suspend():
                self.suspend(message, body)
            case Ping():
                self.outbox.append(frame(Pong()))
            case Stop():
                self.stopping = True
            case Resize():
                self.resize(message.slots)
                if message.at_once:
                    self.clear()
            case Hello():
                pass  # said already

    # Attempts

    def on_launch(self, launch: Launch, body: bytes) -> None:
        """Run a member now, or when its slots are free."""
        pickled = None
        if launch.function:
            pickled = self.functions.get(launch.function)
            if pickled is None:
                assert launch.pickled is not None, "the driver knows what this agent holds"
                pickled = launch.pickled
                self.functions.put(launch.function, len(pickled), pickled)
        run = Run(launch, body, pickled)
        self.runs.setdefault(run.key, []).append(run)
        if any(number >= self.count for number in launch.slots):
            self.finish(run, Raw(encode(Ending(Outcome.LOST, detail="its node does not have this slot any more"))))
            return
        if not self.waiting and all(place.is_free for place in self.places(run)):
            self.hold(run)
        else:
            self.waiting.append(run)
            self.staff(self.places(run))
            self.advance()

    def places(self, run: Run) -> list[Place]:
        """The places that a run has, or waits for."""
        return run.places or [self.slots[number][run.tier] for number in run.launch.slots]

    def advance(self) -> None:
        """Give free places to those who wait, in order; nobody takes a place that one before him waits for."""
        free = {place for places in self.slots for place in places if place.is_free}
        lucky = []
        for run in self.waiting:
            if not free:
                break
            wanted = self.places(run)
            if free.issuperset(wanted):
                lucky.append(run)
            free.difference_update(wanted)
        for run in lucky:
            self.waiting.remove(run)
            self.hold(run)

    def hold(self, run: Run) -> None:
        """The places are the run's. A gang starts when all its members have theirs."""
        run.places = self.places(run)
        for place in run.places:
            place.run = run
        if run.launch.width > 1:
            run.ready = True
            self.outbox.append(frame(Ready(*run.key, run.launch.rank)))
        else:
            self.begin(run)

    def begin(self, run: Run) -> None:
        """Hand a run to the process of its place."""
        place, launch = run.places[0], run.launch
        if place.dying:
            return  # its next process begins it
        limit = launch.memory_limit
        if limit is not None and place.used and memory(place.pid, limit) > limit // 2:
            self.replace(place)  # what earlier tasks have left there does not count; the next process begins it
            return
        if not self.fits(place, run):
            self.replace(place)
            return
        body = run.body
        if launch.function:
            pickled: bytes | None = None
            if place.functions.get(launch.function) is None:
                assert run.pickled is not None
                pickled = run.pickled
                place.functions.put(launch.function, len(pickled), True)
            if pickled is not launch.pickled:
                body = encode(msgspec.structs.replace(launch, pickled=pickled))
        place.used = True
        assert place.channel is not None
        place.channel.send(framed(body))
        run.body = b""
        run.since = time.monotonic()
        self.watch.begin(run)
        if not launch.fetches:
            run.started = True
            if self.starts:
                self.outbox.append(frame(MemberStarted(*run.key, launch.rank)))

    def fits(self, place: Place, run: Run) -> bool:
        """Have the process of a place where its run belongs; False: it cannot get there, and a new one can."""
        if run.launch.processors != place.processors:
            place.processors = run.launch.processors
            try:
                tiers.pin(place.pid, place.processors or os.sched_getaffinity(0))
            except OSError as error:  # they were taken from this node since its engine saw them
                print(f"slot {place.number} is not pinned to {place.processors}: {error}", file=sys.stderr, flush=True)
        if place.priority is run.tier:
            return True
        refused = tiers.move((place.pid,), run.tier)
        if not refused:
            place.priority = run.tier
        elif run.tier is Tier.FOREGROUND:
            return False
        if run.tier is Tier.BACKGROUND and not self.limits_told:
            self.limits_told = True
            if limits := refused or tiers.one_way():
                self.outbox.append(frame(Limited(limits)))
        return True

    def change(self, key: Key, tier: Tier) -> None:
        """Give the members of an attempt the other places of their slots, all or none."""
        runs = self.runs.get(key, ())
        begun = [run.places[0] for run in runs if run.since is not None and run.tier is not tier]
        if refused := tiers.move([place.pid for place in begun if place.pid], tier):
            self.outbox.append(frame(MembersRefused(*key, tier, f"{refused}. {tiers.HINT}.")))
            return
        for place in begun:
            place.priority = tier
        for run in runs:
            run.tier = tier
            if run.since is not None:
                self.watch.put(run)
            for place in run.places:
                if place.tier is not tier:
                    pair = self.slots[place.number]
                    pair.reverse()
                    pair[0].tier, pair[1].tier = Tier.FOREGROUND, Tier.BACKGROUND
        self.staff(place for run in runs for number in run.launch.slots for place in self.slots[number])
        self.advance()

    def suspend(self, message: Suspend, body: bytes) -> None:
        """Have the members of an attempt save and end; what takes too long is killed."""
        for run in tuple(self.runs.get((message.job, message.task, message.attempt), ())):
            if run.since is None or not run.started:
                self.kill(run, Outcome.KILLED, "")
            elif run.verdict is None and not run.asked:
                run.asked = True
                self.watch.ask(run, message.grace)
                place = run.places[0]
                # It shall not take long, whoever is before it: where that is refused it takes as long as it takes.
                if not tiers.move((place.pid,), Tier.FOREGROUND):
                    place.priority = Tier.FOREGROUND
                assert place.channel is not None
                place.channel.send(framed(body))
                if not run.launch.function:
                    for pid in tree(place.pid)[1:]:
                        send(pid, signal.SIGTERM)

    def on_fetched(self, run: Run) -> None:
        """A run has its inputs; only now its time counts."""
        run.started = True
        self.watch.fetched(run)
        self.outbox.append(frame(MemberStarted(*run.key, run.launch.rank)))

    def kill(self, run: Run, outcome: Outcome, detail: str) -> None:
        """End a run, whatever it is doing; its end is told when its process is buried."""
        if run.verdict is not None:
            return
        run.verdict = (outcome, detail)
        if run.since is not None:
            self.replace(run.places[0])
            return
        if run in self.waiting:
            self.waiting.remove(run)
        self.finish(run, Raw(encode(Ending(outcome, detail=detail))))

    def finish(self, run: Run, ending: Raw) -> None:
        """A run is over: tell the driver, and keep it until it says that it knows."""
        launch = run.launch
        runs = self.runs[run.key]
        runs.remove(run)
        if not runs:
            del self.runs[run.key]
        for place in run.places:
            if place.run is run:
                place.run = None
        if run.asked and not launch.function and self.watch.has_saved(run):
            self.outbox.append(frame(MemberSaved(*run.key, launch.rank)))
        self.watch.end(run)
        member = MemberEnded(*run.key, launch.rank, launch.width, ending)
        self.ended.setdefault(run.key, []).append(member)
        self.outbox.append(frame(member))
        if self.waiting:
            self.advance()
        self.retire()

    def on_time(self) -> None:
        """See to what is due: limits, checkpoints of programs, processes that could not be forked."""
        now = time.monotonic()
        for run, outcome, detail in self.watch.exceeded(now):
            self.kill(run, outcome, detail)
        for run in self.watch.saved(now):
            self.outbox.append(frame(MemberSaved(*run.key, run.launch.rank)))
        if self.fork_again is not None and self.fork_again <= now:
            self.fork_again = None
            for places in self.slots:
                self.staff(places)

    # The slots' processes

    def resize(self, count: int) -> None:
        """Have so many slots; those beyond as long as something runs there or waits for them."""
        self.count = count
        while len(self.slots) < count:
            number = len(self.slots)
            stem = os.path.join(self.folder, f"slot-{number}")
            self.slots.append([Place(number, Tier.FOREGROUND, stem), Place(number, Tier.BACKGROUND, f"{stem}-behind")])
        for places in self.slots[:count]:
            self.staff(places)
        self.retire()

    def clear(self) -> None:
        """Kill whatever runs on slots that are no more, or waits for one of them."""
        runs = [run for runs in self.runs.values() for run in runs]
        for run in [run for run in runs if any(number >= self.count for number in run.launch.slots)]:
            self.kill(run, Outcome.KILLED, "")

    def is_wanted(self, place: Place) -> bool:
        """Whether a place needs a process; one in the background only from when it is first used."""
        if place.run is not None or (place.tier is Tier.FOREGROUND and place.number < self.count):
            return True
        return any(place in self.places(run) for run in self.waiting)

    def staff(self, places: Iterable[Place]) -> None:
        """Give processes to those of some places that have none and need one."""
        for place in places:
            if place.pid == 0 and self.fork_again is None and self.is_wanted(place):
                self.fork(place)

    def retire(self) -> None:
        """Let the processes of slots go that the node does not have any more."""
        for places in self.slots[self.count :]:
            for place in places:
                if place.pid and not place.dying and not self.is_wanted(place):
                    self.replace(place)

    def fork(self, place: Place) -> None:
        """Give a place a new process, warm at once: it is a copy of this one. What waited for it goes on."""
        ours, theirs = socket.socketpair()
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGCHLD))
        try:
            pid = os.fork()
            if pid == 0:
                self.be(place, theirs, ours, blocked)
        except OSError as error:
            print(f"cannot fork: {error}", file=sys.stderr, flush=True)
            self.fork_again = time.monotonic() + _FORK_AGAIN_SECONDS
            ours.close()
            return
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
            theirs.close()
        channel = Channel(ours, self.epoll)
        self.handlers[ours.fileno()] = lambda mask: self.on_slot(place, channel, mask)
        self.by_pid[pid] = place
        place.renew(pid, channel)
        run = place.run
        if run is not None and run.places[0] is place and run.since is None and not run.ready:
            self.begin(run)
        self.advance()

    def be(self, place: Place, theirs: socket.socket, ours: socket.socket, blocked: Any) -> NoReturn:
        """In the forked process: let go of what is the agent's, then be the slot's process."""
        try:
            self.epoll.close()
            mine = [self.listener, self.wake, self.waker, ours, *(c.socket for c in self.strangers)]
            mine += [
                channel.socket
                for channel in (self.driver, *(place.channel for places in self.slots for place in places))
                if channel
            ]
            signal.set_wakeup_fd(-1)
            for one in mine:
                one.close()
            os.close(self.lock)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
            local_slot.serve(theirs, self.pid, place.stem, self.kept, self.name)
        except BaseException:  # noqa: BLE001 - the process ends here, whatever it was
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(70)

    def on_slot(self, place: Place, channel: Channel, mask: int) -> None:
        """A slot's process says that it is done. If it is dead instead, a signal says so."""
        if mask & select.EPOLLOUT:
            channel.resume()
        for body in channel.receive():
            run = place.run
            if run is None or run.since is None:
                continue
            try:
                said = decode_from_slot(body)
            except msgspec.DecodeError:
                self.kill(run, Outcome.EXITED, "wrote to a file descriptor that was not its own")
                continue
            match said:
                case Fetched():
                    self.on_fetched(run)
                    continue
                case Saved():
                    self.outbox.append(frame(MemberSaved(*run.key, run.launch.rank)))
                    continue
                case Unreadable():
                    self.outbox.append(frame(MemberUnreadable(*run.key[:2], said.detail)))
                    continue
            if said.spent:
                self.replace(place)
            self.finish(run, said.ending)
        if channel.closed:
            self.hang_up(channel)

    def hang_up(self, channel: Channel) -> None:
        """Listen no more to a slot's process that has closed its side, or is dead."""
        if self.handlers.pop(channel.socket.fileno(), None):
            channel.close()

    def replace(self, place: Place) -> None:
        """Kill a slot's process with all that is below it; a new one follows when it is buried."""
        place.dying = True
        if place.pid:
            if place.priority is Tier.BACKGROUND:
                tiers.move((place.pid,), Tier.FOREGROUND)  # else it may take seconds to die; if refused, it does
            kill_trees([place.pid])

    def on_signal(self, _: int) -> None:
        """A child has ended, or somebody wants this process to end."""
        numbers = self.wake.recv(4096)
        if signal.SIGTERM in numbers:
            self.stopping = True
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            if place := self.by_pid.pop(pid, None):
                self.bury(place, status)
        if strays := [pid for pid in children(self.pid) if pid not in self.by_pid]:
            kill_trees(strays)

    def bury(self, place: Place, status: int) -> None:
        """A slot's process is dead: tell what became of its run, and give the place a new one."""
        channel = place.channel
        assert channel is not None
        channel.drained = False
        while not (channel.closed or channel.drained):  # it may have been done just before
            for body in channel.receive():
                if place.run is not None and place.run.since is not None:
                    with contextlib.suppress(msgspec.DecodeError):  # the run wrote that; its process's end counts
                        if isinstance(said := decode_from_slot(body), Done):
                            self.finish(place.run, said.ending)
        self.hang_up(channel)
        well = place.used or place.dying
        place.renew(0, None)
        run = place.run
        if run is not None and run.since is not None and run.places[0] is place:
            self.finish(run, Raw(encode(self.died(run, run.since, os.waitstatus_to_exitcode(status)))))
        if not self.is_wanted(place):
            return
        if well:
            self.fork(place)
        elif self.fork_again is None:  # it cannot even begin: try less often
            self.fork_again = time.monotonic() + _FORK_AGAIN_SECONDS

    def died(self, run: Run, since: float, code: int) -> Ending:
        """The ending of a run whose process died, by our hand or otherwise."""
        place, launch = run.places[0], run.launch
        home = local_slot.scratch(place.stem) if launch.uploads else ""
        paths = ("", "") if launch.function else output.streams(decode_command(launch.work), home)
        stdout, stderr = (
            output.named(path)
            if path
            else output.keep(f"{place.stem}.{suffix}", output.kept_path(self.kept, launch, suffix))
            for path, suffix in zip(paths, output.SUFFIXES, strict=True)
        )
        exit_code: int | None = None
        if run.verdict:
            outcome, detail = run.verdict
        elif code < 0:
            outcome, detail, exit_code = Outcome.SIGNALLED, local_slot.ended_with(code), code
            if code == -signal.SIGKILL:
                detail += ": sent by somebody else, or by the kernel when memory ran out"
        else:
            outcome, exit_code = Outcome.EXITED, code
            detail = f"exit status {code}, before it returned"
        return Ending(outcome, None, detail, exit_code, stdout, stderr, seconds=time.monotonic() - since)
