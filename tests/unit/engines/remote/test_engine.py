"""What an engine makes of what agents on other machines say: a played node, without a line."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path

import msgspec
import pytest
from msgspec import Raw, structs

from headway.engines.base import (
    Assignment,
    Command,
    Ended,
    Ending,
    Member,
    NodeLost,
    Noticed,
    Output,
    Report,
    Saved,
)
from headway.engines.local.agent.shelf import NodeShelf
from headway.engines.local.driver.attached import AgentLine
from headway.engines.local.driver.settings import LocalSettings
from headway.engines.local.shared.archives import pack
from headway.engines.local.shared.frames import (
    VERSION,
    CheckpointTaken,
    Discard,
    FilePiece,
    Launch,
    MemberEnded,
    MemberSaved,
    Read,
    ReadPart,
    ToAgent,
    Welcome,
    encode,
    to_agent_decoder,
)
from headway.engines.local.shared.stores import Store
from headway.engines.local.shared.terms import Terms
from headway.engines.remote.engine import RemoteEngine
from headway.engines.remote.node import AgentAccess, RemoteNode
from headway.engines.trial import FilesInMemory
from headway.model.node import NodeSpec
from headway.model.outcome import Outcome

KEY = (1, 0, 1)


class NoWay:
    """A node that is played needs none."""

    async def open(self, line: AgentLine, spec: NodeSpec, *, fresh: bool) -> AgentAccess:
        raise AssertionError

    async def end(self) -> None:
        """Nothing runs."""

    async def drained(self) -> None:
        """Nothing waits."""


class Played(RemoteNode):
    """Has a shelf in a folder, without an agent. What goes either way comes in small pieces.

    Attributes:
        there: its folder.
        heard: other frames that came.
        flips: in so many of the files that go either way a bit is changed on the way.
        breaks: the line breaks when the piece of a file is asked for that begins here.
        asked: the files that the engine has begun to ask for.
    """

    def __init__(self, engine: RemoteEngine, there: Path) -> None:
        super().__init__(NodeSpec("n"), engine, 10.0, NoWay())
        self.up = True
        self.engine = engine
        self.there = there
        folders = {name: str(there / name) for name in ("output", "uploads")}
        self.shelf = NodeShelf(
            Terms("n", "", folders["output"], str(there), 1, 9, 0, uploads=folders["uploads"], apart=True)
        )
        self.heard: list[ToAgent] = []
        self.flips = 0
        self.breaks: int | None = None
        self.asked: list[str] = []

    def has(self, name: str, content: bytes) -> None:
        """Have a file, by its path."""
        path = self.there / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    def send(self, sent: bytes) -> None:
        message = to_agent_decoder().decode(sent[4:])
        if isinstance(message, Read):
            self.read(message)
        elif isinstance(message, FilePiece) and message.store is Store.CHECKPOINT:
            taken = self.shelf.take_checkpoint(structs.replace(message, data=self.carried(message.data)))
            if taken is not None:
                self.answer(taken)
        else:
            self.heard.append(message)

    def read(self, message: Read) -> None:
        if message.offset == self.breaks:
            self.close()
            return
        if message.offset == 0:
            self.asked.append(message.name)
        part = self.shelf.read(structs.replace(message, size=min(message.size, 1000)))
        self.answer(structs.replace(part, data=self.carried(part.data)))

    def answer(self, answer: ReadPart | CheckpointTaken) -> None:
        asyncio.get_running_loop().call_soon(self.engine.on_answer, self, answer)

    def carried(self, data: bytes) -> bytes:
        """What arrives of this."""
        if not data or not self.flips:
            return data
        self.flips -= 1
        return data[:-1] + bytes([data[-1] ^ 1])

    def _abandon(self) -> None:
        """There is no agent."""

    def give_up(self, why: str) -> None:
        self._why = why
        self.close()


def engine_in(folder: Path) -> tuple[RemoteEngine, Played, list[Report]]:
    """An engine with one node, on which an attempt runs."""
    engine, told = RemoteEngine(folder / "engine", LocalSettings()), list[Report]()
    engine._begin(told.append, FilesInMemory())
    engine._early = None
    node = Played(engine, folder / "there")
    engine._nodes["n"] = node
    engine._attempts[KEY] = node
    return engine, node, told


def ended(output: Output | None, **more: dict[str, str]) -> MemberEnded:
    return MemberEnded(*KEY, 0, 1, Raw(encode(Ending(Outcome.SUCCEEDED, **more))), output)  # type: ignore[arg-type]


async def settled(engine: RemoteEngine) -> None:
    while engine._tasks:
        await asyncio.sleep(0)


def output_of(content: bytes, name: str = "/there/output/1/0.1.out") -> Output:
    return Output(name, len(content), content[-10:], 0, hashlib.sha256(content).hexdigest())


def test_what_an_attempt_wrote_is_here_when_its_end_is_told(tmp_path: Path) -> None:
    async def scenario() -> None:
        engine, node, told = engine_in(tmp_path)
        content = bytes(range(256)) * 20
        node.has("output/1/0.1.out", content)
        engine.on_ended(node, ended(output_of(content)))
        assert told == [], "its output comes first"
        await settled(engine)
        (report,) = told
        assert isinstance(report, Ended)
        output = report.ending.stdout
        assert output is not None
        assert Path(output.name).read_bytes() == content
        assert await engine.read(output.name, 250, 10) == content[250:260]
        assert node.heard == [Discard(Store.OUTPUT, ["1/0.1.out"])]

    asyncio.run(scenario())


CHANGED = "its bytes on node 'n', or on their way, were changed (3 tries)"


@pytest.mark.parametrize(
    ("there", "why", "times"),
    [(b"something else", CHANGED, 3), (None, "there is no file 1/0.1.out", 1)],
)
def test_an_output_that_is_not_as_it_was_is_not_kept(tmp_path: Path, there: bytes | None, why: str, times: int) -> None:
    async def scenario() -> None:
        engine, node, told = engine_in(tmp_path)
        if there is not None:
            node.has("output/1/0.1.out", there)
        engine.on_ended(node, ended(output_of(b"what it wrote, all of it")))
        await settled(engine)
        (report,) = told
        assert isinstance(report, Ended)
        lost = f"the server could not keep it: {why}"
        assert report.ending.stdout == Output("", 24, b" all of it", 14, lost=lost)
        assert not list((tmp_path / "engine" / "output" / "1").iterdir())
        assert node.asked == ["1/0.1.out"] * times

    asyncio.run(scenario())


def test_what_is_changed_on_its_way_is_fetched_again(tmp_path: Path) -> None:
    """Both of what an attempt wrote to its stdout and of an output that the server keeps; twice of each."""

    async def scenario() -> None:
        engine, node, told = engine_in(tmp_path)
        written, given = bytes(range(256)) * 20, b"given"
        name = hashlib.sha256(given).hexdigest()
        node.has("output/1/0.1.out", written)
        node.has(f"uploads/{name}", given)
        for output, outputs, file in (
            (output_of(written), {}, "1/0.1.out"),
            (None, {"o": f"headway:{name}/o"}, name),
        ):
            node.asked, node.flips = [], 2 * 6 if output else 2
            engine.on_ended(node, ended(output, outputs=outputs))
            await settled(engine)
            assert node.asked == [file] * 3
            report = told.pop()
            assert isinstance(report, Ended)
            assert report.ending.outcome is Outcome.SUCCEEDED
        assert (tmp_path / "engine" / "output" / "1" / "0.1.out").read_bytes() == written

    asyncio.run(scenario())


def test_of_what_was_half_fetched_when_the_line_broke_nothing_stays_and_its_node_is_lost(tmp_path: Path) -> None:
    """Then the task is redone, as whatever else ran there."""

    async def scenario() -> None:
        engine, node, told = engine_in(tmp_path)
        content = bytes(range(256)) * 20
        node.has("output/1/0.1.out", content)
        node.breaks = 2000
        engine.on_ended(node, ended(output_of(content)))
        await settled(engine)
        assert [type(report) for report in told] == [NodeLost]
        assert not list((tmp_path / "engine" / "output" / "1").iterdir())
        assert (node.there / "output" / "1" / "0.1.out").exists()

    asyncio.run(scenario())


@pytest.mark.parametrize("killed", ["half fetched", "fetched", "fetched, and its node told so"])
def test_a_server_that_was_killed_has_the_output_when_it_is_back(tmp_path: Path, killed: str) -> None:
    """The end was not in its journal yet, so the node names it again."""

    async def scenario() -> None:
        before, node, _ = engine_in(tmp_path)
        content = bytes(range(256)) * 20
        node.has("output/1/0.1.out", content)
        if killed == "half fetched":
            draft = tmp_path / "engine" / "output" / "1" / ".0.1.out.0123456789abcdef"
            draft.parent.mkdir()
            draft.write_bytes(content[:2000])
        else:
            before.on_ended(node, ended(output_of(content)))
            await settled(before)
            node.asked.clear()
        if killed == "fetched, and its node told so":
            (node.there / "output" / "1" / "0.1.out").unlink()
        engine, _, told = engine_in(tmp_path)
        engine._attempts.clear()
        node.engine = engine
        welcome = Welcome(VERSION, 1, 1, 1, [], [ended(output_of(content))])
        found = engine._adopt({node: welcome})
        assert (found.running, found.ended) == ({KEY}, ())
        await asyncio.sleep(0)
        await settled(engine)
        (report,) = told
        assert isinstance(report, Ended)
        output = report.ending.stdout
        assert output is not None
        assert (Path(output.name).read_bytes(), output.lost) == (content, "")
        assert node.asked == ["1/0.1.out"] * (killed == "half fetched")

    asyncio.run(scenario())


@pytest.mark.parametrize("name", ["/there/output/2/0.1.out", "/there/output/1/0.2.out", "nonsense", "/there/1/../x"])
def test_an_agent_that_names_what_is_of_another_attempt_is_given_up(tmp_path: Path, name: str) -> None:
    async def scenario() -> None:
        engine, node, told = engine_in(tmp_path)
        engine.on_ended(node, ended(output_of(b"x", name)))
        await settled(engine)
        (report,) = told
        assert isinstance(report, NodeLost)
        assert "says that an attempt wrote" in report.detail

    asyncio.run(scenario())


def test_an_output_for_the_server_is_put_there_or_its_attempt_is_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        name = hashlib.sha256(b"given").hexdigest()
        for content, outcome in ((b"given", Outcome.SUCCEEDED), (None, Outcome.REFUSED)):
            folder = tmp_path / outcome.name
            folder.mkdir()
            engine, node, told = engine_in(folder)
            if content is not None:
                node.has(f"uploads/{name}", content)
            engine.on_ended(node, ended(None, outputs={"o": f"headway:{name}/o"}))
            await settled(engine)
            (report,) = told
            assert isinstance(report, Ended)
            assert report.ending.outcome is outcome

    asyncio.run(scenario())


def test_a_file_of_the_server_goes_there_in_pieces_or_it_is_said_why_not(tmp_path: Path) -> None:
    async def scenario() -> None:
        engine, node, _ = engine_in(tmp_path)
        files = FilesInMemory()
        engine._files = files
        name = files.add(bytes(2_500_000))
        engine.on_wanted(node, name)
        await settled(engine)
        pieces = [one for one in node.heard if isinstance(one, FilePiece)]
        assert sum(len(one.data) for one in pieces) == 2_500_000
        assert [one.last for one in pieces] == [False, False, False, True]
        node.heard.clear()
        engine.on_wanted(node, "0" * 64)
        await settled(engine)
        (last,) = node.heard
        assert isinstance(last, FilePiece)
        assert (last.last, bool(last.detail)) == (True, True)

    asyncio.run(scenario())


def test_nothing_is_asked_of_nodes_about_jobs_that_saved_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        engine, node, _ = engine_in(tmp_path)
        engine.forget(1, 0)
        engine.forget(1)
        assert node.heard == []
        node.has("checkpoints/1/0/0.1/1", b"half")
        engine.on_saved(node, MemberSaved(*KEY, 0))
        await settled(engine)
        packed = tmp_path / "engine" / "checkpoints" / "1" / "0" / "0.1.tar"
        assert packed.read_bytes() == pack(str(node.there / "checkpoints" / "1" / "0" / "0.1"))
        engine.forget(1)
        await settled(engine)
        assert node.heard == [Discard(Store.CHECKPOINT, ["1"])]
        assert not list((tmp_path / "engine" / "checkpoints").iterdir())

    asyncio.run(scenario())


def test_a_node_that_was_lost_is_told_when_it_is_back_what_it_need_not_keep(tmp_path: Path) -> None:
    async def scenario() -> None:
        engine, node, _ = engine_in(tmp_path)
        node.up = False
        for job in (1, 2, 3):
            if job < 3:
                engine.kill(job, 0, 1)  # it may have saved something that was not told
            engine.forget(job)
        assert not [message for message in node.heard if isinstance(message, Discard)]
        node.heard.clear()
        node.up = True
        for _ in range(2):
            engine._tell_owed(node)
        assert node.heard == [Discard(Store.CHECKPOINT, ["1", "2"])]

    asyncio.run(scenario())


def test_what_was_saved_in_place_goes_with_its_job_though_its_node_could_not_tell(tmp_path: Path) -> None:
    async def scenario() -> None:
        engine, node, _ = engine_in(tmp_path)
        saved = tmp_path / "engine" / "checkpoints"
        (saved / "1" / "0" / "0.1").mkdir(parents=True)
        (saved / "1" / "0" / "0.1" / "kept").touch()
        engine.forget(1)
        await settled(engine)
        assert (list(saved.iterdir()), node.heard) == ([], [])

    asyncio.run(scenario())


PIECES_OF_AN_ARCHIVE = 11
"""With one small file; each is of 1,000 bytes at most."""


@pytest.mark.parametrize(("flips", "arrives"), [(0, True), (2, True), (3, False)])
def test_a_checkpoint_comes_here_as_it_was_saved_or_it_is_said_that_it_does_not(
    tmp_path: Path, flips: int, arrives: bool
) -> None:
    async def scenario() -> None:
        engine, node, told = engine_in(tmp_path)
        node.has("checkpoints/1/0/0.1/1", b"half")
        node.flips = flips * PIECES_OF_AN_ARCHIVE
        engine.on_saved(node, MemberSaved(*KEY, 0))
        await settled(engine)
        assert node.asked == ["1/0/0.1"] * min(flips + 1, 3)
        assert told.pop(0) == Saved(*KEY)
        why = f"what it has saved cannot be fetched: {CHANGED}"
        assert told == ([] if arrives else [Noticed("checkpoint_unreadable", "job 1, task 0", why)])
        assert (tmp_path / "engine" / "checkpoints" / "1" / "0" / "0.1.tar").exists() is arrives

    asyncio.run(scenario())


@pytest.mark.parametrize(("flips", "arrives"), [(0, True), (2, True), (3, False)])
def test_the_next_attempt_gets_a_checkpoint_as_it_was_saved_or_it_is_said_that_it_does_not(
    tmp_path: Path, flips: int, arrives: bool
) -> None:
    """On another node than the one before; it is launched in either case."""

    async def scenario() -> None:
        engine, node, told = engine_in(tmp_path)
        saved = tmp_path / "saved"
        saved.mkdir()
        (saved / "1").write_bytes(b"half")
        engine._saved.put(1, 0, 0, 1, pack(str(saved)))
        engine._saving.add(1)
        node.flips = flips
        engine.launch(Assignment(1, 0, 2, (Member("n", (0,), Command(("true",))),)))
        await settled(engine)
        assert [type(message) for message in node.heard] == [Launch]
        why = f"what it had saved cannot be brought to node 'n': {CHANGED}"
        assert told == ([] if arrives else [Noticed("checkpoint_unreadable", "job 1, task 0", why)])
        there = node.there / "checkpoints" / "1" / "0" / "0.1" / "1"
        assert (there.read_bytes() if there.exists() else b"") == (b"half" if arrives else b"")
        assert node.flips == 0

    asyncio.run(scenario())


def test_frames_of_files_are_read_as_they_were_written() -> None:
    for message in (Read(1, Store.UPLOAD, "a", 0, 9), Discard(Store.OUTPUT, ["b"]), FilePiece("c", b"d", True)):
        assert to_agent_decoder().decode(msgspec.msgpack.encode(message)) == message
