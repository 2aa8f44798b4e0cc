"""schemathesis checks that a server and a decider match their descriptions, in both formats.

It generates requests that a description allows, and others that it forbids, random ones and edge cases. It finds
answers that differ from the description. Each role is asked for, and nobody. `make schemathesis` runs these tests, in
three minutes; `SEED=2` has it ask other questions.
"""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from headway import Client, wire
from headway.private import token_of

from ..waiting import LIMIT
from .conftest import Up
from .test_decider import Process

pytestmark = [pytest.mark.schemathesis, pytest.mark.timeout(600)]

ROOT = Path(__file__).resolve().parents[2]
SEED = os.environ.get("HEADWAY_SEED", "1")


PHASES = "examples,coverage,fuzzing"

TIMES = 4 if os.environ.get("HEADWAY_EFFORT") == "slow" else 1
"""As many random requests as otherwise (`make schemathesis`)."""


REFUSED = PHASES if TIMES > 1 else "fuzzing"
"""Those for one without a token, who is refused whatever it asks."""


def asked(url: str, folder: Path, token: str, *, is_known: bool, examples: int, phases: str) -> None:
    """Check that schemathesis finds nothing.

    Args:
        token: the token for the description, which requests also carry if the caller `is_known`.
        examples: how many random requests are sent to each route, beside the edge cases.
        phases: which kinds of requests are sent.
    """
    known = {"Authorization": f"Bearer {token}"}
    description = folder / "openapi.json"
    with urllib.request.urlopen(
        urllib.request.Request(url + wire.OPENAPI.path, headers=known), timeout=LIMIT
    ) as answer:
        description.write_bytes(answer.read())
    ran = subprocess.run(
        [
            *(str(Path(sys.executable).with_name("schemathesis")), "--config-file", str(ROOT / "schemathesis.toml")),
            *("run", str(description), "--url", url, "--exclude-path", wire.SHUTDOWN.path, "--checks", "all"),
            *("--phases", phases, "--continue-on-failure"),
            *("--max-examples", str(examples), "--seed", SEED, "--request-timeout", str(LIMIT)),
            *(["--header", f"Authorization: {known['Authorization']}"] if is_known else []),
        ],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent), "SCHEMATHESIS_HOOKS": "described"},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stdout[-8000:] + ran.stderr[-2000:]


@pytest.mark.parametrize(
    ("role", "examples", "phases"),
    [
        ("administrator", 8 * TIMES, PHASES),
        *((role.value, 3 * TIMES, "fuzzing") for role in wire.Role if role is not wire.Role.ADMINISTRATOR),
        ("", 3 * TIMES, REFUSED),
    ],
)
def test_a_server_keeps_to_its_description(tmp_path: Path, role: str, examples: int, phases: str) -> None:
    up = Up(tmp_path)
    up.start()
    try:
        token = token_of(up.data / "token")
        if role not in ("", "administrator"):
            with Client(up.url, token=token) as client:
                token = client.create_token("somebody", role).token
        asked(up.url, tmp_path, token, is_known=bool(role), examples=examples, phases=phases)
        with urllib.request.urlopen(up.url + wire.HEALTH.path, timeout=LIMIT) as answer:
            assert answer.status == 200
    finally:
        up.stop()


@pytest.mark.parametrize(("is_known", "examples", "phases"), [(True, 25 * TIMES, PHASES), (False, 6 * TIMES, REFUSED)])
def test_a_decider_keeps_to_its_description(tmp_path: Path, is_known: bool, examples: int, phases: str) -> None:
    decider = Process("--token-file", str(tmp_path / "token"))
    try:
        token = token_of(tmp_path / "token")
        asked(decider.url, tmp_path, token, is_known=is_known, examples=examples, phases=phases)
    finally:
        assert decider.end() == 0
