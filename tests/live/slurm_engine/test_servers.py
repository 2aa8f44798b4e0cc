"""What a server that died has left in Slurm: the next one takes it over, or cancels it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from headway.engines.base import Found, Saved
from headway.engines.slurm.engine import SlurmEngine
from headway.engines.trial import Trial
from headway.model.outcome import Outcome

from ...slurm import Cluster
from ...waiting import LIMIT, becomes, until
from .conftest import FOUR, SETTINGS, add, note_and_wait

pytestmark = [pytest.mark.anyio, pytest.mark.thorough]

SERVER = """
import asyncio, sys
from pathlib import Path
from headway.engines.base import Command
from headway.engines.slurm.engine import SlurmEngine
from headway.engines.slurm.settings import SlurmSettings
from headway.engines.trial import Trial
from headway.model.node import NodeSpec

SCRIPT = "echo said; echo $$ > $0.draft; mv $0.draft $0; while [ ! -e {door} ]; do sleep 0.01; done"

async def main(root, folder):
    trial = Trial(SlurmEngine(Path(root), SlurmSettings("main", poll=0.5)))
    await trial.start(*(NodeSpec(name, slots=4, found=True) for name in "nabm"))
    script = SCRIPT.format(door=folder + "/door")
    trial.command("sh", "-c", script, folder + "/one", key=(1, 0, 1))
    gang = [Command(("sh", "-c", script, folder + "/gang" + str(rank))) for rank in (0, 1)]
    trial.launch(*gang, node=("a", "b"), slots=(0, 0), key=(1, 1, 1))
    trial.command("sh", "-c", script, folder + "/unwanted", key=(1, 2, 1), slots=(1,))
    await trial.ended(trial.command("sh", "-c", "echo well", key=(1, 3, 1), node="m"), acknowledge=False)
    await trial.ended(trial.command("sh", "-c", "exit 3", key=(1, 4, 1), node="m"), acknowledge=False)
    print("ready", flush=True)
    await asyncio.sleep(600)

asyncio.run(main(*sys.argv[1:]))
"""


async def test_a_server_is_killed_and_the_next_one_takes_over_what_runs_and_what_has_ended(
    slurm: Cluster, trial: Trial, root: Path, tmp_path: Path
) -> None:
    names = [tmp_path / name for name in ("one", "gang0", "gang1", "unwanted")]
    with subprocess.Popen([sys.executable, "-c", SERVER, str(root), str(tmp_path)], stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == b"ready\n"
        until(lambda: all(name.exists() for name in names))
        server.kill()
    left = await trial.start(*FOUR)
    assert left.running == {(1, 0, 1), (1, 1, 1), (1, 2, 1)}
    assert {ended.key: ended.ending.outcome for ended in left.ended} == {
        (1, 3, 1): Outcome.SUCCEEDED,
        (1, 4, 1): Outcome.EXITED,
    }
    for ended in left.ended:
        trial.engine.acknowledge(*ended.key)
    trial.engine.kill(1, 2, 1)
    assert (await trial.ended((1, 2, 1))).ending.outcome is Outcome.KILLED
    later = trial.call(add, 1, 2, key=(1, 5, 1))
    assert await trial.value(trial.call(add, 2, 2, key=(1, 6, 1), slots=(1,))) == 4
    assert trial.unread == [], "slot 0 is still held"
    (tmp_path / "door").touch()
    one, gang = await trial.ended((1, 0, 1)), await trial.ended((1, 1, 1))
    assert (one.ending.outcome, gang.ending.outcome) == (Outcome.SUCCEEDED, Outcome.SUCCEEDED)
    assert one.ending.stdout is not None
    assert one.ending.stdout.tail == b"said\n"
    assert len(gang.members) == 2
    assert await trial.value(later) == 3


async def test_what_nobody_knows_of_any_more_is_cancelled(
    slurm: Cluster, trial: Trial, root: Path, tmp_path: Path
) -> None:
    first = Trial(SlurmEngine(root, SETTINGS), LIMIT)
    await first.start(*FOUR)
    identity = (root / "identity").read_text()
    other = slurm.run("sbatch", "--parsable", f"--job-name=headway-{identity}-7.7.7.0", "--wrap", "sleep 600").strip()
    foreign = slurm.run("sbatch", "--parsable", "--job-name=headway-abc-7.7.7.0", "--wrap", "sleep 600").strip()
    await first.engine.stop()
    slurm.run("sbatch", f"--job-name=headway-{identity}-7.7.7.0", "--wrap", "sleep 600")
    assert (await trial.start(*FOUR)) == Found()
    await becomes(lambda: slurm.jobs() == ["headway-abc-7.7.7.0"])
    slurm.run("scancel", other, foreign)


async def test_an_attempt_runs_once_even_if_two_jobs_were_submitted_for_it(
    slurm: Cluster, trial: Trial, root: Path, tmp_path: Path
) -> None:
    """The answer of sbatch was lost, so it was submitted again; the first job came nevertheless."""
    await trial.start(*FOUR)
    key = trial.call(note_and_wait, str(tmp_path / "pid"))
    await becomes((tmp_path / "pid").exists)
    pid = (tmp_path / "pid").read_text()
    words = (sys.executable, "-m", "headway.engines.slurm.start", str(root / "attempts" / "1.0.1.0"))
    second = subprocess.run(words, capture_output=True, text=True, check=True)
    assert "another job runs this" in second.stderr
    (tmp_path / "door").touch()
    assert await trial.value(key) == "through"
    assert (tmp_path / "pid").read_text() == pid


async def test_what_was_saved_is_known_to_the_next_server(slurm: Cluster, root: Path, tmp_path: Path) -> None:
    def save(path: str) -> None:
        import headway

        headway.checkpoint("half")

    first = Trial(SlurmEngine(root, SETTINGS), LIMIT)
    await first.start(*FOUR)
    await first.ended(first.call(save, str(tmp_path)))
    await first.told(Saved)
    await first.engine.stop()
    async with Trial(SlurmEngine(root, SETTINGS), LIMIT) as trial:
        assert (await trial.start(*FOUR)).saved == {1}
        trial.engine.forget(1)
        await becomes(lambda: not (root / "checkpoints" / "1").exists())


def test_a_runner_whose_folder_is_gone_has_nothing_to_do(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "headway.engines.slurm.start", str(tmp_path / "nothing")]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert "nobody wants this any more" in done.stderr
