"""Workloads from published models: any number of jobs, the same for the same seed."""

from __future__ import annotations

from headway.workloads.feitelson96 import feitelson96
from headway.workloads.generated import statistics
from headway.workloads.jann97 import jann97
from headway.workloads.lublin99 import lublin99
from headway.workloads.measy14 import fwload, jwload
from headway.workloads.tsafrir05 import with_estimates

__all__ = ["feitelson96", "jann97", "lublin99", "with_estimates", "fwload", "jwload", "statistics"]
