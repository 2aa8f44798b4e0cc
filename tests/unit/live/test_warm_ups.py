"""How long instances take to start, as a server measures it."""

from __future__ import annotations

from headway.live.services import WarmUps
from headway.services.terms import InstanceId


def test_each_instance_counts_once_if_it_was_launched_since_the_server_started() -> None:
    found = WarmUps(since=100)
    assert found.mean("s") == 0, "not known"
    found.add("s", InstanceId(1, 0, 1), launch=90, now=120)
    assert found.mean("s") == 0, "it was launched by the server before"
    found.add("s", InstanceId(1, 1, 1), launch=110, now=120)
    found.add("s", InstanceId(1, 1, 1), launch=110, now=500)
    assert found.mean("s") == 10, "it lost its connection and found it again"
    found.add("s", InstanceId(1, 1, 2), launch=510, now=530)
    found.add("other", InstanceId(2, 0, 1), launch=110, now=140)
    found.forget({2})
    assert (found.mean("s"), found.mean("other")) == (15, 30), "means outlive their jobs: the next one is alike"
