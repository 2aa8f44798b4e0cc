"""Real workflows in the experiments of DN13."""

from __future__ import annotations

from pathlib import Path

import pytest

from headway.model.instant import SECOND
from headway.model.job import TaskSpec
from headway.reproduce.dn13 import instances
from headway.workloads import dn13

DAX = """<adag xmlns="http://pegasus.isi.edu/schema/DAX">
  <job id="ID0" name="a" runtime="3"/>
  <job id="ID1" name="b" runtime="4"/>
  <child ref="ID1"><parent ref="ID0"/></child>
</adag>"""


def test_real_workflows_are_those_of_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "workflows" / "dax").mkdir(parents=True)
    (tmp_path / "workflows" / "dax" / "two.xml").write_text(DAX)
    monkeypatch.setenv("HEADWAY_DATA", str(tmp_path))
    folder = instances.folder_of_workflows()
    assert folder is not None
    graph = (TaskSpec(3 * SECOND), TaskSpec(4 * SECOND, 1, (0,)))
    assert instances.real_graphs(folder) == [graph]
    asked = instances.Asked(range(1), 3, kinds=(dn13.REAL,), processes=1, data=folder)
    result = instances.perform(asked, lambda done: None)
    assert "drawn from 1" in result.about
    assert {row[0] for row in result.rows} == {"real"}
    result.pictures["front.png"](tmp_path / "front.png")
    assert (tmp_path / "front.png").stat().st_size > 0, "as of generated ones"


def test_generated_workflows_replace_real_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWAY_DATA", "/nowhere")
    assert instances.folder_of_workflows() is None
    assert len(instances.real_graphs(None)) == instances.STANDINS
    asked = instances.Asked(range(1), 3, kinds=(dn13.REAL,), processes=1)
    assert "HEADWAY_DATA" in instances._about_real(asked)
