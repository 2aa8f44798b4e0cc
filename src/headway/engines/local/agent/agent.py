"""The agent of a node of this machine: one process with one thread, between the driver and the slots' processes.

It owns a warm child process for each slot, and another one for runs in the background of the slot (`tiers`). It
gives them what the driver sends, kills what runs too long, takes too much memory or is no longer wanted, and replaces
processes that died. It needs no driver: without one, runs continue, and ends are kept until a driver acknowledges them.
Only if no driver was heard for long, it ends everything.

Every process of a slot is below the slot's process (a subreaper), so killing means killing a tree. If a slot's process
itself dies, the processes that it had started become children of the agent (a subreaper too). All other children of the
agent are slots' processes: any other child is a stray, and is killed.
"""

from __future__ import annotations

import _socket
import contextlib
import gc
import math
import os
import resource
import select
import signal
import sys
import time
from collections import deque
from typing import TYPE_CHECKING, Final, NoReturn

import msgspec
from msgspec import Raw

from headway.engines.base import BEHIND_SECONDS, Ending
from headway.engines.local.agent import priorities, warm
from headway.engines.local.agent.run import MemberRun, SlotPlace
from headway.engines.local.agent.said import say
from headway.engines.local.agent.staff import Handlers, Staff
from headway.engines.local.agent.transport import Door, Line, SocketDoor
from headway.engines.local.agent.watch import Watch
from headway.engines.local.shared import stores
from headway.engines.local.shared.checkpoints import CHECKPOINT_LOOK_SECONDS
from headway.engines.local.shared.frames import (
    VERSION,
    Acknowledge,
    Body,
    Change,
    Discard,
    Fetched,
    FileGiven,
    FilePiece,
    FileWanted,
    Go,
    HasDriver,
    Hello,
    Kill,
    Launch,
    Limited,
    MemberEnded,
    MemberSaved,
    MembersRefused,
    MemberStalled,
    MemberStarted,
    MemberUnreadable,
    Ping,
    Pong,
    Read,
    Ready,
    Resize,
    Saved,
    Shelf,
    Show,
    Stalled,
    Standing,
    Stop,
    Suspend,
    ToAgent,
    Unreadable,
    Want,
    Welcome,
    encode,
    encoded,
    frame,
    in_parts,
    joined,
    to_agent_decoder,
)
from headway.engines.local.shared.processes import adopt_orphans, children, kill_trees, memory, send, tree
from headway.engines.local.shared.seal import new_seal, size_max, to_slot
from headway.engines.local.shared.terms import NO_ROOM, WANTED_MAX, Account, Terms
from headway.errors import HeadwayError
from headway.model.outcome import Outcome
from headway.model.tier import Tier

if TYPE_CHECKING:
    from headway.engines.local.agent.shelf import NodeShelf

Key = tuple[int, int, int]

_STRANGERS_MAX = 8

ENDS_WAIT_SECONDS: Final = 0.02
"""So long at most ends wait for others on a node apart, where each message passes through several processes."""

_AHEAD_ENOUGH: Final = 8
"""With so many runs ahead for each slot, none will be idle because an end is told later."""

_SAVED_AGAIN_SECONDS = CHECKPOINT_LOOK_SECONDS / 2
_DIGEST = "[0-9a-f]{64}"
_UNREADABLE_MAX = 8
_DETAIL_MAX = 2000


def serve(terms: str, listener: int, lock: int) -> NoReturn:
    """Be the agent of a node until the driver stops it, a signal ends it, or no driver is heard for long.

    Args:
        terms: `Terms` as JSON.
        listener: socket that drivers connect to.
        lock: descriptor that holds the lock on the folder while a process of agent or guard has it open.
    """
    try:
        import socket  # large, and runners of Slurm have no door

        adopt_orphans()
        warm.up()
        door = SocketDoor(socket.socket(fileno=listener))
        known = msgspec.json.decode(terms, type=Terms)
        with open(os.path.join(known.folder, os.pardir, os.pardir, "secret"), "rb") as file:
            agent = Agent(known, door, lock, file.read())
        agent.serve()
        os._exit(0)
    except BaseException:  # noqa: BLE001 - the process ends here in any case
        import traceback

        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)


def _shelf_of(terms: Terms) -> NodeShelf:
    """The files of a node apart."""
    from headway.engines.local.agent.shelf import NodeShelf  # large, and only such a node needs it

    return NodeShelf(terms)


class Agent:
    """Supervises what runs on a node, whatever way drivers reach it.

    Args:
        door: where drivers connect.
        lock: see `serve`.
        secret: what drivers have to know.
    """

    def __init__(self, terms: Terms, door: Door, lock: int, secret: bytes) -> None:
        self.terms = terms
        self.secret = secret
        self.lock = lock
        self.pid = os.getpid()
        self.guard = os.getppid()
        self.heard = time.monotonic()
        self.stopping = False

        self.epoll = select.epoll()
        self.door = door
        self.wake, waker = _socket.socketpair()
        self.wake.setblocking(False)
        waker.setblocking(False)
        self.waker = waker
        signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, lambda *_: None)
        self.handlers: Handlers = {
            door.fileno(): self.on_caller,
            self.wake.fileno(): self.on_signal,
        }
        for fd in self.handlers:
            self.epoll.register(fd, select.EPOLLIN)

        self.driver: Line | None = None
        self.starts = False
        self.strangers: list[Line] = []
        self.decode = to_agent_decoder().decode
        self.functions: Shelf[bytes] = Shelf()
        self.outbox: list[Body] = []
        self.patient = 0  # so many of these are ends that may wait for others
        self.tell_at = math.inf  # until this instant

        self.waiting: deque[MemberRun] = deque()
        self.look_behind_at = math.inf
        self.runs: dict[Key, list[MemberRun]] = {}
        self.ended: dict[Key, list[MemberEnded]] = {}
        self.watch = Watch()
        self.staff = Staff(self, self.epoll, self.handlers, terms)
        self.shelf = _shelf_of(terms) if terms.apart else None
        self.missing: dict[str, list[MemberRun]] = {}
        self.prepared: dict[int, Account] = {}
        self.limits_told = False
        self.files_max = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (self.files_max[1], self.files_max[1]))  # three a slot are open
        priorities.raise_limit()
        gc.freeze()
        self.staff.resize(terms.slots)

    def serve(self) -> None:
        """Work until there is a reason to stop; then end everything."""
        while not self.stopping:
            self.turn()
        self.end()

    def turn(self) -> None:
        """Wait until something happens, and do what follows."""
        for fd, mask in self.epoll.poll(self.patience()):
            if handler := self.handlers.get(fd):
                handler(mask)
        if self.watch.is_wanted or self.staff.next_look() < math.inf:
            self.on_time()
        now = time.monotonic()
        if now >= self.look_behind_at:
            self.give_back(now)
        if now - self.heard > self.terms.orphaned_after:
            self.stopping = True
        if self.outbox and not self.gathers(now):
            for sent in joined(self.emptied()):
                if self.driver:
                    self.driver.send(sent)

    def emptied(self) -> list[Body]:
        """What is to be told; then there is nothing to tell."""
        told, self.outbox = self.outbox, []
        self.patient, self.tell_at = 0, math.inf
        return told

    def gathers(self, now: float) -> bool:
        """All that is to be told are ends that may wait for others."""
        is_busy = len(self.waiting) >= _AHEAD_ENOUGH * self.staff.count and not self.stopping
        return is_busy and self.patient == len(self.outbox) and now < self.tell_at

    def end(self) -> None:
        """End everything that runs below this process."""
        self.door.close()
        while left := children(self.pid):
            kill_trees(left)
            os.waitpid(-1, 0)

    def patience(self) -> float:
        """Seconds until something must be done even if nothing happens."""
        until = min(self.heard + self.terms.orphaned_after, self.watch.next_look(), self.staff.next_look())
        until = min(until, self.look_behind_at, self.tell_at)
        return max(0.0, until - time.monotonic())

    def on_signal(self, _: int) -> None:
        """A child has ended, or this process shall end."""
        if signal.SIGTERM in self.wake.recv(4096):
            self.stopping = True
        self.staff.reap()

    def let_go(self) -> None:
        """In a process that was just forked: close what belongs to the agent alone."""
        self.epoll.close()
        signal.set_wakeup_fd(-1)
        for one in (self.door, self.wake, self.waker):
            one.close()
        for line in (*self.strangers, *((self.driver,) if self.driver else ())):
            line.drop()
        os.close(self.lock)
        if self.terms.keeps_apart:  # messages of others are not for tasks to see
            self.secret = b""
            self.functions = Shelf()
            self.emptied()
            self.ended.clear()
        resource.setrlimit(resource.RLIMIT_NOFILE, self.files_max)

    # The driver

    def on_caller(self, _: int) -> None:
        """Something connects; its first message says what it is."""
        stranger = self.door.accept(self.epoll)
        if stranger is None:
            return
        self.strangers.append(stranger)
        self.handlers[stranger.fileno()] = lambda _: self.on_stranger(stranger)
        if len(self.strangers) > _STRANGERS_MAX:
            self.dismiss(self.strangers[0])

    def on_stranger(self, stranger: Line) -> None:
        """Accept a driver that knows the secret, and nothing else; one at a time."""
        hello = None
        for body in stranger.receive()[:1]:
            with contextlib.suppress(msgspec.DecodeError):
                hello = self.decode(body)
        if not isinstance(hello, Hello) or hello.secret != self.secret:
            self.dismiss(stranger)
            return
        if self.driver:
            self.on_driver(0)  # it may have died unnoticed
        if self.driver:
            stranger.send(frame(HasDriver()))
            self.dismiss(stranger)
        else:
            self.strangers.remove(stranger)
            self.welcome(stranger, hello)

    def dismiss(self, line: Line) -> None:
        """Close a connection."""
        if line in self.strangers:
            self.strangers.remove(line)
        if line is self.driver:
            self.driver = None
        del self.handlers[line.fileno()]
        line.close()

    def welcome(self, driver: Line, hello: Hello) -> None:
        """Tell a new driver what runs and what has ended."""
        self.driver = driver
        self.handlers[driver.fileno()] = self.on_driver
        self.heard = time.monotonic()
        self.starts = hello.starts
        self.functions = Shelf()
        self.emptied()
        self.limits_told = False
        if self.shelf is not None:
            self.shelf.forget()
            self.outbox.extend(frame(FileWanted(name)) for name in self.missing)
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
        who = (VERSION, self.pid, self.guard, self.staff.count)
        driver.send(frame(Welcome(*who, standing, ended, self.terms.user, self.terms.common)))

    def on_driver(self, mask: int) -> None:
        """The driver has sent something, or is gone: then runs continue."""
        driver = self.driver
        assert driver is not None
        if mask & select.EPOLLOUT:
            driver.resume()
        self.heard = time.monotonic()
        for body in driver.receive():
            self.obey(self.decode(body), body)
        if driver.closed:
            self.dismiss(driver)

    def obey(self, message: ToAgent, body: Body) -> None:
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
            case Show():
                self.show(message)
            case Ping():
                self.outbox.append(frame(Pong()))
            case FilePiece():
                self.on_piece(message)
            case Read():
                if self.shelf is not None:
                    self.outbox.append(frame(self.shelf.read(message)))
            case Discard():
                if self.shelf is not None:
                    for name in message.names:
                        stores.remove(self.terms, message.store, name)
            case Stop():
                self.stopping = True
            case Resize():
                self.staff.resize(message.slots)
                if message.at_once:
                    self.clear()
            case Hello():
                pass  # reported already

    # Attempts

    def on_launch(self, launch: Launch, body: Body) -> None:
        """Run a member now, or when its slots are free."""
        pickled = None
        if launch.function:
            pickled = self.functions.get(launch.function)
            if pickled is None:
                assert launch.pickled is not None, "the driver knows what this agent holds"
                pickled = launch.pickled
                self.functions.put(launch.function, len(pickled), pickled)
        account, refused = self.account_of(launch)
        run = MemberRun(launch, body, pickled, account)
        self.runs.setdefault(run.key, []).append(run)
        if refused:
            self.finish(run, Raw(encode(Ending(Outcome.REFUSED, detail=refused))))
            return
        if any(number >= self.staff.count for number in launch.slots):
            self.finish(run, Raw(encode(Ending(Outcome.LOST, detail="its node does not have this slot any more"))))
            return
        if not self.waiting and all(place.is_free for place in self.places(run)):
            self.hold(run)
        else:
            self.waiting.append(run)
            if self.look_behind_at == math.inf:
                self.look_behind_at = time.monotonic() + BEHIND_SECONDS
            self.staff.fill(self.places(run))
            self.advance()

    def account_of(self, launch: Launch) -> tuple[Account | None, str]:
        """As which account a launch runs, if it names one; and why it cannot run."""
        if not self.terms.accounts:
            return None, f"node {self.terms.name!r} runs everything as one account" if launch.account else ""
        if not launch.account and not self.terms.owners:
            return None, ""
        from headway.engines.local.shared.accounts import account_of, prepare  # only where tasks have accounts

        try:
            account = account_of(launch.account, "account", allow_root=self.terms.allow_root)
            if self.prepared.get(account.uid) != account:
                prepare(self.terms, account)
                self.prepared[account.uid] = account
            return account, ""
        except HeadwayError as error:
            return None, f"node {self.terms.name!r} cannot run it: {error}"

    def places(self, run: MemberRun) -> list[SlotPlace]:
        """The places that a run has, or waits for."""
        return run.places or [self.staff.slots[number][run.tier] for number in run.launch.slots]

    def advance(self) -> None:
        """Give free places to waiting runs, in order; a run takes no place that an earlier one waits for."""
        free = {place for places in self.staff.slots for place in places if place.is_free}
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

    def give_back(self, now: float) -> None:
        """Give back what waits for one slot by itself, behind a run that takes long."""
        for run in tuple(self.waiting):
            launch = run.launch
            if launch.width == 1 and len(launch.slots) == 1 and run in self.waiting:
                before = self.places(run)[0].run
                if before is not None and before.since is not None and now - before.since >= BEHIND_SECONDS:
                    self.kill(run, Outcome.KILLED, "it had not begun: what runs before it takes long")
        self.look_behind_at = now + BEHIND_SECONDS if self.waiting else math.inf

    def hold(self, run: MemberRun) -> None:
        """Give the run its places. A gang starts when all its members have theirs."""
        run.places = self.places(run)
        for place in run.places:
            place.run = run
        if run.launch.width > 1:
            run.ready = True
            self.outbox.append(frame(Ready(*run.key, run.launch.rank)))
        else:
            self.begin(run)

    def begin(self, run: MemberRun) -> None:
        """Hand a run to the process of its place."""
        place, launch = run.places[0], run.launch
        if place.dying or place.clears:
            return  # its next process begins it
        limit = launch.memory_limit
        if limit is not None and place.used and memory(place.runner, limit) > limit // 2:
            self.staff.exchange(place)  # what earlier tasks left there does not count; the next process begins it
            return
        if place.account != launch.account or place.family not in (None, launch.family) or not self.fits(place, run):
            self.staff.exchange(place)  # it is another's, or must not meet what calls of another family left there
            return
        body: tuple[Body, ...] = (run.body,)
        if launch.function:
            pickled: bytes | None = None
            if place.functions.get(launch.function) is None:
                assert run.pickled is not None
                pickled = run.pickled
                place.functions.put(launch.function, len(pickled), True)
            if pickled is not launch.pickled:
                body = encoded(msgspec.structs.replace(launch, pickled=pickled))
        place.used = True
        place.family = launch.family
        place.keeps |= launch.alone
        assert place.channel is not None
        seal = new_seal()
        place.reader.begin(seal, size_max(launch))
        for part in to_slot(seal, *body, alone=launch.alone):
            place.channel.send(part)
        for stream in place.streams:
            stream.begin(launch)
        run.lighten()
        run.since = time.monotonic()
        self.watch.begin(run)
        if not launch.fetches:
            run.started = True
            if self.starts:
                self.outbox.append(frame(MemberStarted(*run.key, launch.rank)))

    def fits(self, place: SlotPlace, run: MemberRun) -> bool:
        """Put the process of a place into the tier of its run; False: it cannot get there, but a new one can."""
        if run.launch.processors != place.processors:
            place.processors = run.launch.processors
            try:
                for pid in dict.fromkeys((place.pid, place.runner)):
                    priorities.pin(pid, place.processors or os.sched_getaffinity(0))
            except OSError as error:  # this node lost them after its engine looked
                say(f"slot {place.number} is not pinned to {place.processors}: {error}")
        if place.priority is run.tier:
            return True
        refused = priorities.move((place.pid,), run.tier)
        if not refused:
            place.priority = run.tier
        elif run.tier is Tier.FOREGROUND:
            return False
        if run.tier is Tier.BACKGROUND and not self.limits_told:
            self.limits_told = True
            limits = f"what shall run in the background cannot enter it: {refused}" if refused else priorities.limits()
            if limits:
                self.outbox.append(frame(Limited(limits)))
        return True

    def change(self, key: Key, tier: Tier) -> None:
        """Give the members of an attempt the other places of their slots, all or none."""
        runs = self.runs.get(key, ())
        begun = [run.places[0] for run in runs if run.since is not None and run.tier is not tier]
        if refused := priorities.move([place.pid for place in begun if place.pid], tier):
            self.outbox.append(frame(MembersRefused(*key, tier, f"{refused}. {priorities.NICE_HINT}.")))
            return
        for place in begun:
            place.priority = tier
        for run in runs:
            run.tier = tier
            if run.since is not None:
                self.watch.put(run)
            for place in run.places:
                if place.tier is not tier:
                    pair = self.staff.slots[place.number]
                    pair.reverse()
                    pair[0].tier, pair[1].tier = Tier.FOREGROUND, Tier.BACKGROUND
        self.staff.fill(place for run in runs for number in run.launch.slots for place in self.staff.slots[number])
        self.advance()

    def suspend(self, message: Suspend, body: Body) -> None:
        """Let the members of an attempt save and end; those that take too long are killed."""
        for run in tuple(self.runs.get((message.job, message.task, message.attempt), ())):
            if run.since is None or not run.started:
                self.kill(run, Outcome.KILLED, "")
            elif run.verdict is None and not run.asked:
                run.asked = True
                self.watch.ask(run, message.grace)
                place = run.places[0]
                # It should be quick, whatever runs in the foreground. If the system refuses that, it takes its time.
                if not priorities.move((place.pid,), Tier.FOREGROUND):
                    place.priority = Tier.FOREGROUND
                assert place.channel is not None
                for part in to_slot(place.reader.seal, body):
                    place.channel.send(part)
                if not run.launch.function:
                    for pid in tree(place.runner)[1:]:
                        send(pid, signal.SIGTERM)

    def show(self, message: Show) -> None:
        """Write the output of an attempt's members to files."""
        for run in self.runs.get((message.job, message.task, message.attempt), ()):
            if run.since is not None:
                for stream in run.places[0].streams:
                    stream.show()

    def waits_for(self, place: SlotPlace) -> bool:
        """Whether a run waits for this place."""
        return any(place in self.places(run) for run in self.waiting)

    def on_staffed(self, place: SlotPlace) -> None:
        """A place has a new process: runs that waited for it continue."""
        run = place.run
        if run is not None and run.places[0] is place and run.since is None and not run.ready:
            self.begin(run)
        self.advance()

    def on_said(self, run: MemberRun, said: Fetched | Saved | Unreadable | Want | Stalled) -> None:
        """A run has its inputs, so its time counts from now; or it wants one, or room; or it reports a checkpoint."""
        match said:
            case Want():
                self.give(run, said.name)
            case Stalled():
                if bool(said.detail) is not run.stalled:
                    run.stalled = not run.stalled
                    self.watch.stall(run)
                    self.outbox.append(frame(MemberStalled(*run.key, said.detail[:_DETAIL_MAX])))
            case Fetched():
                if run.launch.fetches and not run.started:
                    run.started = True
                    self.watch.fetched(run)
                    self.outbox.append(frame(MemberStarted(*run.key, run.launch.rank)))
            case Saved():
                now = time.monotonic()
                if run.asked or now - run.told > _SAVED_AGAIN_SECONDS:
                    run.told = now
                    self.outbox.append(frame(MemberSaved(*run.key, run.launch.rank)))
            case Unreadable():
                run.unreadable += 1
                if run.unreadable <= _UNREADABLE_MAX:
                    self.outbox.append(frame(MemberUnreadable(*run.key[:2], said.detail[:_DETAIL_MAX])))

    def give(self, run: MemberRun, name: str) -> None:
        """Open a file of the server for a run that cannot: its name, a digest of its bytes, is what allows it."""
        run.wanted += 1
        if (not self.terms.keeps_apart and self.shelf is None) or run.wanted > WANTED_MAX:
            return
        try:
            if self.shelf is None:
                import re  # large, and rarely needed

                if not re.fullmatch(_DIGEST, name):
                    raise FileNotFoundError(name)
                file = os.open(os.path.join(self.terms.uploads, name), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            elif (found := self.shelf.open(name)) is not None:
                file = found
            else:
                if name not in self.missing:
                    self.outbox.append(frame(FileWanted(name)))
                self.missing.setdefault(name, []).append(run)
                return
        except OSError as error:
            self.hand(run, None, no_room=error.errno in NO_ROOM)
            return
        self.hand(run, file)
        os.close(file)

    def hand(self, run: MemberRun, file: int | None, *, no_room: bool = False) -> None:
        """Answer a run that waits for a file."""
        place = run.places[0]
        if place.channel is None or place.run is not run or run.verdict is not None:
            return
        (given,) = to_slot(place.reader.seal, encode(FileGiven(no_room)))
        if file is None:
            place.channel.send(given)
        else:
            place.channel.send_file(given, file)

    def on_piece(self, piece: FilePiece) -> None:
        """A part of a file has come; with the last one, those that wait for it get it.

        A checkpoint is nobody's to wait for here: the launch that needs it comes after it.
        """
        if self.shelf is None:
            return
        if piece.store is stores.Store.CHECKPOINT:
            if (taken := self.shelf.take_checkpoint(piece)) is not None:
                self.outbox.append(frame(taken))
            return
        arrived = self.shelf.take(piece)
        if arrived is stores.Arrived.AGAIN:
            self.outbox.append(frame(FileWanted(piece.name)))
        if arrived in (None, stores.Arrived.AGAIN):
            return
        for run in self.missing.pop(piece.name, ()):
            file = self.shelf.open(piece.name) if arrived is stores.Arrived.HERE else None
            self.hand(run, file, no_room=arrived is stores.Arrived.NO_ROOM)
            if file is not None:
                os.close(file)

    def kill(self, run: MemberRun, outcome: Outcome, detail: str) -> None:
        """End a run, whatever it is doing; its end is reported when its process has been reaped."""
        if run.verdict is not None:
            return
        run.verdict = (outcome, detail)
        if run.since is not None:
            self.staff.replace(run.places[0])
            return
        if run in self.waiting:
            self.waiting.remove(run)
        self.finish(run, Raw(encode(Ending(outcome, detail=detail))))

    def finish(self, run: MemberRun, ending: Raw, *, wrote: bool = True, result: memoryview | None = None) -> None:
        """A run is over: tell the driver, and keep the end until it is acknowledged."""
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
        stdout, stderr = self.staff.taken(run.places[0], wrote=wrote) if run.since is not None else (None, None)
        member = MemberEnded(*run.key, launch.rank, launch.width, ending, stdout, stderr, result)
        self.ended.setdefault(run.key, []).append(member)
        parts = in_parts(member)
        self.outbox.extend(parts)
        if self.terms.apart and len(parts) == 1:
            self.patient += 1
            if self.tell_at == math.inf:
                self.tell_at = time.monotonic() + ENDS_WAIT_SECONDS
        if self.waiting:
            self.advance()
        self.staff.retire()

    def on_time(self) -> None:
        """Do what is due: limits, checkpoints of programs, failed forks."""
        now = time.monotonic()
        for run, outcome, detail in self.watch.exceeded(now):
            self.kill(run, outcome, detail)
        for run in self.watch.saved(now):
            self.outbox.append(frame(MemberSaved(*run.key, run.launch.rank)))
        self.staff.look(now)

    def clear(self) -> None:
        """Kill what runs on slots that no longer exist, or waits for one of them."""
        runs = [run for runs in self.runs.values() for run in runs]
        for run in [run for run in runs if any(number >= self.staff.count for number in run.launch.slots)]:
            self.kill(run, Outcome.KILLED, "")
