"""The settings of a driver."""

from __future__ import annotations

from dataclasses import dataclass, field

from headway.engines import base
from headway.errors import InvalidInput
from headway.history.predictors import USER, predictor
from headway.live.consultant import ANSWER_TIME
from headway.live.leases import LEASE, LEASE_LEAST
from headway.live.room import DiskBounds
from headway.live.sweep import Keep
from headway.model.instant import Duration, to_seconds


@dataclass(frozen=True, slots=True)
class DriverSettings:
    """The settings of a `Driver`.

    Attributes:
        policy: as `NAME[:key=value,...]`; None: that of the last run, at first `live.driver.FIRST_POLICY`.
        decider: URL of the decider, empty for none; None: as in the last run.
        period: the policy runs at least this often while there are jobs, 0 for none; None: as in the last run, at first
            none.
        answer_time: a decider that has not answered after this time has failed, > 0.
        result_max: bytes that a result may have.
        snapshot_every: events between two stored snapshots, so that a start replays at most about this many.
        read_ahead: of nodes that are added later, see `NodeSpec`.
        keep: how long everything is kept that the server itself does not need.
        call_lease: how long the client of an executor's calls may be silent before they are cancelled, at least
            `live.leases.LEASE_LEAST`; None: for ever.
        bounds: what may be used of the disk.
        estimates: what policies know of run times, see `headway.history.predictors`: `user`, `last-two` or `predicted`;
            None: as in the last run, at first `user`.

    Raises:
        InvalidInput: one of them is not allowed.
    """

    policy: str | None = None
    decider: str | None = None
    period: Duration | None = None
    answer_time: Duration = ANSWER_TIME
    result_max: int = base.RESULT_MAX
    snapshot_every: int = 10_000
    read_ahead: int = 0
    keep: Keep = field(default_factory=Keep)
    call_lease: Duration | None = LEASE
    bounds: DiskBounds = field(default_factory=DiskBounds)
    estimates: str | None = None

    def __post_init__(self) -> None:
        predictor(self.estimates or USER)
        if self.answer_time <= 0:
            raise InvalidInput("answer_time", to_seconds(self.answer_time), "more than 0 seconds")
        if self.call_lease is not None and self.call_lease < LEASE_LEAST:
            allowed = f"{to_seconds(LEASE_LEAST):g} seconds or more, or none"
            raise InvalidInput("call_lease", to_seconds(self.call_lease), allowed)
