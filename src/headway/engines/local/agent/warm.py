"""What the agent of a node imports beforehand, so that no process of a slot must: these are forks of it.

The runner of a job of Slurm does without: it has one run.
"""

from __future__ import annotations

import gc


def up() -> None:
    """Import what only some runs need, and leave no garbage that each fork would copy."""
    import shutil  # noqa: F401
    import traceback  # noqa: F401

    import cloudpickle  # noqa: F401

    from headway.engines.local.slot import calls

    calls.rehearsal()
    gc.collect()
