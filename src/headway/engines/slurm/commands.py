"""Slurm's own commands, each under a time limit: without its controller they would wait for minutes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Final

from headway.engines.local.driver.environment import of_this_process
from headway.engines.slurm import parsing
from headway.engines.slurm.answers import SlurmRefused, SlurmUnavailable, number_of, printed_by
from headway.engines.slurm.settings import SlurmSettings
from headway.errors import EngineError, InvalidInput, did_you_mean

SLURM_COMMANDS: Final = ("sbatch", "scancel", "squeue", "scontrol", "sinfo")

_OF_SLURM: Final = ("SLURM_CONF", "SLURM_CONF_SERVER")
"""Variables that say which Slurm it is. All others of Slurm change what commands do, so they are left out."""

_NOT_TAKEN: Final = ("invalid", "denied")
"""In what the controller says of options that it will never take."""

NO_MORE: Final[Mapping[str, str]] = MappingProxyType({})


class SlurmCommands:
    """Slurm, as its commands show it.

    Args:
        settings: of the engine.
    """

    def __init__(self, settings: SlurmSettings) -> None:
        self._settings = settings
        known = {name: os.environ[name] for name in _OF_SLURM if name in os.environ}
        self._environment = {**of_this_process(settings.pass_env), **known}
        self._found: dict[str, str] = {}

    async def check(self) -> None:
        """Find the commands, check their version, and see that sbatch knows the options of the settings.

        Raises:
            InvalidInput: it does not know one, or not its value.
            EngineError: they are not there, or too old.
        """
        folder = self._settings.commands
        where = "the PATH" if folder is None else str(folder)
        for name in SLURM_COMMANDS:
            found = shutil.which(name, path=None if folder is None else str(folder))
            if found is None:
                hint = (
                    "Start the server where Slurm's commands are installed (Debian: slurm-client), or set `commands`."
                )
                raise EngineError(f"Slurm cannot be used: there is no program {name} in {where}", hint)
            self._found[name] = found
        try:
            printed = await self._run("sinfo", "--version")
            await self._check_options()
        except (SlurmUnavailable, SlurmRefused) as error:
            raise EngineError(f"Slurm cannot be used: {error}") from error
        found_version = parsing.version(printed)
        if found_version is None or found_version < parsing.OLDEST_SLURM:
            oldest = "{}.{:02}".format(*parsing.OLDEST_SLURM)
            raise EngineError(f"Slurm cannot be used: its version is {printed.strip()!r}; allowed: {oldest} or newer")

    async def _check_options(self) -> None:
        """See that sbatch knows the options of the settings.

        It reads them, and then says its version instead of asking its controller (`try_options` does). So this takes it
        a few milliseconds, whether Slurm answers or not.

        Raises:
            InvalidInput: it does not.
            SlurmUnavailable: it does not answer.
        """
        options = self._settings.options
        if not options:
            return
        try:
            await self._run("sbatch", "--test-only", *options, "--version")
        except SlurmRefused as error:
            hint = f"It says: {error}"
            raise InvalidInput(
                "options", list(options), "options that sbatch knows, each with its value", hint=hint
            ) from None

    async def try_options(self) -> None:
        """See that Slurm's controller takes the options of the settings, such as a name of an account.

        It is asked when a job with them would begin; none is submitted. That there is no room, or no node, may pass.
        Where jobs run as their users it is not asked: what may be named depends on whose job it is.

        Raises:
            InvalidInput: it does not.
        """
        options = self._settings.options
        if not options or self._settings.has_accounts:
            return
        asked = ("--test-only", f"--partition={self._settings.partition}", "--ntasks=1", "--time=1", *options)
        try:
            await self._run("sbatch", *asked, "--wrap=true")
        except SlurmUnavailable:
            return
        except SlurmRefused as error:
            if not any(sign in str(error).lower() for sign in _NOT_TAKEN):
                return
            hint = f"It says: {error}"
            raise InvalidInput("options", list(options), "options that Slurm's controller takes", hint=hint) from None

    async def partition(self) -> parsing.Partition:
        """The partition of the settings.

        Raises:
            InvalidInput: there is none of this name, or the account may not see it.
            SlurmUnavailable: it does not answer.
        """
        name = self._settings.partition
        try:
            return parsing.partition(await self._run("scontrol", "show", "partition", name, "--oneliner"))
        except SlurmRefused:
            others = sorted(set((await self._run("sinfo", "--noheader", "--format=%R")).split()))
            known = f"a partition of this Slurm: {', '.join(others) or 'it has none'}"
            hint = did_you_mean(name, others)
            with suppress(SlurmRefused):
                await self._run("scontrol", "--all", "show", "partition", name, "--oneliner")
                hint = "There is one that this account may not use (AllowGroups), or that is hidden from it."
            raise InvalidInput("partition", name, known, hint=hint) from None

    async def nodes(self) -> dict[str, parsing.SlurmNode]:
        """The nodes of the partition, by name."""
        where = f"--partition={self._settings.partition}"
        return parsing.nodes(await self._run("sinfo", "--noheader", "--Node", where, f"--format={parsing.NODE_FORMAT}"))

    async def queue(self, identity: str, *more: str) -> dict[parsing.PartKey, list[parsing.Queued]]:
        """The jobs of a server that wait or run, of all others; `more`: options that ask for other ones."""
        whose = () if self._settings.has_accounts else ("--me",)
        asked = (*whose, "--noheader", f"--format={parsing.QUEUE_FORMAT}", *more)
        return parsing.jobs(await self._run("squeue", *asked), identity)

    async def ended(self, identity: str, numbers: Iterable[int]) -> dict[parsing.PartKey, list[parsing.Queued]]:
        """What has become of these jobs; those that Slurm has forgotten are left out."""
        asked = ",".join(map(str, numbers))
        try:
            return await self.queue(identity, "--states=all", f"--jobs={asked}")
        except SlurmRefused:  # it knows none of them
            return {}

    async def named(self, identity: str, names: Iterable[str]) -> dict[parsing.PartKey, list[parsing.Queued]]:
        """The jobs with these names, those that have ended too, as long as Slurm remembers them."""
        return await self.queue(identity, "--states=all", f"--name={','.join(names)}")

    async def submit(self, *arguments: str, environment: Mapping[str, str] = NO_MORE) -> int:
        """Submit a batch job, with these variables beside the others; returns its number."""
        printed = await self._run("sbatch", "--parsable", *arguments, environment=environment)
        return number_of(printed)

    async def cancel(self, numbers: Iterable[int]) -> None:
        """End jobs now, those that wait and those that run; it is no error if one has ended."""
        with suppress(SlurmRefused):
            await self._run("scancel", "--quiet", *map(str, numbers))

    async def controller(self) -> str:
        """The machine of Slurm's controller."""
        return parsing.controller(await self._run("scontrol", "show", "config"))

    async def _run(self, name: str, *arguments: str, environment: Mapping[str, str] = NO_MORE) -> str:
        """What a command prints; errors as `printed_by` has them."""
        limit = self._settings.command_limit
        return await printed_by(self._found[name], arguments, {**self._environment, **environment}, limit)
