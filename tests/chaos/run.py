"""Attack a real server under load for some minutes, and count what is lost, doubled, wrong and stuck (`make chaos`).

    python tests/chaos/run.py [--minutes 10] [--seed 1] [--rate 60] [--loop asyncio] [--only ATTACK]...

Clients submit bags, commands, rigid jobs, workflows and calls of an executor all the time, and ask a service. Attacks
follow each other in an order that depends on the seed. After each attack, a task of a separate client is timed: how
long it takes until the server serves again. When the time is over, the load ends, and the run waits for everything that
was accepted. The exit status is 0 only if nothing was lost, doubled, wrong, stuck, or damaged without a report, and the
server never ended by itself.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from asking import Asking
from attacks import ATTACKS, Field
from listening import Listening
from load import told
from served import Served, signal_all

from headway import Client, Job, Task
from headway.errors import HeadwayError

HERE = Path(__file__).resolve().parent
CLIENTS = 3
RECOVERY_SECONDS = 120.0
CALM_SECONDS = 180.0
DISK_MIB = 512
TRACEBACK_LINES = 40
"""So many lines of the log are shown from the beginning of a traceback on."""


@dataclass(slots=True)
class Outcome:
    """The result of a run. All but the first seven should be empty.

    Attributes:
        jobs, tasks, calls: accepted jobs, and their tasks whose results came back; calls of executors.
        attacks: how many, by name.
        recovery: seconds from the end of each attack until a task was served, by attack.
        slowest: the longest that the server took to answer `/health` during a flood, in seconds.
        noticed: damaged journals that were refused.
        requests, refused: requests to the service that were answered; those that got an error, by its code.
        lost: accepted jobs, or tasks of them, that the server does not know, or whose end it never reported.
        doubled: tasks and jobs whose end was reported twice, jobs that were accepted twice, requests handled too often.
        wrong: other results than there should be.
        stuck: jobs that have not ended although everything is calm.
        silent: damage without a report.
        odd: anything else.
        ended: how often the server ended by itself.
    """

    jobs: int = 0
    tasks: int = 0
    calls: int = 0
    attacks: Counter[str] = field(default_factory=Counter)
    recovery: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    slowest: float = 0.0
    noticed: int = 0
    requests: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    stuck: list[str] = field(default_factory=list)
    silent: list[str] = field(default_factory=list)
    odd: list[str] = field(default_factory=list)
    ended: int = 0

    @property
    def faults(self) -> dict[str, list[str]]:
        """What should not have happened, by kind."""
        ended = [f"the server ended by itself, {self.ended} times"] if self.ended else []
        kinds = ("lost", "doubled", "wrong", "stuck", "silent", "odd")
        return {kind: getattr(self, kind) for kind in kinds} | {"ended": ended}


class Clients:
    """The load: processes, each with a record."""

    def __init__(self, data: Path, folder: Path, chance: random.Random, rate: float) -> None:
        self.records: list[Path] = []
        self._data = data
        self._folder = folder
        self._chance = chance
        self._rate = rate / CLIENTS
        self._running: dict[Path, subprocess.Popen[bytes]] = {}
        self.killed: set[Path] = set()
        for _ in range(CLIENTS):
            self.add()

    def add(self) -> None:
        """Start one more client."""
        record = self._folder / f"client{len(self.records)}"
        record.touch()
        words = [str(self._data), str(record), str(self._chance.randrange(1 << 30)), str(self._rate)]
        with (self._folder / "clients.log").open("ab") as log:
            self._running[record] = subprocess.Popen([sys.executable, str(HERE / "load.py"), *words], stderr=log)
        self.records.append(record)

    def kill_one(self) -> None:
        """kill -9 of one client; another takes its place."""
        record = self._chance.choice(list(self._running))
        process = self._running.pop(record)
        process.kill()
        process.wait()
        self.killed.add(record)
        self.add()

    def end(self, outcome: Outcome) -> None:
        """Let them submit nothing more and wait for what is open."""
        for process in self._running.values():
            process.send_signal(signal.SIGTERM)
        until = time.monotonic() + CALM_SECONDS
        for record, process in self._running.items():
            try:
                status = process.wait(max(1.0, until - time.monotonic()))
                if status != 0:
                    outcome.odd.append(f"{record.name} ended with {status}; see clients.log")
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                outcome.stuck.append(f"{record.name} still waits for something")

    def accepted(self) -> dict[int, str]:
        """Names of the jobs that were accepted, by id."""
        return {
            line["job"]: line["name"] for record in self.records for line in told(record) if line["what"] == "accepted"
        }


def recovered(data: Path) -> float:
    """Seconds until a task of a new client is served; infinite if it never is."""
    began = time.monotonic()
    while time.monotonic() < began + RECOVERY_SECONDS:
        try:
            with Client(data=data, patience=RECOVERY_SECONDS) as client:
                # Due at once: otherwise policies by due date would put it behind everything that clients submit.
                probe = Job("probe", [Task.command("true", cwd="/")], priority=100, due=1)
                client.submit(probe).result(RECOVERY_SECONDS)
            return time.monotonic() - began
        except HeadwayError as error:
            if getattr(error, "status", 0) != 507:  # it accepts nothing while its disk is full
                raise
            time.sleep(0.05)
        except TimeoutError:
            break
    return float("inf")


def settle(served: Served, clients: Clients, listening: Listening, where: Field, outcome: Outcome) -> None:
    """When everything is calm, compare the records of the clients with what the server says."""
    accepted = clients.accepted()
    until = time.monotonic() + CALM_SECONDS
    with Client(data=served.data, patience=60.0) as client:
        while (open_ := client.jobs(status="open")) and time.monotonic() < until:
            time.sleep(0.2)
        outcome.stuck += [f"job {job.id} {job.name!r} is {job.status.value}" for job in open_]
        known = {job.id: job for job in client.jobs()}
    listening.stop()
    outcome.odd += listening.odd
    outcome.doubled += [f"{key} was told {times} times" for key, times in listening.heard.items() if times > 1]
    names = Counter(job.name for job in known.values() if job.name.startswith("client") and "calls" not in job.name)
    outcome.doubled += [f"{name} was accepted {times} times" for name, times in names.items() if times > 1]
    found = {record: list(told(record)) for record in clients.records}
    outcome.wrong += [
        f"{line['name']}: {line['text']}" for lines in found.values() for line in lines if line["what"] == "wrong"
    ]
    for job, name in accepted.items():
        if job not in known or known[job].name != name:
            outcome.lost.append(f"job {job} {name!r} was accepted and is not known")
        elif (job, None) not in listening.heard:
            outcome.lost.append(f"the end of job {job} {name!r} was not told")
        elif known[job].status.value != "succeeded":
            outcome.wrong.append(f"job {job} {name!r} is {known[job].status.value}")
    for record, lines in found.items():
        count = Counter(line["what"] for line in lines)
        outcome.jobs += count["accepted"]
        outcome.tasks += count["told"]
        outcome.calls += count["call"]
        expected = sum(line["tasks"] for line in lines if line["what"] == "accepted")
        if record not in clients.killed and expected != count["told"] + count["wrong"]:
            outcome.lost.append(f"{record.name} was told {count['told']} of {expected} results")
    outcome.slowest, outcome.silent, outcome.noticed = where.slowest, where.silent, where.refused
    outcome.ended = served.ended


def attack(folder: Path, data: Path, words: argparse.Namespace, *, small_disk: bool) -> Outcome:
    """Run all attacks."""
    chance, outcome = random.Random(words.seed), Outcome()
    served = Served(folder, data, words.loop, ["--lease", "3s", "--estimates", "predicted", "--keep-uploads", "2m"])
    served.start()
    clients = Clients(data, folder, chance, words.rate)
    listening = Listening(data)
    listening.start()
    asking = Asking(data, folder)
    asking.start()
    where = Field(served, folder, chance, small_disk, lambda: set(clients.accepted()))
    where.client_killed, where.new_handler = clients.kill_one, asking.serve
    names = words.only or list(ATTACKS)
    over = threading.Event()
    watching = threading.Thread(target=keep_alive, args=(served, over), daemon=True)
    watching.start()
    until, queue = time.monotonic() + 60 * words.minutes, list[str]()
    try:
        while time.monotonic() < until:
            if not queue:  # each once, in random order, before any is repeated
                queue = chance.sample(names, len(names))
            name = queue.pop()
            say(f"{max(0.0, until - time.monotonic()):4.0f} s left  {name}", words)
            try:
                ATTACKS[name](where)
            except Exception as error:  # noqa: BLE001 - a failed attack is a finding, and the next follows
                outcome.odd.append(f"{name}: {type(error).__name__}: {error}")
            outcome.attacks[name] += 1
            outcome.recovery[name].append(recovered(data))
            if outcome.recovery[name][-1] == float("inf"):
                outcome.stuck.append(f"no task was served within {RECOVERY_SECONDS:g} s of {name}")
            time.sleep(chance.uniform(0.0, 1.5))
        say("calm; what was accepted is waited for", words)
        asking.stop()
        outcome.requests, outcome.refused = asking.answered, asking.errors
        outcome.wrong += asking.wrong + where.wrong
        outcome.lost += asking.lost + where.lost
        outcome.doubled += asking.doubled
        outcome.odd += where.odd
        clients.end(outcome)
        settle(served, clients, listening, where, outcome)
        if served.end() != 0:
            outcome.odd.append(f"the server does not end in order:\n{served.tail()}")
    finally:
        over.set()
        watching.join()
        served.kill()
        agents = served.agents()
        signal_all([*served.below(agents), *agents], signal.SIGKILL)
    outcome.odd += [f"the server's log has a traceback:\n{said}" for said in tracebacks(served.log)]
    return outcome


def tracebacks(log: Path) -> list[str]:
    """The tracebacks in a log, each with what came before it and after it."""
    lines = log.read_text(errors="replace").splitlines()
    found, shown = [], 0
    for number, line in enumerate(lines):
        if "Traceback" in line and number >= shown:
            shown = number + TRACEBACK_LINES
            found.append("\n".join(lines[max(0, number - 2) : shown]))
    return found


def keep_alive(served: Served, over: threading.Event) -> None:
    """Start the server again whenever it has ended by itself."""
    while not over.wait(0.5):
        served.check_alive()


def say(text: str, words: argparse.Namespace) -> None:
    """Show the progress."""
    if not words.json:
        print(text, file=sys.stderr, flush=True)


@contextmanager
def disk(folder: Path) -> Iterator[tuple[Path, bool]]:
    """A folder for the data directory, on a small disk of its own if that is possible (as root)."""
    place = folder / "disk"
    place.mkdir()
    mounted = (
        os.geteuid() == 0
        and not subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "chaos", str(place)], capture_output=True, check=False
        ).returncode
    )
    try:
        yield place / "data", mounted
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", str(place)], check=True)


def show(outcome: Outcome, words: argparse.Namespace) -> None:
    """Print the result."""
    if words.json:
        print(json.dumps(asdict(outcome)))
        return
    print(f"\n{'attack':20} {'times':>5} {'served again after, median':>27} {'longest':>8}")
    for name, times in sorted(outcome.attacks.items()):
        took = outcome.recovery[name]
        print(f"{name:20} {times:5d} {statistics.median(took):25.2f} s {max(took):6.2f} s")
    print(f"\n{outcome.jobs} jobs, {outcome.tasks} results of tasks, {outcome.calls} calls; seed {words.seed}")
    print(
        f"/health took {outcome.slowest:.2f} s at most during a flood; {outcome.noticed} damaged journals were refused"
    )
    refused = ", ".join(f"{times} {code}" for code, times in sorted(outcome.refused.items()))
    print(f"{outcome.requests} requests to a service were answered; others got an error: {refused or 'none'}")
    for kind, found in outcome.faults.items():
        print(f"{kind:8} {len(found)}")
        for one in found[:10]:
            print(f"         {one}")


def main() -> int:
    """Attack, show the result, and return whether all is well."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=float, default=60.0, help="tasks a second, as far as the server can")
    parser.add_argument("--loop", choices=["uvloop", "asyncio"], default="uvloop", help="the server's event loop")
    parser.add_argument("--only", action="append", choices=list(ATTACKS), help="only this attack; may be repeated")
    parser.add_argument("--list", action="store_true", help="say what the attacks are")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--keep", action="store_true", help="keep the logs and records, and say where")
    words = parser.parse_args()
    if words.list:
        for name, one in ATTACKS.items():
            print(f"{name:20} {(one.__doc__ or '').splitlines()[0]}")
        return 0
    folder = Path(tempfile.mkdtemp(prefix="headway-chaos-"))
    logging.basicConfig(filename=folder / "run.log", level=logging.INFO)
    with disk(folder) as (data, small):
        if not small:
            say("not root, or no tmpfs: the disk is not filled", words)
        outcome = attack(folder, data, words, small_disk=small)
    show(outcome, words)
    bad = any(outcome.faults.values())
    if bad or words.keep:
        say(f"logs and records are in {folder}", words)
    else:
        shutil.rmtree(folder)
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
