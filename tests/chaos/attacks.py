"""The attacks on a server. Each leaves the server running, or in a state from which it can be started again."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import socket
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path

import asking
import callers
import cloudpickle
import damage
import psutil
import work
from served import Served, signal_all

from headway import Client, Job, Task
from headway.client.address import find_server
from headway.errors import HeadwayError

cloudpickle.register_pickle_by_value(work)


@dataclass(slots=True)
class Field:
    """Where attacks happen, and what they find.

    Attributes:
        small_disk: whether the data directory is on a disk of its own, which can be filled.
        accepted: ids and names of jobs whose acceptance clients have seen; read when needed.
        slowest: the longest that the server took to answer during a flood, in seconds.
        poison: ids of jobs that may fail.
        silent: damage that went unnoticed.
        refused: damage that was noticed.
        lost, wrong, odd: what else should not have happened, see `run.Outcome`.
    """

    served: Served
    folder: Path
    chance: random.Random
    small_disk: bool
    accepted: Callable[[], set[int]]
    slowest: float = 0.0
    poison: set[int] = field(default_factory=set)
    silent: list[str] = field(default_factory=list)
    refused: int = 0
    lost: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    odd: list[str] = field(default_factory=list)
    client_killed: Callable[[], None] = lambda: None
    new_handler: Callable[[Client], None] = lambda client: None

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Ask the server all the time whether it is alive."""
        over = threading.Event()

        def ask() -> None:
            while not over.wait(0.1):
                self.slowest = max(self.slowest, self.served.health_seconds())

        asking = threading.Thread(target=ask)
        asking.start()
        try:
            yield
        finally:
            over.set()
            asking.join()


_DAMAGES = 3

Attack = Callable[[Field], None]


def kill_server(where: Field) -> None:
    """kill -9, and start again."""
    where.served.kill()
    time.sleep(where.chance.choice([0.0, 0.3]))
    where.served.start()


def kill_twice(where: Field) -> None:
    """kill -9, and again as soon as it answers, or sooner."""
    kill_server(where)
    time.sleep(where.chance.uniform(0, 0.1))
    kill_server(where)


def end_server(where: Field) -> None:
    """Stop it in order, and start it again."""
    if where.served.end() != 0:
        where.served.ended += 1
    where.served.start()


def kill_agent(where: Field) -> None:
    """kill -9 of a node's agent."""
    if agents := where.served.agents():
        signal_all([where.chance.choice(agents)], signal.SIGKILL)


def kill_slots(where: Field) -> None:
    """kill -9 of some processes of slots and their tasks."""
    if below := where.served.below(where.served.agents()):
        signal_all(where.chance.sample(below, min(2, len(below))), signal.SIGKILL)


def kill_everything(where: Field) -> None:
    """kill -9 of the server, its agents and slots at once."""
    agents = where.served.agents()
    below = where.served.below(agents)
    where.served.kill()
    signal_all(agents + below, signal.SIGKILL)
    where.served.start()


def stop_server(where: Field) -> None:
    """Stop the process of the server for some seconds."""
    os.kill(where.served.pid, signal.SIGSTOP)
    time.sleep(where.chance.uniform(0.5, 4.0))
    os.kill(where.served.pid, signal.SIGCONT)


def stop_agent(where: Field) -> None:
    """Stop the process of a node, for a time longer or shorter than its lease."""
    if agents := where.served.agents():
        chosen = [where.chance.choice(agents)]
        signal_all(chosen, signal.SIGSTOP)
        time.sleep(where.chance.choice([0.5, 4.0]))
        signal_all(chosen, signal.SIGCONT)


def kill_client(where: Field) -> None:
    """kill -9 of a client of the load; another takes its place."""
    where.client_killed()


def hold_journal(where: Field) -> None:
    """Let another program read the journal, or lock it for writing, for some seconds."""
    journal = where.served.data / "journal.sqlite"
    with (
        contextlib.closing(sqlite3.connect(journal, timeout=0.5)) as db,
        contextlib.suppress(sqlite3.OperationalError),  # it could not be locked this time
    ):
        db.execute(where.chance.choice(["BEGIN", "BEGIN IMMEDIATE"]))
        db.execute("SELECT count(*) FROM events").fetchone()
        time.sleep(where.chance.uniform(0.2, 3.0))


def fill_disk(where: Field) -> None:
    """Fill the disk for some seconds."""
    if not where.small_disk:
        return
    filler = where.served.data.parent / "filler"
    try:
        with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(1 << 16))
        time.sleep(where.chance.uniform(1.0, 4.0))
    finally:
        filler.unlink()


def step_clock(where: Field) -> None:
    """Set the wall clock back or ahead, by seconds or an hour. At the end it is set right, or left as it is."""
    where.served.set_clock(where.chance.choice([-3600.0, -5.0, 7.0, 3600.0]))
    time.sleep(where.chance.uniform(0.5, 3.0))
    if where.chance.random() < 0.3:
        kill_server(where)
    where.served.set_clock(0.0)


def damage_journal(where: Field) -> None:
    """Kill the server, damage copies of its data directory, each in another place, and start servers on them."""
    accepted = where.accepted()
    where.served.kill()
    copy = where.folder / "damaged"
    try:
        damage.copy(where.served.data, copy)
    finally:
        where.served.start()
    try:
        for number in range(_DAMAGES):
            hurt = where.folder / f"damaged{number}"
            shutil.copytree(copy, hurt)
            done = damage.damage(hurt, where.chance)
            found = damage.start(hurt, where.folder)
            if found is None:
                where.refused += 1
            elif lost := accepted - found:
                where.silent.append(f"{done}: {len(lost)} accepted jobs gone, not a word; such as {sorted(lost)[:3]}")
    finally:
        for folder in where.folder.glob("damaged*"):
            if folder.is_dir():
                shutil.rmtree(folder)


def poison_agent(where: Field) -> None:
    """A task that kills its node's agent each time."""
    _submit(where, "poison-agent", Task(work.kills_its_agent))


def poison_slot(where: Field) -> None:
    """A task that kills its own process each time."""
    _submit(where, "poison-slot", Task(work.kills_itself))


def poison_channel(where: Field) -> None:
    """A task that writes to all its descriptors."""
    _submit(where, "poison-channel", *(Task(work.writes_everywhere, where.chance.randrange(99)) for _ in range(3)))


def rude_tasks(where: Field) -> None:
    """Tasks that leave behind alarms, replaced functions, another current folder, and much output."""
    _submit(where, "rude", *(Task(work.leaves_much_behind, number) for number in range(4)))


def _submit(where: Field, name: str, *tasks: Task) -> None:
    with Client(data=where.served.data, patience=60.0) as client, contextlib.suppress(HeadwayError):  # the disk is full
        where.poison.add(client.submit(Job(name, tasks)).job)


def endless_header(where: Field) -> None:
    """Headers without an end, from callers without a token."""
    with where.watched():
        _flood(where, 4, b"GET /v1/jobs HTTP/1.1\r\nHost: x\r\nX: ", b"a" * 65536, 3.0)


def large_bodies(where: Field) -> None:
    """200 MB of JSON, without a token and with one."""
    token = find_server(data=where.served.data).token.encode() if where.chance.random() < 0.5 else b"none"
    head = (
        b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %b\r\nContent-Type: application/json\r\n" % token
    )
    with where.watched():
        _flood(where, 2, head + b"Content-Length: 200000000\r\n\r\n[", b"[[1.5,{}]," * 6553, 4.0)


def idle_callers(where: Field) -> None:
    """Many connections without a request."""
    with contextlib.ExitStack() as held, where.watched():
        for _ in range(480):
            with contextlib.suppress(OSError):
                held.enter_context(socket.create_connection(where.served.place, 5))
        time.sleep(2.0)


def slow_callers(where: Field) -> None:
    """Many connections that send a byte of a header now and then."""
    with where.watched():
        _flood(where, 40, b"GET /v1/jobs HTTP/1.1\r\nHost: x\r\nX: ", b"a", 4.0, pause=0.2)


def short_waits(where: Field) -> None:
    """Eight callers that ask for messages with waits of less than a millisecond."""
    token = find_server(data=where.served.data).token.encode()
    asked = b"GET /v1/messages?after=%d&wait=0.0004 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %b\r\n\r\n"
    with where.watched():
        _flood(where, 8, b"", asked % (2**40, token), 3.0, read=True)


def nodes_come_and_go(where: Field) -> None:
    """A node is added, resized, and drained or removed."""
    with Client(data=where.served.data, patience=60.0) as client, contextlib.suppress(HeadwayError):
        client.add_node("spare", 2)
        client.resize_node("spare", where.chance.randint(1, 4), at_once=where.chance.random() < 0.5)
        time.sleep(where.chance.uniform(0, 1))
        client.remove_node("spare") if where.chance.random() < 0.5 else client.drain_node("spare")


def kill_instances(where: Field) -> None:
    """kill -9 of instances of the service, as often as not of all."""
    there = [process for process in where.served.below(where.served.agents()) if _is_instance(process)]
    signal_all(where.chance.sample(there, where.chance.choice([min(1, len(there)), len(there)])), signal.SIGKILL)


def _is_instance(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return "headway.services.instance" in process.cmdline()
    return False


def replace_handler(where: Field) -> None:
    """A new version of the service's handler takes over; at times another one right after it."""
    with Client(data=where.served.data, patience=60.0) as client, contextlib.suppress(HeadwayError):  # the disk is full
        for _ in range(where.chance.choice([1, 1, 2])):
            where.new_handler(client)


def callers_leave(where: Field) -> None:
    """Callers of the service hang up before they are answered."""
    with contextlib.suppress(HeadwayError, OSError):  # the server is away
        callers.go_away(where.served.data, asking.NAME, 100)


def queue_full(where: Field) -> None:
    """10,000 requests wait for a service that does not answer, and more come; then the service is cancelled."""
    with where.watched():
        found = callers.fill(where.served.data, where.served.memory)
    if found is None:
        return
    if found.silent:
        what = f"{found.silent} of {found.waited} requests that waited had neither an answer nor an error"
        where.lost.append(f"{what} ({found.how})")
    if found.statuses[HTTPStatus.SERVICE_UNAVAILABLE] < callers.BEYOND - 1:
        where.odd.append(f"a queue was not full, or nobody was told: {dict(found.statuses)}")
    if found.grown > callers.GROWTH_MAX:
        where.odd.append(f"{found.waited} requests that wait take {found.grown >> 20} MiB")


def deaf_callers(where: Field) -> None:
    """Callers of the service ask for large answers, and do not read them for some seconds."""
    with where.watched(), contextlib.suppress(HeadwayError, OSError):  # the server is away
        where.wrong += callers.do_not_read(where.served.data, asking.NAME, 20, where.chance.uniform(1.0, 6.0))


def other_policy(where: Field) -> None:
    """Change the policy."""
    with Client(data=where.served.data, patience=60.0) as client, contextlib.suppress(HeadwayError):  # the disk is full
        client.choose_policy(
            where.chance.choice(["deadline", "edf", "tempo", "easy", "priority", "measy", *[asking.POLICY] * 3])
        )


def _flood(
    where: Field, callers: int, head: bytes, part: bytes, seconds: float, *, pause: float = 0.0, read: bool = False
) -> None:
    """Many callers send a head, and then the same part repeatedly, until the server hangs up or the time is over."""
    until = time.monotonic() + seconds

    def send() -> None:
        with contextlib.suppress(OSError), socket.create_connection(where.served.place, 5) as line:
            line.sendall(head)
            while time.monotonic() < until:
                line.sendall(part)
                if read and not line.recv(65536):
                    break
                time.sleep(pause)

    threads = [threading.Thread(target=send) for _ in range(callers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


ATTACKS: dict[str, Attack] = {
    attack.__name__: attack
    for attack in (
        *(kill_server, kill_twice, end_server, kill_agent, kill_slots, kill_everything, kill_client),
        *(stop_server, stop_agent, hold_journal, fill_disk, step_clock, damage_journal),
        *(poison_agent, poison_slot, poison_channel, rude_tasks),
        *(endless_header, large_bodies, idle_callers, slow_callers, short_waits, nodes_come_and_go, other_policy),
        *(kill_instances, replace_handler, callers_leave, queue_full, deaf_callers),
    )
}
"""Every attack by its name."""
