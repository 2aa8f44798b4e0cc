"""What a job of Slurm imports: each one needs a Python of its own, so this is most of what it costs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from headway.engines.slurm.jobs import IMPORT_PLACES

IMPORTS = "from headway.engines.slurm import start; start.import_runner(functions={})"

RARE = (
    *("asyncio", "cloudpickle", "ctypes", "dataclasses", "hashlib", "inspect", "logging", "pathlib", "selectors"),
    *("shutil", "socket", "subprocess", "tarfile", "threading", "traceback"),
)

FOR_FUNCTIONS = (
    "_pickle",
    "copyreg",
    "decimal",
    "headway.files",
    "pickle",
    "platform",
    "re",
    "textwrap",
    "typing",
    "uuid",
)


def bare(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run this in a Python that has imported nothing yet, as a runner of commands begins."""
    places = f"import sys; sys.path += {IMPORT_PLACES!r}"
    words = [sys.executable, "-P", "-S", "-c", f"{places}; {code}", *arguments]
    return subprocess.run(words, capture_output=True, text=True, check=True)


def modules_after(code: str) -> set[str]:
    return set(bare(f"{code}; print(*sys.modules)").stdout.split())


def test_a_guard_imports_next_to_nothing_and_a_runner_only_what_each_run_needs() -> None:
    guard = modules_after("from headway.engines.slurm import start")
    assert guard.isdisjoint({"msgspec", "typing", *RARE})
    for functions, spared in ((True, ()), (False, FOR_FUNCTIONS)):
        runner = modules_after(IMPORTS.format(functions))
        assert "headway.engines.local.agent.agent" in runner
        assert runner.isdisjoint({"typing_extensions", *spared, *RARE})


@pytest.mark.parametrize("functions", [True, False])
def test_what_stood_in_for_modules_is_gone_when_the_runner_is_there(functions: bool) -> None:
    code = (
        "import datetime, decimal, re, typing, uuid; print(datetime.timedelta(1), decimal.Decimal(2),"
        " uuid.UUID(int=3).hex, re.sub('a', 'b', 'ca'), typing.Optional[int])"
    )
    done = bare(f"{IMPORTS.format(functions)}; {code}")
    assert done.stdout.split() == ["1", "day,", "0:00:00", "2", f"{3:032x}", "cb", "typing.Optional[int]"]


def test_functions_can_use_all_of_msgspec_in_a_runner() -> None:
    code = (
        "import datetime, decimal, uuid, msgspec"
        "; wide = (decimal.Decimal(1), uuid.UUID(int=2), datetime.date(2026, 1, 3))"
        "; print(msgspec.json.encode(wide).decode(), msgspec.json.schema(int))"
    )
    done = bare(f"{IMPORTS.format(True)}; {code}")
    assert done.stdout.startswith('["1","00000000-0000-0000-0000-000000000002","2026-01-03"] {')


def test_a_runner_of_commands_can_still_import_what_few_of_them_need() -> None:
    code = (
        "from headway.engines.local.slot import calls, files; from headway.engines.local.shared import stores, terms"
        "; here = terms.Terms('n', '/f', '/k', '/g', 1, 1.0, 1)"
        "; print(stores.path_of(here, stores.Store.OUTPUT, '1/2.3.out'))"
    )
    done = bare(f"{IMPORTS.format(False)}; {code}")
    assert done.stdout.strip() == "/k/1/2.3.out"


def test_a_runner_of_commands_for_which_the_stand_ins_are_too_little_starts_as_one_of_functions(tmp_path: Path) -> None:
    code = "from headway.engines.slurm import start; del start._Typing.Protocol; start.end()"
    done = bare(code, str(tmp_path / "gone"), "commands")
    assert "cannot import name 'Protocol' from 'typing'" in done.stderr
    assert "gone/part is not there" in done.stderr.splitlines()[-1]


def test_a_type_that_cannot_be_read_without_what_is_stood_in_for_makes_it_start_again_too(tmp_path: Path) -> None:
    """msgspec looks at the fields of a type only when it first makes a decoder."""
    code = (
        "from headway.engines.slurm import start, written; written.DoorPlate.__annotations__['port'] = 'Missing'"
        "; start.end()"
    )
    done = bare(code, str(tmp_path / "gone"), "commands")
    assert "name 'Missing' is not defined" in done.stderr
    assert "gone/part is not there" in done.stderr.splitlines()[-1]


def test_it_starts_again_from_the_same_folder_though_another_headway_is_found_first(tmp_path: Path) -> None:
    other = tmp_path / "other" / "headway"
    other.mkdir(parents=True)
    (other / "__init__.py").write_text("raise ImportError('another Headway')")
    code = (
        "import os; from headway.engines.slurm import start; del start._Typing.Protocol"
        f"; os.environ['PYTHONPATH'] = {str(other.parent)!r}; start.end()"
    )
    done = bare(code, str(tmp_path / "gone"), "commands")
    assert "another Headway" not in done.stderr
    assert "gone/part is not there" in done.stderr.splitlines()[-1]


def test_what_a_node_of_this_machine_imports_for_all_its_slots_is_there_before_they_are_forked() -> None:
    warm = modules_after("from headway.engines.local.agent import warm; warm.up()")
    assert {"cloudpickle", "headway.engines.local.slot.calls", "pickle", "shutil", "traceback"} <= warm
