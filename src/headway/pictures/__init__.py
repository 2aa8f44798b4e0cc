"""Pictures of schedules and measures: Gantt charts, what happened over time, graphs of workflows, policies compared,
means of many runs.

Each function returns a matplotlib figure. If it gets a path, it also writes the figure to a file. Needs the extra
`plot`.
"""

from __future__ import annotations

from headway.pictures.allocation import allocation
from headway.pictures.comparison import comparison
from headway.pictures.gantt import gantt
from headway.pictures.spreads import Mean, Point, bars, lines, plane
from headway.pictures.steps import Curve, steps
from headway.pictures.timeline import timeline
from headway.pictures.workflow import workflow

__all__ = [
    "gantt",
    "allocation",
    "timeline",
    "workflow",
    "comparison",
    "bars",
    "lines",
    "plane",
    "Mean",
    "Point",
    "Curve",
    "steps",
]
