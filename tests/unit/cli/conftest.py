"""Run commands as the shell does, in this process."""

from __future__ import annotations

import pytest

from ...commands import Headway, running_here


@pytest.fixture
def headway(capfd: pytest.CaptureFixture[str]) -> Headway:
    """Run `headway WORD...`. Returns its status and what it printed."""
    return running_here(capfd)
