"""Run a log through AccaSim's EASY backfilling, on one node with a core for each slot of the machine.

    python bench/accasim_easy.py LOG SLOTS FOLDER

Writes only AccaSim's default list of dispatched jobs to FOLDER, and no statistics.
"""

from __future__ import annotations

import collections
import collections.abc
import json
import sys
from pathlib import Path

# AccaSim 1.1.3 imports a name from `collections` that moved to `collections.abc` in Python 3.10.
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
