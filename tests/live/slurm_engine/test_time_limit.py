"""The time that a partition allows. Slurm looks every 30 seconds, and counts in minutes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from headway.engines.slurm.engine import SlurmEngine
from headway.engines.trial import Trial
from headway.model.outcome import Outcome

from ...slurm import Cluster
from ...waiting import LIMIT
from .conftest import FOUR, LONG, SETTINGS

pytestmark = [pytest.mark.anyio, pytest.mark.thorough]


async def test_what_runs_longer_than_the_partition_allows_is_out_of_time(slurm: Cluster, root: Path) -> None:
    async with Trial(SlurmEngine(root, replace(SETTINGS, partition="brief")), 2 * LIMIT + 60) as trial:
        await trial.start(FOUR[-1])
        ending = (await trial.ended(trial.command("sleep", str(LONG), node="m"))).ending
        assert ending.outcome is Outcome.OUT_OF_TIME
        assert ending.detail.startswith("it ran longer than partition 'brief' allows of at most 60 s.")
