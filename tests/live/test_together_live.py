"""All five papers in one on a real server: the same things hold as in the simulator, and nothing is left behind."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from headway.core.scheduler import Scheduler
from headway.live.store.decisions import event_of, replay
from headway.live.store.history import opened, reading
from headway.live.store.journal import state_of
from headway.live.store.rows import Rows
from headway.policies import registry
from headway.renting.processes import Processes
from headway.reproduce.together import LATE, WINDOW, Files, forget_machines

from ..waiting import let_the_background_run

MARK = "HEADWAY_TEST_TOGETHER"


@pytest.fixture
def demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Starts the demo; afterwards nothing of it may be there."""
    let_the_background_run(tmp_path, monkeypatch)
    monkeypatch.setenv(MARK, str(tmp_path))
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    command = [sys.executable, "-m", "headway", "demo", "papers", "--json", "--out", str(tmp_path / "out")]

    def start() -> subprocess.Popen[str]:
        return subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )

    yield start
    assert left(tmp_path) == []
    assert list((tmp_path / "tmp").iterdir()) == []
    assert not (tmp_path / "out" / "machines").exists()


def left(folder: Path) -> list[list[str]]:
    """What runs that the demo has started."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == str(folder) and process.pid != os.getpid():
                found.append(process.cmdline())
        except psutil.Error:
            continue
    return found


def decoded(journal: Path) -> tuple[Any, Any]:
    """The last state that is stored, and what the events before it give when they are replayed from the first one."""
    with opened(journal) as (db, path):
        seq, _, body = Rows(db, path).one("snapshots", "ORDER BY seq DESC LIMIT 1")[:3]
        kept = state_of(bytes(body))
    with reading(journal) as beginning:
        core = Scheduler.restore(beginning.state, registry.find)
        for number, (kind, body) in enumerate(beginning.rows, beginning.seq + 1):
            if number <= seq:
                replay(core, event_of(kind, body), body)
    core.check()
    return kept, core.dump()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_under_one_policy_each_paper_does_its_part_live_as_simulated(demo: Any, tmp_path: Path) -> None:
    begin = time.monotonic()
    run = demo()
    out, err = run.communicate(timeout=200)
    assert run.returncode == 0, err
    assert time.monotonic() - begin < 180, "three minutes"
    told = json.loads(out)
    live, simulated, unrented = (told["runs"][name] for name in ("live", "simulated", "nothing rented"))

    assert live["late"] == simulated["late"] == ["fourth"], "its penalty is less than that of late answers"
    assert unrented["late"] == ["fourth", LATE], "only rented machines save it"
    assert live["machines"] == simulated["machines"] == ["public-r1", "public-r2"]
    assert live["money"] == simulated["money"] == 0.3
    for where in (live, simulated):
        jobs = where["jobs"]
        assert jobs["flow"]["sites"] == ["east", "west"]
        assert jobs[LATE]["sites"] == ["east", "public", "west"]
        assert jobs["wide"]["stays"] == ["behind", "in front"], "suspended in a tier, and resumed"
        assert jobs["fourth"]["stays"][0] == "lost", "it gave way to the service"
        assert jobs["fourth"]["stays"][-2:] == ["behind", "in front"]
    steady = [window["in_time"] for window in live["windows"][int(27 / WINDOW) :]]
    assert min(steady) >= 0.9, "the border has followed the rush"
    assert max(window["instances"] for window in live["windows"][5:9]) > 3.5

    journal = Path(told["journal"])
    kept, again = decoded(journal)
    assert again == kept, "the journal, replayed, gives the state that the server had at its end"
    assert told["decided_otherwise"] == 0
    assert told["rounds"] > 50
    if told["picture"] is not None:
        drawn = Path(told["picture"]).read_text("utf-8")
        assert drawn.startswith("<?xml")
        assert "private-1" in drawn
    assert "MEASY14: job wide goes on in the foreground" in err
    assert [file.name for file in Files(tmp_path / "out").jobs] == ["jobs.csv", "flow.json"]


def wait_for(run: Any, word: str) -> None:
    """Until the demo has said this."""
    if not any(word in line for line in run.stderr):
        pytest.fail(f"it never said {word!r}")


@pytest.mark.slow
@pytest.mark.timeout(200)
@pytest.mark.parametrize("word", ["Job flow comes", "tasks of report run on rented machines"])
def test_when_it_is_interrupted_nothing_is_left(demo: Any, word: str) -> None:
    run = demo()
    wait_for(run, word)
    os.killpg(run.pid, signal.SIGINT)
    _, err = run.communicate(timeout=100)
    assert run.returncode == 130
    assert "Interrupted." in err
    assert "Traceback" not in err


@pytest.mark.thorough
@pytest.mark.timeout(200)
@pytest.mark.parametrize(
    ("word", "how"),
    [
        pytest.param("A server is up", signal.SIGKILL, marks=pytest.mark.slow),
        ("tasks of report run on rented machines", signal.SIGTERM),
    ],
)
def test_when_it_is_killed_no_process_is_left_and_the_next_run_cleans_up(
    demo: Any, tmp_path: Path, word: str, how: signal.Signals
) -> None:
    run = demo()
    wait_for(run, word)
    run.send_signal(how)
    run.communicate(timeout=100)
    assert run.returncode == -how
    end = time.monotonic() + 60
    while left(tmp_path) or any((tmp_path / "tmp").iterdir()):
        assert time.monotonic() < end, left(tmp_path)
        time.sleep(0.1)
    forget_machines(Files(tmp_path / "out").machines)


def test_machines_are_forgotten_and_what_is_beside_them_is_not_touched(tmp_path: Path) -> None:
    folder = tmp_path / "machines"
    provider = Processes(folder, ("sleep", "600"), "mine")
    asyncio.run(provider.start("mine-1", "large", "public-r1"))
    asyncio.run(provider.close())
    (folder / "notes.txt").write_text("of somebody else")
    forget_machines(folder)
    assert [file.name for file in folder.iterdir()] == ["notes.txt"]
    (folder / "notes.txt").unlink()
    forget_machines(folder)
    assert not folder.exists()
    forget_machines(folder)


@pytest.mark.thorough
def test_a_folder_in_the_place_of_the_journal_is_not_touched(demo: Any, tmp_path: Path) -> None:
    (tmp_path / "out" / "journal").mkdir(parents=True)
    (tmp_path / "out" / "journal" / "mine").touch()
    run = demo()
    _, err = run.communicate(timeout=60)
    assert run.returncode == 2
    assert "is there already, and no backup of a journal" in err
    assert (tmp_path / "out" / "journal" / "mine").exists()
