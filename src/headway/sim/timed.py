"""Measures how long a policy takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Final

from headway.model.job import Kind
from headway.model.plan import Plan
from headway.model.policy import Policy, serves_of, uses_tiers
from headway.model.snapshot import Snapshot

clock: Final = perf_counter  # a module constant, because compiled code finds it sooner than what is imported


@dataclass(slots=True)
class TimedPolicy:
    """A policy with a stopwatch. It returns the plans of the policy unchanged."""

    policy: Policy
    seconds: float = 0.0

    @property
    def per_instant(self) -> bool:
        """As the policy's own."""
        return self.policy.per_instant

    @property
    def task_rounds(self) -> bool:
        """As the policy's own."""
        return self.policy.task_rounds

    @property
    def tiers(self) -> bool:
        """As the policy's own."""
        return uses_tiers(self.policy)

    @property
    def serves(self) -> frozenset[Kind]:
        """As the policy's own."""
        return serves_of(self.policy)

    @property
    def lower(self) -> Callable[[str], str] | None:
        """As the policy's own; None if it is no top level."""
        return getattr(self.policy, "lower", None)

    def __call__(self, view: Snapshot) -> Plan:
        """The policy's plan."""
        began = clock()
        plan = self.policy(view)
        self.seconds += clock() - began
        return plan
