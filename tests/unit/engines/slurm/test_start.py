"""What a job of Slurm imports: each one needs a Python of its own, so this is most of what it costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

IMPORTS = "from headway.engines.slurm import start; start.import_msgspec(functions={})"

RARE = ("asyncio", "cloudpickle", "dataclasses", "inspect", "logging", "pathlib", "shutil", "tarfile", "traceback")


def modules_after(code: str) -> set[str]:
    words = [sys.executable, "-P", "-I", "-c", f"import sys; {code}; print(*sys.modules)"]
    return set(subprocess.run(words, capture_output=True, text=True, check=True).stdout.split())


def test_a_guard_imports_next_to_nothing_and_a_runner_only_what_each_run_needs() -> None:
    bare = modules_after("pass")
    guard = modules_after("from headway.engines.slurm import start") - bare
    assert guard.isdisjoint({"msgspec", "subprocess", "socket", *RARE})
    for functions, spared in ((True, {"hashlib"}), (False, {"hashlib", "decimal", "platform", "textwrap", "uuid"})):
        runner = modules_after(f"{IMPORTS.format(functions)}; import headway.engines.slurm.runner")
        assert "headway.engines.local.agent.agent" in runner
        assert (runner - bare).isdisjoint({"typing_extensions", *spared, *RARE})


@pytest.mark.parametrize("functions", [True, False])
def test_what_stood_in_for_modules_is_gone_when_msgspec_is_there(functions: bool) -> None:
    code = "import datetime, decimal, uuid; print(datetime.timedelta(1), decimal.Decimal(2), uuid.UUID(int=3).hex)"
    words = [sys.executable, "-P", "-I", "-c", f"{IMPORTS.format(functions)}; {code}"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "day,", "0:00:00", "2", f"{3:032x}"]


def test_functions_can_use_all_of_msgspec_in_a_runner() -> None:
    code = (
        "import datetime, decimal, uuid, msgspec"
        "; wide = (decimal.Decimal(1), uuid.UUID(int=2), datetime.date(2026, 1, 3))"
        "; print(msgspec.json.encode(wide).decode(), msgspec.json.schema(int))"
    )
    words = [sys.executable, "-P", "-I", "-c", f"{IMPORTS.format(True)}; {code}"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.startswith('["1","00000000-0000-0000-0000-000000000002","2026-01-03"] {')


def test_what_a_node_of_this_machine_imports_for_all_its_slots_is_there_before_they_are_forked() -> None:
    warm = modules_after("from headway.engines.local.agent import warm; warm.up()")
    assert {"cloudpickle", "shutil", "traceback"} <= warm
