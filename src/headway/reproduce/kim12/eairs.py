"""Runs of a CFD program like those of e-AIRS, whose trace is not public: parameters, and how long each run takes.

reading: neither Kim12 nor its sources say what the parameters of e-AIRS are, nor how run times depend on them. These
are the usual ones of a flow solver, and the run time follows from what a solver does: it sweeps the mesh once for each
iteration, turbulence models cost more, small time steps and supersonic flow need more sweeps. Three parameters do not
matter. The rest is chance.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

RUNS: Final = 600
"""About as many as three a day in the seven months of the paper's trace."""

MATTER: Final = ("cells", "iterations", "courant", "turbulence", "mach")
"""The parameters on which run times depend, the strongest first; the last one a little."""

NOISE: Final = 0.15
"""Standard deviation of the logarithm of a run time, besides what the parameters say."""

USUAL: Final = 60
"""A study has so many runs on average: its mesh stays, what varies is the flow."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run: its parameters by name, and how long it takes in seconds."""

    parameters: dict[str, float]
    took: float


def draw(seed: int, runs: int = RUNS) -> list[Run]:
    """Runs in order of time; the same for a seed everywhere."""
    chance = np.random.default_rng(seed)
    found, cells, turbulence = [], 0.0, 0
    for number in range(runs):
        if not number or chance.random() < 1 / USUAL:
            cells, turbulence = float(chance.lognormal(13.0, 0.8)), int(chance.integers(0, 3))
        refined = cells * float(chance.choice([1.0, 1.0, 2.0, 4.0]))
        parameters = {
            "mach": float(chance.uniform(0.1, 2.5)),
            "angle": float(chance.uniform(-5, 15)),
            "reynolds": float(chance.lognormal(14.0, 1.0)),
            "cells": round(refined),
            "iterations": int(chance.integers(500, 5000)),
            "courant": float(chance.uniform(0.5, 5.0)),
            "turbulence": turbulence,
            "outputs": int(chance.integers(1, 50)),
        }
        work = parameters["cells"] / 1e6 * parameters["iterations"] * (1.0, 1.25, 1.6)[turbulence]
        work *= (3.0 / parameters["courant"]) ** 0.5 * (1.2 if parameters["mach"] > 1 else 1.0)
        found.append(Run(parameters, float(0.5 * work * chance.lognormal(0.0, NOISE))))
    return found
