"""Others who use executors, the real ones, on a real server: joblib, scikit-learn, Dask."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from headway import Client, HeadwayExecutor

pytestmark = [pytest.mark.peers, pytest.mark.timeout(300)]

CLUSTER = '[[node]]\nname = "n"\nslots = 2\n'


def needed(name: str) -> Any:
    return pytest.importorskip(name, reason=f"{name} is not installed; `make peers` installs it")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("up")
    (folder / "cluster.toml").write_text(CLUSTER)
    command = [sys.executable, "-m", "headway", "up", "--json", "--data", str(folder / "data")]
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(
            [*command, "--cluster", str(folder / "cluster.toml")], stdout=subprocess.PIPE, stderr=log, text=True
        )
    assert server.stdout is not None
    assert server.stdout.readline(), (folder / "log").read_text()
    yield folder / "data"
    server.terminate()
    server.communicate(timeout=60)


@pytest.fixture
def executor(data: Path) -> Iterator[HeadwayExecutor]:
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    with Client(data=data) as client, HeadwayExecutor(client=client) as executor:
        yield executor
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


def fails(number: int) -> int:
    if number == 7:
        raise LookupError("seven")
    return number


def where(_: int) -> int:
    time.sleep(0.02)
    return os.getpid()


def test_joblib(executor: HeadwayExecutor) -> None:
    joblib = needed("joblib")
    from headway.client.joblib import headway_backend

    with headway_backend(executor):
        squares = joblib.Parallel(batch_size=1)(joblib.delayed(pow)(number, 2) for number in range(500))
        assert squares == [number**2 for number in range(500)]
        assert joblib.effective_n_jobs() == 2
        pids = set(joblib.Parallel()(joblib.delayed(where)(number) for number in range(20)))
        assert len(pids) == 2
        assert os.getpid() not in pids
        with pytest.raises(LookupError, match="seven"):
            joblib.Parallel()(joblib.delayed(fails)(number) for number in range(100))
        found = joblib.Parallel(return_as="generator", pre_dispatch=3)(joblib.delayed(abs)(-n) for n in range(20))
        assert list(found) == list(range(20))
    with headway_backend(executor, n_jobs=1):
        assert joblib.Parallel()(joblib.delayed(abs)(-number) for number in range(5)) == list(range(5))


def test_grid_search(executor: HeadwayExecutor) -> None:
    needed("sklearn")
    from sklearn.datasets import load_iris
    from sklearn.model_selection import GridSearchCV
    from sklearn.svm import SVC

    from headway.client.joblib import headway_backend

    x, y = load_iris(return_X_y=True)
    grid = {"C": [0.1, 1, 10], "kernel": ["linear", "rbf"]}
    alone = GridSearchCV(SVC(), grid, cv=3).fit(x, y)
    with headway_backend(executor):
        spread = GridSearchCV(SVC(), grid, cv=3).fit(x, y)
    assert spread.best_params_ == alone.best_params_
    assert spread.cv_results_["mean_test_score"].tolist() == alone.cv_results_["mean_test_score"].tolist()


def test_a_dask_graph(executor: HeadwayExecutor) -> None:
    dask = needed("dask")

    def total(values: list[int]) -> int:
        return sum(values)

    squares = [dask.delayed(pow)(number, 2) for number in range(30)]
    graph = dask.delayed(total)(squares)
    assert dask.compute(graph, scheduler="processes", pool=executor) == (sum(n * n for n in range(30)),)
    with dask.config.set(scheduler="processes", pool=executor):
        pids = dask.compute(*[dask.delayed(where)(number) for number in range(10)])
    assert os.getpid() not in pids
    with pytest.raises(LookupError, match="seven"):
        dask.compute(dask.delayed(fails)(7), scheduler="processes", pool=executor)
