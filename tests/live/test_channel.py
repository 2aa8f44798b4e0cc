"""Tasks that write into the channel between their process and its agent, and agents that send unreadable data."""

from __future__ import annotations

import asyncio
import os
import stat
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs

from headway.engines.base import NodeBack, NodeLost
from headway.engines.local.driver.engine import LocalEngine
from headway.engines.local.driver.host import put_down
from headway.engines.local.driver.settings import LocalSettings
from headway.engines.local.shared.frames import MemberEnded, Pong, framed, to_driver_decoder
from headway.engines.trial import Trial, calling
from headway.model.events import Outcome
from headway.model.node import NodeSpec

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    root = tmp_path / "engine"
    yield root
    for folder in (root / "nodes").glob("*"):
        put_down(folder)


@pytest.fixture
async def trial(root: Path) -> AsyncIterator[Trial]:
    async with Trial(LocalEngine(root), 60.0) as trial:
        yield trial


def add(one: int, other: int) -> int:
    return one + other


def channel() -> int:
    """The descriptor of the channel, found as a task could find it."""
    (found,) = (fd for fd in map(int, os.listdir("/proc/self/fd")) if fd > 2 and _is_socket(fd))
    return found


def _is_socket(fd: int) -> bool:
    try:
        return stat.S_ISSOCK(os.fstat(fd).st_mode)
    except OSError:
        return False


def write(written: bytes) -> str:
    os.write(channel(), written)
    return "and went on"


def teller():  # type: ignore[no-untyped-def]
    """The object by which the process itself sends messages, with its seal."""
    import gc

    from headway.engines.local.shared.checkpoints import Teller

    (found,) = (one for one in gc.get_objects() if isinstance(one, Teller))
    return found


def forge(ending: bytes) -> str:
    from msgspec import Raw

    from headway.engines.local.shared.frames import RunEnded
    from headway.engines.local.shared.seal import sealed

    speaker = teller()
    speaker._channel.sendall(sealed(speaker.seal, RunEnded(False, Raw(ending))))
    return "and went on"


def half_a_frame(size: int) -> str:
    speaker = teller()
    speaker._channel.sendall(speaker.seal + size.to_bytes(4, "little"))
    return "and went on"


def close() -> None:
    os.close(channel())
    time.sleep(600)


def forge_and_stay(ending: bytes, path: str) -> None:
    forge(ending)
    while not os.path.exists(path):
        time.sleep(0.01)


async def is_well(trial: Trial, agent: int) -> None:
    """Check that its slots work, and that its agent is still the same."""
    for slot in (0, 1):
        assert await trial.value(trial.call(add, 1, 2, slots=(slot,))) == 3
    assert trial.engine.pids() == {"n": agent}  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "written", [b"\0", b"\xff" * 4, b"\xff\xff\xff\x7f" + b"x" * 100, b"\x01\0\0\0\xc1", b"x" * 9999]
)
async def test_what_a_task_writes_into_its_channel_ends_it_alone(trial: Trial, written: bytes, tmp_path: Path) -> None:
    await trial.start()
    agent = trial.engine.pids()["n"]  # type: ignore[attr-defined]
    beside = trial.call(_wait, str(tmp_path / "door"), slots=(1,))
    ending = (await trial.ended(trial.call(write, written))).ending
    assert (ending.outcome, ending.detail) == (Outcome.EXITED, "wrote to a file descriptor that was not its own")
    (tmp_path / "door").touch()
    assert await trial.value(beside) == "let in"
    await is_well(trial, agent)


def _wait(path: str) -> str:
    while not os.path.exists(path):
        time.sleep(0.01)
    return "let in"


@pytest.mark.parametrize(
    "ending",
    [
        b"\xc1",
        b"\x91" * 5000,
        b"\x91\xa9succeeded",
        b"\x91\xa4lost",
        b"\x91\xa6killed",
        b"\x95\xa9succeeded\xc0\xa0\xc0\x93\xab/etc/passwd\x01\xc4\x01x",
    ],
)
async def test_a_forged_ending_is_that_of_its_own_run_or_ends_it(trial: Trial, ending: bytes, tmp_path: Path) -> None:
    await trial.start()
    agent = trial.engine.pids()["n"]  # type: ignore[attr-defined]
    beside = trial.call(_wait, str(tmp_path / "door"), slots=(1,))
    told = (await trial.ended(trial.call(forge, ending))).ending
    if ending != b"\x91\xa9succeeded":
        assert told.outcome is Outcome.EXITED
        assert told.detail.startswith("wrote to a file descriptor that was not its own")
    (tmp_path / "door").touch()
    assert await trial.value(beside) == "let in"
    await is_well(trial, agent)


async def test_a_run_that_says_it_has_ended_and_goes_on_does_not_end_the_next_one(trial: Trial, tmp_path: Path) -> None:
    await trial.start()
    first = trial.call(forge_and_stay, b"\x91\xa9succeeded", str(tmp_path / "door"))
    second = trial.call(_wait, str(tmp_path / "never"))
    assert (await trial.ended(first)).ending.outcome is Outcome.SUCCEEDED
    (tmp_path / "door").touch()
    ending = (await trial.ended(second)).ending
    assert (ending.outcome, ending.outside) == (Outcome.SIGNALLED, True)  # the core redoes it
    assert await trial.value(trial.call(add, 1, 2)) == 3


async def test_an_only_call_that_says_it_has_ended_and_goes_on_does_not_hold_up_the_next_one(
    trial: Trial, tmp_path: Path
) -> None:
    await trial.start()
    for number in range(2):
        stays = calling(forge_and_stay, b"\x91\xa9succeeded", str(tmp_path / "door"), family=f"job {number}")
        first = trial.launch(structs.replace(stays, alone=True))
        second = trial.launch(structs.replace(calling(add, 1, 2, family=f"job {number + 10}"), alone=True))
        assert (await trial.ended(first)).ending.outcome is Outcome.SUCCEEDED
        assert await trial.value(second) == 3


async def test_a_frame_that_never_ends_leaves_its_run_to_its_limits(trial: Trial) -> None:
    await trial.start()
    agent = trial.engine.pids()["n"]  # type: ignore[attr-defined]
    ending = (await trial.ended(trial.call(half_a_frame, 5000, time_limit=0.5))).ending
    assert ending.outcome is Outcome.OUT_OF_TIME
    ending = (await trial.ended(trial.call(half_a_frame, 2**32 - 1))).ending
    assert ending.outcome is Outcome.EXITED
    await is_well(trial, agent)


def close_everything() -> None:
    os.closerange(3, 4096)
    time.sleep(600)


@pytest.mark.parametrize("how", [close, close_everything])
async def test_a_task_that_closes_its_channel_is_ended(trial: Trial, how: Callable[[], None]) -> None:
    await trial.start()
    agent = trial.engine.pids()["n"]  # type: ignore[attr-defined]
    ending = (await trial.ended(trial.call(how))).ending
    assert (ending.outcome, ending.detail) == (Outcome.EXITED, "closed a file descriptor that was not its own")
    await is_well(trial, agent)


# An agent that sends unreadable data


class Line:
    """The driver's end of a node's connection, to which a test feeds bytes."""

    def __init__(self, trial: Trial) -> None:
        self.node = trial.engine._nodes["n"]  # type: ignore[attr-defined]
        assert self.node.line is not None
        self.feed: Callable[[bytes], None] = self.node.line.data_received


@pytest.mark.parametrize(
    "sent",
    [framed(b"\xc1"), framed(b""), framed(b"\x92\x0e\x01"), framed(b"\x93" * 5000)],
)
async def test_what_an_agent_sends_costs_its_node_at_most(trial: Trial, sent: bytes) -> None:
    await trial.start()
    Line(trial).feed(sent)
    lost = await trial.told(NodeLost)
    assert "its agent sent what cannot be taken in" in lost.detail
    await trial.told(NodeBack)
    assert await trial.value(trial.call(add, 1, 2)) == 3


async def test_an_agent_may_end_what_nobody_launched_and_what_is_no_ending(trial: Trial) -> None:
    from msgspec import Raw

    from headway.engines.local.shared.frames import encode

    await trial.start()
    Line(trial).feed(framed(encode(MemberEnded(9, 9, 9, 0, 1, Raw(b"\xc0")))))
    key = trial.call(_wait, "/nowhere")
    Line(trial).feed(framed(encode(MemberEnded(*key, 0, 1, Raw(b"\xc0")))))
    assert "cannot be taken in" in (await trial.told(NodeLost)).detail
    await trial.told(NodeBack)


async def test_an_agent_whose_ends_cannot_be_read_is_not_taken_on(trial: Trial) -> None:
    from msgspec import Raw

    from headway.engines.local.driver.attached import AgentLine
    from headway.engines.local.shared.frames import VERSION, Welcome, encode

    await trial.start()
    node = trial.engine._nodes["n"]  # type: ignore[attr-defined]
    line = AgentLine(node)
    line.transport = transport = Aborted()  # type: ignore[assignment]
    bad = MemberEnded(9, 9, 9, 0, 1, Raw(b"\xc0"))
    line.data_received(framed(encode(Welcome(VERSION, 1, 1, 2, [], [bad]))))
    assert (transport.is_up, line.welcome.done()) == (False, False)


async def test_an_answer_that_nothing_waits_for_any_more_is_no_error(
    trial: Trial, caplog: pytest.LogCaptureFixture
) -> None:
    """The server ended, or gave up waiting, just before a node answered it."""
    from headway.engines.local.driver.attached import AgentLine
    from headway.engines.local.shared.frames import VERSION, HasDriver, Welcome, encode

    await trial.start()
    for answer in (Welcome(VERSION, 1, 1, 2, [], []), HasDriver()):
        line = AgentLine(trial.engine._nodes["n"])  # type: ignore[attr-defined]
        line.transport = transport = Aborted()  # type: ignore[assignment]
        line.welcome.cancel()
        line.data_received(framed(encode(answer)))
        assert not transport.is_up
    assert caplog.messages == []


class Aborted:
    """A transport that records whether it was aborted."""

    is_up = True

    def abort(self) -> None:
        self.is_up = False


@given(st.lists(st.binary(max_size=40) | st.sampled_from([b"\x91\x0f", b"\xc1"]), max_size=5))
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_arrives_from_an_agent_the_driver_goes_on(bodies: list[bytes]) -> None:
    """It is accepted, or the connection is given up with a reason. Nothing is raised."""
    from headway.engines.local.driver.attached import AgentLine
    from headway.engines.local.driver.node import EngineFolders, LocalNode

    class Owner:
        def __getattr__(self, name: str) -> Callable[..., None]:
            return lambda *_: None

    async def fed() -> None:
        node = LocalNode(
            NodeSpec("n"),
            Owner(),  # type: ignore[arg-type]
            b"",
            LocalSettings(lease=1.0),
            EngineFolders(Path("/nowhere"), Path("/nowhere")),
        )
        node.line = line = AgentLine(node)
        line.transport = transport = Aborted()  # type: ignore[assignment]
        decode, sound = to_driver_decoder().decode, True
        for body in bodies:
            line.data_received(framed(body))
            try:
                sound = sound and isinstance(decode(body), Pong)
            except Exception:  # noqa: BLE001
                sound = False
        assert transport.is_up or not sound  # type: ignore[attr-defined]
        if line.welcome.done():
            line.welcome.exception()

    asyncio.run(fed())
