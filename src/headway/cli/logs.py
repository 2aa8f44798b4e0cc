"""The command that prints what tasks write, also while they run."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from http import HTTPStatus
from tempfile import TemporaryFile
from typing import Final

import click

from headway.cli.ended import failure
from headway.cli.live import task_in, titled
from headway.cli.main import INTERRUPTED
from headway.cli.reach import Reach, asks_server
from headway.client.client import PATIENCE_SECONDS, Client
from headway.errors import Refused
from headway.wire import JobDetail, JobReport

OUTPUT_LOOK_SECONDS: Final = 0.5
"""How often what runs is asked for more."""

STREAMS: Final = ("stdout", "stderr")


@click.command()
@click.argument("number", metavar="ID", type=int)
@click.option("-f", "--follow", is_flag=True, help="Keep printing what is written, until the job has ended.")
@click.option(
    *("--task", "named"),
    metavar="N",
    help="Only the output of this task, without numbers; in a workflow it may be a name.",
)
@click.option("--stream", type=click.Choice(STREAMS), help="Only this stream; default: both, each to its own.")
@asks_server
def logs(reach: Reach, number: int, follow: bool, named: str | None, stream: str | None) -> int:
    """Print what the tasks of a job have written until now, stdout to stdout and stderr to stderr.

    If a job has several tasks, each line begins with the number of its task, unless --task names one. Ctrl-c ends this
    command only.
    """
    with reach(patience=PATIENCE_SECONDS if follow else 0.0) as client:
        detail = client.job(number)
        job = detail.job
        task = None if named is None else task_in(client, number, named)
        reading = LogReader(client, job, task, (stream,) if stream else STREAMS)
        try:
            reading.read_ended()
            reading.read_running()
            if follow and not job.status.is_final:
                reading.follow(detail.cursor)
                detail = client.job(number)
            if not follow and job.started is None:
                click.echo(f"Job {number} is {job.status.value}: nothing of it has run yet.", err=True)
            elif not reading.wrote:
                silent(client, detail, task)
        except KeyboardInterrupt:
            return INTERRUPTED
    return 0


def silent(client: Client, detail: JobDetail, task: int | None) -> None:
    """Say why there is nothing to print of a job, or of one of its tasks: one failed, or that one has not begun."""
    job = detail.job.id
    if failed := failure(detail, task):
        click.echo(f"There is nothing to print. {failed}", err=True)
        return
    if task is None:
        return
    state = client.tasks(job, task=task)[0]
    if state.why:
        click.echo(f"Task {titled(state)} of job {job} {state.state}, because {state.why}.", err=True)
    elif state.state in ("waits", "ready"):
        click.echo(f"Task {titled(state)} of job {job} has not begun: `headway explain {job} --task {task}`.", err=True)


@dataclass(slots=True)
class Source:
    """One stream of one process, and how far it has been read.

    Attributes:
        attempt: the attempt that has been read.
        rest: what came after the last line end.
    """

    task: int
    rank: int | None
    stream: str
    attempt: int = 0
    offset: int = 0
    rest: bytes = b""


@dataclass(slots=True)
class LogReader:
    """Reads what tasks write, each byte once.

    Attributes:
        task: only this one; None: all.
        streams: only these.
        over: tasks that have been read to their end.
        restarted: attempts whose new beginning was announced, once for all their streams.
        wrote: whether anything was printed.
    """

    client: Client
    job: JobReport
    task: int | None
    streams: tuple[str, ...]
    sources: dict[tuple[int, int | None, str], Source] = field(default_factory=dict)
    over: set[int] = field(default_factory=set)
    restarted: set[tuple[int, int]] = field(default_factory=set)
    wrote: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether output is printed as it is, without the numbers of tasks."""
        return self.job.width == 1 and (self.task is not None or self.job.tasks == 1)

    def read_ended(self) -> None:
        """Print what ended tasks have written, in their order."""
        for one in self.client.results(self.job.id, task=self.task):
            self._end(one.task, one.attempt)

    def read_running(self) -> None:
        """Print what running tasks have written since the last time."""
        for task, attempt in self._running():
            if task not in self.over:
                for source in self._sources(task):
                    self._read(source, attempt)

    def follow(self, cursor: int) -> None:
        """Print what comes until the job has ended.

        Args:
            cursor: ends of tasks that were not read have greater numbers.
        """
        while True:
            told = self.client.messages(self.job.id, after=cursor, wait=OUTPUT_LOOK_SECONDS)
            cursor = told.cursor
            for message in told.messages:
                if message.task is not None and self.task in (None, message.task):
                    self._end(message.task, None)
                    if self.task is not None:
                        return
                if message.status is not None:
                    return
            self.read_running()

    def _running(self) -> Iterable[tuple[int, int]]:
        """The running tasks of the job with the numbers of their attempts, rising."""
        attempts = (attempt for node in self.client.nodes() for attempt in node.attempts)
        mine = {(one.task, one.attempt) for one in attempts if one.job == self.job.id}
        return sorted(one for one in mine if self.task in (None, one[0]))

    def _sources(self, task: int) -> Iterator[Source]:
        ranks = range(self.job.width) if self.job.width > 1 else (None,)
        for rank in ranks:
            for stream in self.streams:
                yield self.sources.setdefault((task, rank, stream), Source(task, rank, stream))

    def _end(self, task: int, attempt: int | None) -> None:
        """Print the rest of what an ended task wrote.

        Args:
            attempt: the attempt that settled it; None: the one that was read, if that settled it.
        """
        if task in self.over:
            return
        self.over.add(task)
        for source in self._sources(task):
            if attempt is None and source.attempt and not self._read(source, source.attempt):
                source.offset, source.rest = 0, b""  # another one settled it
                self._read(source, None)
            elif attempt is not None or not source.attempt:
                self._read(source, attempt)
            if source.rest:
                self._print(source, source.rest + b"\n" * (not self.is_plain))
            self.sources.pop((task, source.rank, source.stream))

    def _read(self, source: Source, attempt: int | None) -> bool:
        """Print what has been written since the last time. Returns False if another attempt counts by now."""
        if attempt is not None and source.attempt not in (0, attempt):
            if (source.task, attempt) not in self.restarted:
                self.restarted.add((source.task, attempt))
                click.echo(f"Task {source.task} begins again: attempt {attempt}.", err=True)
            source.offset, source.rest = 0, b""
        source.attempt = attempt or source.attempt
        with TemporaryFile() as file:
            try:
                self.client.output(
                    self.job.id,
                    file,
                    task=source.task,
                    stream=source.stream,
                    rank=source.rank,
                    attempt=attempt,
                    offset=source.offset,
                )
            except Refused as refusal:
                if refusal.status != HTTPStatus.NOT_FOUND:
                    raise
                return False
            file.seek(0)
            while part := file.read(1 << 20):
                source.offset += len(part)
                self._take(source, part)
        return True

    def _take(self, source: Source, part: bytes) -> None:
        if self.is_plain:
            self._print(source, part)
            return
        lines, end, source.rest = (source.rest + part).rpartition(b"\n")
        if end:
            self._print(source, lines + end)

    def _print(self, source: Source, text: bytes) -> None:
        out = (sys.stdout if source.stream == "stdout" else sys.stderr).buffer
        if not self.is_plain:
            number = str(source.task if source.rank is None else source.rank).encode()
            text = b"".join(number + b": " + line for line in text.splitlines(keepends=True))
        self.wrote = self.wrote or bool(text)
        out.write(text)
        out.flush()
