"""What is odd about a workload. The workload stays as it is; the person who simulates it gets a message."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from headway.model.instant import SECOND, Duration
from headway.model.job import Kind
from headway.model.workload import Workload
from headway.traces.transforms import runs_longer

ABSURD: Final[Duration] = 365 * 86_400 * SECOND
"""Jobs of public logs run much shorter than this, but some users have asked for 70 years."""

GAP: Final[Duration] = 7 * 86_400 * SECOND
"""In eleven public logs, all gaps between two submissions are shorter."""


def oddities(workload: Workload) -> Iterator[str]:
    """One message for each oddity: estimates that are too short or absurdly long, and long gaps between jobs."""
    longer = runs_longer(workload)
    if longer.any():
        zero = int((workload.estimate[longer] == 0).sum())
        yield (
            f"jobs that run longer than their estimate: {int(longer.sum())}"
            + (f", {zero} of them with an estimate of 0" if zero else "")
            + "; --cut ends them there"
        )
    absurd = np.flatnonzero((workload.estimate > ABSURD) & (workload.kind != Kind.WORKFLOW))
    if len(absurd):
        yield (
            f"jobs with an estimate of more than a year, kept as it is: {len(absurd)}, "
            f"first job {workload.label[absurd[0]]}; promises to jobs behind them are as late"
        )
    gaps = np.diff(workload.release)
    if (gaps > GAP).any():
        longest = int(gaps.argmax())
        yield (
            f"gaps of more than 7 days between releases: {int((gaps > GAP).sum())}, "
            f"the longest of {gaps[longest] / SECOND / 86_400:,.0f} days after job {workload.label[longest]}; "
            "this time counts as capacity"
        )
