"""Counts what has happened since the server started, once it is durable; for monitoring from outside."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from headway.live.store.messages import NewMessage
from headway.model.actions import JobStatus
from headway.model.instant import Instant, to_seconds
from headway.model.job import JobSpec

INCIDENT_KINDS: Final = (
    *(
        "acknowledge_refused",
        "advice_refused",
        "alert_not_told",
        "certificate_doubtful",
        "likely_late",
        "checker_chosen",
        "checkpoint_unreadable",
        "client_lost",
    ),
    *(
        "clock_stepped",
        "collector_failed",
        "decider_back",
        "decider_failed",
        "disk_enough",
        "disk_full",
        "disk_short",
        "engine_gone",
    ),
    *("handler_broken", "instance_stuck"),
    *("file_damaged", "journal_free", "journal_held", "last_node", "loss_accepted", "name_taken"),
    *("node_closed", "node_kept_out", "node_lost"),
    *(
        "node_not_off",
        "node_not_on",
        "node_not_sharing",
        "node_not_started",
        "node_not_switched",
        "node_refused",
        "node_silent",
        "not_performed",
        "not_taken_in",
        "outputs_fit",
        "outputs_full",
    ),
    *(
        "policy_absent",
        "port_changed",
        "provider_unsure",
        "rental_failed",
        "rental_orphaned",
        "replay_differs",
        "shut_down",
        "step_failed",
        "task_given_up",
        "tasks_suspected",
        "tier_refused",
        "token_created",
        "token_revoked",
    ),
)
"""All kinds of incidents."""

REFUSED: Final = ("400", "401", "403", "404", "405", "408", "409", "413", "414", "416", "422", "429", "431", "503")
"""Statuses of answers to refused requests: all that the server gives, counted from the beginning."""


@dataclass(slots=True)
class Tally:
    """Counts that only grow.

    Attributes:
        submitted: jobs that were accepted.
        jobs, tasks: those that ended, by status or outcome.
        incidents: by kind.
        refused: requests, by the status of their answer.
        in_time, late: jobs with a due date that ended, without cancelled ones; a failed one counts as late.
        tardiness_seconds: of the late ones; for a failed job up to its end.
        penalty: rate times the penalty shape of the tardiness, and what the windows of ended services have cost.
        miss_penalty: priority times seconds of tardiness; a priority below 0 counts as 0.
    """

    submitted: int = 0
    jobs: Counter[str] = field(default_factory=Counter)
    tasks: Counter[str] = field(default_factory=Counter)
    incidents: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    in_time: int = 0
    late: int = 0
    tardiness_seconds: float = 0.0
    penalty: float = 0.0
    miss_penalty: float = 0.0

    def told(self, messages: Iterable[NewMessage]) -> None:
        """Count the ends that messages report."""
        for _, _, _, task, _, word, _, _ in messages:
            (self.jobs if task is None else self.tasks)[word] += 1

    def ended(self, spec: JobSpec, status: JobStatus, now: Instant, cost: float = 0.0) -> None:
        """Compare the end of a job with its due date; `cost` is what the windows of a service have cost."""
        self.penalty += cost
        if spec.due is None or status is JobStatus.CANCELLED:
            return
        tardiness = to_seconds(max(0, now - spec.due))
        if not tardiness and status is JobStatus.SUCCEEDED:
            self.in_time += 1
            return
        self.late += 1
        self.tardiness_seconds += tardiness
        self.penalty += spec.penalty_of(now - spec.due)
        self.miss_penalty += max(0.0, spec.priority) * tardiness
