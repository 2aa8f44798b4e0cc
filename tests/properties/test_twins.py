"""FCFS, EASY and conservative backfilling, compared job by job with slow twins written from the definitions.

A twin shares no code with Headway. It steps from event to event: at one instant first the ends, by job id, then the
submissions, by id. After each event (or after all events of an instant) it makes one whole pass over its queue.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from math import inf
from pathlib import Path
from random import Random

import pytest

from headway.core.scheduler import Scheduler
from headway.history import predictors
from headway.model.job import Kind
from headway.model.node import NodeSpec
from headway.model.workload import Workload, workload_us
from headway.policies import registry
from headway.sim.kernel import Simulation
from headway.traces import read_swf

FOREVER = 10**12


@dataclass(frozen=True)
class Job:
    """A rigid job; its id is its place in order of release."""

    id: int
    release: int
    width: int
    runtime: int
    estimate: int
    due: int
    priority: int
    rate: float = 1.0
    beyond: int = 0
    """How much longer than the estimate its user said, where the estimate is a prediction."""

    @property
    def said(self) -> int:
        return self.estimate + self.beyond


@dataclass
class Twin:
    """The world of a twin: which jobs wait, which run, and what is free."""

    slots: int
    now: int = 0
    queue: list[Job] = field(default_factory=list)
    running: list[Job] = field(default_factory=list)
    start: dict[int, int] = field(default_factory=dict)
    end: dict[int, int] = field(default_factory=dict)
    promise: dict[int, int] = field(default_factory=dict)
    came: list[Job] | None = None
    """The jobs that came since the last pass, if nothing else happened; None after an end."""

    @property
    def free(self) -> int:
        return self.slots - sum(job.width for job in self.running)

    def expected_end(self, job: Job) -> int:
        return self.start[job.id] + job.estimate

    def begin(self, job: Job) -> None:
        assert job.width <= self.free
        self.queue.remove(job)
        self.running.append(job)
        self.start[job.id] = self.now

    def in_order(self, key: Callable[[Job], object]) -> list[Job]:
        return sorted(self.queue, key=lambda job: (key(job), job.release, job.id))


Pass = Callable[[Twin], None]


@dataclass
class LastTwo:
    """A job counts as long as the mean of the two that ended last, if its user says more, until it has run longer."""

    took: list[int] = field(default_factory=list)

    def comes(self, job: Job) -> Job:
        mean = max(1, sum(self.took[-2:]) // 2)
        if len(self.took) < 2 or mean >= job.estimate:
            return job
        return replace(job, estimate=mean, beyond=job.estimate - mean)

    def correct(self, twin: Twin) -> None:
        for place, job in enumerate(twin.running):
            if twin.expected_end(job) < twin.now:
                twin.running[place] = replace(job, estimate=job.said, beyond=0)


def run(
    jobs: list[Job], slots: int, decide: Pass, *, per_instant: bool = False, predicts: LastTwo | None = None
) -> Twin:
    """Step from event to event until every job has ended."""
    twin, coming = Twin(slots), sorted(jobs, key=lambda job: (job.release, job.id))
    while coming or twin.running:
        ends = [(twin.start[job.id] + job.runtime, job.id) for job in twin.running]
        at = min(ends + [(job.release, job.id) for job in coming])[0]
        twin.now, twin.came = at, []
        while True:
            ending = [job for job in twin.running if twin.start[job.id] + job.runtime == at]
            if ending:
                job = min(ending, key=lambda job: job.id)
                twin.running.remove(job)
                twin.end[job.id] = at
                twin.came = None
                if predicts is not None:
                    predicts.took.append(job.runtime)
            elif coming and coming[0].release == at:
                job = coming.pop(0) if predicts is None else predicts.comes(coming.pop(0))
                twin.queue.append(job)
                if twin.came is not None:
                    twin.came.append(job)
            else:
                break
            if predicts is not None:
                predicts.correct(twin)
            if not per_instant:
                decide(twin)
                twin.came = []
        if per_instant:
            decide(twin)
    assert not twin.queue, "the twin lets jobs wait for ever"
    return twin


def start_heads(twin: Twin, queue: list[Job]) -> list[Job]:
    """Start jobs from the head of the queue while they fit. Returns the rest of the queue."""
    while queue and queue[0].width <= twin.free:
        twin.begin(queue.pop(0))
    return queue


def strict(key: Callable[[Job], object]) -> Pass:
    return lambda twin: start_heads(twin, twin.in_order(key)) and None


def easy(key: Callable[[Job], object], behind: Callable[[Job], object] | None = None) -> Pass:
    """EASY: a later job must not delay the head of the queue. The later ones may have an order of their own.

    Beside a head that needs more than half of the slots jobs count as long as their users say, whatever is predicted.
    """

    def decide(twin: Twin) -> None:
        queue = start_heads(twin, twin.in_order(key))
        if not queue:
            return
        head = queue.pop(0)
        wide = 2 * head.width > twin.slots

        def length(job: Job) -> int:
            return job.said if wide else job.estimate

        for shadow in sorted(twin.start[job.id] + length(job) for job in twin.running):
            then = twin.free + sum(job.width for job in twin.running if twin.start[job.id] + length(job) <= shadow)
            if then >= head.width:
                break
        extra = then - head.width
        for job in queue if behind is None else sorted(queue, key=lambda job: (behind(job), job.release, job.id)):
            if job.width > twin.free:
                continue
            if twin.now + length(job) <= shadow:
                twin.begin(job)
            elif job.width <= extra:
                extra -= job.width
                twin.begin(job)

    return decide


def promising(depth: float, key: Callable[[Job], object]) -> Pass:
    """The first `depth` jobs that cannot start get a promise. What starts behind them delays none.

    When a job has ended, each of them, in order, may move to an earlier start that delays no other. If only jobs came,
    only those are examined, unless they are among the first and so end the promises of others.

    Readings: a job that has exceeded its estimate is expected to end now, and a job that has a promise of its slots
    waits for it. An estimate of 0 counts as one unit. A promise whose time has passed is for now. If promises cannot
    all be kept, all are made again in order.
    """

    def length(job: Job) -> int:
        return max(1, job.estimate)

    def taken(twin: Twin) -> list[tuple[int, int, int]]:
        """From when until when this many slots are taken."""
        now = twin.now
        by_running = [(now, twin.start[job.id] + length(job), job.width) for job in twin.running]
        promised = [(max(now, twin.promise[job.id]), job) for job in twin.queue if job.id in twin.promise]
        return by_running + [(begin, begin + length(job), job.width) for begin, job in promised]

    def can_all_be_kept(twin: Twin) -> bool:
        holds = [hold for hold in taken(twin) if hold[1] > twin.now]
        return all(sum(w for begin, until, w in holds if begin <= at < until) <= twin.slots for at, _, _ in holds)

    def fits(twin: Twin, job: Job, begin: int, others: list[tuple[int, int, int]]) -> bool:
        end = begin + length(job)
        for at in [begin, *(start for start, _, _ in others if begin < start < end)]:
            if job.width > twin.slots - sum(width for start, until, width in others if start <= at < until):
                return False
        return True

    def decide(twin: Twin) -> None:
        now, queue, came = twin.now, twin.in_order(key), twin.came
        first = [job for place, job in enumerate(queue) if place < depth]
        if came is not None and len(queue) > depth and any(job in first for job in came):
            came = None
        for job in queue:
            if job not in first:
                twin.promise.pop(job.id, None)
        if came is None and not can_all_be_kept(twin):
            twin.promise.clear()
        waiting = 0 if came is None else len(set(twin.promise) & {job.id for job in queue})
        for job in queue:
            if came is not None and job not in came:
                continue
            if waiting >= depth:
                begin = now if fits(twin, job, now, taken(twin)) else FOREVER
            else:
                twin.promise.pop(job.id, None)
                others = taken(twin)
                ends = sorted({until for _, until, _ in others if until > now})
                begin = next(at for at in [now, *ends] if fits(twin, job, at, others))
            if begin == now and job.width <= twin.free:
                twin.begin(job)
            elif waiting < depth:
                twin.promise[job.id] = begin
                waiting += 1

    return decide


def release(job: Job) -> int:
    return 0


def shortest(job: Job) -> int:
    return job.estimate


def widest(job: Job) -> int:
    return -job.width


def due(job: Job) -> int:
    return job.due


def priority(job: Job) -> int:
    return -job.priority


def weighted(job: Job) -> float:
    return -job.rate / (max(1, job.estimate) * job.width)


def draw(seed: int, *, overruns: bool) -> tuple[list[Job], int]:
    """A small workload with many ties in release, width and run time, and with exact or too long estimates."""
    chance = Random(seed)
    slots = chance.choice([1, 2, 3, 4, 8])
    span = chance.choice([1, 6, 30])
    longest = chance.choice([2, 6, 12])
    releases = sorted(chance.randint(0, span) for _ in range(chance.randint(1, 14)))
    jobs = []
    for number, at in enumerate(releases):
        runtime = chance.randint(0, longest)
        estimate = runtime + chance.choice([0, 0, 1, longest])
        if overruns and chance.random() < 0.4:
            estimate = chance.randint(0, runtime)
        jobs.append(
            Job(
                id=number,
                release=at,
                width=chance.randint(1, slots),
                runtime=runtime,
                estimate=estimate,
                due=at + chance.randint(-1, 3),
                priority=chance.randint(0, 2),
                rate=chance.choice([0.0, 1.0, 1.0, 5.0]),
            )
        )
    return jobs, slots


def columns(jobs: list[Job]) -> Workload:
    return workload_us(
        kind=[Kind.RIGID] * len(jobs),
        **{
            name: [getattr(job, name) for job in jobs]
            for name in ("release", "width", "runtime", "estimate", "due", "priority", "rate")
        },
    )


find = cache(registry.find)  # policies remember nothing, so that one of each kind is enough


def headway(
    jobs: list[Job],
    slots: int,
    policy: str,
    audit: Callable[[Scheduler], None] | None,
    predictor: predictors.Predictor | None = None,
) -> Simulation:
    """Run the jobs through the core, on two nodes, so that not all slots are of the same node."""
    nodes = [NodeSpec("a", slots - slots // 2)] + [NodeSpec("b", slots // 2)] * (slots > 1)
    simulation = Simulation(columns(jobs), nodes, find, policy, audit=audit, predictor=predictor)
    simulation.run()
    return simulation


def compare(
    seeds: range, policy: str, decide: Pass, *, per_instant: bool = False, overruns: bool, predicted: bool = False
) -> None:
    for seed in seeds:
        jobs, slots = draw(seed, overruns=overruns)
        twin = run(jobs, slots, decide, per_instant=per_instant, predicts=LastTwo() if predicted else None)
        predictor = predictors.LastTwo() if predicted else None
        ours = headway(jobs, slots, policy, Scheduler.check if seed % 8 == 0 else None, predictor)
        expected = [(twin.start[job.id], twin.end[job.id]) for job in jobs]
        done = ours.schedule()
        assert list(zip(done.start.tolist(), done.end.tolist(), strict=True)) == expected, (
            f"{policy}, seed {seed}: {slots} slots, {jobs}"
        )
        assert not ours.scheduler.refusals


CASES = [
    ("fcfs", strict(release)),
    ("sjf", strict(shortest)),
    ("easy", easy(release)),
    ("easy:order=shortest", easy(shortest)),
    ("easy:order=widest", easy(widest)),
    ("easy:order=due", easy(due)),
    ("easy:order=priority", easy(priority)),
    ("easy:order=weighted", easy(weighted)),
    ("easy:backfill=shortest", easy(release, shortest)),
    ("easy:depth=2", promising(2, release)),
    ("conservative", promising(inf, release)),
    ("fcfs:order=widest", strict(widest)),
    ("easy:depth=0,order=due", promising(0, due)),
    ("easy:depth=2,order=shortest", promising(2, shortest)),
    ("easy:depth=3,order=weighted", promising(3, weighted)),
    ("easy:depth=inf,order=priority", promising(inf, priority)),
]
ONCE = [(f"{name}{',' if ':' in name else ':'}per_instant=true", decide) for name, decide in CASES]
OFTEN = {"easy", "conservative", "fcfs", "easy:depth=2", "easy:per_instant=true"}


@pytest.mark.parametrize("overruns", [False, True], ids=["cut", "overruns"])
@pytest.mark.parametrize(("policy", "decide"), CASES, ids=[name for name, _ in CASES])
def test_every_job_starts_when_the_twin_starts_it(policy: str, decide: Pass, overruns: bool) -> None:
    compare(range(120 if policy in OFTEN else 40), policy, decide, overruns=overruns)


@pytest.mark.parametrize("overruns", [False, True], ids=["cut", "overruns"])
@pytest.mark.parametrize(("policy", "decide"), ONCE, ids=[name for name, _ in ONCE])
def test_one_pass_an_instant(policy: str, decide: Pass, overruns: bool) -> None:
    compare(range(80 if policy in OFTEN else 30), policy, decide, per_instant=True, overruns=overruns)


@pytest.mark.parametrize("overruns", [False, True], ids=["cut", "overruns"])
@pytest.mark.parametrize("per_instant", [False, True])
@pytest.mark.parametrize(
    ("policy", "decide"),
    [("easy", easy(release)), ("easy:backfill=shortest", easy(release, shortest)), ("sjf", strict(shortest))],
    ids=["easy", "backfill", "sjf"],
)
def test_with_predictions_every_job_starts_when_the_twin_starts_it(
    policy: str, decide: Pass, per_instant: bool, overruns: bool
) -> None:
    text = f"{policy}{',' if ':' in policy else ':'}per_instant=true" if per_instant else policy
    compare(range(120), text, decide, per_instant=per_instant, overruns=overruns, predicted=True)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("overruns", [False, True], ids=["cut", "overruns"])
@pytest.mark.parametrize(("policy", "decide"), CASES, ids=[name for name, _ in CASES])
def test_every_job_starts_when_the_twin_starts_it_at_length(policy: str, decide: Pass, overruns: bool) -> None:
    compare(range(10_000, 20_000), policy, decide, overruns=overruns)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("overruns", [False, True], ids=["cut", "overruns"])
@pytest.mark.parametrize(("policy", "decide"), ONCE, ids=[name for name, _ in ONCE])
def test_one_pass_an_instant_at_length(policy: str, decide: Pass, overruns: bool) -> None:
    compare(range(10_000, 15_000), policy, decide, per_instant=True, overruns=overruns)


LOGS = [("SDSC-SP2-1998-4.2-cln", 128, 20_000), ("LANL-CM5-1994-4.1-cln", 1024, 60_000), ("lublin_256", 256, 3000)]


@pytest.mark.parametrize("cut", [True, False], ids=["cut", "overruns"])
@pytest.mark.parametrize(("name", "slots", "begin"), LOGS, ids=[name for name, _, _ in LOGS])
def test_real_jobs_start_when_the_twin_starts_them(
    name: str, slots: int, begin: int, cut: bool, shared_data: Callable[[str], Path]
) -> None:
    """A piece of a log, where many jobs wait."""
    log = read_swf(shared_data(f"swf/{name}.swf.gz"), machine=slots, cut_at_estimate=cut)
    for policy, decide, many in (
        ("easy", easy(release), 400),
        ("fcfs", strict(release), 400),
        ("conservative", promising(inf, release), 120),
        ("easy:depth=4", promising(4, release), 120),
    ):
        piece = log.take(slice(begin, begin + many))
        columns = zip(piece.release, piece.width, piece.runtime, piece.estimate, strict=True)
        jobs = [Job(number, *map(int, row), due=0, priority=0) for number, row in enumerate(columns)]
        twin = run(jobs, slots, decide)
        ours = Simulation(piece, [NodeSpec("n", slots=slots)], registry.find, policy)
        ours.run()
        assert ours.schedule().start.tolist() == [twin.start[job.id] for job in jobs], policy
        assert any(twin.start[job.id] > job.release for job in jobs), f"{policy}: nobody waits in this piece"


def test_with_one_promise_it_is_easy() -> None:
    """One twin compared with the other, if estimates hold and none is 0."""
    for seed in range(150):
        jobs, slots = draw(seed, overruns=False)
        jobs = [replace(job, runtime=job.runtime + 1, estimate=job.estimate + 1) for job in jobs]
        one, other = run(jobs, slots, promising(1, release)), run(jobs, slots, easy(release))
        assert one.start == other.start, f"seed {seed}"


@pytest.mark.parametrize("policy", ["easy:depth=2", "easy:depth=3", "conservative:order=shortest"])
def test_a_promise_is_never_put_off(policy: str) -> None:
    """If estimates hold, and as long as no job comes before those that have one."""
    promised = 0
    for seed in range(200):
        jobs, slots = draw(seed, overruns=False)
        promises: dict[int, int] = {}

        def audit(scheduler: Scheduler, promises: dict[int, int] = promises, seed: int = seed) -> None:
            for job in scheduler.state.promised.values():
                at = job.promise
                assert at is not None
                assert at <= promises.get(job.id, FOREVER), f"seed {seed}: job {job.id} is promised a later start"
                promises[job.id] = at

        ours = headway(jobs, slots, policy, audit)
        assert all(ours.recorder.start[job] <= at for job, at in promises.items()), f"seed {seed}: a promise was broken"
        promised += len(promises)
    assert promised > 200


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_so_many_are_promised_a_start_and_no_more(depth: int) -> None:
    """Also if new jobs come before jobs that had a promise: these lose it."""
    for seed in range(100):
        jobs, slots = draw(seed, overruns=True)

        def audit(scheduler: Scheduler, seed: int = seed) -> None:
            state = scheduler.state
            first = sorted(state.waiting, key=lambda job: (job.estimate, job.order))[:depth]
            assert sorted(state.promised) == sorted(job.id for job in first), f"seed {seed}"

        headway(jobs, slots, f"easy:depth={depth},order=shortest", audit)


def test_conservative_gives_every_job_a_promise_and_never_puts_it_off() -> None:
    """While estimates hold."""
    promised = 0
    for seed in range(200):
        jobs, slots = draw(seed, overruns=False)
        promises: dict[int, int] = {}

        def audit(scheduler: Scheduler, promises: dict[int, int] = promises, seed: int = seed) -> None:
            for job in scheduler.state.waiting:
                assert job.promise is not None, f"seed {seed}: job {job.id} has no promise"
                assert job.promise <= promises.get(job.id, FOREVER), (
                    f"seed {seed}: job {job.id} is promised a later start"
                )
                promises[job.id] = job.promise

        ours = headway(jobs, slots, "conservative", audit)
        for job, at in promises.items():
            assert ours.recorder.start[job] <= at, f"seed {seed}: job {job} started after its promise"
        promised += len(promises)
    assert promised > 200  # the workloads make jobs wait


def test_backfilling_never_delays_the_head_of_the_queue() -> None:
    """EASY, if estimates hold: the head starts at its first shadow time, or before."""
    promised = 0
    for seed in range(200):
        jobs, slots = draw(seed, overruns=False)
        promises: dict[int, int] = {}

        def audit(scheduler: Scheduler, promises: dict[int, int] = promises) -> None:
            for job in scheduler.state.waiting:
                if job.promise is not None:
                    promises.setdefault(job.id, job.promise)

        ours = headway(jobs, slots, "easy", audit)
        for job, at in promises.items():
            assert ours.recorder.start[job] <= at, f"seed {seed}: job {job} started after its shadow time"
        promised += len(promises)
    assert promised > 200
