"""Pictures of schedules, as files: Gantt charts, allocation over time, policies compared, means with their spread.

Needs the extra `plot`.
"""

from __future__ import annotations

from headway.pictures.allocation import allocation
from headway.pictures.comparison import comparison
from headway.pictures.gantt import gantt
from headway.pictures.spreads import Mean, Point, bars, lines, plane
from headway.pictures.steps import steps

__all__ = ["gantt", "allocation", "comparison", "bars", "lines", "plane", "Mean", "Point", "steps"]
