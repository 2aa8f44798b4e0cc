"""The settings of the engine of this machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from headway.engines.local.driver.environment import check_names
from headway.errors import InvalidInput

LEASE_RANGE = (0.5, 3600.0)
"""The range of a lease, in seconds; a busy machine is silent for tenths of a second now and then."""

GRACE_RANGE = (0.0, 86400.0)
"""The range of seconds that a moving attempt gets to save."""

ORPHANED_RANGE = (1.0, 7 * 86400.0)
"""The range of seconds for which tasks go on without a driver."""

OUTPUT_RANGE = (64 << 10, 1 << 40)
"""The range of bytes that may be kept of each stream of an attempt."""


@dataclass(frozen=True, slots=True)
class LocalSettings:
    """The settings of a `LocalEngine`.

    Attributes:
        lease: seconds of silence after which a node without a lease of its own is lost: its processes are killed, and
            it is started again. The death of its process is noticed at once. In `LEASE_RANGE`.
        orphaned_after: seconds without a driver after which a node ends everything and exits, in `ORPHANED_RANGE`.
        grace: seconds after which an attempt that was asked to save and end is killed, in `GRACE_RANGE`.
        pin: whether each slot has a processor of its own, which its two places share; with more slots than processors
            some share one.
        task_output_max: bytes that are kept of each stream of an attempt, in `OUTPUT_RANGE`.
        pass_env: names of variables of this process that tasks get besides `environment.PASSED`.
        run_as: name of the user as whom tasks run; empty: the user of this process. Only root can choose another one.
        accounts: whether a task runs as the account of its job's user, if its assignment names one
            (`Assignment.account`).
        run_as_owner: the same, and each must name one.
        allow_root: with one of these two: that may be root.
        ground: with one of these: folder of what tasks are given and save, made if it is not there; None: one of its
            own in `account.GROUNDS`.

    Raises:
        InvalidInput: one of them is not allowed.
    """

    lease: float = 10.0
    orphaned_after: float = 60.0
    grace: float = 20.0
    pin: bool = False
    task_output_max: int = 64 << 20
    pass_env: tuple[str, ...] = ()
    run_as: str = ""
    accounts: bool = False
    run_as_owner: bool = False
    allow_root: bool = False
    ground: Path | None = None

    def __post_init__(self) -> None:
        for name, (least, most), unit in (
            ("lease", LEASE_RANGE, "seconds"),
            ("orphaned_after", ORPHANED_RANGE, "seconds"),
            ("grace", GRACE_RANGE, "seconds"),
            ("task_output_max", OUTPUT_RANGE, "bytes"),
        ):
            value = getattr(self, name)
            if not least <= value <= most:
                raise InvalidInput(name, value, f"{least:.10g} to {most:.10g} {unit}")
        check_names(self.pass_env)
        if self.run_as and self.has_accounts:
            raise InvalidInput("run_as", self.run_as, "none with --run-as-owner: each task then has its own")
        if self.allow_root and not self.has_accounts:
            raise InvalidInput("allow_root", True, "only where tasks run as their users' accounts (--run-as-owner)")
        if self.ground is not None and not self.keeps_apart:
            raise InvalidInput(
                "ground",
                str(self.ground),
                "none where no task runs as another user (--run-as): tasks then use the data directory",
            )

    @property
    def keeps_apart(self) -> bool:
        """Whether tasks run as others than this process does."""
        return self.has_accounts or bool(self.run_as)

    @property
    def has_accounts(self) -> bool:
        """Whether tasks run as accounts of their users, all or some."""
        return self.accounts or self.run_as_owner
