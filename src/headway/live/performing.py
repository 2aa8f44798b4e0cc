"""Performs what a durable turn asks of the engine, one action after the other. A failed action affects nothing else.

An action that fails is tried again a few times, after delays. A launch that still fails counts as refused by the
engine, so the job's `retries` count. A change of tier that still fails counts as refused by the system. A kill is tried
until it succeeds or there is nothing left to kill.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Final

from headway import wire
from headway.engines import base
from headway.given import GIVEN_MAX
from headway.live import work
from headway.live.clock import Clock
from headway.live.from_engine import FromEngine
from headway.live.intake import TAKEN_AT_ONCE
from headway.live.ledger import Ledger, OpenJob
from headway.live.renting import Renter
from headway.live.store.journal import Journal, work_of
from headway.live.switches import Switches
from headway.live.troubles import Troubles, raised_by, said
from headway.live.turn import Turn
from headway.model.actions import ChangeTier, Kill, Launch, RentMachine, ReturnMachine, Suspend, SwitchOff, SwitchOn
from headway.model.events import NodeResized
from headway.model.instant import SECOND, Duration
from headway.model.job import JobId
from headway.model.outcome import Outcome
from headway.model.seen import AttemptView
from headway.model.tier import Tier

log = logging.getLogger(__name__)

ACTION_RETRY_AFTER: Final[Duration] = SECOND
"""How long to wait before an action is tried again."""

ACTION_TRIES: Final = 3
"""How often an action is tried; kills of what still runs are tried without limit."""

Act = Launch | Kill | ChangeTier | Suspend


class Performer:
    """Performs turns.

    Args:
        ledger, journal: what is known of the jobs.
        engine: performs the actions.
        from_engine: knows on which nodes attempts run.
        report: handles the outcome of an action at once, like a report of the engine.
        troubles: receives what fails.
        clock: times the next tries.
        switches: switches nodes off and on.
        renter: rents machines and gives them back.
        terms: of all launches.
    """

    def __init__(
        self,
        ledger: Ledger,
        journal: Journal,
        engine: base.Engine,
        from_engine: FromEngine,
        report: Callable[[base.Report], None],
        troubles: Troubles,
        clock: Clock,
        switches: Switches,
        renter: Renter,
        terms: work.LaunchTerms,
    ) -> None:
        self._ledger = ledger
        self._journal = journal
        self._engine = engine
        self._from_engine = from_engine
        self._report = report
        self._troubles = troubles
        self._clock = clock
        self._switches = switches
        self._renter = renter
        self._terms = terms
        self._function = lru_cache(maxsize=64)(self._find_function)
        self._works: dict[JobId, bytes] = {}  # of jobs that came with the turn that is performed
        self._unlaunched: set[base.AttemptKey] = set()
        self._stopped = False

    def perform(self, turn: Turn) -> None:
        """Let the engine do what a turn wants."""
        came = turn.batch.jobs
        if turn.actions and len(came) <= TAKEN_AT_ONCE:
            self._works = {row[0]: row[-1] for row in came}
        for key in turn.gone:
            self._from_engine.where.pop(key, None)
        for resized in turn.resized:
            self._resize(resized)
        for action in turn.actions:
            if isinstance(action, SwitchOff | SwitchOn):
                self._switches.perform(action)
            elif isinstance(action, RentMachine | ReturnMachine):
                self._renter.perform(action)
            elif error := raised_by(partial(self._act, action)):
                self._failed(action, error, 1)
        self._works = {}

    def let_go(self, turn: Turn) -> None:
        """Let the engine forget what is durable. Nobody waits for that."""
        engine = self._engine
        for key in turn.acknowledged:
            if error := raised_by(partial(engine.acknowledge, *key)):
                self._tell(f"acknowledgement of {_named(key)}", error, "the engine keeps this end until the next start")
        for _, _, job, task, *_ in turn.batch.messages:  # a task is settled, or a job has ended
            if error := raised_by(partial(engine.forget, job, task)):
                self._tell(f"checkpoints of job {job}", error, "they stay until the next start")
        if turn.spent and (error := raised_by(partial(engine.discard, turn.spent))):
            self._tell("output that is not needed", error, "it stays")

    def kill(self, key: base.AttemptKey) -> None:
        """End an attempt that the core does not want to end."""
        if error := raised_by(partial(self._engine.kill, *key)):
            self._tell(f"end of {_named(key)}", error, "it goes on")

    def stop(self) -> None:
        """Stop trying again."""
        self._stopped = True

    # One action

    def _act(self, action: Act) -> None:
        match action:
            case Launch():
                self._launch(action)
            case Kill():
                if (action.job, action.task, action.attempt) in self._unlaunched:
                    self._give_up(action, Outcome.KILLED, "it was not launched")
                else:
                    self._engine.kill(action.job, action.task, action.attempt)
            case ChangeTier():
                self._engine.change(action.job, action.task, action.attempt, action.tier)
            case Suspend():
                if (action.job, action.task, action.attempt) in self._unlaunched:
                    self._give_up(action, Outcome.KILLED, "it was not launched")
                else:
                    self._engine.suspend(action.job, action.task, action.attempt)

    def _failed(self, action: Act, error: Exception, tries: int) -> None:
        """Arrange that a failed action is done later, or that nothing relies on it."""
        key = (action.job, action.task, action.attempt)
        again, then = tries < ACTION_TRIES, "it is tried again"
        match action:
            case Launch() if isinstance(error, work.NeverLaunched):
                self._give_up(action, Outcome.REFUSED, str(error))
                return
            case Launch():
                if again:
                    self._unlaunched.add(key)
                else:
                    then = "the attempt counts as refused"
                    self._give_up(action, Outcome.REFUSED, f"it could not be launched: {said(error)}")
            case ChangeTier():
                again, then = False, "it stays where it was"
                self._report(base.TierRefused(*key, action.tier, said(error)))
            case Suspend():
                if not again:
                    again, action, then = True, Kill(*key), "it is killed instead"
            case Kill():
                again = again or self._current(action) is not None
                then = then if again else "nothing of it is known any more"
        self._tell(f"{type(action).__name__.lower()} of {_named(key)}", error, then)
        if again:
            self._clock.call_at(self._clock.now() + ACTION_RETRY_AFTER, partial(self._again, action, tries + 1))

    def _again(self, action: Act, tries: int) -> None:
        key = (action.job, action.task, action.attempt)
        if self._stopped or (isinstance(action, Launch) and key not in self._unlaunched):
            return
        self._unlaunched.discard(key)
        if error := raised_by(partial(self._act, action)):
            self._failed(action, error, tries)

    def _give_up(self, action: Act, outcome: Outcome, detail: str) -> None:
        """End the attempt as one that never ran. If the engine does have it, its later end is ignored."""
        key = (action.job, action.task, action.attempt)
        self._unlaunched.discard(key)
        try:
            self._engine.kill(*key)
        except Exception:
            log.exception("what there may be of %s cannot be killed", _named(key))
        self._report(base.Ended(*key, base.Ending(outcome, detail=detail)))

    def _current(self, action: Act) -> AttemptView | None:
        """What the core knows of the attempt; None if it no longer waits for it."""
        return self._ledger.core.state.current(action.job, action.task, action.attempt)

    def _launch(self, launch: Launch) -> None:
        if self._current(launch) is None:
            return  # lost with its node, in the same turn that wanted it or before it could be launched
        kept = self._ledger.open[launch.job]
        if kept.work is None:
            body = self._works.get(launch.job)
            kept.work = self._journal.work(launch.job) if body is None else work_of(body)
            kept.names_files = any(wire.urls_of(kept.work))
        wanted = work.assignment(
            launch,
            kept.spec,
            kept.work,
            self._ledger.core.state.slot_nodes,
            self._function,
            self._terms,
            kept.names_files,
            self._gifts(launch, kept, kept.work),
        )
        self._from_engine.where[wanted.key] = tuple(member.node for member in wanted.members)
        self._engine.launch(wanted)

    def _gifts(self, launch: Launch, kept: OpenJob, found: wire.Work) -> dict[int, wire.Gift]:
        """What the tasks before it gave to a task, by their numbers, if it gets anything of them.

        Raises:
            NotGiven: it is more than a task may get.
        """
        if not isinstance(found, wire.Steps) or not found.needs:
            return {}
        gifts: dict[int, wire.Gift] = {}
        for number in found.needs[launch.task]:
            gift = found.given.get(str(number))
            if gift is None:
                gift = work.gift_of(self._journal.result(launch.job, kept.place(number)))
            gifts[number] = gift
        size = sum(len(gift.value) for gift in gifts.values())
        if size > GIVEN_MAX and not found.place(launch.task)[0]:
            raise work.NotGiven(
                f"the results that it gets are {size} bytes; allowed: {GIVEN_MAX}. Give large ones as files: "
                "headway.Output"
            )
        return gifts

    def _find_function(self, name: str) -> base.Function:
        return base.Function(name, self._journal.blob(name))

    def _resize(self, resized: NodeResized, tries: int = 1) -> None:
        """Give a node its slots. The core counts on them, so this is tried until it succeeds or the size changes."""
        node = self._ledger.core.state.nodes.get(resized.name)
        if tries > 1 and (node is None or node.spec.slots != resized.slots or self._stopped):
            return
        resize = partial(self._engine.resize, resized.name, resized.slots, at_once=resized.at_once)
        if error := raised_by(resize):
            self._tell(f"new size of node {resized.name}", error, "it is tried again")
            self._clock.call_at(self._clock.now() + ACTION_RETRY_AFTER, partial(self._resize, resized, tries + 1))

    def _tell(self, subject: str, error: Exception, then: str) -> None:
        self._troubles.incident("not_performed", subject, error, then)


def left_undone(found: base.Found, attempts: Mapping[base.AttemptKey, AttemptView]) -> list[Act]:
    """What an earlier driver wanted of attempts that still run, and may not have asked the engine for.

    Args:
        attempts: those that run, as far as the core knows.
    """
    actions: list[Act] = []
    for key in sorted(found.running):
        attempt = attempts.get(key)
        if attempt is None or (attempt.ending and not attempt.saving):
            actions.append(Kill(*key))
        elif attempt.saving:
            actions.append(Suspend(*key))
        elif (attempt.tier is Tier.BACKGROUND) != (key in found.background):
            actions.append(ChangeTier(*key, attempt.tier))
    return actions


def _named(key: base.AttemptKey) -> str:
    return "job {}, task {}, attempt {}".format(*key)
