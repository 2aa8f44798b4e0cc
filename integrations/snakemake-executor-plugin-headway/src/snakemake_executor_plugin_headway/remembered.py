"""Which jobs of a workflow are open on the cluster, kept in the workflow's folder: Snakemake may be killed.

Snakemake itself keeps a job's number only until the job begins to run. Without it, a second run would start the job
again while the first one still writes the same files.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from headway import Client

SUBMITTED_WITHIN: Final = 600.0
"""A job that the server has from another time, in seconds, is another one with the same number."""


@dataclass(frozen=True)
class Remembered:
    """A job on the cluster.

    Attributes:
        number: its id there.
        name: its name there.
        job: which job of the workflow it is.
        log: the file with what it writes.
        submitted: when, in seconds since 1970.
    """

    number: int
    name: str
    job: str
    log: str
    submitted: float


class OpenJobs:
    """A file for each job that is open.

    Args:
        folder: where they are; made when the first job is kept.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def keep(self, job: Remembered) -> None:
        """The job was submitted."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._path(job.number).write_text(json.dumps(asdict(job)))

    def forget(self, number: int) -> None:
        """The job has ended."""
        self._path(number).unlink(missing_ok=True)

    def still_open(self, client: Client) -> dict[str, Remembered]:
        """What is still open of an earlier run, by job of the workflow; the rest is forgotten.

        Raises:
            HeadwayError: the server does not answer.
        """
        known = {job.number: job for job in self._read()}
        reports = {job.id: job for job in client.jobs(status="open")} if known else {}
        found = {}
        for number, job in known.items():
            report = reports.get(number)
            is_it = report is not None and report.name == job.name
            if report is not None and is_it and abs(report.submitted - job.submitted) < SUBMITTED_WITHIN:
                found[job.job] = job
            else:
                self.forget(number)
        return found

    def _read(self) -> Iterator[Remembered]:
        for path in self._folder.glob("*.json"):
            with suppress(ValueError, TypeError, OSError):  # it was being written when the machine went down
                yield Remembered(**json.loads(path.read_text()))

    def _path(self, number: int) -> Path:
        return self._folder / f"{number}.json"
