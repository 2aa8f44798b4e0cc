"""Services beside batch jobs in the simulator: windows, instances, and the border between the pools."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from itertools import pairwise
from random import Random
from statistics import fmean, pvariance

import numpy as np
import pytest

from headway.core.scheduler import Scheduler
from headway.model.instant import SECOND
from headway.model.job import Service
from headway.model.node import NodeSpec
from headway.model.slots import count
from headway.model.window import Window
from headway.model.workload import Workload, workload_us
from headway.policies import registry
from headway.sim.faults import Outage
from headway.sim.kernel import Simulation
from headway.sim.served import KnownRequests

from ..effort import one_in


class SlowQueue:
    """Requests one by one, first come, first served: what is served when follows from a walk over all that happens."""

    def __init__(self, spec: Service, requests: list[tuple[int, int]], end: int) -> None:
        self.spec, self.end = spec, end
        self.every = sorted(requests)
        self.coming = deque(self.every)
        self.waiting: deque[tuple[int, int]] = deque()
        self.idle: list[int] = []
        self.serving: dict[int, tuple[int, tuple[int, int]]] = {}
        self.leaves: set[int] = set()
        self.answers: list[tuple[int, int]] = []
        self.begun: list[tuple[int, int]] = []
        self.came: list[int] = []
        self.closed: list[tuple[int, int, int, float]] = []
        self.made = 0
        self.now = self.since = self.sum = 0
        self.most: list[int] = []

    def go(self, until: int) -> None:
        """Let everything happen until an instant, ends before arrivals."""
        while True:
            ends = min(((done, one) for one, (done, _) in self.serving.items()), default=(until + 1, -1))
            comes = self.coming[0][0] if self.coming else until + 1
            at = min(ends[0], comes)
            if at > until:
                break
            self.pass_time(at)
            if ends[0] <= comes:
                _, (arrived, _) = self.serving.pop(ends[1])
                self.answers.append((arrived, at - arrived))
                if ends[1] in self.leaves:
                    self.leaves.remove(ends[1])
                else:
                    self.idle.append(ends[1])
            else:
                request = self.coming.popleft()
                self.came.append(request[0])
                self.waiting.append(request)
            self.give()
        self.pass_time(until)

    def pass_time(self, at: int) -> None:
        self.sum += (len(self.idle) + len(self.serving.keys() - self.leaves)) * (at - self.now)
        self.now = at

    def give(self) -> None:
        while self.idle and self.waiting:
            arrived, takes = self.waiting.popleft()
            self.serving[self.idle.pop(0)] = self.now + takes, (arrived, takes)
            self.begun.append((arrived, self.now + takes))

    def resize(self, instances: int, at: int) -> int:
        self.go(at)
        staying = [one for one in self.serving if one not in self.leaves]
        gone = at
        for _ in range(len(self.idle) + len(staying) - instances):
            if self.idle:
                self.idle.pop()
            else:
                soonest = min(staying, key=lambda one: self.serving[one])
                staying.remove(soonest)
                self.leaves.add(soonest)
                gone = max(gone, self.serving[soonest][0])
        while len(self.idle) + len(staying) < instances:
            self.made += 1
            self.idle.append(self.made)
        self.most.append(instances)
        self.give()
        return gone

    def close(self, until: int) -> Window:
        self.go(until)
        self.closed.append((self.since, until, len(self.waiting), self.sum / (until - self.since)))
        self.since, self.sum = until, 0
        return self.windows()[-1]

    def windows(self) -> list[Window]:
        found = []
        for begin, end, queued, instances in self.closed:
            came = [at for at in self.came if begin <= at < end]
            times = [done - at for at, done in self.begun if begin <= at < end]
            good = [took for took in times if took <= self.spec.threshold]
            mean, varying = spread([takes for at, takes in self.every if begin <= at < end])
            at = [at for at, _ in self.every if at < end]
            gaps = [after - before for before, after in pairwise(at) if after >= begin]
            window = Window(begin, end - begin, len(came), len(good), queued, instances, mean, varying, spread(gaps)[1])
            found.append(window)
        return found


def spread(values: list[int]) -> tuple[float, float]:
    """The mean, and the squared coefficient of variation."""
    mean = fmean(values) if values else 0.0
    return mean, pvariance(values) / mean**2 if mean else 0.0


def service(number: int, chance: Random, load: float, *, windows: int = 6, **terms: int) -> tuple[Service, SlowQueue]:
    """A service with windows of 20 s that is offered this load: requests of 0.1 s on average, at random."""
    spec = Service(number, **{"most": 8, "window": 20 * SECOND, "threshold": SECOND, **terms})
    end = windows * spec.window
    requests, at = [], 0.0
    while (at := at + chance.expovariate(load / (0.1 * SECOND))) < end:
        requests.append((int(at), int(chance.expovariate(1 / (0.1 * SECOND))) + 1))
    return spec, SlowQueue(spec, requests, end)


def jobs(chance: Random, many: int) -> Workload:
    """Rigid jobs of a minute, and one that runs for longer than the others."""
    release = [0, *sorted(chance.randint(1, 60) * SECOND for _ in range(many))]
    runtime = [400 * SECOND, *[chance.randint(1, 20) * SECOND for _ in range(many)]]
    width = [1, *[chance.randint(1, 3) for _ in range(many)]]
    return workload_us(
        release=release, runtime=runtime, estimate=runtime, width=width, due=[t + 30 * SECOND for t in release]
    )


def audit(scheduler: Scheduler) -> None:
    scheduler.check()


@pytest.mark.parametrize("batch", one_in(3, ["easy", "conservative", "edf", "tempo"]))
def test_with_fixed_halves_batch_jobs_fare_as_if_they_were_alone_on_theirs(batch: str) -> None:
    chance = Random(3)
    workload = jobs(chance, 40)
    services = [service(100 + number, chance, 1.5, windows=20) for number in range(2)]
    both = Simulation(
        *(workload, [NodeSpec("n", slots=8)], registry.find, f"services:top=sf,batch={batch}"),
        services=services,
        audit=audit,
    )
    alone = Simulation(workload, [NodeSpec("n", slots=4)], registry.find, f"{batch}:per_instant=true").run()
    found = both.run()
    assert np.array_equal(found.start, alone.start)
    assert np.array_equal(found.end, alone.end)
    for record, (_, requests) in zip(found.services, services, strict=True):
        windows = record.windows
        assert [window.end for window in windows] == [20 * SECOND * number for number in range(1, 21)]
        assert {window.instances for window in windows} == {2.0}, "a quarter of the cluster each"
        assert sum(window.arrivals for window in windows) == len(requests.came)
        assert max(requests.most) == 2
    assert not both.scheduler.refusals
    left = both.scheduler.state.jobs.values()
    assert all(job.cancelled for job in left), "at the end, services are cancelled; instances finish what they have"


@pytest.mark.parametrize("kill", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_whatever_happens_each_request_is_answered_once(seed: int, kill: bool) -> None:
    """Nodes come and go; instances are asked to leave and finish their request, or are lost, and another takes it."""
    chance = Random(seed)
    services = [service(100 + number, chance, 1.2, least=1) for number in range(3)]
    outages = [Outage("b", 10.0 * turn + 3, 10.0 * turn + 8) for turn in range(10)]
    run = Simulation(
        *(jobs(chance, 30), [NodeSpec("a", slots=5), NodeSpec("b", slots=4)], registry.find),
        f"services:batch=easy,kill={str(kill).lower()}",
        services=services,
        outages=outages,
        audit=audit,
    )
    found = run.run()
    for record, (spec, requests) in zip(found.services, services, strict=True):
        windows = record.windows
        requests.go(10**12)  # the last ones
        left = len(requests.waiting)
        assert len(requests.answers) + left == len(requests.came) == sum(window.arrivals for window in windows)
        assert len({arrived for arrived, _ in requests.answers}) == len(requests.answers)
        assert record.penalty == pytest.approx(sum(spec.penalty(window.share) for window in windows))
        assert count(run.scheduler.state.totals().busy) == 0


def test_a_window_costs_what_its_share_lacks() -> None:
    """Chang16, equation 2."""
    spec = Service(1, rate=10_000.0, fraction=0.9)
    assert spec.penalty(Window(0, 20 * SECOND, 100, 80).share) == pytest.approx(1_000)
    assert spec.penalty(Window(0, 20 * SECOND, 100, 95).share) == 0
    assert spec.penalty(Window(0, 20 * SECOND).share) == 0, "nobody asked"


@pytest.mark.thorough
@pytest.mark.parametrize("seed", one_in(3, range(30)))
def test_the_queue_serves_as_one_that_looks_at_each_request(seed: int) -> None:
    """While instances come and go at random; also what is known only later."""
    chance = Random(seed)
    spec, slow = service(1, chance, chance.choice([0.5, 2.0, 4.0]), threshold=SECOND // 4)
    arrivals, processing = zip(*slow.coming, strict=True)
    fast = KnownRequests(spec, arrivals, processing, slow.end)
    assert fast.end == slow.end
    for number in range(1, 7):
        for at in sorted(chance.randrange(20 * SECOND) for _ in range(chance.randint(0, 4))):
            instances = chance.randint(0, 5)
            at += 20 * SECOND * (number - 1)
            assert fast.resize(instances, at) == slow.resize(instances, at)
        ours, theirs = fast.close(20 * SECOND * number), slow.close(20 * SECOND * number)
        for known, exact in zip([*fast.windows(), ours], [*slow.windows(), theirs], strict=True):
            assert (known.start, known.length, known.arrivals) == (exact.start, exact.length, exact.arrivals)
            assert (known.in_time, known.queued) == (exact.in_time, exact.queued)
            assert known.instances == pytest.approx(exact.instances)
            assert known.processing == pytest.approx(exact.processing)
            assert known.processing_variation == pytest.approx(exact.processing_variation)
            assert known.arrival_variation == pytest.approx(exact.arrival_variation)


def test_a_simulation_is_the_same_with_either_queue() -> None:
    chance = Random(8)
    workload = jobs(chance, 30)
    found = []
    for slow in (True, False):
        drawn = Random(5)
        services: list[tuple[Service, SlowQueue | KnownRequests]] = []
        for number in range(3):
            spec, queue = service(100 + number, drawn, 1.2)
            known = zip(*queue.coming, strict=True)
            services.append((spec, queue if slow else KnownRequests(spec, *known, queue.end)))
        run = Simulation(
            *(workload, [NodeSpec("n", slots=9)], registry.find, "services:top=sf,batch=easy"),
            services=services,
            audit=audit,
        )
        schedule = run.run()
        found.append((schedule.start.tolist(), [record.penalty for record in schedule.services]))
    assert found[0] == found[1]
    assert max(found[0][1]) > 0


def test_a_window_says_how_long_instances_took_to_start_once_one_is_ready() -> None:
    spec = Service(1, most=4, window=20 * SECOND, threshold=SECOND)
    requests = KnownRequests(spec, [0, 50 * SECOND], [SECOND, SECOND], 100 * SECOND, warm_up=25 * SECOND)
    requests.resize(2, 10 * SECOND)
    seen = [requests.close(20 * SECOND * number) for number in (1, 2)]
    requests.resize(3, 40 * SECOND)
    seen.append(requests.close(60 * SECOND))
    assert [window.warm_up for window in seen] == [0, 25 * SECOND, 25 * SECOND]
    assert requests.windows() == [replace(seen[0], in_time=0), *seen[1:]]
