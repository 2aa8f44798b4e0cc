"""Which nodes the engine of Dask has: a scheduler that is played, whose workers do not answer."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("distributed", reason="it is not installed (pip install headway[dask])")

from headway.engines.base import NodeGone, Noticed
from headway.engines.dask import settings
from headway.engines.dask.engine import DaskEngine
from headway.engines.dask.settings import DaskSettings
from headway.engines.trial import Trial
from headway.errors import EngineError
from headway.model.node import NodeSpec

from ....waiting import becomes

pytestmark = pytest.mark.anyio


async def test_a_known_worker_that_never_answered_has_left_when_the_scheduler_does_not_know_it_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers, looks = {"a": ("tcp://127.0.0.1:9", 1)}, list[bool]()

    async def told(_: DaskEngine) -> dict[str, tuple[str, int]]:
        looks.append("a" in workers)
        return dict(workers)

    async def silent(*_: object, fresh: bool) -> None:
        raise EngineError("the worker of node 'a' does not answer")

    monkeypatch.setattr(settings, "_GONE_RANGE", (0.1, 1.0))
    monkeypatch.setattr(DaskEngine, "_workers", told)
    monkeypatch.setattr(DaskEngine, "_attached", silent)
    engine = DaskEngine(tmp_path / "engine", DaskSettings("tcp://127.0.0.1:8786", period=0.05, gone_after=0.1))
    async with Trial(engine) as trial:
        assert (await trial.start(NodeSpec("a", found=True))).absent == {"a"}
        assert "does not answer" in (await trial.told(Noticed)).detail
        await becomes(lambda: len(looks) >= 5)
        assert trial.unread == [], "it is there, so it has not left"
        workers.clear()
        assert (await trial.told(NodeGone)).node == "a"
