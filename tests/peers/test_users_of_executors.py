"""Real programs that use executors, on a real server: joblib, scikit-learn, Dask."""

from __future__ import annotations

import importlib
import os
import sqlite3
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from headway import Client, HeadwayError, HeadwayExecutor

from ..waiting import until

pytestmark = [pytest.mark.peers, pytest.mark.timeout(300)]


def needed(name: str) -> Any:
    return pytest.importorskip(name, reason=f"{name} is not installed; `make peers` installs it")


@pytest.fixture(scope="module", autouse=True)
def _sent_by_value() -> Iterator[None]:
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    yield
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


@pytest.fixture
def executor(data: Path) -> Iterator[HeadwayExecutor]:
    with Client(data=data) as client, HeadwayExecutor(client=client) as executor:
        yield executor


def fails(number: int) -> int:
    if number == 7:
        raise LookupError("seven")
    return number


def where(_: int) -> int:
    time.sleep(0.02)
    return os.getpid()


def sleeps(_: int) -> None:
    time.sleep(600)


def fails_or_sleeps(number: int) -> None:
    if number == 0:
        raise LookupError("zero")
    sleeps(number)


def inner(number: int) -> int:
    import joblib

    return int(sum(joblib.Parallel(n_jobs=2)(joblib.delayed(abs)(-n) for n in range(number))))


@pytest.fixture
def joblib(data: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """joblib with the backend registered. It finds the server as it does for users."""
    joblib = needed("joblib")
    importlib.import_module("headway.joblib")
    monkeypatch.setenv("HEADWAY_DATA_DIR", str(data))
    return joblib


@pytest.mark.thorough
def test_joblib(joblib: Any) -> None:
    with joblib.parallel_config(backend="headway"):
        squares = joblib.Parallel(batch_size=1)(joblib.delayed(pow)(number, 2) for number in range(500))
        assert squares == [number**2 for number in range(500)]
        assert joblib.effective_n_jobs() == joblib.effective_n_jobs(-1) == joblib.effective_n_jobs(7) == 2
        assert joblib.effective_n_jobs(-2) == joblib.effective_n_jobs(-9) == joblib.effective_n_jobs(1) == 1
        pids = set(joblib.Parallel()(joblib.delayed(where)(number) for number in range(20)))
        assert len(pids) == 2
        assert os.getpid() not in pids
        with pytest.raises(LookupError, match="seven"):
            joblib.Parallel()(joblib.delayed(fails)(number) for number in range(100))
        found = joblib.Parallel(return_as="generator", pre_dispatch=3)(joblib.delayed(abs)(-n) for n in range(20))
        assert list(found) == list(range(20))
        assert joblib.Parallel()(joblib.delayed(inner)(number) for number in range(4)) == [0, 0, 1, 3]
    with joblib.parallel_config(backend="headway", n_jobs=1):
        assert joblib.Parallel()(joblib.delayed(abs)(-number) for number in range(5)) == list(range(5))
    pids = set(joblib.Parallel(backend="headway")(joblib.delayed(where)(number) for number in range(20)))
    assert os.getpid() not in pids


def test_terms_of_jobs_for_joblib(joblib: Any, data: Path, executor: HeadwayExecutor) -> None:
    with Client(data=data) as client:
        before = max((job.id for job in client.jobs()), default=0)
        with joblib.parallel_config(backend="headway", client=client, priority=7, due=600):
            joblib.Parallel()(joblib.delayed(abs)(number) for number in range(5))
        with joblib.parallel_config(backend="headway", executor=executor):
            joblib.Parallel()(joblib.delayed(abs)(number) for number in range(5))
        found = [job for job in client.jobs() if job.id > before]
    ours = [job for job in found if job.name == "joblib"]
    assert ours
    assert all(job.priority == 7 and job.due is not None for job in ours)
    assert [job for job in found if job.name == "executor"]


def test_wrong_terms_for_joblib(joblib: Any, executor: HeadwayExecutor) -> None:
    with pytest.raises(TypeError, match="prioritty"):
        joblib.parallel_config(backend="headway", prioritty=7)
    with pytest.raises(TypeError, match=r"due: the executor has its terms; give them to HeadwayExecutor"):
        joblib.parallel_config(backend="headway", executor=executor, due=7)
    with pytest.raises(TypeError, match=r"due.*give terms of the jobs to joblib.parallel_config"):
        joblib.Parallel(backend="headway", due=7)(joblib.delayed(abs)(number) for number in range(5))


def test_joblib_without_a_server(joblib: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWAY_DATA_DIR", str(tmp_path))
    with pytest.raises(HeadwayError, match="server"):
        joblib.parallel_config(backend="headway")


def test_what_joblib_gives_up_frees_its_slots(joblib: Any, data: Path) -> None:
    with Client(data=data) as client:
        with (
            joblib.parallel_config(backend="headway", client=client, name="given up"),
            pytest.raises(LookupError, match="zero"),
        ):
            joblib.Parallel(batch_size=1)(joblib.delayed(fails_or_sleeps)(number) for number in range(10))
        until(lambda: not [job for job in client.jobs(status="open") if job.name == "given up"])


def test_all_calls_of_joblib_are_of_one_function(joblib: Any, data: Path) -> None:
    """Otherwise each call's own function would be stored, sent to the slots and unpickled there."""
    with sqlite3.connect(data / "journal.sqlite") as journal, joblib.parallel_config(backend="headway"):
        names = "SELECT count(*) FROM blobs"
        before = journal.execute(names).fetchone()[0]
        joblib.Parallel(batch_size=1)(joblib.delayed(pow)(number, 3) for number in range(100))
        assert journal.execute(names).fetchone()[0] <= before + 1
    journal.close()


def test_grid_search(joblib: Any) -> None:
    needed("sklearn")
    from sklearn.datasets import load_iris
    from sklearn.model_selection import GridSearchCV
    from sklearn.svm import SVC

    x, y = load_iris(return_X_y=True)
    grid = {"C": [0.1, 1, 10], "kernel": ["linear", "rbf"]}
    alone = GridSearchCV(SVC(), grid, cv=3).fit(x, y)
    with joblib.parallel_config(backend="headway"):
        spread = GridSearchCV(SVC(), grid, cv=3).fit(x, y)
    assert spread.best_params_ == alone.best_params_
    assert spread.cv_results_["mean_test_score"].tolist() == alone.cv_results_["mean_test_score"].tolist()


def test_a_forest(joblib: Any) -> None:
    """It prefers threads when it is fitted, and requires shared memory when it predicts."""
    needed("sklearn")
    from sklearn.datasets import load_iris
    from sklearn.ensemble import RandomForestClassifier

    x, y = load_iris(return_X_y=True)
    alone = RandomForestClassifier(n_estimators=20, random_state=1).fit(x, y)
    with joblib.parallel_config(backend="headway"):
        spread = RandomForestClassifier(n_estimators=20, random_state=1).fit(x, y)
        assert spread.predict_proba(x).tolist() == alone.predict_proba(x).tolist()


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
