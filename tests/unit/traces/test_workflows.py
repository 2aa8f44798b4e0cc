"""Files with workflows: WfFormat, DAX, STG, and archives of them."""

from __future__ import annotations

import copy
import csv
import gzip
import io
import json
import tarfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headway.config import uniform_cluster
from headway.errors import HeadwayError, InvalidInput, NotReadable
from headway.metrics import summarise
from headway.model.instant import SECOND
from headway.model.job import Kind, TaskSpec, Workflow, flaw
from headway.sim.experiment import run
from headway.traces import read_workflows, read_workload, workflows
from headway.traces.graphs import Graph

S = SECOND

DIAMOND: dict[str, Any] = {
    "name": "diamond",
    "schemaVersion": "1.5",
    "workflow": {
        "specification": {
            "tasks": [
                {"name": "end", "id": "end", "parents": ["left", "right"], "children": [], "inputFiles": ["l", "r"]},
                {"name": "begin", "id": "begin", "parents": [], "children": ["left"], "outputFiles": ["a", "b"]},
                {"name": "left", "id": "left", "parents": ["begin"], "children": [], "inputFiles": ["a", "b", "a"]},
                {"name": "right", "id": "right", "parents": ["begin"], "children": ["end"], "inputFiles": ["b"]},
            ],
            "files": [
                {"id": "a", "sizeInBytes": 100},
                {"id": "b", "sizeInBytes": 20},
                {"id": "l", "sizeInBytes": 7},
                {"id": "r", "sizeInBytes": 9},
            ],
        },
        "execution": {
            "makespanInSeconds": 99,
            "executedAt": "2024-01-01T00:00:00Z",
            "tasks": [
                {"id": "begin", "runtimeInSeconds": 1.5, "coreCount": 1.2, "machines": ["m"]},
                {"id": "left", "runtimeInSeconds": 2},
                {"id": "right", "runtimeInSeconds": 3},
                {"id": "end", "runtimeInSeconds": 0},
            ],
            "machines": [{"nodeName": "m", "cpu": {"coreCount": 4, "speedInMHz": 1200}}],
        },
    },
}
DIAMOND["workflow"]["specification"]["tasks"][2]["outputFiles"] = ["l"]
DIAMOND["workflow"]["specification"]["tasks"][3]["outputFiles"] = ["r"]

DIAMOND_TASKS = (
    TaskSpec(1_500_000, 2),
    TaskSpec(2 * S, 1, (0,), (120,)),
    TaskSpec(3 * S, 1, (0,), (20,)),
    TaskSpec(0, 1, (1, 2), (7, 9)),
)

DAX = """\
<?xml version="1.0" encoding="UTF-8"?>
<adag xmlns="http://pegasus.isi.edu/schema/DAX" version="3.6" name="diamond">
  <metadata key="creator">nobody</metadata>
  <child ref="end"><parent ref="left"/><parent ref="right"/></child>
  <job id="begin" name="begin" runtime="1.5">
    <profile namespace="pegasus" key="cores"> 2 </profile>
    <uses file="a" link="output" size="100"/>
    <uses name="b" link="output" size="20"><metadata key="size">1</metadata></uses>
  </job>
  <job id="left" name="work">
    <argument>-i <file name="a"/></argument>
    <profile namespace="pegasus" key="pegasus.runtime">2</profile>
    <uses file="a" link="input" size="999"/>
    <uses file="b" link="input"/>
    <uses file="l" link="output"/>
    <uses file="program" link="none" size="5"/>
  </job>
  <job id="right" name="work" runtime="3">
    <uses file="b" link="input"/>
    <uses file="r" link="output" size="9"/>
  </job>
  <job id="end" name="end" runtime="0">
    <uses file="l" link="input" size="7.0"/>
    <uses file="r" link="inout"/>
  </job>
  <child ref="left"><parent ref="begin"/></child>
  <child ref="right"><parent ref="begin"/><parent ref="begin"/></child>
</adag>
"""

STG = """\
  3
  0  0  0
  1  5  1  0   # a comment
  2  4  2  0  1

  3  2.5  1  1
  4  0  2  2  3
# Standard Task Graph Set Project
"""


@pytest.fixture
def file(tmp_path: Path) -> Callable[[str, str | bytes], Path]:
    """Write a file of this name; gzipped if the name says so."""

    def write(name: str, content: str | bytes) -> Path:
        content = content.encode() if isinstance(content, str) else content
        path = tmp_path / name
        path.write_bytes(gzip.compress(content, mtime=0) if name.endswith(".gz") else content)
        return path

    return write


Write = Callable[[str, str | bytes], Path]


def archive(**content: str | bytes) -> bytes:
    """A tar archive with these files."""
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w") as made:
        for name, text in content.items():
            text = text.encode() if isinstance(text, str) else text
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            made.addfile(entry, io.BytesIO(text))
    return whole.getvalue()


@pytest.mark.parametrize("name", ["diamond.json", "diamond.json.gz", "diamond.txt", "diamond"])
def test_wfformat_is_read_whatever_its_order_and_name(file: Write, name: str) -> None:
    workload = read_workload(file(name, json.dumps(DIAMOND)))
    assert workload.workflows == {0: DIAMOND_TASKS}
    assert workload.task_labels == {0: ("begin", "left", "right", "end")}
    assert (workload.label.tolist()[0].split(".")[0], workload.kind.tolist()) == ("diamond", [Kind.WORKFLOW])
    assert (workload.tasks.tolist(), workload.release.tolist()) == ([4], [0])
    assert workload.runtime.tolist() == [4_500_000]
    assert flaw(Workflow(0, graph=workload.workflows[0])) is None


@pytest.mark.parametrize("name", ["diamond.xml", "diamond.xml.gz", "diamond.dax", "diamond"])
def test_dax_is_read_whatever_its_order_and_name(file: Write, name: str) -> None:
    workload = read_workload(file(name, DAX))
    assert workload.workflows == {0: DIAMOND_TASKS}
    assert workload.task_labels == {0: ("begin", "left", "right", "end")}
    assert workload.label.tolist() == ["diamond"]


@pytest.mark.parametrize("name", ["graph.stg", "graph.stg.gz", "graph"])
def test_a_task_graph_is_read_without_its_dummies(file: Write, name: str) -> None:
    workload = read_workload(file(name, STG))
    assert workload.workflows == {0: (TaskSpec(5 * S), TaskSpec(4 * S, 1, (0,)), TaskSpec(2_500_000, 1, (0,)))}
    assert workload.task_labels == {0: ("1", "2", "3")}
    assert workload.runtime.tolist() == [9 * S]


def test_a_task_graph_may_have_no_dummies(file: Write) -> None:
    workload = read_workload(file("graph.stg", "2\n0 5 0\n1 4 1 0\n"))
    assert workload.workflows == {0: (TaskSpec(5 * S), TaskSpec(4 * S, 1, (0,)))}
    assert workload.task_labels == {0: ("0", "1")}


def test_files_without_sizes_carry_nothing(file: Write) -> None:
    bare = copy.deepcopy(DIAMOND)
    del bare["workflow"]["specification"]["files"]
    tasks = read_workload(file("bare.json", json.dumps(bare))).workflows[0]
    assert [task.after for task in tasks] == [task.after for task in DIAMOND_TASKS]
    assert {task.sends for task in tasks} == {()}


def test_tasks_stay_in_the_order_of_the_file_where_they_can() -> None:
    graph = Graph("x")
    for label in "edcba":
        graph.add(label, 1)
    graph.link(4, 1)
    found = graph.finish("x", lambda *_: pytest.fail("there is no circle"))
    assert found.labels == ("e", "c", "b", "a", "d")


def test_many_files_are_as_many_workflows(file: Write) -> None:
    whole = archive(
        **{"50/b.stg": STG, "50/README": "text", "a.json": json.dumps(DIAMOND), "c.xml.gz": gzip.compress(DAX.encode())}
    )
    paths = [file("a.xml", DAX), file("all.tar.gz", whole), file("plain.tar", archive(**{"a.stg": STG}))]
    workload = read_workflows(paths)
    assert workload.label.tolist() == ["a", "b", "a-2", "c", "a-3"]
    assert [len(workload.workflows[job]) for job in range(5)] == [4, 3, 4, 4, 3]
    assert workload.take(slice(1, 3)).task_labels == {0: ("1", "2", "3"), 1: ("begin", "left", "right", "end")}


def test_logs_and_tables_are_no_workflows(file: Write) -> None:
    paths = [file("a.xml", DAX), file("jobs.csv", "job,runtime\na,5\n")]
    with pytest.raises(InvalidInput, match=r"file is .*jobs.csv.*; allowed: workflows: .json, .xml, .stg"):
        read_workflows(paths)


def refused(read: Callable[[], object], place: str) -> None:
    """A reader refuses a file with this message."""
    with pytest.raises(InvalidInput) as caught:
        read()
    assert str(caught.value.args[0]).partition(": ")[2].startswith(place.strip()), str(caught.value.args[0])


SPECIFIED = "workflow.specification.tasks"
RAN = "workflow.execution.tasks"
FILES = "workflow.specification.files"


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (
            ("specification", "tasks", 0, "parents", 1),
            "rihgt",
            f"{SPECIFIED}[0].parents[1] is 'rihgt'; allowed: the id",
        ),
        (("specification", "tasks", 3, "children", 0), "x", f"{SPECIFIED}[3].children[0] is 'x'; allowed: the id of a"),
        (
            ("specification", "tasks", 3, "id"),
            "left",
            f"{SPECIFIED}[3].id is 'left'; allowed: an id that no other task",
        ),
        (("specification", "tasks", 3, "id"), "other", f"{SPECIFIED}[3].id is 'other'; allowed: a task that {RAN} has"),
        (("specification", "tasks", 3, "id"), 5, f"{SPECIFIED}[3].id is 5; allowed: expected str, got int"),
        (("specification", "tasks", 3, "parents"), None, f"{SPECIFIED}[3].parents is None; allowed: expected array"),
        (
            ("specification", "tasks", 3, "inputFiles", 0),
            "c",
            f"{SPECIFIED}[3].inputFiles[0] is 'c'; allowed: the id of",
        ),
        (("specification", "tasks"), [], f"{SPECIFIED} is []; allowed: one task or more"),
        (("specification", "tasks"), 7, f"{SPECIFIED} is 7; allowed: expected array, got int"),
        (("specification", "files", 2, "sizeInBytes"), -7, f"{FILES}[2].sizeInBytes is -7; allowed: a whole number of"),
        (
            ("specification", "files", 2, "sizeInBytes"),
            0.5,
            f"{FILES}[2].sizeInBytes is 0.5; allowed: a whole number of",
        ),
        (("specification", "files", 2, "sizeInBytes"), 10**30, f"{FILES}[2].sizeInBytes is {10**30}; allowed: a whole"),
        (("specification", "files", 2, "id"), "a", f"{FILES}[2].id is 'a'; allowed: an id that no other file has"),
        (("execution", "tasks", 1, "runtimeInSeconds"), -2, f"{RAN}[1].runtimeInSeconds is -2.0; allowed: seconds, 0"),
        (
            ("execution", "tasks", 1, "runtimeInSeconds"),
            None,
            f"{RAN}[1].runtimeInSeconds is None; allowed: seconds, 0",
        ),
        (("execution", "tasks", 1, "runtimeInSeconds"), "2", f"{RAN}[1].runtimeInSeconds is '2'; allowed: expected"),
        (
            ("execution", "tasks", 1, "runtimeInSeconds"),
            1e300,
            f"{RAN}[1].runtimeInSeconds is 1e+300; allowed: seconds",
        ),
        (("execution", "tasks", 1, "id"), "begin", f"{RAN}[1].id is 'begin'; allowed: an id that no other task has"),
        (("execution", "tasks", 0, "coreCount"), 0, f"{RAN}[0].coreCount is 0.0; allowed: a number from 1 to"),
        (("execution", "tasks", 0, "coreCount"), 1e9, f"{RAN}[0].coreCount is 1000000000.0; allowed: a number from 1"),
        (("execution",), None, f"{SPECIFIED}[0].id is 'end'; allowed: a task that {RAN} has, too"),
        (("specification",), None, "workflow.specification is None; allowed: expected object, got null"),
    ],
)
def test_wfformat_that_is_wrong_is_refused_with_its_place(file: Write, path: Any, value: Any, said: str) -> None:
    wrong = copy.deepcopy(DIAMOND)
    place = wrong["workflow"]
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    refused(lambda: read_workload(file("wrong.json", json.dumps(wrong))), said)


def test_a_similar_id_is_offered(file: Write) -> None:
    wrong = copy.deepcopy(DIAMOND)
    wrong["workflow"]["specification"]["tasks"][0]["parents"] = ["rihgt"]
    with pytest.raises(InvalidInput) as caught:
        read_workload(file("wrong.json", json.dumps(wrong)))
    assert caught.value.hint == "Did you mean right?"
    with pytest.raises(InvalidInput) as caught:
        read_workload(file("wrong.xml", DAX.replace('<parent ref="right"/>', '<parent ref="rihgt"/>')))
    assert caught.value.hint == "Did you mean right?"


def test_tasks_that_wait_for_each_other_are_named(file: Write) -> None:
    wrong = copy.deepcopy(DIAMOND)
    wrong["workflow"]["specification"]["tasks"][1]["parents"] = ["end"]
    said = f"{SPECIFIED}[0].parents is 'end after left after begin after end'; allowed: tasks that do not wait for it"
    refused(lambda: read_workload(file("circle.json", json.dumps(wrong))), said)
    wrong["workflow"]["specification"]["tasks"][1]["parents"] = ["begin"]
    refused(
        lambda: read_workload(file("circle.json", json.dumps(wrong))),
        f"{SPECIFIED}[1].parents is 'begin after begin'; allowed: tasks that do not wait for it",
    )
    xml = DAX.replace("</adag>", '<child ref="begin">\n<parent ref="end"/></child></adag>')
    with pytest.raises(
        InvalidInput, match=r"circle.xml:\d+: parents of job .* is '.* after .* after .*'; allowed: jobs"
    ):
        read_workload(file("circle.xml", xml))
    stg = STG.replace("1  5  1  0 ", "1  5  1  2 ")
    with pytest.raises(
        InvalidInput, match=r"circle.stg:3: what task 1 waits for is '1 after 2 after 1'; allowed: tasks"
    ):
        read_workload(file("circle.stg", stg))


def test_a_long_circle_is_cut() -> None:
    graph = Graph("x")
    for number in range(20):
        graph.add(str(number), 1)
        graph.link((number + 1) % 20 if number else 1, number)
    graph.link(0, 19)
    with pytest.raises(InvalidInput) as caught:
        graph.finish("x", lambda position, way: InvalidInput(graph.label(position), way, ""))
    assert caught.value.value == "0 after 1 after 2 after 3 after ... after 18 after 19 after 0"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b'{"schemaVersion": "1.5",\n "workflow": {\n', "JSON is "),
        (b'{"schemaVersion": "1.5", "workflow": ' + b"[" * 100_000, "JSON is "),
        (b'{"schemaVersion": "1.4", "workflow": {"tasks": []}}', "schemaVersion is '1.4'; allowed: 1.5 or 1.6"),
        (b'{"schemaVersion": 2, "workflow": {}}', "schemaVersion is 2; allowed: 1.5 or 1.6"),
        (b'{"schemaVersion": "1.5"}', "workflow is None; allowed: expected object, got null"),
    ],
)
def test_json_that_is_no_workflow_is_refused(file: Write, content: bytes, said: str) -> None:
    with pytest.raises(InvalidInput, match=rf"wrong.json[:\d]*: {said}"):
        read_workload(file("wrong.json", content))


def test_malformed_json_is_refused_with_its_line(file: Write) -> None:
    with pytest.raises(InvalidInput, match=r"wrong.json:3: JSON is 'invalid character'; allowed: well-formed JSON"):
        read_workload(file("wrong.json", b'{"schemaVersion": "1.5",\n"name": 5,\n"workflow": oh}\n'))


BOMB = """<?xml version="1.0"?>
<!DOCTYPE adag [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;"><!ENTITY c "&b;&b;&b;&b;&b;&b;">]>
<adag><job id="&c;" runtime="1"/></adag>
"""
OUTSIDE = """<?xml version="1.0"?>
<!DOCTYPE adag SYSTEM "file:///etc/passwd">
<adag><job id="a" runtime="1"/></adag>
"""


@pytest.mark.parametrize("content", [BOMB, OUTSIDE])
def test_xml_may_declare_nothing(file: Write, content: str) -> None:
    with pytest.raises(
        InvalidInput, match=r"bomb.xml:2: document type is 'adag'; allowed: none, because it could decla"
    ):
        read_workload(file("bomb.xml", content))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            '<parent ref="left"/>',
            '<parent ref="nobody"/>',
            "4: parent of job end is 'nobody'; allowed: the id of a job",
        ),
        ('<child ref="left">', '<child ref="nobody">', "26: child is 'nobody'; allowed: the id of a job"),
        ('<child ref="left">', "<child>", "26: ref of child is ''; allowed: the id of a job"),
        ('<parent ref="left"/>', "<parent/>", "4: ref of parent is ''; allowed: the id of a job"),
        (
            '<child ref="left"><parent ref="begin"/></child>',
            '<parent ref="begin"/>',
            "26: parent is 'begin'; allowed: a",
        ),
        ('id="right"', 'id="left"', "18: id of job is 'left'; allowed: an id that no other job has"),
        ('id="right"', "", "18: id of job is ''; allowed: an id that no other job has"),
        ('runtime="3"', 'runtime="-3"', "21: runtime of job right is '-3'; allowed: seconds, 0 to"),
        ('runtime="3"', 'runtime="nan"', "21: runtime of job right is 'nan'; allowed: seconds, 0 to"),
        ('runtime="3"', "", "21: runtime of job right is None; allowed: seconds, 0 to"),
        ("> 2 <", "> 0 <", "9: cores of job begin is '0'; allowed: a number from 1 to"),
        ("> 2 <", "> many <", "9: cores of job begin is 'many'; allowed: a number from 1 to"),
        ('size="9"', 'size="-9"', "20: size of file r is '-9'; allowed: a whole number of bytes, 0 to"),
        ('size="9"', 'size="nine"', "20: size of file r is 'nine'; allowed: a whole number of bytes, 0 to"),
        ('link="inout"', 'link="inputs"', "24: link of file r is 'inputs'; allowed: input, output, inout, none, check"),
        ('file="r" link="inout"', 'link="inout"', "24: file that a job uses is ''; allowed: a name, as attribute file"),
        ("</job>\n  <child", "</jobs>\n  <child", "25: XML is 'mismatched tag'; allowed: well-formed XML"),
        ("</adag>", "", "29: XML is 'no element found'; allowed: well-formed XML"),
        ('<job id="left"', '<job id="x"><job id="left"', "10: job is 'left'; allowed: a job that is part of no other"),
    ],
)
def test_dax_that_is_wrong_is_refused_with_its_line(file: Write, old: str, new: str, said: str) -> None:
    assert old in DAX
    path = file("wrong.xml", DAX.replace(old, new))
    with pytest.raises(InvalidInput) as caught:
        read_workload(path)
    assert str(caught.value.args[0]).startswith(f"{path}:{said}"), caught.value.args[0]


def test_dax_without_jobs_is_refused(file: Write) -> None:
    with pytest.raises(InvalidInput, match=r"empty.xml: number of jobs is 0; allowed: 1 or more"):
        read_workload(file("empty.xml", "<adag/>"))


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("page.xml", "<html><body/></html>", "XML or HTML"),
        ("page.xml", "<!doctype HTML><p>", "XML or HTML"),
        ("page", "<", "XML or HTML"),
        ("data.json", '{"workflow": {}}', "JSON"),
        ("all.tar", archive(**{"log.swf": "", ".a.stg": STG}), "a tar archive without workflows (.json, .xml, .stg)"),
    ],
)
def test_what_is_no_workflow_is_said_to_be_so(file: Write, name: str, content: str | bytes, kind: str) -> None:
    path = file(name, content)
    with pytest.raises(NotReadable) as caught:
        read_workload(path)
    assert caught.value.args[0] == f"{path} is {kind}, which cannot be read"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("  3\n", "  3 4\n", ":1: number of tasks is '3 4'; allowed: a whole number from 1 to"),
        ("  3\n", "  0\n", ":1: number of tasks is '0'; allowed: a whole number from 1 to"),
        ("  3\n", "  2\n", ":7: task is '4'; allowed: 2 tasks, and two dummies"),
        ("  3\n", "  4\n", ": number of tasks is 5; allowed: 4, or with dummies 6"),
        ("  2  4  2", "  3  4  2", ":4: number of the task is '3'; allowed: 2: tasks are numbered from 0, in order"),
        ("  1  5", "  1  -5", ":3: processing time is '-5'; allowed: seconds, 0 to"),
        ("  1  5", "  1  x", ":3: processing time is 'x'; allowed: seconds, 0 to"),
        ("  2  4  2", "  2  4  3", ":4: how many tasks it waits for is '3'; allowed: 2, as many as the line names"),
        ("2  0  1\n", "2  0  9\n", ":4: what task 2 waits for is '9'; allowed: numbers of tasks, 0 to 4"),
        ("2  0  1\n", "2  0  4\n", ":4: what task 2 waits for is 4; allowed: numbers of tasks, 0 to 3"),
        ("  4  0  2", "  4  1  2", ":7: processing time of task 4 is 1.0; allowed: 0, because it is a dummy"),
        ("  0  0  0", "  0  0  1 1", ":2: what task 0 waits for is 1; allowed: none, because it is a dummy"),
        ("  0  0  0", "  0  0", ":2: number of fields is 2; allowed: 3 or more"),
    ],
)
def test_a_task_graph_that_is_wrong_is_refused_with_its_line(file: Write, old: str, new: str, said: str) -> None:
    assert old in STG
    path = file("wrong.stg", STG.replace(old, new, 1))
    with pytest.raises(InvalidInput) as caught:
        read_workload(path)
    assert str(caught.value.args[0]).startswith(f"{path}{said}"), caught.value.args[0]


def test_an_empty_task_graph_is_refused(file: Write) -> None:
    with pytest.raises(InvalidInput, match=r"empty.stg:1: number of tasks is ''; allowed: a whole number"):
        read_workload(file("empty.stg", "# nothing\n"))


@pytest.mark.parametrize("name", ["diamond.json.gz", "diamond.xml.gz", "diamond.stg.gz", "diamond.tar.gz"])
def test_a_broken_gzip_file_is_refused(file: Write, name: str) -> None:
    content = {"json": json.dumps(DIAMOND), "xml": DAX, "stg": STG, "tar": archive(**{"a.stg": STG})}
    path = file(name, content[name.split(".")[1]])
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(HeadwayError, match="is not a whole gzip file"):
        read_workload(path)


def test_a_broken_archive_is_refused(file: Write) -> None:
    with pytest.raises(HeadwayError, match=r"a\.tar is not a whole tar archive"):
        read_workload(file("a.tar", archive(**{"a.stg": STG})[:600]))


def test_an_error_in_an_archive_names_the_file_there(file: Write) -> None:
    path = file("all.tar.gz", archive(**{"good.stg": STG, "50/bad.stg": STG.replace("  3\n", "  x\n")}))
    with pytest.raises(InvalidInput, match=rf"{path}/50/bad.stg:1: number of tasks is 'x'"):
        read_workload(path)


@pytest.mark.parametrize("name", ["a.json.gz", "a.xml.gz", "a.stg.gz", "a.tar.gz"])
def test_a_file_that_decompresses_to_too_much_is_refused(
    file: Write, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workflows, "FILE_MAX", 1 << 20)
    begins = {"json": b'{"schemaVersion": "1.5"', "xml": b"<adag>", "stg": b"3\n", "tar": b""}
    content = begins[name.split(".")[1]] + b" " * (40 << 20)
    if name == "a.tar.gz":
        content = archive(**{"a.stg": content})
    path = file(name, content)
    del content
    tracemalloc.start()
    with pytest.raises(HeadwayError, match="has more than 1,048,576 bytes"):
        read_workload(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 << 20


def test_too_many_tasks_are_refused(file: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workflows, "FILE_TASKS_MAX", 6)
    assert len(read_workflows([file("a.stg", STG)] * 2)) == 2
    with pytest.raises(HeadwayError, match="the workflows have more than 6 tasks in all"):
        read_workflows([file("a.stg", STG)] * 3)


def test_a_hundred_thousand_tasks_are_accepted(file: Write) -> None:
    tasks = 100_000
    rows = [f"{number} {number % 7} 1 {number // 2}" for number in range(1, tasks)]
    workload = read_workload(file("large.stg", "\n".join([str(tasks), "0 0 0", *rows])))
    assert workload.tasks.tolist() == [tasks]
    assert workload.workflows[0][-1].after == ((tasks - 1) // 2,)


def test_a_task_wider_than_every_node_is_named(file: Write) -> None:
    workload = read_workload(file("diamond.json", json.dumps(DIAMOND)))
    with pytest.raises(
        InvalidInput, match="job diamond: cores of task begin is 2; allowed: at most 1, those of the largest node"
    ):
        run(workload, uniform_cluster(1), "easy")


def test_the_makespan_of_a_workflow_is_that_of_its_last_task(file: Write) -> None:
    workload = read_workload(file("diamond.json", json.dumps(DIAMOND)))
    for slots, makespan in ((4, 4.5), (2, 4.5)):
        for policy in ("easy", "fcfs", "heft"):
            assert summarise(run(workload, uniform_cluster(slots), policy))["makespan"] == makespan, policy


# The README of the data says how many tasks, edges and seconds these have.
KNOWN = {
    "1000genome-chameleon-22ch-250k-001": (902, 1166, 53_409.6, 314.0),
    "airrflow-dirt02-001": (212, 327, 3_329.9, 438.1),
    "blast-chameleon-small-001": (43, 120, 382.9, 10.4),
    "helloworld-forkjoin-10-chameleon": (10, 16, 1_028.7, 307.4),
    "montage-chameleon-2mass-05d-001": (1738, 4698, 8_694.7, 102.4),
    "soykb-chameleon-50fastq-20ch-001": (676, 1674, 118_736.1, 38_628.1),
    "CyberShake_1000": (1000, 1988, 22_751.9, 255.1),
    "HEFT_paper": (10, 15, 127.0, 66.0),
    "Montage_25": (25, 45, 227.8, 46.5),
    "Sipht_100": (97, 109, 17_379.7, 4_475.0),
}


def test_all_public_workflows_are_read(shared_data: Callable[[str], Path]) -> None:
    folder = shared_data("workflows")
    paths = [path for kind in ("wfinstances", "dax") for path in sorted((folder / kind).iterdir())]
    workload = read_workflows([*paths, folder / "stg" / "stg-rnc50.tar.gz"])
    assert (len(paths), len(workload)) == (39, 219)
    for job, tasks in workload.workflows.items():
        assert flaw(Workflow(0, graph=tasks)) is None
        known = KNOWN.get(str(workload.label[job]))
        if known is not None:
            edges, work = sum(len(task.after) for task in tasks), sum(task.estimate for task in tasks) / S
            assert (len(tasks), edges) == known[:2]
            assert (work, workload.runtime[job] / S) == pytest.approx(known[2:], abs=0.051)
    assert {len(workload.workflows[job]) for job in range(39, 219)} == {50}


@pytest.mark.long
def test_no_schedule_is_shorter_than_the_known_optimum(shared_data: Callable[[str], Path]) -> None:
    folder = shared_data("workflows") / "stg"
    graphs = read_workload(folder / "stg-rnc50.tar.gz").take(slice(0, 20))
    with (folder / "stg-rnc50-opt-m4.csv").open(newline="") as rows:
        best = {Path(row[0]).stem: float(row[-1]) for row in csv.reader(rows) if row[0].endswith(".stg")}
    for job in range(len(graphs)):
        found = summarise(run(graphs.take(slice(job, job + 1)), uniform_cluster(4), "fcfs"))["makespan"]
        assert best[str(graphs.label[job])] <= found < 1.5 * best[str(graphs.label[job])]
