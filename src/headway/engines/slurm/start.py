"""The first process of a job of Slurm: the guard of the runner (`runner`), which it forks before it imports anything.

Started by the job as `python -P -m headway.engines.slurm.start FOLDER`. A job needs a Python of its own, and most of
the time that a short one takes goes into imports. So here only those are made that every job needs: modules that few
jobs need are imported when something of them is used.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from typing import NoReturn

from headway.engines.local.agent.guard import watched


def import_msgspec() -> None:
    """Import msgspec without `typing_extensions`, of which it takes what this Python has by itself."""
    hidden = "typing_extensions" not in sys.modules
    if hidden:
        sys.modules["typing_extensions"] = None  # type: ignore[assignment]
    import msgspec  # noqa: F401

    if hidden:
        del sys.modules["typing_extensions"]


def main(arguments: list[str]) -> int:
    """Be the guard of a runner; returns the exit status of the job."""

    def serve() -> NoReturn:
        gc.disable()
        import_msgspec()
        from headway.engines.slurm import runner

        gc.enable()
        try:
            status = runner.main(arguments)
        except BaseException:  # noqa: BLE001 - the process ends here in any case
            import traceback

            traceback.print_exc()
            status = 1
        sys.stderr.flush()
        os._exit(status)

    return 0 if watched(serve, ignored=(signal.SIGTERM,)) == 0 else 1


if __name__ == "__main__":
    os._exit(main(sys.argv[1:]))
