"""Files that the server keeps, on nodes that share nothing with it but the folder of the site."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from headway.engines.base import Command, Started
from headway.engines.slurm.engine import SlurmEngine
from headway.engines.trial import FilesInMemory, Trial
from headway.model.outcome import Outcome

from ...slurm import Cluster
from ...waiting import LIMIT, becomes
from .conftest import FOUR, SETTINGS

pytestmark = [pytest.mark.anyio, pytest.mark.thorough]

ONE, OTHER, *_ = (node.name for node in FOUR)

LARGE = bytes(range(256)) * (9 << 12)  # more than two pieces


async def test_files_come_and_go_where_no_node_can_open_the_servers_folder(slurm: Cluster, root: Path) -> None:
    kept = FilesInMemory()
    name = kept.add(LARGE)
    async with Trial(SlurmEngine(root, SETTINGS), LIMIT, files=kept) as trial:
        await trial.start(*FOUR)
        files = {"inputs": {"i": f"headway:{name}/i"}, "outputs": {"o": "headway:o"}}
        key = trial.command("sh", "-c", "cat i i > o", **files, node=ONE, files=True, fetches=True)
        assert await trial.told(Started) == Started(*key)
        ending = (await trial.ended(key)).ending
        given = hashlib.sha256(2 * LARGE).hexdigest()
        assert (ending.outcome, ending.outputs) == (Outcome.SUCCEEDED, {"o": f"headway:{given}/o"})
        assert kept.contents[given] == 2 * LARGE
        await becomes(lambda: not [path for place in ("files", "nodes") for path in (root / place).iterdir()])


async def test_members_of_a_gang_on_two_nodes_share_an_input(slurm: Cluster, root: Path) -> None:
    kept = FilesInMemory()
    name = kept.add(b"mesh")
    async with Trial(SlurmEngine(root, SETTINGS), LIMIT, files=kept) as trial:
        await trial.start(*FOUR)
        files = {"inputs": {"i": f"headway:{name}/i"}, "outputs": {"o": "headway:o"}}
        works = [Command(("sh", "-c", f"cat i > o; echo {rank} >> o"), **files) for rank in range(3)]
        key = trial.launch(*works, node=(ONE, ONE, OTHER), slots=(0, 1, 0), files=True, fetches=True)
        assert await trial.told(Started) == Started(*key)
        ended = await trial.ended(key)
        assert ended.ending.outcome is Outcome.SUCCEEDED
        given = {content for content in kept.contents.values() if content != b"mesh"}
        assert given == {f"mesh{rank}\n".encode() for rank in range(3)}


async def test_a_file_that_the_server_does_not_keep_is_refused_and_so_is_one_that_was_not_written(
    slurm: Cluster, root: Path
) -> None:
    async with Trial(SlurmEngine(root, SETTINGS), LIMIT, files=FilesInMemory()) as trial:
        await trial.start(*FOUR)
        inputs, outputs = {"i": f"headway:{'0' * 64}/i"}, {"o": "headway:o"}
        absent = trial.command("cat", "i", inputs=inputs, node=ONE, files=True, fetches=True)
        unwritten = trial.command("true", outputs=outputs, node=OTHER, files=True)
        for key, says in ((absent, "0" * 64), (unwritten, "output was not written")):
            ending = (await trial.ended(key)).ending
            assert (ending.outcome, says in ending.detail) == (Outcome.REFUSED, True)
        trial.disregard(Started)


async def test_what_is_cancelled_leaves_no_files(slurm: Cluster, root: Path) -> None:
    kept = FilesInMemory()
    name = kept.add(b"mesh")
    async with Trial(SlurmEngine(root, SETTINGS), LIMIT, files=kept) as trial:
        await trial.start(*FOUR)
        files = {"inputs": {"i": f"headway:{name}/i"}, "outputs": {"o": "headway:o"}}
        key = trial.command("sleep", "600", **files, node=ONE, files=True, fetches=True)
        assert await trial.told(Started) == Started(*key)
        trial.engine.kill(*key)
        assert (await trial.ended(key)).ending.outcome is Outcome.KILLED
        places = [root / place for place in ("attempts", "fences", "files", "nodes")]
        await becomes(lambda: not [path for place in places for path in place.iterdir()])
