"""What would become of the open jobs if something were otherwise."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from headway.cli.paths import GivenPath, PicturePath
from headway.cli.reach import reached
from headway.cli.show import begun, clock, counted, instant_in, money, print_table, span
from headway.errors import HeadwayError, InvalidInput, did_you_mean
from headway.metrics import to_json

if TYPE_CHECKING:
    from headway.cli.workflow_file import FileFlow
    from headway.client.client import Client
    from headway.core.record import StateRecord
    from headway.foresight.present import Present, RunTimesTold
    from headway.foresight.whatif import Later, Quantiles, Side, WhatIf
    from headway.model.events import Event, JobSubmitted
    from headway.model.instant import Instant
    from headway.model.job import JobId
    from headway.model.node import NodeSpec

_NAMED: Final = 5
"""So many jobs or nodes are named in a sentence."""

NODE_FORM: Final = "NAME[,slots=N,speed=X,cores=N,kind=TEXT,site=TEXT]"

_YAML: Final = (".yaml", ".yml")
"""How files with a workflow of programs in YAML end."""

_NOT_SENT: Final = f"headway:{'0' * 64}"
"""Stands for a file that would be sent to the server."""

ROWS: Final = 20
"""Jobs in the table; --json and --out have more."""


@dataclass(frozen=True, slots=True)
class Supposition:
    """What would be otherwise.

    Attributes:
        policy: another policy; None: the same.
        add, remove: nodes.
        first: jobs that go before all others.
        submit: a file of jobs that come now.
        load: how much more often jobs come than they did; None: no jobs come.
    """

    policy: str | None
    add: tuple[str, ...]
    remove: tuple[str, ...]
    first: tuple[int, ...]
    submit: str | None
    load: float | None

    def in_words(self) -> list[str]:
        """The changes, each as a few words."""
        told = [] if self.policy is None else [f"policy {self.policy}"]
        told += [f"node {text} more" for text in self.add]
        told += [f"without node {name}" for name in self.remove]
        told += [f"job {job} first" for job in self.first]
        told += [] if self.submit is None else [f"the jobs of {self.submit} more"]
        return told + ([] if self.load is None else [f"load x {self.load:g}"])


@click.command()
@click.option("--policy", help="Another policy: NAME[:KEY=VALUE,...].")
@click.option(
    "--add-node",
    "add",
    metavar="NAME[,slots=N,speed=X]",
    multiple=True,
    help="One node more; default: one slot of speed 1.",
)
@click.option("--remove-node", "remove", metavar="NAME", multiple=True, help="Nothing more starts on this node.")
@click.option("--first", metavar="ID", type=int, multiple=True, help="This job has a higher priority than all others.")
@click.option("--submit", metavar="FILE", help="The jobs of a log or a table, or a workflow, come now.")
@click.option(
    "--load",
    type=float,
    metavar="X",
    help="Jobs come X times as often as in the last week; without it no others come than are there.",
)
@click.option("--at", metavar="TIME", help="Ask in the state of that time: 18:00, or 10m ago; default: now.")
@click.option("--futures", default=40, show_default=True, type=click.IntRange(2), help="How many are simulated.")
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0), help="Fixes what is drawn in them.")
@click.option("--out", type=PicturePath(), help="Draw when jobs end: a file .png, .svg or .pdf.")
@click.option("--apply", "applied", is_flag=True, help="Then do it; not with --load and --at.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON: one object; times in seconds since the epoch.")
@click.option("--data", type=GivenPath(file_okay=False), help="Data directory of the server.")
def whatif(
    data: str | None,
    at: str | None,
    futures: int,
    seed: int,
    out: str | None,
    applied: bool,
    as_json: bool,
    **asked: Any,
) -> None:
    """Compare what will become of the open jobs with what would, if something were otherwise; nothing changes.

    The journal of the data directory is read, also beside a running server, and many futures of its state are simulated
    as it is and as it would be, with the same draws: jobs run as long as earlier ones that were most like them. Several
    changes count together. 90 % of the futures lie within the bounds. What comes lies outside more often, because these
    bounds are not corrected by what came of earlier ones, as those of forecasts are.
    """
    from headway.client.address import data_directory
    from headway.foresight.present import present, run_times_known, with_told
    from headway.foresight.whatif import what_if
    from headway.policies.registry import by_priority_instead, ignores_priorities
    from headway.policy_files import find

    wanted = Supposition(**asked)
    words = wanted.in_words()
    if not words:
        raise click.UsageError("Say what would be otherwise, by --policy, --add-node or --first for example")
    if wanted.load is not None and not (0 < wanted.load < math.inf):
        raise InvalidInput("--load", wanted.load, "more than 0")
    if applied:
        _check_possible(wanted, at)
    if wanted.policy is not None:
        find(wanted.policy)
    instant = time.time() if at is None else instant_in(at, "--at", towards="past")
    if instant > time.time():
        raise InvalidInput("--at", at or "", "a time that has passed")
    folder = data_directory(data)
    now = present(folder, find, round(instant * 1e6))
    policy = wanted.policy or now.state.policy
    changes, told = _events(wanted, now)
    arrivals, within = _arrivals(wanted.load, now, folder)
    if wanted.first and ignores_priorities(policy):
        click.echo(
            f"The policy {policy} does not look at priorities, so --first changes nothing. Ask with "
            f"--policy {by_priority_instead(policy)} too.",
            err=True,
        )
    known = run_times_known(now)
    found = what_if(
        now.state,
        find,
        with_told(known.at(now.state), told),
        changes=changes,
        policy=wanted.policy,
        arrivals=arrivals,
        within=within,
        count=futures,
        seed=seed,
        unknown=lambda state: known.unknown(state) - told.keys(),
    )
    if as_json:
        click.echo(to_json(_object(found, words, futures, seed, within)), nl=False)
    else:
        _print(found, words, futures, within)
    if out is not None:
        _draw(found, words, out)
        if not as_json:
            click.echo(f"Written: {out}.")
    if applied:
        _apply(data, wanted, now.state, quiet=as_json)


def _check_possible(wanted: Supposition, at: str | None) -> None:
    """See that what is asked about can be done.

    Raises:
        HeadwayError: it cannot.
    """
    if wanted.load is not None:
        raise HeadwayError("--apply cannot do --load", "How often jobs come is up to those who submit them.")
    if at is not None:
        raise HeadwayError("--apply cannot do --at", "What is done is done now: ask without --at first.")
    if wanted.submit is not None and not _is_program(wanted.submit):
        raise HeadwayError(
            f"--apply cannot submit {wanted.submit}: it does not say what its tasks run",
            "It can submit workflows of programs, as `headway submit --workflow` does: YAML (.yaml, .yml), or WfFormat "
            f"(.json). `headway replay {wanted.submit}` submits tasks that sleep.",
        )
    if wanted.submit is not None:
        _flow(wanted.submit)


def _is_program(file: str) -> bool:
    """Whether a file may be a workflow of programs."""
    return file.lower().endswith((*_YAML, ".json"))


def _flow(file: str) -> FileFlow:
    """The workflow of programs in a file. What would be sent to the server is not.

    Raises:
        HeadwayError: it is none.
    """
    from headway.cli.workflow_file import read
    from headway.files import Input

    return read(Path(file), lambda path: Input(_NOT_SENT))


def _jobs(file: str, now: Instant, last: JobId, slots: Collection[int]) -> tuple[list[JobSubmitted], RunTimesTold]:
    """The jobs of a file as if they came now, and their run times, if the file has them.

    Args:
        last: the greatest id of a job so far.
        slots: how many each node has.

    Raises:
        HeadwayError: it cannot be read, or something in it is wrong.
    """
    from headway.cli.trace import Trace
    from headway.client.job import described
    from headway.foresight.whatif import added
    from headway.model.events import JobSubmitted
    from headway.private import account

    if not file.lower().endswith(_YAML):
        more = "--add-node adds slots."
        return added(
            Trace((file,), None, None, None, None, 0).read(sum(slots), drop_wider=False, if_wider=more), now, last
        )
    flow = _flow(file)
    try:
        new, _ = described(flow, now / 1e6)
    except HeadwayError as refusal:
        raise flow.located(refusal) from refusal
    widest = max(task.cores for task in new.plan) if new.plan else 1
    if widest > (most := max(slots, default=0)):
        raise InvalidInput("slots of a task", widest, f"at most {most}, those of the largest node", source=file)
    return [JobSubmitted(now, new.spec(last + 1, now, account()))], {}


def _events(wanted: Supposition, now: Present) -> tuple[list[Event], RunTimesTold]:
    """What happens if the answer is yes; and the run times of jobs that come by it.

    Raises:
        InvalidInput: a node or job is not there, or is there already.
    """
    from headway.model.events import JobChanged, NodeDrained, NodeJoined

    state = now.state
    slots = {node.spec.name: node.spec.slots for node in state.nodes}
    events: list[Event] = []
    for text in wanted.add:
        spec = _node_in(text, state)
        if spec.name in slots:
            raise InvalidInput("--add-node", spec.name, "a name that no other node has")
        slots[spec.name] = spec.slots
        events.append(NodeJoined(state.now, spec))
    for name in dict.fromkeys(wanted.remove):
        if name not in slots:
            allowed = f"a node of the cluster: {_some(list(slots)) or 'it has none'}"
            raise InvalidInput("--remove-node", name, allowed, hint=did_you_mean(name, slots))
        if len(slots) == 1:
            raise InvalidInput("--remove-node", name, "a node that is not the last one")
        del slots[name]
        events.append(NodeDrained(state.now, name))
    highest = max((job.spec.priority if job.priority is None else job.priority for job in state.jobs), default=0.0)
    open_jobs = {job.spec.id for job in state.jobs}
    for place, job in enumerate(reversed(wanted.first), 1):
        if job not in open_jobs:
            raise InvalidInput("--first", job, "the id of an open job", hint="`headway jobs` lists them.")
        events.append(JobChanged(state.now, job, priority=highest + place))
    if wanted.submit is None:
        return events, {}
    jobs, times = _jobs(wanted.submit, state.now, max((*now.specs, *open_jobs), default=0), slots.values())
    return [*events, *jobs], times


def _node_in(text: str, state: StateRecord) -> NodeSpec:
    """A node as `NAME[,slots=N,speed=X]`. By default it is of the only site that there is, or else of this machine's.

    On it can be done what can be on the first node of its site.

    Raises:
        InvalidInput: a term is wrong, or its site must be named.
    """
    from headway.model.node import NodeSpec, node_flaw

    name, *terms = text.split(",")
    if "=" in name:  # a term that no comma parts from the name
        raise InvalidInput("name of --add-node", name, f"one without =, as in {NODE_FORM}")
    told: dict[str, Any] = {}
    for term in terms:
        key, _, value = term.partition("=")
        kind = {"slots": int, "cores": int, "speed": float, "kind": str, "site": str}.get(key.strip())
        if kind is None:
            raise InvalidInput("--add-node", text, NODE_FORM)
        try:
            told[key.strip()] = kind(value)
        except ValueError:
            raise InvalidInput(f"{key.strip()} of --add-node", value, "a number") from None
    sites = list(dict.fromkeys([*(one.name for one in state.sites), *(node.spec.site for node in state.nodes)]))
    if len(sites) == 1:
        told = {"site": sites[0]} | told
    spec = NodeSpec(name, **({"slots": 1} | told))
    like = next((node.spec for node in state.nodes if node.spec.site == spec.site), spec)
    spec = replace(spec, capabilities=like.capabilities)
    if wrong := node_flaw(spec):
        raise InvalidInput.saying(f"--add-node {text}: {wrong}")
    if "site" not in told and sites and spec.site not in sites:
        raise InvalidInput("--add-node", text, f"with site=, one of {_some(sites)}: nodes are of several sites")
    return spec


def _arrivals(load: float | None, now: Any, folder: Path) -> tuple[tuple[Any, Any], int]:
    """What comes later, as it is and as it would be; and for how long it is counted, in microseconds."""
    if load is None:
        return (None, None), 0
    from headway.foresight.coming import coming, counted_for, workload_of_past
    from headway.foresight.rerun import past
    from headway.policy_files import find
    from headway.traces.transforms import together

    came = past(folder, find).workload
    told = set(came.label.tolist())  # the jobs of which at least a task succeeded
    came = together(came, workload_of_past([one for one in now.past if not one.succeeded and one.job.id not in told]))
    as_it_is, otherwise = (coming(now.state.now, came, factor) for factor in (1.0, load))
    if otherwise is None:
        raise InvalidInput("load", load, "a server to which jobs came: fewer than two have ended in the last week")
    return (as_it_is, otherwise), counted_for(now.state.now, came, load)


def _object(found: WhatIf, words: list[str], futures: int, seed: int, within: int) -> dict[str, Any]:
    """All of it for programs."""

    def side(one: Side) -> dict[str, Any]:
        jobs = [
            {
                "job": job,
                "name": found.specs[job].name,
                "due": None if math.isnan(on_time) else found.due[job] / 1e6,
                "on_time": None if math.isnan(on_time) else on_time,
                "penalty": cost if math.isfinite(cost) else None,
                "start": start._asdict(),
                "end": end._asdict(),
            }
            for job, start, end, on_time, cost in zip(
                one.jobs, one.start, one.end, one.on_time, one.penalty, strict=True
            )
        ]
        told = {"late": one.late._asdict(), "penalty": one.cost._asdict(), "end": one.over._asdict(), "jobs": jobs}
        if one.later is not None:
            names = {"jobs": "jobs", "late": "late", "penalty": "cost", "wait": "wait"}
            told["later"] = {name: getattr(one.later, field)._asdict() for name, field in names.items()}
        if one.money is not None:
            told["money"] = one.money._asdict()
        return told

    return {
        "at": found.at / 1e6,
        "changes": words,
        "guessed": list(found.guessed),
        "within": within / 1e6,
        "futures": futures,
        "seed": seed,
        "now": side(found.now),
        "then": side(found.then),
    }


def _print(found: WhatIf, words: list[str], futures: int, within: int) -> None:
    if not found.then.jobs and found.then.later is None:
        click.echo("No job is open, so nothing would change.")
        return
    changes = ", ".join(words)
    otherwise = changes if changes.startswith("without ") else f"with {changes}"
    click.echo(
        f"{begun(counted(len(found.now.jobs), 'open job'))} at {clock(found.at / 1e6)}; {futures} futures each, now "
        f"and {otherwise}. 90 % of the futures lie within the bounds."
    )
    if found.guessed:
        click.echo(
            f"Neither an estimate nor earlier jobs tell how long tasks of {_these(found.guessed)} run: a guess counts."
        )
    at = found.at / 1e6
    measures: list[tuple[str, str, str]] = []
    if found.then.jobs:
        measures = [
            ("jobs that are late", _count(found.now.late), _count(found.then.late)),
            ("penalty", _count(found.now.cost), _count(found.then.cost)),
            ("all have ended in", _away(found.now.over, at), _away(found.then.over, at)),
        ]
    measures += _of_later(found, within)
    if found.now.money is not None and found.then.money is not None:
        measures.append(("rented machines cost", _with(found.now.money, money), _with(found.then.money, money)))
    print_table(("", "now", "then"), measures, right=("now", "then"))
    places = {job: place for place, job in enumerate(found.now.jobs)}
    rows = []
    for place, job in enumerate(found.then.jobs):
        before = places.get(job)
        was = None if before is None else found.now.end[before]
        chance = float("nan") if before is None else found.now.on_time[before]
        end = found.then.end[place]
        moved = _moved(was, end)
        rows.append(
            (
                -abs(moved),
                (
                    str(job),
                    found.specs[job].name,
                    "" if math.isnan(found.then.on_time[place]) else _due(found.due[job] / 1e6 - at),
                    _chance(chance),
                    _chance(found.then.on_time[place]),
                    "" if was is None else _away(was, at),
                    _away(end, at),
                ),
            )
        )
    rows.sort(key=lambda row: row[0])
    if not rows:
        return
    click.echo()
    heads = ("job", "name", "due", "on time now", "then", "ends in, now", "ends in, then")
    print_table(heads, [row for _, row in rows[:ROWS]], right=("job", "on time now", "then"), fold=("name",))
    if len(rows) > ROWS:
        rest = len(rows) - ROWS
        click.echo(f"{counted(rest, 'more job')} {'changes' if rest == 1 else 'change'} less; --json has all.")


def _of_later(found: WhatIf, within: int) -> list[tuple[str, str, str]]:
    """The jobs that come later."""
    now, then = found.now.later, found.then.later
    if now is None or then is None:
        return []
    return [
        (f"jobs that come within {span(within / 1e6)}", _count(now.jobs), _count(then.jobs)),
        ("late of these", _count(now.late), _count(then.late)),
        ("penalty of these", _count(now.cost), _count(then.cost)),
        ("mean wait of these", _wait(now), _wait(then)),
    ]


def _wait(later: Later) -> str:
    return "" if later.jobs.high == 0 else _with(later.wait, span)


def _these(jobs: tuple[int, ...]) -> str:
    """Some jobs, in words."""
    return f"{'job' if len(jobs) == 1 else 'jobs'} {_some(jobs)}"


def _some(found: Sequence[object]) -> str:
    """The first of several, and how many there are besides."""
    more = len(found) - _NAMED
    return ", ".join(map(str, found[:_NAMED])) + (f" and {counted(more, 'other')}" if more > 0 else "")


def _moved(was: Quantiles | None, end: Quantiles) -> float:
    if was is None:
        return math.inf
    one, other = (math.inf if bound.median is None else bound.median for bound in (was, end))
    return 0.0 if one == other else one - other


def _chance(value: float) -> str:
    return "" if math.isnan(value) else f"{100 * value:.0f} %"


def _count(bounds: Quantiles) -> str:
    return _with(bounds, lambda value: f"{value:,.6g}")


def _due(left: float) -> str:
    return f"in {span(left)}" if left >= 0 else f"{span(-left)} ago"


def _away(bounds: Quantiles, at: float) -> str:
    return _with(bounds, lambda instant: span(instant - at))


def _with(bounds: Quantiles, shown: Any) -> str:
    if bounds.low is None:
        return "not foreseen"
    said = ["later" if one is None else shown(one) for one in bounds]
    return said[0] if len(set(said)) == 1 else f"{said[0]} ({said[1]} to {said[2]})"


def _draw(found: WhatIf, words: list[str], out: str) -> None:
    from headway.pictures.bounds import JobEnds, ends

    at = found.at / 1e6

    def ahead(bounds: Quantiles | None) -> tuple[float | None, float | None, float | None]:
        if bounds is None:
            return None, None, None
        median, low, high = (None if one is None else one - at for one in bounds)
        return median, low, high

    before = dict(zip(found.now.jobs, found.now.end, strict=True))
    rows = [
        JobEnds(
            f"job {job}",
            None if math.isnan(on_time) else found.due[job] / 1e6 - at,
            (ahead(before.get(job)), ahead(end)),
        )
        for job, end, on_time in zip(found.then.jobs, found.then.end, found.then.on_time, strict=True)
    ]
    ends(rows, ("now", ", ".join(words)), out, title="When jobs end")


def _apply(data: str | None, wanted: Supposition, state: StateRecord, *, quiet: bool) -> None:
    """Do on the server what was asked about.

    Raises:
        HeadwayError: a part failed; the hint says what was done before it, and what was not tried.
    """
    done: list[str] = []
    with reached(None, data) as client:
        steps = _steps(client, wanted, state)
        for place, (named, step) in enumerate(steps):
            try:
                done.append(step())
            except HeadwayError as error:
                if len(steps) > 1:
                    left = ", ".join(name for name, _ in steps[place + 1 :])
                    parts = (
                        f"Done: {', '.join(done) or 'nothing'}.",
                        f"Failed: {named}.",
                        left and f"Not tried: {left}.",
                    )
                    error.hint = " ".join(filter(None, (error.hint, *parts)))
                raise
    click.echo(f"Done: {', '.join(done)}.", err=quiet)


def _steps(client: Client, wanted: Supposition, state: StateRecord) -> list[tuple[str, Callable[[], str]]]:
    """What is to be done on the server, one after the other: each with its name; it returns what has become of it."""
    from headway.cli.submit import flow_of, submit_now

    def add(spec: NodeSpec) -> str:
        client.add_node(spec.name, spec.slots, speed=spec.speed, cores=spec.cores, kind=spec.kind, site=spec.site)
        return f"node {spec.name} is in service"

    def remove(name: str) -> str:
        client.drain_node(name)
        return f"node {name} drains"

    def put_first(job: int, priority: float) -> str:
        is_open = client.change(job, priority=priority)
        return f"job {job} has priority {priority:g}" if is_open else f"job {job} has ended meanwhile"

    def choose(policy: str) -> str:
        return f"the policy is {client.choose_policy(policy)}"

    def submit(file: str) -> str:
        with flow_of(click.get_current_context(), Path(file), {}, ()) as made:
            return f"job {submit_now(client, made(client)).job} is submitted"

    highest = max((job.priority for job in client.jobs(status="open")), default=0.0) if wanted.first else 0.0
    return [
        *((f"node {text} more", partial(add, _node_in(text, state))) for text in wanted.add),
        *((f"without node {name}", partial(remove, name)) for name in wanted.remove),
        *(
            (f"job {job} first", partial(put_first, job, highest + place))
            for place, job in enumerate(reversed(wanted.first), 1)
        ),
        *((f"the jobs of {file} more", partial(submit, file)) for file in (wanted.submit,) if file is not None),
        *((f"policy {policy}", partial(choose, policy)) for policy in (wanted.policy,) if policy is not None),
    ]
