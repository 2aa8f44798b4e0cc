"""What an agent checks while attempts run: their time, their memory, and whether programs have saved."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import Final

from headway.engines.local.agent import priorities
from headway.engines.local.agent.run import MemberRun
from headway.engines.local.shared import checkpoints
from headway.engines.local.shared.processes import memory
from headway.engines.local.shared.terms import ROOM_SECONDS
from headway.model.outcome import Outcome
from headway.model.tier import Tier

WATCH_SECONDS: Final = 0.02
"""How often memory is checked if an attempt with a limit runs: at some GB/s it can exceed it by tens of MB."""


class Watch:
    """The runs of an agent that need attention at some time; instants are those of `time.monotonic`.

    Attributes:
        is_wanted: whether there is anything to look at.
    """

    def __init__(self) -> None:
        self.is_wanted = False
        self._timed: set[MemberRun] = set()
        self._limited: set[MemberRun] = set()
        self._programs: set[MemberRun] = set()
        self._put: dict[MemberRun, float] = {}
        self._asked: dict[MemberRun, tuple[float, float]] = {}
        self._stalled: dict[MemberRun, float] = {}
        self._look_at = 0.0

    def begin(self, run: MemberRun) -> None:
        """A run was handed to its slot's process."""
        assert run.since is not None
        launch = run.launch
        if run.tier is Tier.BACKGROUND:
            self.put(run)
        if launch.function and launch.time_limit is None and launch.memory_limit is None:
            return
        self.is_wanted = True
        if launch.time_limit is not None:
            run.until = run.since + launch.time_limit
            self._timed.add(run)
        if launch.memory_limit is not None:
            self._limited.add(run)
        if not launch.function:
            self._look_soon()
            self._programs.add(run)

    def put(self, run: MemberRun) -> None:
        """A run was put into a tier.

        It is checked again that all of it is there: a process that was just being forked has the tier that its parent
        had when the fork began, however long it takes until it can be seen. In the background this is checked as long
        as it runs, because a process may start a session of its own there (`tiers`).
        """
        self.is_wanted = True
        self._look_soon()
        self._put[run] = (
            math.inf if run.tier is Tier.BACKGROUND else time.monotonic() + checkpoints.CHECKPOINT_LOOK_SECONDS
        )

    def _look_soon(self) -> None:
        if not (self._programs or self._put):
            self._look_at = time.monotonic() + checkpoints.CHECKPOINT_LOOK_SECONDS

    def fetched(self, run: MemberRun) -> None:
        """A run has its inputs; its time counts from now."""
        if run.launch.time_limit is not None:
            run.until = time.monotonic() + run.launch.time_limit

    def stall(self, run: MemberRun) -> None:
        """A run waits for room on the disk, or goes on: the time between does not count."""
        now = time.monotonic()
        if run in self._timed and run.until is not None:
            if run.stalled:
                self._stalled[run] = now
                run.until += ROOM_SECONDS
            elif (since := self._stalled.pop(run, None)) is not None:
                run.until -= max(0.0, since + ROOM_SECONDS - now)

    def ask(self, run: MemberRun, grace: float) -> None:
        """A run was asked to save and end, within this many seconds."""
        self.is_wanted = True
        self._asked[run] = (time.monotonic() + grace, grace)

    def end(self, run: MemberRun) -> None:
        """A run is over."""
        if self.is_wanted:
            self._timed.discard(run)
            self._limited.discard(run)
            self._programs.discard(run)
            self._put.pop(run, None)
            self._asked.pop(run, None)
            self._stalled.pop(run, None)
            self.is_wanted = bool(self._timed or self._limited or self._programs or self._put or self._asked)

    def next_look(self) -> float:
        """When something must be checked even if nothing happens."""
        if not self.is_wanted:
            return math.inf
        until = [math.inf, *(run.until for run in self._timed if run.until is not None)]
        until += [at for at, _ in self._asked.values()]
        if self._limited:
            until.append(time.monotonic() + WATCH_SECONDS)
        if self._programs or self._put:
            until.append(self._look_at)
        return min(until)

    def exceeded(self, now: float) -> Iterator[tuple[MemberRun, Outcome, str]]:
        """Runs that exceed a limit, each reported once."""
        for run in [run for run in self._timed if run.until is not None and run.until <= now]:
            self._timed.discard(run)
            did = "ran" if run.started else "fetched its inputs for"
            yield run, Outcome.OUT_OF_TIME, f"{did} longer than {run.launch.time_limit:g} s"
        for run, (at, grace) in tuple(self._asked.items()):
            if at <= now:
                del self._asked[run]
                yield run, Outcome.KILLED, f"did not save and end within {grace:g} s"
        for run in tuple(self._limited):
            limit = run.launch.memory_limit
            assert limit is not None
            used = memory(run.places[0].runner, limit)
            if used > limit:
                self._limited.discard(run)
                yield run, Outcome.OUT_OF_MEMORY, f"used {used >> 20} MiB of memory; allowed: {limit >> 20} MiB"

    def saved(self, now: float) -> Iterator[MemberRun]:
        """Programs that have changed something in their folders; checked at intervals."""
        if (self._programs or self._put) and self._look_at <= now:
            self._look_at = now + checkpoints.CHECKPOINT_LOOK_SECONDS
            for run, until in tuple(self._put.items()):
                if not run.asked:
                    priorities.move((run.places[0].pid,), run.tier)
                if until <= now:
                    del self._put[run]
            for run in self._programs:
                if self.has_saved(run):
                    yield run

    def has_saved(self, run: MemberRun) -> bool:
        """Whether a program has changed something in its folder since the last call."""
        place = checkpoints.place(run.places[0].terms.checkpoints, run.launch)
        latest = checkpoints.latest(f"{place}.{run.launch.attempt}")
        if latest <= run.saved:
            return False
        run.saved = latest
        return True
