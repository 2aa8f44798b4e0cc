"""Commands that run beside the event loop."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
from pathlib import Path

import psutil
import pytest

from headway.engines.slurm import calling
from headway.engines.slurm.calling import Called, NotKilled, called

from ....opened import descriptors
from ....waiting import becomes

pytestmark = pytest.mark.anyio

ENVIRONMENT = {"PATH": os.environ["PATH"], "SAID": "word"}


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": request.param}


async def shell(line: str, limit: float = 60.0) -> Called:
    return await called("/bin/sh", ("-c", line), ENVIRONMENT, limit)


async def hanging(folder: Path) -> tuple[asyncio.Task[Called], int]:
    """A command that does not end by itself, once it has begun; and its process."""
    line = f"echo $$ > {folder}/draft; mv {folder}/draft {folder}/pid; exec sleep 600"
    running = asyncio.create_task(shell(line))
    await becomes((folder / "pid").exists)
    return running, int((folder / "pid").read_text())


async def test_what_a_command_prints_and_how_it_ends() -> None:
    assert await shell("echo $SAID; echo wrong >&2; exit 3") == (3, "word\n", "wrong\n")
    assert await shell("kill -TERM $$") == (-signal.SIGTERM, "", "")
    assert await shell("printf 'caf\\351'") == (0, "caf\N{REPLACEMENT CHARACTER}", "")


async def test_it_may_print_more_than_fits_into_a_pipe() -> None:
    done = await shell("head -c 3000000 /dev/zero; head -c 2000000 /dev/zero >&2")
    assert (done.code, len(done.printed), len(done.complained)) == (0, 3_000_000, 2_000_000)


async def test_it_reads_what_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    long = "line\n" * 100_000
    for _ in range(2):
        assert await called("/bin/cat", (), ENVIRONMENT, 60.0, long) == (0, long, "")
        monkeypatch.delattr(os, "memfd_create", raising=False)  # the second time there are only files on a disk


async def test_a_python_without_files_in_memory_uses_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create")
    assert await shell("echo word; echo wrong >&2") == (0, "word\n", "wrong\n")


async def test_it_has_no_input_a_session_of_its_own_and_usual_signals() -> None:
    done = await shell("cat; test $(cut -d' ' -f6 /proc/$$/stat) -eq $$")
    assert done == (0, "", "")
    assert (await shell("kill -PIPE $$; echo ignored")).code == -signal.SIGPIPE


async def test_a_command_that_cannot_be_started() -> None:
    with pytest.raises(FileNotFoundError):
        await called("/no/such/command", (), ENVIRONMENT, 60.0)


async def test_many_at_once_leave_neither_descriptors_nor_processes() -> None:
    before = descriptors(), psutil.Process().children()
    assert [done.printed for done in await asyncio.gather(*(shell(f"echo {n}") for n in range(20)))] == [
        f"{n}\n" for n in range(20)
    ]
    assert (descriptors(), psutil.Process().children()) == before


async def test_a_command_that_takes_too_long_is_killed() -> None:
    before = psutil.Process().children()
    with pytest.raises(TimeoutError):
        await shell("exec sleep 600", 0.05)
    assert psutil.Process().children() == before


async def test_a_command_that_is_not_waited_for_is_killed(tmp_path: Path) -> None:
    running, pid = await hanging(tmp_path)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not Path(f"/proc/{pid}").exists()


@pytest.mark.parametrize("cancelled", [False, True])
async def test_a_command_that_cannot_be_killed_is_left_alone_and_reaped_when_it_ends(
    cancelled: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One that waits for a file system that hangs dies only when that answers."""
    before, killed = descriptors(), list[int]()
    monkeypatch.setattr(signal, "pidfd_send_signal", lambda process, number: killed.append(number))
    monkeypatch.setattr(calling, "KILLED_SECONDS", 0.05)
    if cancelled:
        running, pid = await hanging(tmp_path)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    else:
        with pytest.raises(NotKilled, match=r"process \d+ was killed and has not ended") as left:
            await shell("exec sleep 600", 0.05)
        pid = int(str(left.value).split()[1])
    assert killed == [signal.SIGKILL]
    assert f"/bin/sh, process {pid}, was killed and has not ended after 0.05 s" in caplog.text
    os.kill(pid, signal.SIGKILL)
    await becomes(lambda: not Path(f"/proc/{pid}").exists())
    assert descriptors() == before


async def test_one_that_is_no_longer_waited_for_when_it_dies_is_reaped_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task that is cancelled twice does not wait until what it killed has ended, which may hang in a file system."""
    before, killed = descriptors(), list[int]()
    monkeypatch.setattr(signal, "pidfd_send_signal", lambda process, number: killed.append(number))
    running, pid = await hanging(tmp_path)
    running.cancel()
    await becomes(lambda: killed == [signal.SIGKILL])
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    os.kill(pid, signal.SIGKILL)
    await becomes(lambda: not Path(f"/proc/{pid}").exists())
    assert descriptors() == before


async def test_where_no_file_can_be_opened_none_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    before, made = descriptors(), os.memfd_create

    def only_one(name: str) -> int:
        if name == "complained":
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return made(name)

    monkeypatch.setattr(os, "memfd_create", only_one)
    with pytest.raises(OSError, match="Too many open files"):
        await shell("true")
    assert descriptors() == before
