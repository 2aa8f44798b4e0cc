"""Transcripts as text: events in, actions out. Each `*.txt` beside this file is a test, in this form:

    # what it shows
    policy NAME[:key=value,...]     the policy, or `scripted`: then the plan of each round is written under its event
    10 submit 1 tasks=2             at 10 s this happens (see `Play.event`); times of terms are in seconds too
       <- hold 1 on a:0 kill        scripted policies only: what the policy wants in the round that follows; under
                                    `advised 3`: what the decider wants, in answer to question 3; a wish ends in the
                                    claim, `background` and `seats=a:1,a:0` where they are not those usual
       -> launch 1.0#1 on a:0       what the core asks for: job 1, task 0, attempt 1, slot 0 of node a
    ? job 1 = running               how things stand (see `Play.answer`)

The runner plays the events and writes the whole transcript again. It must come out unchanged. A real policy with one
round per instant needs a `wake`. After every event the whole state is checked.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from headway.core.nodes import slot_statuses
from headway.core.scheduler import Scheduler
from headway.model.actions import (
    Action,
    ChangeTier,
    Conclude,
    Consult,
    Kill,
    Launch,
    Settle,
    Suspend,
    SwitchOff,
    SwitchOn,
    Wake,
)
from headway.model.events import (
    Advised,
    DeciderBack,
    DeciderChosen,
    DeciderFailed,
    Event,
    JobCancelled,
    JobChanged,
    JobSubmitted,
    NodeClosed,
    NodeDown,
    NodeDrained,
    NodeJoined,
    NodeLeft,
    NodeOff,
    NodeOn,
    NodeOpened,
    NodeResized,
    NodesHeard,
    NodeSwitched,
    NodeUp,
    Outcome,
    PolicyChosen,
    RulesChosen,
    SwitchFailed,
    SwitchingChosen,
    TaskEnded,
    TaskSaved,
    TasksCancelled,
    TaskStarted,
    TaskStruck,
    TierRefused,
    Woke,
)
from headway.model.instant import Instant, from_seconds, seconds_text
from headway.model.job import JobSpec, TaskSpec
from headway.model.plan import Claim, Plan, PlanRecord
from headway.model.policy import Policy
from headway.model.power import POWER_WORDS, Switching
from headway.model.slots import Slots, numbers
from headway.model.snapshot import Snapshot
from headway.model.tier import Tier
from headway.policies import registry
from headway.testing import job, node

HERE = Path(__file__).parent
ATTEMPT = re.compile(r"(\d+)\.(\d+)#(\d+)")


@dataclass
class Scripted:
    """Returns the plan that the transcript has for this round, and wants a round at every end of a task."""

    script: list[str] = field(default_factory=list)
    names: dict[str, int] = field(default_factory=dict)
    per_instant = False
    task_rounds = True
    tiers = True

    def __call__(self, view: Snapshot) -> Plan:
        plan = view.plan()
        for line in self.script:
            if line.startswith("switch "):
                plan.switch(line.split()[1], on=line.endswith(" on"))
                continue
            verb, of, _, slots, *how = line.split()
            number, _, task = of.partition(".")
            chosen = sum(1 << self.slot(view, name) for name in slots.split(",") if name != "nothing")
            claim, tier, seats = Claim.FREE, Tier.FOREGROUND, ()
            for word in how:
                if word == "background":
                    tier = Tier.BACKGROUND
                elif word.startswith("seats="):
                    seats = tuple(self.slot(view, name) for name in word[6:].split(","))
                else:
                    claim = Claim[word.upper()]
            if verb == "hold":
                plan.hold(int(number), chosen, claim, tier, seats)
            elif verb == "place":
                plan.place(int(number), int(task), chosen, claim, tier)
            else:
                raise ValueError(f"no such wish: {line}")
        self.script.clear()
        return plan

    def slot(self, view: Snapshot, name: str) -> int:
        of, _, index = name.partition(":")
        return view.nodes[of].places[int(index)]


class Play:
    """A scheduler that plays a transcript line by line."""

    def __init__(self, policy: str) -> None:
        self.script = Scripted()
        self.scheduler = Scheduler(self.policy, policy)
        self.told: Counter[str] = Counter()

    def policy(self, text: str) -> Policy:
        return self.script if text == "scripted" else registry.find(text)

    def event(self, at: Instant, verb: str, words: list[str]) -> Event:
        """The event that a line stands for."""
        first = words[0] if words else ""
        match verb:
            case "submit":
                return JobSubmitted(at, submitted(int(first), words[1:]))
            case "cancel":
                number, _, tasks = first.partition(".")
                if tasks:
                    return TasksCancelled(at, int(number), tuple(map(int, tasks.split(","))))
                return JobCancelled(at, int(number))
            case "change":
                terms = dict(word.split("=") for word in words[1:])
                due = from_seconds(float(terms["due"])) if "due" in terms else None
                return JobChanged(at, int(first), float(terms["priority"]) if "priority" in terms else None, due)
            case "started":
                return TaskStarted(at, *attempt(first))
            case "saved":
                return TaskSaved(at, *attempt(first))
            case "tier_refused":
                return TierRefused(at, *attempt(first), Tier[words[1].upper()])
            case "struck":
                return TaskStruck(at, *attempt(first))
            case "rules":
                return RulesChosen(at, int(first))
            case "end":
                return TaskEnded(at, *attempt(first), Outcome(" ".join(words[1:]) or "succeeded"))
            case "join":
                given = dict(word.split("=") for word in words[1:])
                site = {"site": given.pop("site")} if "site" in given else {}
                terms = {name: float(value) for name, value in given.items()}
                whole = {name: int(terms[name]) for name in terms.keys() & {"slots", "cores", "read_ahead"}}
                reports = {"reports_start": True} if terms.pop("reports_start", 0) else {}
                return NodeJoined(at, node(first, **{**terms, **whole, **reports, **site}))
            case "switching":
                pairs = [word.partition("=") for word in words]
                terms = {name: float(value) for name, _, value in pairs}
                spans = {"off_after", "off_time", "on_time", "limit"}
                times = {name: from_seconds(terms[name]) for name in terms.keys() & spans}
                whole = {name: int(terms[name]) for name in terms.keys() & {"min_on"}}
                return SwitchingChosen(at, (Switching(**{**terms, **times, **whole}),) if words else ())
            case "switch":
                return NodeSwitched(at, first, words[1] == "on", by_hand="hand" in words)
            case "off" | "on":
                number = int(words[1].removeprefix("#")) if len(words) > 1 else 0
                return NodeOff(at, first, number) if verb == "off" else NodeOn(at, first, number)
            case "unswitched":
                number = self.scheduler.state.nodes[first].switch if len(words) < 3 else int(words[2].removeprefix("#"))
                return SwitchFailed(at, first, number, serves=words[1] == "serves", detail="no such plug")
            case "resize":
                return NodeResized(at, first, int(words[1].removeprefix("slots=")))
            case "heard":
                return NodesHeard(at, tuple(words))
            case "policy":
                return PolicyChosen(at, first)
            case "decider":
                return DeciderChosen(at, first)
            case "advised":
                return Advised(at, int(first), PlanRecord.of(self.script(self.scheduler.state)))
            case "failed":
                return DeciderFailed(at, int(first), "gone")
            case "back":
                return DeciderBack(at)
            case "wake":
                return Woke(at)
            case "close" | "open":
                return NodeClosed(at, first) if verb == "close" else NodeOpened(at, first)
        return {"down": NodeDown, "up": NodeUp, "drain": NodeDrained, "leave": NodeLeft}[verb](at, first)

    def slots(self, slots: Slots) -> str:
        """Slots by node and their number there."""
        views = self.scheduler.state.slot_nodes
        return ",".join(f"{views[slot].spec.name}:{views[slot].index_of(slot)}" for slot in numbers(slots))

    def said(self, action: Action) -> str:
        """An action as text."""
        match action:
            case Launch(job=of, task=task, attempt=number, slots=slots, tier=tier, seats=seats):
                behind = " in the background" if tier is Tier.BACKGROUND else ""
                order = f" seats={','.join(self.slots(1 << seat) for seat in seats)}" if seats else ""
                return f"launch {of}.{task}#{number} on {self.slots(slots)}{behind}{order}"
            case Kill(job=of, task=task, attempt=number):
                return f"kill {of}.{task}#{number}"
            case Suspend(job=of, task=task, attempt=number):
                return f"suspend {of}.{task}#{number}"
            case ChangeTier(job=of, task=task, attempt=number, tier=tier):
                return f"change {of}.{task}#{number} to the {tier.name.lower()}"
            case Settle(job=of, task=task, attempt=number, outcome=outcome):
                return f"settle {of}.{task}#{number} {outcome.value}"
            case Conclude(job=of, status=status):
                return f"conclude {of} {status.value}"
            case Wake(at=at):
                return f"wake {seconds_text(at)}"
            case Consult(question=question):
                return f"consult {question}"
            case SwitchOff(node=name, switch=number, by_hand=by_hand):
                return f"switch {name} off #{number}" + " by hand" * by_hand
            case SwitchOn(node=name, switch=number, by_hand=by_hand):
                return f"switch {name} on #{number}" + " by hand" * by_hand

    def answer(self, question: str) -> str:
        """The answer to a `?` line: a job, why it waits, its site, its slots; a slot; questions; ignored or refused.

        Also `front` and `behind`: what runs in the two places of the slots; `moves` and `kills` of a job.
        """
        verb, _, of = question.partition(" ")
        state = self.scheduler.state
        match verb:
            case "job":
                return self.scheduler.status(int(of)).value if int(of) in state.jobs else "gone"
            case "site":
                return state.jobs[int(of)].pool.name or "none"
            case "holds":
                return self.slots(state.jobs[int(of)].held) or "nothing"
            case "why":
                waiting = self.scheduler.explain(int(of))
                at = "" if waiting.start is None else f", from {seconds_text(waiting.start)}"
                return waiting.text + at
            case "front" | "behind":
                tier = Tier(verb == "behind")
                here = sorted(
                    (one.slots, f"{one.job.id} on {self.slots(one.slots)}")
                    for one in state.attempts()
                    if one.tier is tier
                )
                return "; ".join(text for _, text in here) or "nothing"
            case "moves" | "kills":
                return str(getattr(state.jobs[int(of)], verb))
            case "slot":
                return slot_statuses(state)[self.script.slot(state, of)].value
            case "power":
                known = state.nodes[of]
                failed = "" if known.trouble is None else f", failed {known.trouble.times} times"
                return POWER_WORDS[known.power] + (", down" if not known.up else "") + failed
            case "question":
                return str(self.scheduler.question or "none")
            case "rounds":
                return str(self.scheduler.rounds)
            case "ignored":
                return str(self.scheduler.ignored)
            case "refused":
                new = self.scheduler.refusals - self.told
                self.told = self.scheduler.refusals.copy()
                return ", ".join(f"{rule} {count}" for rule, count in sorted(new.items())) or "nothing"
            case "nodes":
                return ", ".join(state.nodes) or "none"
        raise ValueError(f"no such question: {question}")


def attempt(text: str) -> tuple[int, int, int]:
    """Job, task and number of an attempt written as JOB.TASK#NUMBER."""
    found = ATTEMPT.fullmatch(text)
    assert found, f"not an attempt: {text}"
    return int(found[1]), int(found[2]), int(found[3])


def submitted(number: int, terms: list[str]) -> JobSpec:
    """A job; the tasks of a workflow are written `graph=SECONDS[xCORES][<TASK,TASK...];...`."""
    given: dict[str, object] = {}
    for term in terms:
        name, _, value = term.partition("=")
        if name == "graph":
            given[name] = tuple(task(text) for text in value.split(";"))
        elif name == "cpu":
            given[name] = tuple(map(float, value.split(",")))
        elif name == "after":
            given[name] = tuple(map(int, value.split(",")))
        elif name in ("movable", "preemptible"):
            given[name] = value == "yes"
        else:
            given[name] = float(value) if name in ("estimate", "due", "priority", "release") else int(value)
    return job(number, **given)


def task(text: str) -> TaskSpec:
    size, _, before = text.partition("<")
    lasts, _, cores = size.partition("x")
    return TaskSpec(from_seconds(float(lasts)), int(cores or 1), tuple(map(int, before.split(","))) if before else ())


def played(text: str) -> Iterator[str]:
    """The transcript that results from playing it."""
    lines = text.splitlines()
    play: Play | None = None
    for position, line in enumerate(lines):
        words = line.split()
        if not words or line.startswith("#"):
            yield line
        elif words[0] == "policy":
            play = Play(words[1])
            yield line
        elif play is None:
            raise ValueError("a transcript begins with its policy")
        elif words[0] == "?":
            question = line[2:].partition(" =")[0]
            yield f"? {question} = {play.answer(question)}"
        elif words[0] not in ("<-", "->"):  # those are written with their event
            below = lines[position + 1 :]
            wishes = [entry.split(maxsplit=1)[1] for entry in below[: len(list(leading(below)))]]
            play.script.script = list(wishes)
            event = play.event(from_seconds(float(words[0])), words[1], words[2:])
            actions = play.scheduler.handle(event)
            play.scheduler.check()
            yield line
            yield from (f"   <- {wish}" for wish in wishes)
            yield from (f"   -> {play.said(action)}" for action in actions)


def leading(lines: list[str]) -> Iterator[str]:
    """The wishes below an event."""
    for line in lines:
        if not line.lstrip().startswith("<-"):
            return
        yield line


@pytest.mark.parametrize("path", sorted(HERE.glob("*.txt")), ids=lambda path: path.stem)
def test_transcript(path: Path) -> None:
    text = path.read_text()
    assert "\n".join(played(text)) + "\n" == text
