"""What an engine makes of what agents on other machines say: a played node, without a line."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path

import msgspec
import pytest
from msgspec import Raw

from headway.engines.base import Ended, Ending, NodeLost, Output, Report
from headway.engines.local.driver.attached import AgentLine
from headway.engines.local.driver.settings import LocalSettings
from headway.engines.local.shared.frames import (
    Discard,
    FilePiece,
    MemberEnded,
    MemberSaved,
    Read,
    ReadPart,
    ToAgent,
    encode,
    to_agent_decoder,
)
from headway.engines.local.shared.stores import Store
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
    """Answers what the engine asks, from the files that a test gives it.

    Attributes:
        files: by name.
        heard: other frames that came.
    """

    def __init__(self, engine: RemoteEngine) -> None:
        super().__init__(NodeSpec("n"), engine, 10.0, NoWay())
        self.up = True
        self.files: dict[str, bytes] = {}
        self.heard: list[ToAgent] = []
        self.engine = engine

    def send(self, sent: bytes) -> None:
        message = to_agent_decoder().decode(sent[4:])
        if not isinstance(message, Read):
            self.heard.append(message)
            return
        content = self.files.get(message.name)
        told = "there is none" if content is None else ""
        data = (content or b"")[message.offset : message.offset + min(message.size, 1000)]
        asyncio.get_running_loop().call_soon(self.engine.on_part, self, ReadPart(message.number, data, told))

    def give_up(self, why: str) -> None:
        self._why = why
        self.close()


def engine_in(folder: Path) -> tuple[RemoteEngine, Played, list[Report]]:
    engine, told = RemoteEngine(folder / "engine", LocalSettings()), list[Report]()
    engine._begin(told.append, FilesInMemory())
    engine._early = None
    node = Played(engine)
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
        node.files["1/0.1.out"] = content
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


@pytest.mark.parametrize(("there", "why"), [(b"something else", "it was changed on its node"), (None, "there is none")])
def test_an_output_that_is_not_as_it_was_is_not_kept(tmp_path: Path, there: bytes | None, why: str) -> None:
    async def scenario() -> None:
        engine, node, told = engine_in(tmp_path)
        if there is not None:
            node.files["1/0.1.out"] = there
        engine.on_ended(node, ended(output_of(b"what it wrote, all of it")))
        await settled(engine)
        (report,) = told
        assert isinstance(report, Ended)
        lost = f"the server could not keep it: {why}"
        assert report.ending.stdout == Output("", 24, b" all of it", 14, lost=lost)
        assert not list((tmp_path / "engine" / "output" / "1").iterdir())

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
            engine, node, told = engine_in(tmp_path)
            if content is not None:
                node.files[name] = content
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
        node.files["1/0/0.1"] = b"packed"
        engine.on_saved(node, MemberSaved(*KEY, 0))
        await settled(engine)
        assert (tmp_path / "engine" / "checkpoints" / "1" / "0" / "0.1.tar").read_bytes() == b"packed"
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


def test_frames_of_files_are_read_as_they_were_written() -> None:
    for message in (Read(1, Store.UPLOAD, "a", 0, 9), Discard(Store.OUTPUT, ["b"]), FilePiece("c", b"d", True)):
        assert to_agent_decoder().decode(msgspec.msgpack.encode(message)) == message
