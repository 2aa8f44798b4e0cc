"""The command `headway`. It loads only what its own help needs."""

from __future__ import annotations

import gc
import importlib
import os
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from types import ModuleType
from typing import Final, NoReturn

import click

from headway import __version__
from headway.errors import HeadwayError, cut, did_you_mean

COMMANDS: Final = {
    "up": ("headway.cli.up", "Run a server on this machine."),
    "stop": ("headway.cli.stop", "Stop the server of this data directory."),
    "submit": ("headway.cli.submit", "Submit a program as a job."),
    "advise": ("headway.cli.submit", "Say which due date a job would keep."),
    "jobs": ("headway.cli.live", "List jobs."),
    "job": ("headway.cli.live", "Show one job."),
    "status": ("headway.cli.status", "Print the state of jobs, for scripts."),
    "wait": ("headway.cli.status", "Wait for the end of jobs."),
    "logs": ("headway.cli.logs", "Print what tasks write, also while they run."),
    "result": ("headway.cli.submit", "Print the results of a job."),
    "serve": ("headway.cli.serve", "Start a service, which answers requests."),
    "ask": ("headway.cli.serve", "Send a request to a service."),
    "services": ("headway.cli.serve", "List the services."),
    "upload": ("headway.cli.files", "Send a file to the server, which keeps it for tasks."),
    "download": ("headway.cli.files", "Get a file that the server keeps."),
    "explain": ("headway.cli.explain", "Say why a job waits, and what would help."),
    "change": ("headway.cli.change", "Change the due date or the priority of jobs."),
    "retry": ("headway.cli.change", "Run the failed tasks of a job again."),
    "cancel": ("headway.cli.live", "End jobs."),
    "nodes": ("headway.cli.live", "Show the nodes and what runs on them."),
    "node": ("headway.cli.node", "Add, drain, remove, resize and switch nodes."),
    "metrics": ("headway.cli.check", "Show what collectors measured on the nodes."),
    "checker": ("headway.cli.check", "Show the status checker, or switch it on or off."),
    "sites": ("headway.cli.rent", "Show the sites, and what runs tasks there."),
    "rent": ("headway.cli.rent", "Show what is rented, since when, for whom, and what it costs."),
    "energy": ("headway.cli.energy", "Show what the nodes took."),
    "incidents": ("headway.cli.check", "List what an operator should know."),
    "requests": ("headway.cli.check", "List who asked for what."),
    "audit": ("headway.cli.check", "List who did what, and what was refused to whom."),
    "token": ("headway.cli.token", "Make, list and revoke tokens of users."),
    "policy": ("headway.cli.live", "Show or change the policy."),
    "policies": ("headway.cli.policies", "List the policies, with their parameters."),
    "decider": ("headway.cli.decider", "Make plans over HTTP, for any system."),
    "backup": ("headway.cli.journal", "Copy a data directory, also while its server runs."),
    "restore": ("headway.cli.journal", "Put a backup in place as a data directory."),
    "history": ("headway.cli.history", "Measure what a server has run, and write it to files."),
    "check": ("headway.cli.journal", "Check that a data directory or a backup is as it was written."),
    "simulate": ("headway.cli.simulate", "Run a log, table or workflows under one or more policies."),
    "profile": ("headway.cli.profile", "Show what is known of a program from its past."),
    "predict": (
        "headway.cli.predict",
        "Hold predicted run times of a log against what came.",
    ),
    "forecast": (
        "headway.cli.forecast",
        "Hold forecasts of a log against what came.",
    ),
    "whatif": ("headway.cli.whatif", "Ask what would happen if something were otherwise."),
    "rerun": ("headway.cli.rerun", "Run what a server was given under other policies."),
    "replay": ("headway.cli.replay", "Submit a log or a table of jobs to a server, each at its time."),
    "workload": ("headway.cli.workload", "Make a workload from a published model, or estimates for a log."),
    "reproduce": ("headway.cli.reproduce", "Repeat the experiments of a paper and compare the figures."),
    "demo": ("headway.cli.demo", "Show what Headway does, in a minute or two."),
}

GOES_ON: Final = 3
"""Exit status where what was asked about has not ended."""

INTERRUPTED: Final = 130
"""Exit status after ctrl-c, as shells have it."""

BLAS_THREADS: Final = "OPENBLAS_NUM_THREADS"
"""The variable that says how many threads NumPy's linear algebra starts."""


def is_compiled() -> bool:
    """Whether the core is compiled here. If not, it gives the same results, only slower."""
    core = Path(__file__).parents[1] / "core"
    return any((core / f"scheduler{suffix}").exists() for suffix in EXTENSION_SUFFIXES)


def build_text() -> str:
    """What `--version` says of the core: compiled, or why it is not where Headway was installed from a wheel."""
    if is_compiled():
        return ", compiled"
    try:
        why = Path(__file__).parents[1].joinpath("not-compiled.txt").read_text("utf-8").strip()
    except OSError:
        return ""  # the sources themselves
    return f", not compiled: {why}"


def _load(module: str) -> ModuleType:
    """The module of a command, loaded without what takes a fifth of the time and helps nobody.

    Nothing is garbage yet. And the threads that NumPy's linear algebra starts would wait for work in a busy loop, while
    Headway multiplies no large matrices. Programs that are started later see the environment as it was.
    """
    collects, threads = gc.isenabled(), os.environ.get(BLAS_THREADS)
    gc.disable()
    os.environ.setdefault(BLAS_THREADS, "1")
    try:
        return importlib.import_module(module)
    finally:
        if threads is None:
            del os.environ[BLAS_THREADS]
        if collects:
            gc.enable()


class CommandGroup(click.Group):
    """The commands by name; a command's module is loaded when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a name, loaded now."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = getattr(_load(COMMANDS[cmd_name][0]), cmd_name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the arguments name. For an unknown name the error suggests a similar one."""
        if args[0] not in COMMANDS and not args[0].startswith("-"):
            raise HeadwayError(
                f"there is no command {cut(args[0])!r}",
                did_you_mean(args[0], COMMANDS) or "`headway --help` lists the commands.",
            )
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands' lines in the help; no module is loaded for them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


@click.command(cls=CommandGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(f"{__version__}{build_text()}", prog_name="headway")
def headway() -> None:
    """Schedule jobs on machines so that they meet their due dates.

    `headway COMMAND --help` says more about a command.
    """


def main(argv: list[str] | None = None) -> NoReturn:
    """Run a command and end the process: status 0, 1 if a job did not succeed, 2 for an error, 130 after ctrl-c."""
    try:
        status = headway.main(argv, prog_name="headway", standalone_mode=False)
    except HeadwayError as error:
        from headway.cli.typed import in_words_typed

        typed = in_words_typed(str(error.args[0]), headway, sys.argv[1:] if argv is None else argv)
        status = _said(HeadwayError(typed, error.hint))
    except getattr(click.exceptions, "NoArgsIsHelpError", ()) as error:  # a group without a command
        error.show()
        status = error.exit_code
    except click.UsageError as error:
        from headway.cli.misuse import in_our_words

        status = _said(in_our_words(error))
    except click.ClickException as error:
        error.show()
        status = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("Interrupted.", err=True)
        status = INTERRUPTED
    except BrokenPipeError:
        # The reader of the output has closed the pipe. Nothing may be written when the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 1
    except Exception as error:
        if not _follows_ctrl_c(error):
            raise
        click.echo("Interrupted.", err=True)
        status = INTERRUPTED
    sys.exit(status)


def _said(error: HeadwayError) -> int:
    click.echo(f"Error: {error.args[0]}", err=True)
    if error.hint:
        click.echo(error.hint, err=True)
    return 2


def _follows_ctrl_c(error: BaseException | None) -> bool:
    """Whether an exception was raised while leaving after ctrl-c, which may come while a lock is being taken."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None
