"""What a policy is, and what the core asks of one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from headway.model.job import BATCH, Kind
from headway.model.plan import Plan
from headway.model.snapshot import Snapshot


class Policy(Protocol):
    """A pure function from snapshot to plan. Its parameters are its fields; it keeps nothing between calls.

    Attributes:
        per_instant: run the policy once after all events of an instant, instead of after each event.
        task_rounds: run it at every task end, even if the slot simply continues with the job's next task.
    """

    @property
    def per_instant(self) -> bool:
        """Whether one round serves all events of an instant."""
        ...

    @property
    def task_rounds(self) -> bool:
        """Whether every task end is followed by a round."""
        ...

    def __call__(self, view: Snapshot) -> Plan: ...


class TopLevel(Policy, Protocol):
    """A policy that deals slots and jobs to pools, each of which has a policy of its own.

    If it has a method `part(pool)`, slots move between the pools for which that is equal: a job fits if all of them
    together have room for it. Otherwise one pool must have room. If it has a method `why(view, job)`, that says in
    words why a job is in its pool, for explanations; it changes nothing.
    """

    def lower(self, pool: str) -> str:
        """The text of the policy of a pool."""
        ...


def uses_tiers(policy: Policy) -> bool:
    """Whether a policy places jobs in the background; such a policy has an attribute `tiers` that is true.

    Under other policies, the core brings what still runs there to the foreground of its slots as soon as that is free.
    """
    return bool(getattr(policy, "tiers", False))


ALL_KINDS: Final = frozenset(Kind)
"""All kinds of jobs."""


def serves_of(policy: Policy) -> frozenset[Kind]:
    """The kinds of jobs that a policy serves: its attribute `serves`, or else those of `BATCH`.

    A policy does not see jobs of other kinds. They wait, and their reason is `Reason.NOT_SERVED`.
    """
    return frozenset(getattr(policy, "serves", BATCH))


QUANTILE: Final = 0.75
"""How likely a task is to run for no longer than predicted, unless a policy asks for another probability."""


def quantile_of(policy: Policy) -> float:
    """The quantile of its run times that a policy takes for a prediction: its attribute `quantile`, else `QUANTILE`."""
    return float(getattr(getattr(policy, "policy", policy), "quantile", QUANTILE))


def is_top_level(policy: Policy) -> bool:
    """Whether a policy deals slots and jobs to pools, see `TopLevel`."""
    return callable(getattr(policy, "lower", None))


def is_added(policy: Policy) -> bool:
    """Whether a policy is not one of Headway's own. Only for these are the sources, and so the types in plans, checked.

    A policy that wraps another, to time it, has that one as its `policy`.
    """
    return not type(getattr(policy, "policy", policy)).__module__.startswith("headway.")


PolicyFactory = Callable[..., Policy]
"""Makes a policy from its parameters, given by name."""

PolicySource = Callable[[str], Policy]
"""Finds the policy that a text `NAME[:key=value,...]` stands for."""
