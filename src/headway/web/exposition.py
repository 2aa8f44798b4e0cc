"""How the server fares, as Prometheus reads it: docs/reference/prometheus.md has every name.

Labels have few values: no job, node, user or policy is one. Only the names of services are not known beforehand.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import Final

from prometheus_client import ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

from headway import __version__
from headway.core.counts import job_counts, slot_counts
from headway.core.state import State
from headway.live.delay import BOUNDS, LoopDelay
from headway.live.driver import Driver
from headway.live.meter import EnergyMeter
from headway.live.rented import renting_report
from headway.live.reports import open_costs, tasks_waiting, total_of
from headway.live.services import ServiceTotals
from headway.live.tally import INCIDENT_KINDS, REFUSED
from headway.model.actions import JobStatus
from headway.model.instant import to_seconds
from headway.model.outcome import Outcome
from headway.model.power import PowerState, settings_of
from headway.model.renting import STAGE_WORDS
from headway.model.slots import count
from headway.model.window import RESPONSE_BOUNDS
from headway.wire import Cost

CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4

FAMILIES_AT_ONCE: Final = 4
"""After this many families, other requests are served."""

RULES_MAX: Final = 50
"""So many rules have a label value of their own; the core has fewer."""

SERVICES_MAX: Final = 100
"""So many services are shown, the first by name."""

USERS_SHOWN_MAX: Final = 100
"""So many users are shown, those whose open jobs are expected to cost the most, or who have paid the most."""

NODES_SHOWN_MAX: Final = 1000
"""For so many nodes it is shown what they draw."""

_COUNTED: Final = "Counted when the window ends."

_RAISED: Final = "policy_raised"


async def exposition(driver: Driver, delay: LoopDelay, meter: EnergyMeter | None = None) -> bytes:
    """Everything, in the text format of Prometheus."""
    ready, costs = await tasks_waiting(driver), await open_costs(driver)
    families = []
    of_server, of_energy = _families(driver, delay, ready, costs), _of_energy(driver, meter)
    for place, family in enumerate(chain(of_server, _of_services(driver), of_energy, _of_rentals(driver))):
        families.append(family)
        if place % FAMILIES_AT_ONCE == 0:
            await asyncio.sleep(0)  # some are counted over all that runs
    return generate_latest(_ReadFamilies(tuple(families)))


@dataclass(frozen=True)
class _ReadFamilies(Collector):
    """What was read for one answer; the process is read when it is written."""

    families: tuple[Metric, ...]

    def collect(self) -> Iterable[Metric]:
        return chain(self.families, _process.collect())


_process: Final = ProcessCollector(registry=None)


def _families(driver: Driver, delay: LoopDelay, ready: int, users: Mapping[str, Cost]) -> Iterator[Metric]:
    costs, shown = total_of(users), sorted(users, key=lambda user: (-users[user].expected, user))[:USERS_SHOWN_MAX]
    core, state, tally, room, journal = driver.core, driver.core.state, driver.tally, driver.room, driver.journal
    room.look()
    yield InfoMetricFamily("headway_build", "The version of the server.", value={"version": __version__})
    yield _gauge("headway_start_time_seconds", "When the server started, since 1970.", to_seconds(driver.started))
    yield _gauge("headway_accepts", "Whether new work is accepted: 1, or 0.", driver.accepts)

    jobs = {status.value: number for status, number in job_counts(state).items()}
    yield _by("headway_jobs", "Open jobs, by status.", "status", jobs)
    yield _gauge("headway_tasks_waiting", "Tasks that could start and wait for slots.", ready)
    tiers = {"foreground": len(state.runs()), "background": len(state.runs_behind())}
    yield _by("headway_tasks_running", "Attempts at tasks that run, by tier.", "tier", tiers)
    slots = {status.value: number for status, number in slot_counts(state).items()}
    yield _by("headway_slots", "Slots of the nodes in service, by status.", "status", slots)
    bounds = sorted(state.rations.values(), key=lambda one: (-one.used, one.user))[:USERS_SHOWN_MAX]
    used, most = ({one.user: getattr(one, name) for one in bounds} for name in ("used", "most"))
    yield _by("headway_user_slots", "Slots that the tasks of a user have, for users with a bound.", "user", used)
    yield _by("headway_user_slots_max", "Slots that the tasks of a user may have at once.", "user", most)
    yield _by("headway_nodes", "Nodes in service, by status.", "status", _nodes(state))
    gone = driver.sites.gone
    sites = {name: float(name not in gone) for name in driver.sites.engines}
    yield _by("headway_site_up", "Whether the engine of a site can be used: 1, or 0.", "site", sites)

    yield _count("headway_jobs_submitted", "Jobs accepted.", tally.submitted)
    final = [status.value for status in JobStatus if status.is_final]
    yield _counts("headway_jobs_ended", "Jobs that ended, by status.", "status", final, tally.jobs)
    outcomes = [outcome.value for outcome in Outcome]
    yield _counts("headway_tasks_ended", "Tasks that ended, by outcome.", "outcome", outcomes, tally.tasks)
    about = "Jobs with a due date that ended, in time or not; failed jobs count as missed, cancelled ones not at all."
    results = {"met": tally.in_time, "missed": tally.late}
    yield _counts("headway_due_dates", about, "result", tuple(results), results)
    about = "Time by which jobs ended after their due dates."
    yield _count("headway_tardiness_seconds", about, tally.tardiness_seconds)
    about = "Penalty of jobs that ended late, rate times shape of tardiness, and of services that ended."
    yield _count("headway_penalty", about, tally.penalty)
    about = "Penalty of the open jobs if they ended now, and of services so far."
    yield _gauge("headway_penalty_open", about, costs.penalty)
    about = "Penalty of the open jobs as they are expected to end, and of services so far."
    yield _gauge("headway_penalty_expected", about, costs.expected)
    about = "Penalty of the open jobs of a user if they ended now, and of services so far."
    yield _by("headway_user_penalty_open", about, "user", {user: users[user].penalty for user in sorted(shown)})
    about = "Penalty of the open jobs of a user as they are expected to end, and of services so far."
    yield _by("headway_user_penalty_expected", about, "user", {user: users[user].expected for user in sorted(shown)})
    about = "Priority times seconds of tardiness of jobs that ended late."
    yield _count("headway_deadline_miss_penalty", about, tally.miss_penalty)

    yield _count("headway_rounds", "Rounds: how often the policy decided.", core.rounds)
    refused = _rules(core.refusals)
    yield _counts(
        "headway_plan_refusals", "Parts of plans that were refused, by rule.", "rule", tuple(refused), refused
    )
    yield _count("headway_events", "Events recorded, since the journal began.", driver.recorded)
    yield _count("headway_commits", "Transactions of the journal.", driver.commits)
    yield _histogram(delay)

    sizes = {"database": journal.size(), "log": journal.log_size()}
    yield _by("headway_journal_size_bytes", "Size of the journal's files.", "file", sizes)
    yield _gauge("headway_disk_free_bytes", "Free on the disk of the data directory.", room.free)
    yield _gauge("headway_disk_reserve_bytes", "Of these, kept for jobs already accepted.", room.reserve)
    yield _gauge("headway_stored_bytes", "Output and uploads that are kept.", room.stored)
    yield _gauge("headway_stored_bytes_max", "The limit for headway_stored_bytes.", room.outputs_max)
    yield _gauge("headway_callers_waiting", "Callers that wait for messages.", driver.listeners)
    yield _counts("headway_incidents", "Incidents, by kind.", "kind", INCIDENT_KINDS, tally.incidents)
    about = "Requests refused, by the status of the answer."
    yield _counts("headway_requests_refused", about, "status", sorted({*REFUSED, *tally.refused}), tally.refused)


def _of_services(driver: Driver) -> Iterator[Metric]:
    services, jobs = driver.services, driver.core.state.jobs
    open_ = services.names
    names = sorted(services.totals.keys() | open_.keys())[:SERVICES_MAX]
    if not names:
        return
    totals = {name: services.totals.get(name, ServiceTotals()) for name in names}
    there = {name: services.queue(name) for name in names if name in open_}
    for field, about in (
        ("arrivals", "Requests that came."),
        ("in_time", "Requests that were answered within the threshold."),
    ):
        family = CounterMetricFamily(f"headway_service_{field}", f"{about} {_COUNTED}", labels=["service"])
        for name, total in totals.items():
            family.add_metric([name], float(getattr(total, field)))
        yield family
    family = CounterMetricFamily(
        "headway_service_requests", f"Requests that ended, by result. {_COUNTED}", labels=["service", "result"]
    )
    for name, total in totals.items():
        for result in ("answered", "rejected", "failed", "timed_out", "gone"):
            family.add_metric([name, result], float(getattr(total, result)))
    yield family
    about = f"Time from the arrival of a request to its answer. {_COUNTED}"
    responses = HistogramMetricFamily("headway_service_response_seconds", about, labels=["service"])
    for name, total in totals.items():
        sums = accumulate(total.responses)
        buckets = [
            (bound, float(number)) for bound, number in zip((*map(str, RESPONSE_BOUNDS), "+Inf"), sums, strict=True)
        ]
        responses.add_metric([name], buckets, total.response_seconds)
    yield responses
    penalties = {name: sum(jobs[job].cost for job in open_[name]) for name in there}
    yield _by(
        "headway_service_queue", "Requests that wait.", "service", {name: len(one) for name, one in there.items()}
    )
    ready = {name: len(one.instances) for name, one in there.items()}
    yield _by("headway_service_instances", "Instances that are ready.", "service", ready)
    yield _by("headway_service_penalty", "What the windows of a service have cost so far.", "service", penalties)


def _of_rentals(driver: Driver) -> Iterator[Metric]:
    """What is rented, and what it costs."""
    found = renting_report(driver)
    stages = Counter(rental.stage for rental in found.rentals)
    there = {str(stage): float(stages[stage]) for stage in STAGE_WORDS.values()}
    yield _by("headway_rentals", "Machines that were asked for and are not given back yet, by stage.", "stage", there)
    paid = dict(sorted(found.paid_by_user.items(), key=lambda each: -each[1])[:USERS_SHOWN_MAX])
    yield _by("headway_money_paid", "What rented machines have cost so far, by user.", "user", paid)
    yield _gauge("headway_money_paid_today", "What counts in the budget of today.", found.paid_today)
    about = "Machines that were given back because they never joined."
    yield _count("headway_rentals_never_joined", about, found.never_joined)


def _of_energy(driver: Driver, meter: EnergyMeter | None) -> Iterator[Metric]:
    state, watts = driver.core.state, dict[str, float]()
    busy_slots = state.totals().busy
    for name, node in list(state.nodes.items())[:NODES_SHOWN_MAX]:
        power, settings = node.spec.power, settings_of(node.spec.site, state.switching) or node.went_off
        if power is None or not node.up:
            continue
        busy = count(busy_slots & node.slots)  # none where it is off; some while it waits to go off
        watts[name] = settings.off_watts if node.power is PowerState.OFF else power.at(busy / node.spec.slots)
    about = "What a node draws now, by the model: idle power and a share of the rest up to its peak."
    yield _by("headway_node_watts", about, "node", watts)
    about = "What the server's processors and their memory have counted since it started."
    found = CounterMetricFamily("headway_processor_joules", about, labels=["zone"])
    for zone, joules in (meter.rapl.total() if meter is not None else {}).items():
        found.add_metric([zone], joules)
    yield found


def _nodes(state: State) -> dict[str, int]:
    found = {"up": 0, "closed": 0, "draining": 0, "down": 0, "off": 0}
    for node in state.nodes.values():
        is_lit = node.power is PowerState.ON or node.waits_to_go_off
        lit = "closed" if node.closed else "up"
        found["down" if not node.up else "draining" if node.draining else lit if is_lit else "off"] += 1
    return found


def _rules(refusals: Mapping[str, int]) -> dict[str, int]:
    """Refusals by rule. What a policy raises has any name; the rules are few, unless something is wrong."""
    found: dict[str, int] = {}
    for rule, times in sorted(refusals.items()):
        known = _RAISED if rule.startswith(_RAISED) else rule
        known = known if known in found or len(found) < RULES_MAX else "other"
        found[known] = found.get(known, 0) + times
    return found


def _gauge(name: str, about: str, value: float) -> Metric:
    return GaugeMetricFamily(name, about, value=float(value))


def _count(name: str, about: str, value: float) -> Metric:
    return CounterMetricFamily(name, about, value=float(value))


def _by(name: str, about: str, label: str, values: Mapping[str, float]) -> Metric:
    found = GaugeMetricFamily(name, about, labels=[label])
    for word, value in values.items():
        found.add_metric([word], float(value))
    return found


def _counts(name: str, about: str, label: str, words: Collection[str], values: Mapping[str, int]) -> Metric:
    """A counter with each of these words from the beginning, so that a first increase is seen as one."""
    found = CounterMetricFamily(name, about, labels=[label])
    for word in words:
        found.add_metric([word], float(values.get(word, 0)))
    return found


def _histogram(delay: LoopDelay) -> Metric:
    about = "How late the event loop came to what was due, looked at four times a second."
    buckets = _buckets(BOUNDS, delay.counts)
    return HistogramMetricFamily("headway_loop_delay_seconds", about, buckets=buckets, sum_value=delay.seconds)


def _buckets(bounds: Iterable[float], counts: Iterable[int]) -> list[tuple[str, float]]:
    """How many values are at most each bound, from how many are between it and the one before."""
    words = (*map(str, bounds), "+Inf")
    return [(bound, float(number)) for bound, number in zip(words, accumulate(counts), strict=True)]
