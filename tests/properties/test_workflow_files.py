"""Files with workflows that are damaged in any way are read, or refused with an error for people."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headway.errors import HeadwayError
from headway.model.job import Workflow, flaw
from headway.traces import read_workflows

TASKS = [
    {"name": "a", "id": "a", "parents": [], "children": ["b"], "inputFiles": [], "outputFiles": ["f"]},
    {"name": "b", "id": "b", "parents": ["a"], "children": [], "inputFiles": ["f"], "outputFiles": []},
]
RUNS = [{"id": "a", "runtimeInSeconds": 1.5, "coreCount": 2}, {"id": "b", "runtimeInSeconds": 2}]
SPECIFICATION = {"tasks": TASKS, "files": [{"id": "f", "sizeInBytes": 10}]}
WFFORMAT = json.dumps(
    {"schemaVersion": "1.5", "workflow": {"specification": SPECIFICATION, "execution": {"tasks": RUNS}}}
).encode()
DAX = (
    b'<adag><job id="a" runtime="1.5"><uses file="f" link="output" size="10"/></job><job id="b" runtime="2">'
    b'<profile key="cores">2</profile><uses file="f" link="input"/></job>'
    b'<child ref="b"><parent ref="a"/></child></adag>'
)
STG = b"2\n0 0 0\n1 5 1 0\n2 4 2 0 1\n3 0 1 2\n"
FILES = {"flow.json": WFFORMAT, "flow.xml": DAX, "flow.stg": STG}

PIECES = st.one_of(
    st.binary(max_size=3),
    st.sampled_from(
        [b"-1", b"1e999", b"9" * 40, b"null", b'"', b"[", b"{}", b"<", b"&x;", b"\xff\xfe", b"b", b"a", b"0"]
    ),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("flows")


@given(st.sampled_from(sorted(FILES)), st.integers(0, 400), st.integers(0, 6), PIECES)
@example("flow.xml", 0, 0, b'<?xml version="1.0" encoding="utf-7"?>')
@example("flow.xml", 0, 0, b'<?xml version="1.0" encoding="big5"?>')
@example("flow.json", 38, 0, b"[" * 5000)
@example("flow.json", 0, 0, b"\xef\xbb\xbf")
def test_a_damaged_file_is_read_or_refused(folder: Path, name: str, place: int, gone: int, piece: bytes) -> None:
    content = FILES[name]
    place %= len(content) + 1
    (folder / name).write_bytes(content[:place] + piece + content[place + gone :])
    with suppress(HeadwayError):
        workload = read_workflows([folder / name])
        for graph in workload.workflows.values():
            assert flaw(Workflow(0, graph=graph)) is None


@given(st.sampled_from([".json", ".xml", ".stg", ".tar", ""]), st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(folder: Path, ending: str, content: bytes) -> None:
    path = folder / f"any{ending}"
    path.write_bytes(content)
    with suppress(HeadwayError):
        read_workflows([path])
