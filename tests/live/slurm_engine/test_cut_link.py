"""A server over Slurm when the link to a node is cut: Slurm is told by its silence, and the node goes on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway import Client, Job, Task

from ...apart import Apart
from ...slurm import CPUS, Cluster, lacking
from ...waiting import until
from ..conftest import Up
from ..dying import END, is_up, survived
from ..noting import noted

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(600)]

NEAR, FAR = "near", "far"

LONG = 25.0
"""Seconds, more than Slurm needs to give a silent node up."""


@pytest.fixture
def apart() -> Iterator[Apart]:
    if missing := lacking():
        pytest.skip(missing)
    with Apart() as apart:
        yield apart


@pytest.fixture
def slurm(apart: Apart, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    with Cluster((NEAR, FAR), apart=apart) as cluster:
        monkeypatch.setenv("SLURM_CONF", str(cluster.conf))
        yield cluster


@pytest.fixture
def up(tmp_path: Path, slurm: Cluster) -> Iterator[Up]:
    """A server with both nodes."""
    up = Up(tmp_path)
    up.start("--slurm", "main", cluster=False)
    until(lambda: is_up(up.data, NEAR) and is_up(up.data, FAR))
    yield up
    up.kill()


def cut_until_given_up(up: Up, slurm: Cluster, apart: Apart) -> None:
    """Cut the link until Slurm and the server have given the node up; it is back some seconds after that."""
    apart.cut()
    until(lambda: not is_up(up.data, FAR))
    until(lambda: "down" in slurm.state(FAR))
    apart.mend()
    until(lambda: is_up(up.data, FAR))


def test_while_a_node_is_cut_off_the_others_do_its_work(tmp_path: Path, slurm: Cluster, apart: Apart, up: Up) -> None:
    """What it has done is told by the shared folder, which the cut does not concern."""

    def cut() -> None:
        cut_until_given_up(up, slurm, apart)

    outcome = survived(up.data, [cut], tmp_path / "ran", 0.3, up.stop)
    print(outcome)
    assert outcome.tasks == 200
    assert sum(outcome.again.values()) <= CPUS, "what ran there when the link was cut"


def test_what_runs_on_a_node_when_it_is_cut_off_is_redone_elsewhere_and_counts_once(
    tmp_path: Path, slurm: Cluster, apart: Apart, up: Up
) -> None:
    """Until it sees that nobody wants it any more, it runs twice."""
    log, numbers = tmp_path / "ran", list(range(2 * CPUS))
    with Client(data=up.data) as client:
        waiter = client.submit(Job("long", [Task(noted, number, str(log), LONG) for number in numbers], retries=0))
        until(lambda: log.exists() and len(log.read_text().split()) == 2 * CPUS)
        cut_until_given_up(up, slurm, apart)
        assert waiter.result(END) == numbers
    ran = Counter(map(int, log.read_text().split()))
    assert (set(ran), sum(ran.values())) == (set(numbers), 3 * CPUS), "half of them twice"
