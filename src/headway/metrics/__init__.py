"""What a schedule is worth: measures of arrays, and their summary for a whole run."""

from __future__ import annotations

from headway.metrics.collect import frame, summarise, to_json, write_schedule

__all__ = ["summarise", "write_schedule", "to_json", "frame"]
