"""Slurm's commands: missing, too old, silent, refusing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headway.engines.slurm.answers import SlurmFull, SlurmRefused, SlurmUnavailable
from headway.engines.slurm.commands import SLURM_COMMANDS, SlurmCommands
from headway.engines.slurm.settings import SlurmSettings
from headway.errors import EngineError, InvalidInput

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Scripts:
    """Scripts in the place of Slurm's commands."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in SLURM_COMMANDS:
            self.put(name, "echo slurm-wlm 22.05.8")

    def put(self, name: str, does: str) -> None:
        path = self.folder / name
        path.write_text(f"#!/bin/sh\n{does}\n")
        path.chmod(0o755)

    async def commands(self, limit: float = 60.0, options: tuple[str, ...] = ()) -> SlurmCommands:
        """Commands that were checked."""
        found = SlurmCommands(SlurmSettings("main", commands=self.folder, command_limit=limit, options=options))
        await found.check()
        return found


@pytest.fixture
def scripts(tmp_path: Path) -> Scripts:
    return Scripts(tmp_path)


async def test_a_command_that_is_missing_is_named(scripts: Scripts) -> None:
    (scripts.folder / "scancel").unlink()
    with pytest.raises(EngineError, match=rf"there is no program scancel in {scripts.folder}") as error:
        await scripts.commands()
    assert "Debian: slurm-client" in error.value.hint


@pytest.mark.parametrize("version", ["slurm 21.08.8", "slurm 20.11.9", "something else"])
async def test_a_version_that_is_too_old(scripts: Scripts, version: str) -> None:
    scripts.put("sinfo", f"echo {version}")
    with pytest.raises(EngineError, match=rf"its version is '{version}'; allowed: 22.05 or newer"):
        await scripts.commands()


@pytest.mark.parametrize("version", ["slurm 22.05.0", "slurm 23.11.4", "slurm-wlm 24.11.5"])
async def test_a_version_that_is_new_enough(scripts: Scripts, version: str) -> None:
    scripts.put("sinfo", f"echo {version}")
    await scripts.commands()


async def test_slurm_that_is_not_configured_says_so(scripts: Scripts) -> None:
    scripts.put("sinfo", "echo 'sinfo: fatal: Could not establish a configuration source' >&2; exit 1")
    with pytest.raises(EngineError, match="Slurm cannot be used: sinfo: fatal: Could not establish"):
        await scripts.commands()


async def test_an_option_that_sbatch_does_not_know_is_refused_before_any_job(scripts: Scripts) -> None:
    said = "sbatch: unrecognized option '--acount=x'"
    scripts.put(
        "sbatch", f'case "$*" in *--acount*) echo "{said}" >&2; exit 255;; esac; echo $* > {scripts.folder}/asked'
    )
    told = (
        r"options is \['--qos=low', '--acount=x'\]; allowed: options that sbatch knows, each with its value\nIt says: "
    )
    with pytest.raises(InvalidInput, match=f"{told}{said}$"):
        await scripts.commands(options=("--qos=low", "--acount=x"))
    await scripts.commands()
    assert not (scripts.folder / "asked").exists(), "there is nothing to ask"
    await scripts.commands(options=("--account=x",))
    assert (scripts.folder / "asked").read_text() == "--test-only --account=x --version\n", "it submits nothing"


@pytest.mark.parametrize(
    "said",
    [
        "Invalid account or account/partition combination specified",
        "Invalid qos specification",
        "Requested reservation is invalid",
        "Access denied to requested reservation",
    ],
)
async def test_what_the_controller_does_not_take_is_refused_before_any_job(scripts: Scripts, said: str) -> None:
    commands = await scripts.commands(options=("--account=x",))
    scripts.put("sbatch", f"echo $* > {scripts.folder}/asked; echo 'allocation failure: {said}' >&2; exit 1")
    told = (
        r"options is \['--account=x'\]; allowed: options that Slurm's controller takes\nIt says: allocation failure: "
    )
    with pytest.raises(InvalidInput, match=told + said):
        await commands.try_options()
    assert {"--test-only", "--partition=main", "--account=x"} <= {*(scripts.folder / "asked").read_text().split()}


@pytest.mark.parametrize(
    "said",
    [
        "Required partition not available (inactive or drain)",
        "Requested node configuration is not available",
        "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)",
        "Unable to contact slurm controller (connect failure)",
    ],
)
async def test_what_may_pass_is_no_fault_of_the_options(scripts: Scripts, said: str) -> None:
    commands = await scripts.commands(options=("--account=x",))
    scripts.put("sbatch", f'echo "allocation failure: {said}" >&2; exit 1')
    await commands.try_options()


async def test_accounts_of_users_are_not_tried_as_that_of_the_server(scripts: Scripts) -> None:
    scripts.put("sbatch", "echo 'allocation failure: Invalid account' >&2; exit 1")
    for terms in ({"options": ("--qos=x",), "run_as_owner": True}, {}):
        await SlurmCommands(SlurmSettings("main", commands=scripts.folder, **terms)).try_options()


async def test_a_command_that_gives_no_answer_is_ended(scripts: Scripts) -> None:
    commands = await scripts.commands(limit=1.0)
    scripts.put("squeue", f"echo $$ > {scripts.folder}/pid; exec sleep 600")
    with pytest.raises(SlurmUnavailable, match="squeue gave no answer within 1 s"):
        await commands.queue("abc")
    assert not Path(f"/proc/{(scripts.folder / 'pid').read_text().strip()}").exists()


@pytest.mark.parametrize(
    "said",
    [
        "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)",
        "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation",
        "sbatch: error: Batch job submission failed: Zero Bytes were transmitted or received",
        "sbatch: error: slurm_msg_sendto: address:port=10.0.0.1:6817 msg_type=4003: Unexpected missing socket error",
        "sbatch: error: Batch job submission failed: Unexpected missing socket error",
        "sbatch: error: Batch job submission failed: Message receive failure",
        "sbatch: error: Batch job submission failed: Broken pipe",
        "sbatch: error: Batch job submission failed: Network is unreachable",
        "sbatch: error: Batch job submission failed: Unable to connect to database",
        "sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying",
        "sbatch: error: If munged is up, restart with --num-threads=10",
    ],
)
async def test_what_may_be_tried_again(scripts: Scripts, said: str) -> None:
    commands = await scripts.commands()
    scripts.put("sbatch", f"echo '{said}' >&2; exit 1")
    with pytest.raises(SlurmUnavailable, match=r"^sbatch: error: "):
        await commands.submit("--hold")


@pytest.mark.parametrize("said", ["QOSMaxSubmitJobPerUserLimit", "Job violates policy (job submit limit, time limits)"])
async def test_where_there_is_no_room_for_another_job_nothing_was_done(scripts: Scripts, said: str) -> None:
    """A node waits for room. A rented machine may be one of another site."""
    commands = await scripts.commands()
    scripts.put("sbatch", f"echo 'sbatch: error: {said}' >&2; exit 1")
    with pytest.raises(SlurmFull):
        await commands.submit("--hold")
    assert issubclass(SlurmFull, SlurmUnavailable)


async def test_a_command_that_something_kills_may_be_tried_again(scripts: Scripts) -> None:
    commands = await scripts.commands()
    scripts.put("sbatch", "kill -9 $$")
    with pytest.raises(SlurmUnavailable, match="sbatch ended with status -9"):
        await commands.submit("--hold")


@pytest.mark.parametrize(
    "said",
    [
        "sbatch: error: Batch job submission failed: Requested node configuration is not available",
        "sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified",
        "sbatch: error: Batch job submission failed: Requested reservation is invalid",
    ],
)
async def test_what_would_be_refused_again(scripts: Scripts, said: str) -> None:
    commands = await scripts.commands()
    scripts.put("sbatch", f"echo '{said}' >&2; exit 1")
    with pytest.raises(SlurmRefused, match=r"^sbatch: error: "):
        await commands.submit("--hold")


async def test_all_that_slurm_said_is_told_in_a_line_without_its_hint_at_help(scripts: Scripts) -> None:
    commands = await scripts.commands()
    lines = "sbatch: unrecognized option '--bogus=1'", 'Try "sbatch --help" for more information'
    scripts.put("sbatch", f"cat >&2 <<'X'\n{chr(10).join(lines)}\nX\nexit 1")
    with pytest.raises(SlurmRefused, match=r"^sbatch: unrecognized option '--bogus=1'$"):
        await commands.submit("--bogus=1")
    lines = "sbatch: error: Memory specification can not be satisfied", "sbatch: error: Batch job submission failed: no"
    scripts.put("sbatch", f"cat >&2 <<'X'\n{chr(10).join(lines)}\nX\nexit 1")
    with pytest.raises(SlurmRefused, match=f"^{'; '.join(lines)}$"):
        await commands.submit("--hold")


async def test_numbers_of_jobs(scripts: Scripts) -> None:
    commands = await scripts.commands()
    scripts.put("sbatch", "echo '17;cluster'")
    assert await commands.submit("--hold") == 17
    scripts.put("sbatch", "echo hello")
    with pytest.raises(SlurmUnavailable, match="'hello', which is no number of a job"):
        await commands.submit("--hold")


async def test_a_partition_that_is_unknown_is_told_with_the_others(scripts: Scripts) -> None:
    commands = await scripts.commands()
    scripts.put("scontrol", "echo 'Partition main not found'; exit 1")
    scripts.put("sinfo", "printf 'mains\\nother\\nmains\\n'")
    allowed = "partition is 'main'; allowed: a partition of this Slurm: mains, other"
    with pytest.raises(InvalidInput, match=allowed) as error:
        await commands.partition()
    assert error.value.hint == "Did you mean mains?"
    scripts.put("scontrol", '[ "$1" = --all ] || { echo "Partition main not found"; exit 1; }')
    with pytest.raises(InvalidInput, match=allowed) as error:
        await commands.partition()
    assert "this account may not use (AllowGroups)" in error.value.hint


async def test_cancelling_what_has_ended_is_no_error(scripts: Scripts) -> None:
    commands = await scripts.commands()
    scripts.put("scancel", "echo 'scancel: error: Kill job error on job id 5: Invalid job id specified' >&2; exit 1")
    await commands.cancel([5])


async def test_variables_that_change_what_commands_do_are_left_out(
    scripts: Scripts, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SLURM_CONF", "SBATCH_PARTITION", "SQUEUE_FORMAT", "HEADWAY_TOKEN"):
        monkeypatch.setenv(name, "x")
    commands = await scripts.commands()
    scripts.put("scancel", f"env > {scripts.folder}/env")
    await commands.cancel([5])
    seen = (scripts.folder / "env").read_text().split()
    assert "SLURM_CONF=x" in seen
    assert not [word for word in seen if word.startswith(("SBATCH", "SQUEUE", "HEADWAY"))]
    assert f"PATH={os.environ['PATH']}" in seen
