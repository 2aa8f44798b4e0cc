"""Functions that are called as an account that cannot read the code of Python or Headway."""

from __future__ import annotations

import os

import pytest
from msgspec import structs

from headway.engines.local.shared.frames import CallFrame
from headway.engines.local.shared.terms import Account, Terms
from headway.engines.local.slot import calls

PLAIN = Terms("n", "/data/engine/nodes/n", "/data/engine/output", "/data/engine", 1, 60.0, 1 << 20)
OF_ANN = structs.replace(PLAIN, account=Account("ann", 1001, 1001, (1001,), "/home/ann", "/bin/sh"))


def test_the_task_is_refused_and_says_what_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda file, mode: file != os.__file__)
    said = calls.placed(CallFrame(0), OF_ANN)
    assert said.startswith(f"account 'ann' cannot read {os.__file__}, which functions need on node 'n'")
    assert "install Python and Headway where it can" in said


def test_who_can_read_them_calls_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    assert calls.placed(CallFrame(0), OF_ANN) == ""
    monkeypatch.setattr(os, "access", lambda file, mode: False)
    assert calls.placed(CallFrame(0), PLAIN) == "", "as the server, whose code this is"
