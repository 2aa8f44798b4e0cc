"""A log through AccaSim's EASY backfilling, on one node of as many cores as the machine has slots.

    python bench/accasim_easy.py LOG SLOTS FOLDER

Writes AccaSim's own list of dispatched jobs to FOLDER, its default, and no statistics.
"""

from __future__ import annotations

import collections
import collections.abc
import json
import sys
from pathlib import Path

# AccaSim 1.1.3 asks `collections` for a name that moved to `collections.abc` in Python 3.10; nothing else is changed.
collections.Mapping = collections.abc.Mapping  # type: ignore[attr-defined]

from accasim.base.allocator_class import FirstFit  # noqa: E402
from accasim.base.scheduler_class import EASYBackfilling  # noqa: E402
from accasim.base.simulator_class import Simulator  # noqa: E402


def main(log: str, slots: str, folder: str) -> None:
    """Simulate."""
    cluster = Path(folder, "cluster.json")
    machine = {"groups": {"all": {"core": int(slots)}}, "resources": {"all": 1}}
    cluster.write_text(json.dumps(machine | {"equivalence": {"processor": {"core": 1}}}), encoding="ascii")
    Simulator(
        log,
        str(cluster),
        EASYBackfilling(FirstFit()),
        RESULTS_FOLDER_PATH=folder,
        statistics_output=False,
        show_statistics=False,
    ).start_simulation()


if __name__ == "__main__":
    main(*sys.argv[1:])
