"""What `headway logs` says of a task that begins again."""

from __future__ import annotations

from typing import Any, cast

import pytest

from headway.cli.logs import STREAMS, LogReader
from headway.client.client import Client
from headway.wire import JobReport


class Silent:
    """A client and a job of one process that writes nothing."""

    width = tasks = id = 1

    def output(self, *_: Any, **__: Any) -> None:
        """Nothing has been written."""


def test_a_task_that_begins_again_is_said_once_for_all_its_streams(capsys: pytest.CaptureFixture[str]) -> None:
    reading = LogReader(cast(Client, Silent()), cast(JobReport, Silent()), None, STREAMS)
    for attempt in (1, 2, 2, 3):
        for source in reading._sources(0):
            reading._read(source, attempt)
    assert capsys.readouterr().err == "Task 0 begins again: attempt 2.\nTask 0 begins again: attempt 3.\n"
