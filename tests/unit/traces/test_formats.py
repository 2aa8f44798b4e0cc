"""Files that are in no format that can be read."""

from __future__ import annotations

import gzip
import io
import pickle
import tarfile
from pathlib import Path
from random import Random

import pytest

from headway import HeadwayError, InvalidInput
from headway.errors import NotReadable
from headway.traces import read_workload
from headway.traces.formats import READABLE_HINT

NO_WORKFLOWS = "a tar archive without workflows (.json, .xml, .stg)"


def tar(name: str, content: bytes) -> bytes:
    """An archive with one file in it."""
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w") as archive:
        entry = tarfile.TarInfo(name)
        entry.size = len(content)
        archive.addfile(entry, io.BytesIO(content))
    return whole.getvalue()


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("flow.json", b'\n{"workflow": {}}', "JSON"),
        ("flow.swf", b"[1, 2]", "JSON"),
        ("flow.json.gz", gzip.compress(b'{"workflow": {}}', mtime=0), "JSON"),
        ("jobs.xlsx", b"PK\x03\x04\x14\x00", "a ZIP archive or a spreadsheet"),
        ("jobs.parquet", b"PAR1\x15\x04", "a Parquet file"),
        ("page.csv", b"<!DOCTYPE html>", "XML or HTML"),
        ("log.bz2", b"BZh91AY", "compressed with bzip2"),
        ("flow.json", b'["schemaVersion"]', "JSON"),
        ("log.swf", Random(1).randbytes(5000), "a binary file"),
        ("log.swf.gz", gzip.compress(Random(2).randbytes(5000), mtime=0), "a binary file"),
        ("jobs.pkl", pickle.dumps({"runtime": 5}, 4), "a pickle of Python"),
        ("jobs.csv", "job,runtime\n1,5\n".encode("utf-16"), "text in UTF-16, not UTF-8"),
        ("logs.tar.gz", gzip.compress(tar("log.swf", b"; MaxProcs: 4\n"), mtime=0), NO_WORKFLOWS),
    ],
)
def test_a_format_that_cannot_be_read_is_named(tmp_path: Path, name: str, content: bytes, kind: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(NotReadable) as caught:
        read_workload(path)
    assert (caught.value.args[0], caught.value.hint) == (f"{path} is {kind}, which cannot be read", READABLE_HINT)
    assert ".swf" in READABLE_HINT
    assert ".csv" in READABLE_HINT


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("# Title\n\nsome words\n", "number of fields is 2; allowed: 18"),
        ("name,age\nme,7\n", "column is 'name'; allowed: job, release"),
    ],
)
def test_text_of_no_known_format_is_answered_with_what_can_be_read(tmp_path: Path, content: str, why: str) -> None:
    path = tmp_path / "notes.txt"
    path.write_text(content)
    with pytest.raises(NotReadable) as caught:
        read_workload(path)
    assert caught.value.args[0] == f"{path} is in no format that can be read"
    assert caught.value.hint.startswith(f"{READABLE_HINT} {path}:1: {why}")


def test_a_slip_in_a_table_of_another_name_is_named_as_in_any_table(tmp_path: Path) -> None:
    path = tmp_path / "jobs.txt"
    path.write_text("job,runtim\na,7\n")
    with pytest.raises(InvalidInput, match="column is 'runtim'") as caught:
        read_workload(path)
    assert caught.value.hint == "Did you mean runtime?"


@pytest.mark.parametrize(("name", "content"), [("log.swf", "no job\n"), ("jobs.csv", "name,age\n")])
def test_what_claims_to_be_readable_and_is_not_is_answered_so_too(tmp_path: Path, name: str, content: str) -> None:
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(InvalidInput) as caught:
        read_workload(path)
    assert caught.value.hint.endswith(READABLE_HINT)


@pytest.mark.parametrize(
    ("content", "kind"),
    [("job;runtime\n1;5\n", "semicolons"), ("job\truntime\n1\t5\n", "tabs"), ("JobID|Elapsed\n1|5\n", "bars")],
)
@pytest.mark.parametrize("name", ["jobs.csv", "jobs.txt"])
def test_other_signs_between_columns_are_named(tmp_path: Path, name: str, content: str, kind: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(NotReadable, match=f"{name} is a table with {kind} between its columns") as caught:
        read_workload(tmp_path / name)
    assert caught.value.hint.endswith("Write commas between the columns.")


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("log.csv", "; MaxProcs: 4\n1 0 0 5 1\n", "has the name of a table, but is a log"),
        ("jobs.swf", "job,runtime\n1,5\n", "has the name of a log, but is a table"),
    ],
)
def test_a_name_that_misleads_is_said(tmp_path: Path, name: str, content: str, said: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(HeadwayError, match=said) as caught:
        read_workload(tmp_path / name)
    assert "Give it a name that ends in" in caught.value.hint


def test_rubbish_in_the_header_of_a_log_is_let_through(tmp_path: Path) -> None:
    """As in public logs: names of partitions with bytes that are not characters."""
    header = b"; Partition: 1 \x00\x01\x02\xff\xfe batch\n" + b"; Note: a machine with a long history\n" * 5
    row = b"1 0 0 5 1 -1 -1 1 5 -1 1 1 1 -1 -1 -1 -1 -1\n"
    (tmp_path / "log.swf").write_bytes(header + row)
    assert read_workload(tmp_path / "log.swf").seconds("runtime").tolist() == [5]
    (tmp_path / "tabs.swf").write_bytes(row.replace(b" ", b"\t"))
    assert len(read_workload(tmp_path / "tabs.swf")) == 1
