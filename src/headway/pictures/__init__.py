"""Pictures of schedules, as files: Gantt charts, allocation over time, policies compared. Needs the extra `plot`."""

from __future__ import annotations

from headway.pictures.allocation import allocation
from headway.pictures.comparison import comparison
from headway.pictures.gantt import gantt

__all__ = ["gantt", "allocation", "comparison"]
