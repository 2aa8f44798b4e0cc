"""The experiments of Chang16, in order of the paper. A new one is a module with an `EXPERIMENT`, named here."""

from __future__ import annotations

from typing import Final

from headway.reproduce.chang16 import estimates, live, mixed, orders, switching
from headway.reproduce.chang16.experiment import Experiment

EXPERIMENTS: Final[dict[str, Experiment]] = {
    module.EXPERIMENT.name: module.EXPERIMENT for module in (estimates, orders, mixed, switching, live)
}
"""All experiments by name."""
