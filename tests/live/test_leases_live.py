"""A real executor whose process dies, and one that lives on, under a lease of two seconds."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from headway.client.client import Client
from headway.client.executor import HeadwayExecutor
from headway.model.actions import JobStatus

from ..waiting import LIMIT, until
from .conftest import ONE_NODE, Up

CALLS = """\
import sys, time
from headway.client.client import Client
from headway.client.executor import HeadwayExecutor
client = Client(data=sys.argv[1])
executor = HeadwayExecutor(client, name="call")
executor.submit(time.sleep, 600)
while "call" not in [job.name for job in client.jobs(status="running")]:
    time.sleep(0.05)
print("runs", flush=True)
time.sleep(600)
"""


@pytest.mark.thorough
def test_calls_end_with_their_client_and_nothing_else_does(tmp_path: Path) -> None:
    up = Up(tmp_path, ONE_NODE)
    up.start("--call-lease", "2s")
    try:
        with Client(data=up.data) as client, HeadwayExecutor(client, name="alive") as executor:
            alive = executor.submit(time.sleep, 6)
            with subprocess.Popen([sys.executable, "-c", CALLS, up.data], stdout=subprocess.PIPE, text=True) as process:
                assert process.stdout is not None
                assert process.stdout.readline() == "runs\n"
                process.kill()
            [call] = [job.id for job in client.jobs() if job.name == "call"]
            until(lambda: client.job(call).job.status is JobStatus.CANCELLED)
            assert alive.result(timeout=LIMIT) is None
            assert [job.status.value for job in client.jobs() if job.name == "alive"] == ["succeeded"]
            [told] = [one for one in client.incidents() if one.kind == "client_lost"]
            assert "has not been heard of for 2 s" in told.detail
    finally:
        up.stop()
