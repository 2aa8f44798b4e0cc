"""Attempts as jobs of Slurm: killed, preempted, refused, out of the partition's time; and Slurm's controller gone."""

from __future__ import annotations

import contextlib
import os
import re
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from headway.engines.slurm import engine as module
from headway.engines.slurm.engine import SlurmEngine
from headway.engines.trial import FilesInMemory, Trial
from headway.errors import InvalidInput
from headway.model.outcome import Outcome

from ...slurm import Cluster
from ...waiting import LIMIT, becomes, gone
from .conftest import FOUR, LONG, SETTINGS, add, note_and_wait

pytestmark = [pytest.mark.anyio, pytest.mark.thorough]

STUBBORN = """
trap '' TERM HUP INT
sh -c "trap '' TERM; echo \\$\\$ > $0.child; while true; do sleep 0.01; done" &
setsid sh -c "trap '' TERM; echo \\$\\$ > $0.apart; while true; do sleep 0.01; done" &
echo $$ > $0.self
while true; do sleep 0.01; done
"""


async def test_what_ignores_signals_is_killed_at_once_with_all_that_it_started(trial: Trial, tmp_path: Path) -> None:
    async def seconds_to_kill(path: Path) -> float:
        files = [path.with_suffix(suffix) for suffix in (".self", ".child", ".apart")]
        key = trial.command("sh", "-c", STUBBORN, str(path))
        await becomes(lambda: all(file.exists() and file.read_text().strip() for file in files))
        pids = [int(file.read_text()) for file in files]
        asked = time.monotonic()
        trial.engine.kill(*key)
        await becomes(lambda: all(map(gone, pids)))
        took = time.monotonic() - asked
        assert (await trial.ended(key)).ending.outcome is Outcome.KILLED
        return took

    await trial.start(*FOUR)
    if await seconds_to_kill(tmp_path / "first") >= 2:  # the machine stood still, or Slurm waited for KillWait
        assert await seconds_to_kill(tmp_path / "second") < 2, "Slurm itself would wait for KillWait"


async def test_what_waits_in_the_queue_is_killed(slurm: Cluster, trial: Trial) -> None:
    await trial.start(*FOUR)
    other = slurm.run("sbatch", "--parsable", "-w", "n", "-c4", "--wrap", "sleep 600").strip()
    key = trial.call(add, 1, 2)
    await becomes(lambda: len(slurm.jobs("--states=PENDING")) == 1)
    assert trial.unread == [], "others have the node"
    trial.engine.kill(*key)
    assert (await trial.ended(key)).ending.outcome is Outcome.KILLED
    slurm.run("scancel", other)


async def test_what_is_next_on_a_slot_waits_in_slurm_and_begins_when_the_job_before_it_has_ended(
    slurm: Cluster, trial: Trial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although another slot of the node is free."""
    monkeypatch.setattr(module, "BEHIND_SECONDS", LONG)
    await trial.start(*FOUR)
    first = trial.call(note_and_wait, str(tmp_path / "pid"))
    unwanted, second, third = (trial.call(add, number, 2) for number in range(3))
    await becomes(lambda: (tmp_path / "pid").exists() and slurm.jobs("--states=PENDING") != [])
    trial.engine.kill(*unwanted)
    assert (await trial.ended(unwanted)).ending.outcome is Outcome.KILLED
    await becomes(lambda: slurm.run("squeue", "-h", "--states=PENDING", "--format=%j %r").split() != [])
    ((name, reason),) = (
        line.split() for line in slurm.run("squeue", "-h", "--states=PENDING", "--format=%j %r").splitlines()
    )
    assert name.endswith("-{}.{}.{}.0".format(*second))
    assert reason == "Dependency"
    assert await trial.value(trial.call(add, 1, 1, slots=(1,))) == 2
    assert trial.unread == []
    (tmp_path / "door").touch()
    assert [await trial.value(key) for key in (first, second, third)] == ["through", 3, 4]


async def test_what_another_job_preempts_is_lost(slurm: Cluster, trial: Trial, tmp_path: Path) -> None:
    await trial.start(*FOUR)
    key = trial.call(note_and_wait, str(tmp_path / "pid"))
    await becomes((tmp_path / "pid").exists)
    other = slurm.run("sbatch", "--parsable", "-p", "urgent", "-w", "n", "-c4", "--wrap", "sleep 600").strip()
    ending = (await trial.ended(key)).ending
    assert (ending.outcome, ending.detail) == (Outcome.LOST, "Slurm ended it for another job (preemption)")
    assert gone(int((tmp_path / "pid").read_text()))
    slurm.run("scancel", other)


async def test_what_somebody_cancels_in_slurm_is_lost(slurm: Cluster, trial: Trial, tmp_path: Path) -> None:
    await trial.start(*FOUR)
    key = trial.call(note_and_wait, str(tmp_path / "pid"))
    await becomes((tmp_path / "pid").exists)
    (name,) = slurm.jobs()
    slurm.run("scancel", f"--name={name}")
    ending = (await trial.ended(key)).ending
    assert (ending.outcome, ending.detail) == (Outcome.LOST, "it was cancelled in Slurm, not by Headway")


async def test_what_slurm_does_not_want_is_refused_in_its_words(slurm: Cluster, root: Path) -> None:
    terms = ("ReservationName=gold", "Users=root", "StartTime=now", "Duration=60", "Nodes=ALL", "Flags=IGNORE_JOBS")
    slurm.run("scontrol", "create", "reservation", *terms)
    async with Trial(SlurmEngine(root, replace(SETTINGS, options=("--reservation=gold",))), LIMIT) as trial:
        await trial.start(*FOUR)
        slurm.run("scontrol", "delete", "ReservationName=gold")
        ending = (await trial.ended(trial.call(add, 1, 2))).ending
        assert ending.outcome is Outcome.REFUSED
        assert ending.detail.startswith("Slurm refuses it: sbatch: error: ")
        assert "reservation" in ending.detail


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("--acount=x", "unrecognized option '--acount=x'"),
        ("--acc=x", "option '--acc=x' is ambiguous; possibilities: '--account' '--acctg-freq'"),
        ("--mail-type=x", "error: Invalid --mail-type specification"),
        ("--switches=x", 'error: Invalid numeric value "x" for --switches.'),
    ],
)
async def test_an_option_that_sbatch_does_not_know_is_refused_at_the_start(
    slurm: Cluster, root: Path, option: str, said: str
) -> None:
    engine = SlurmEngine(root, replace(SETTINGS, options=("--comment=x", option)))
    with pytest.raises(InvalidInput, match=r"(?s)^options is \['--comment=x', .*sbatch: " + re.escape(said)):
        await engine.start(FOUR, lambda _: None, FilesInMemory())


@pytest.mark.parametrize("option", ["--reservation=gold", "--constraint=gold", "--licenses=gold:1"])
async def test_an_option_that_the_controller_does_not_take_is_refused_at_the_start(
    slurm: Cluster, root: Path, option: str
) -> None:
    engine = SlurmEngine(root, replace(SETTINGS, options=(option,)))
    with pytest.raises(InvalidInput, match=rf"(?s)^options is \['{option}'\].*allocation failure: .*nvalid"):
        await engine.start(FOUR, lambda _: None, FilesInMemory())


async def test_an_address_that_nobody_knows_is_refused_at_the_start(slurm: Cluster, root: Path) -> None:
    engine = SlurmEngine(root, replace(SETTINGS, address="no-such-host.invalid"))
    with pytest.raises(InvalidInput, match=r"^address is 'no-such-host.invalid'; allowed: "):
        await engine.start(FOUR, lambda _: None, FilesInMemory())


async def test_a_node_without_our_python_says_what_is_needed(slurm: Cluster, root: Path) -> None:
    async with Trial(SlurmEngine(root, replace(SETTINGS, python="/no/such/python")), LIMIT) as trial:
        await trial.start(*FOUR)
        ending = (await trial.ended(trial.call(add, 1, 2))).ending
        assert (ending.outcome, ending.outside) == (Outcome.REFUSED, True)
        assert "/no/such/python: not found" in ending.detail
        assert "have the same Python with Headway" in ending.detail


async def test_a_runner_that_is_killed_loses_its_attempt(trial: Trial, root: Path, tmp_path: Path) -> None:
    await trial.start(*FOUR)
    key = trial.call(note_and_wait, str(tmp_path / "pid"))
    await becomes((tmp_path / "pid").exists)
    found = [
        process
        for process in psutil.process_iter(["cmdline"])
        if str(root / "attempts" / "1.0.1.0") in (process.info["cmdline"] or ())
    ]
    # First all are suspended, or else one that sees the other die could tell of it. Then the youngest is killed first:
    # Slurm sees only the oldest die, and lets what is left of its job go on, to tell it to end.
    found.sort(key=psutil.Process.create_time, reverse=True)
    for signal in (psutil.Process.suspend, psutil.Process.kill):
        for process in found:
            with contextlib.suppress(psutil.NoSuchProcess):
                signal(process)
    ending = (await trial.ended(key)).ending
    assert ending.outcome is Outcome.LOST
    assert "told no more" in ending.detail
    assert gone(int((tmp_path / "pid").read_text()))


async def test_runners_do_without_the_file_of_their_modules_and_with_a_damaged_one(trial: Trial, root: Path) -> None:
    bundle = root / "bundle"
    await trial.start(*FOUR)
    await becomes(bundle.exists)
    for change in (lambda: None, lambda: os.truncate(bundle, 1000), bundle.unlink):
        change()
        assert (await trial.ended(trial.command("true"))).ending.outcome is Outcome.SUCCEEDED


async def test_without_news_ends_are_seen_by_looking_and_that_is_said(
    slurm: Cluster, root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with Trial(SlurmEngine(root, replace(SETTINGS, address="192.0.2.1")), LIMIT) as trial:
        await trial.start(*FOUR)
        assert await trial.value(trial.call(add, 1, 2)) == 3
        await becomes(lambda: "Can they reach 192.0.2.1, UDP port" in caplog.text)


async def test_while_the_controller_is_gone_what_runs_ends_and_what_is_launched_waits(
    slurm: Cluster, trial: Trial, tmp_path: Path
) -> None:
    await trial.start(*FOUR)
    runs = trial.call(note_and_wait, str(tmp_path / "pid"))
    killed = trial.call(note_and_wait, str(tmp_path / "other"), slots=(1,))
    await becomes(lambda: (tmp_path / "pid").exists() and (tmp_path / "other").exists())
    slurm.stop_controller()
    (tmp_path / "door").touch()
    assert {await trial.value(runs), await trial.value(killed)} == {"through"}
    later = trial.call(add, 1, 2)
    never = trial.call(add, 1, 2, slots=(2,))
    trial.engine.kill(*never)
    slurm.start_controller()
    assert await trial.value(later) == 3
    assert (await trial.ended(never)).ending.outcome is Outcome.KILLED


async def test_what_somebody_requeues_or_suspends_goes_on_and_what_is_held_waits(
    slurm: Cluster, trial: Trial, tmp_path: Path
) -> None:
    """Slurm refuses to requeue. A suspended job takes longer, and a held one begins when it is released."""

    def number_of(key: tuple[int, int, int]) -> str:
        (number,) = [
            number
            for number, name in map(str.split, slurm.run("squeue", "-h", "--format=%A %j").splitlines())
            if name.endswith("-{}.{}.{}.0".format(*key))
        ]
        return number

    await trial.start(*FOUR)
    runs = trial.call(note_and_wait, str(tmp_path / "pid"))
    await becomes((tmp_path / "pid").exists)
    pid = (tmp_path / "pid").read_text()
    running = number_of(runs)
    assert slurm.tried("scontrol", "requeue", running) is None, "it was submitted with --no-requeue"
    slurm.run("scontrol", "suspend", running)
    await becomes(lambda: psutil.Process(int(pid)).status() == psutil.STATUS_STOPPED)
    (tmp_path / "door").touch()
    other = slurm.run("sbatch", "--parsable", "-w", "a", "-c4", "--wrap", "sleep 600").strip()
    await becomes(lambda: slurm.jobs("--states=RUNNING") != [])
    held = trial.call(add, 1, 2, node="a")
    await becomes(lambda: slurm.jobs("--states=PENDING") != [])
    waiting = number_of(held)
    slurm.run("scontrol", "hold", waiting)
    slurm.run("scancel", other)
    assert await trial.value(trial.call(add, 1, 1, node="a", slots=(1,))) == 2
    assert trial.unread == [], "one is suspended, the other is held"
    slurm.run("scontrol", "resume", running)
    assert await trial.value(runs) == "through"
    assert (tmp_path / "pid").read_text() == pid
    slurm.run("scontrol", "release", waiting)
    assert await trial.value(held) == 3
