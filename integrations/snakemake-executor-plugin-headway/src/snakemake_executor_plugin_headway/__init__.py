"""Snakemake's jobs on a Headway cluster: `snakemake --executor headway`."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo
from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor
from snakemake_interface_executor_plugins.jobs import JobExecutorInterface
from snakemake_interface_executor_plugins.settings import CommonSettings, ExecutorSettingsBase

from headway import Client, HeadwayError, Job, Task, TaskFailed, Waiter
from headway.times import when_of
from snakemake_executor_plugin_headway.remembered import OpenJobs, Remembered
from snakemake_executor_plugin_headway.terms import environment, name_of, slots_of, terms_of

__all__ = ["Executor", "ExecutorSettings", "common_settings"]

LOGS: Final = Path(".snakemake", "headway_logs")
OPEN: Final = Path(".snakemake", "headway_jobs")

LOOK_SECONDS: Final = 0.2
"""How often the plugin looks for ended jobs. This sends no request: the server tells the client of each end."""

PATIENCE_SECONDS: Final = 600.0
"""So long a server may be away, to be updated or after a crash, before jobs count as failed."""

CANCEL_SECONDS: Final = 10.0
"""How long ctrl-c waits for a server that does not answer."""

_INTO_LOG: Final = 'exec "$0" >"$1" 2>&1'


@dataclass
class ExecutorSettings(ExecutorSettingsBase):
    """The options, as `--headway-NAME`."""

    due: str | None = field(
        default=None,
        metadata={
            "help": "Due date of every job that has none of its own: 18:00, tomorrow 6:00, or 2h, which counts from "
            "the start of the workflow.",
            "type": str,
            "metavar": "WHEN",
        },
    )
    data: Path | None = field(
        default=None,
        metadata={
            "help": "Data directory of the server; default $HEADWAY_DATA_DIR, else ~/.local/share/headway.",
            "metavar": "DIR",
            "type": Path,
        },
    )
    url: str | None = field(
        default=None,
        metadata={
            "help": "URL of the server; default $HEADWAY_URL, else that in the data directory.",
            "type": str,
            "metavar": "URL",
        },
    )
    env: str | None = field(
        default=None,
        metadata={
            "help": "Names of more variables of this environment that jobs get, with commas between them.",
            "type": str,
            "metavar": "NAME,...",
        },
    )


common_settings = CommonSettings(
    non_local_exec=True,
    implies_no_shared_fs=False,
    job_deploy_sources=False,
    pass_default_storage_provider_args=True,
    pass_default_resources_args=True,
    pass_envvar_declarations_to_cmd=False,  # jobs get them as variables, where no list of processes shows them
    auto_deploy_default_storage_provider=False,
    init_seconds_before_status_checks=0,
    pass_group_args=True,
)


class Executor(RemoteExecutor):
    """Submits each Snakemake job as a Headway job with one task, and reports its end."""

    def __post_init__(self) -> None:
        settings: ExecutorSettings = self.workflow.executor_settings
        self._started = time.time()
        self._workdir = Path(self.workflow.workdir_init)
        self._logs = self._workdir / LOGS / time.strftime("%Y-%m-%dT%H%M%S", time.localtime(self._started))
        self._open: dict[int, SubmittedJobInfo] = {}
        self._remembered = OpenJobs(self._workdir / OPEN)
        self.next_seconds_between_status_checks = LOOK_SECONDS
        try:
            self._due = None if settings.due is None else when_of(settings.due, "--headway-due", self._started)
            self._env = {**environment(_names(settings.env)), **self.envvars()}
            self._client = Client(settings.url, data=settings.data, patience=PATIENCE_SECONDS)
            self._earlier = self._remembered.still_open(self._client)
        except HeadwayError as error:
            raise WorkflowError(_said(error)) from error

    def run_job(self, job: JobExecutorInterface) -> None:
        """Submit a job, or take up the one that an earlier run of Snakemake submitted for it."""
        info = SubmittedJobInfo(job)
        try:
            waiter, log = self._taken_up(job) or self._submitted(job)
        except HeadwayError as error:
            self.report_job_error(info, msg=f"Headway does not accept the job: {_said(error)} ")
            return
        info.external_jobid, info.aux = str(waiter.job), {"waiter": waiter, "log": log}
        self._open[waiter.job] = info
        self.report_job_submission(info)

    def _submitted(self, job: JobExecutorInterface) -> tuple[Waiter, str]:
        script = self.get_jobscript(job)
        self.write_jobscript(job, script)
        self._logs.mkdir(parents=True, exist_ok=True)
        log = str(self._logs / f"{Path(script).name.removesuffix('.sh')}.{job.attempt}.log")
        task = Task.command("/bin/sh", "-c", _INTO_LOG, script, log, cwd=self._workdir)
        task.cores = slots_of(job)
        now, name = time.time(), name_of(job, self._workdir.name)
        terms = terms_of(job, started=self._started, now=now, due=self._due)
        waiter = self._client.submit(Job(name, [task], env=self._env, **terms))
        self._remembered.keep(Remembered(waiter.job, name, _which(job), log, now))
        self.logger.info(f"Job {job.jobid} is job {waiter.job} of Headway.")
        return waiter, log

    def _taken_up(self, job: JobExecutorInterface) -> tuple[Waiter, str] | None:
        earlier = self._earlier.pop(_which(job), None)
        if earlier is None:
            return None
        waiter = self._client.attach(earlier.number)
        self.logger.info(f"Job {job.jobid} is job {waiter.job} of Headway, from an earlier run.")
        return waiter, earlier.log

    async def check_active_jobs(self, active_jobs: list[SubmittedJobInfo]) -> AsyncGenerator[SubmittedJobInfo, None]:
        """Report the jobs that have ended."""
        for info in active_jobs:
            waiter: Waiter = info.aux["waiter"]
            if not waiter.done():
                yield info
                continue
            self._open.pop(waiter.job, None)
            self._remembered.forget(waiter.job)
            error = None if waiter.cancelled() else waiter.exception()
            if waiter.cancelled():
                self._failed(info, "it was cancelled")
            elif error is not None:
                self._failed(info, _ending(error))
            else:
                self.report_job_success(info)

    def _failed(self, info: SubmittedJobInfo, why: str) -> None:
        self.report_job_error(info, msg=f"Job {info.external_jobid} of Headway: {why}. ", aux_logs=[info.aux["log"]])

    def cancel_jobs(self, active_jobs: list[SubmittedJobInfo]) -> None:
        """Cancel all jobs that wait or run, also those being looked at: Snakemake has given up the workflow."""
        numbers = sorted({*self._open, *(info.aux["waiter"].job for info in active_jobs)})
        if not numbers:
            return
        settings: ExecutorSettings = self.workflow.executor_settings
        try:
            with Client(settings.url, data=settings.data, patience=CANCEL_SECONDS) as client:
                client.cancel(*numbers)
        except HeadwayError as error:
            named = " ".join(map(str, numbers))
            self.logger.error(f"Jobs were not cancelled: {_said(error)} `headway cancel {named}` does it.")
            return
        for number in numbers:
            self._remembered.forget(number)

    def shutdown(self) -> None:
        """Look no more, and leave the server."""
        super().shutdown()
        self._client.close()

    def get_job_exec_prefix(self, job: JobExecutorInterface) -> str:
        """The client sets the working directory."""
        return ""


def _which(job: JobExecutorInterface) -> str:
    """Which job of the workflow it is, also in another run."""
    return "; ".join(sorted(map(str, job.get_target_spec())))


def _names(text: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in (text or "").split(",") if name.strip())


def _ending(error: BaseException) -> str:
    """Why a job failed, in words."""
    ending: Any = error.ending if isinstance(error, TaskFailed) else None
    return _said(error) if ending is None else ending.detail or ending.outcome.value


def _said(error: BaseException) -> str:
    hint = getattr(error, "hint", "")
    return f"{error.args[0] if error.args else error}{f' {hint}' if hint else ''}"
