"""What a job of Slurm imports: each one needs a Python of its own, so this is most of what it costs."""

from __future__ import annotations

import subprocess
import sys

RARE = ("asyncio", "cloudpickle", "dataclasses", "inspect", "logging", "pathlib", "shutil", "tarfile", "traceback")


def modules_after(code: str) -> set[str]:
    words = [sys.executable, "-P", "-I", "-c", f"import sys; {code}; print(*sys.modules)"]
    return set(subprocess.run(words, capture_output=True, text=True, check=True).stdout.split())


def test_a_guard_imports_next_to_nothing_and_a_runner_only_what_each_run_needs() -> None:
    bare = modules_after("pass")
    guard = modules_after("from headway.engines.slurm import start") - bare
    assert guard.isdisjoint({"msgspec", "subprocess", "socket", *RARE})
    runner = modules_after(
        "from headway.engines.slurm import start; start.import_msgspec(); import headway.engines.slurm.runner"
    )
    assert "headway.engines.local.agent.agent" in runner
    assert (runner - bare).isdisjoint({"typing_extensions", *RARE})


def test_what_a_node_of_this_machine_imports_for_all_its_slots_is_there_before_they_are_forked() -> None:
    warm = modules_after("from headway.engines.local.agent import warm; warm.up()")
    assert {"cloudpickle", "shutil", "traceback"} <= warm
