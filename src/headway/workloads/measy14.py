"""The two workloads of MEASY14, on 320 processors, from constants that give the aggregates printed in the paper.

| | jobs | mean width | mean run time | one-process jobs |
| --- | --- | --- | --- | --- |
| FWload, Feitelson 1996 | 200,000 | 23.4 | 2606.6 s | < 18 % |
| JWload, Jann et al. 1997 | 100,000 | 10.5 | 11267.0 s | 40.8 % |

Source: Liu et al., "Scheduling parallel jobs using migration and consolidation in the cloud", Mathematical Problems in
Engineering 2012, section 3.1.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final, Unpack

from headway.model.workload import Workload
from headway.workloads.feitelson96 import feitelson96
from headway.workloads.generated import Extras
from headway.workloads.jann97 import CTC, Range, jann97

PROCESSORS: Final = 320
FW_JOBS: Final = 200_000
JW_JOBS: Final = 100_000

LARGEST_ESTIMATE: Final = 18 * 3600.0
"""Seconds: the limit of the CTC SP2. Longer run times are cut to it."""


def fwload(seed: int = 0, jobs: int = FW_JOBS, **extras: Unpack[Extras]) -> Workload:
    """FWload: Feitelson 1996 with its defaults, and estimates and CPU use as in the paper.

    Args:
        seed, jobs: as in `feitelson96`.
        extras: replace what the paper has.

    Raises:
        InvalidInput: an argument is not allowed.
    """
    return feitelson96(jobs, seed, PROCESSORS, **as_in_paper(extras))


def jwload(seed: int = 0, jobs: int = JW_JOBS, **extras: Unpack[Extras]) -> Workload:
    """JWload: Jann et al. 1997, fitted to the CTC SP2 and adjusted to the paper, with estimates and CPU use.

    Args:
        seed, jobs: as in `jann97`.
        extras: replace what the paper has.

    Raises:
        InvalidInput: an argument is not allowed.
    """
    return jann97(jobs, seed, PROCESSORS, ranges=JW_RANGES, **as_in_paper(extras))


def as_in_paper(extras: Extras) -> Extras:
    """Estimates of at most 18 h and CPU use as in the paper, unless these say otherwise."""
    return {"largest_estimate": LARGEST_ESTIMATE, "cpu": "drawn", **extras}


JW_SERIAL: Final = 0.96418
JW_NARROWER: Final = 3.854e-4
JW_RUN_TIME: Final = 1.06684


def _moved(one: Range) -> Range:
    """A range with its share of all jobs and its run times adjusted, so that the whole has the paper's aggregates."""
    width = one.width_mean()
    share = JW_SERIAL if width == 1 else math.exp(-JW_NARROWER * width)
    return replace(one, gap=one.gap.times(1 / share), runtime=one.runtime.times(JW_RUN_TIME))


JW_RANGES: Final = tuple(_moved(part) for one in CTC if (part := one.up_to(PROCESSORS)) is not None)
"""The ranges of JWload."""
