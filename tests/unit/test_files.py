"""Inputs and outputs as users write them, how they are sent, and which URLs are allowed."""

from __future__ import annotations

import pickle
import threading
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from headway import HeadwayError, Input, InvalidInput, Job, Output, Task, files
from headway.client.job import described
from headway.wire import Calls, Commands

SHA = "0123456789abcdef" * 4


def take(*args: Any, **kwargs: Any) -> None:
    """A function that does nothing."""


def test_a_path_is_taken_from_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert Input("data/one.csv").url == f"{tmp_path}/data/one.csv"
    assert Output(Path("one.csv")).url == f"{tmp_path}/one.csv"
    assert Input("/abs").url == "/abs"
    assert Input("s3://bucket/a b").url == "s3://bucket/a b"


def test_equal_files_are_equal_and_an_input_is_no_output() -> None:
    assert Input("/a") == Input("/a")
    assert len({Input("/a"), Input("/a"), Input("/b"), Output("/a")}) == 3
    assert repr(Output("/a")) == "Output('/a')"


@pytest.mark.parametrize("dumps", [pickle.dumps, cloudpickle.dumps])
def test_files_travel_as_themselves_but_where_a_task_reads_its_arguments(dumps: Any) -> None:
    given = {"deep": [(Input("/a"), Output("/b"))], "twice": Input("/a")}
    with files.naming() as named:
        blob = dumps(given)
    assert set(named) == {Input("/a"), Output("/b")}
    assert pickle.loads(blob) == given
    with files.answering(lambda file: Path("/there") / type(file).__name__):
        assert pickle.loads(blob) == {
            "deep": [(Path("/there/Input"), Path("/there/Output"))],
            "twice": Path("/there/Input"),
        }
    assert pickle.loads(blob) == given


def test_what_another_thread_pickles_is_not_named() -> None:
    with files.naming() as named:
        other = threading.Thread(target=pickle.dumps, args=(Input("/other"),))
        other.start()
        other.join()
        pickle.dumps(Input("/mine"))
    assert named == [Input("/mine")]


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("/a b", "/a b"),
        ("file:///a%20b", "/a b"),
        ("file://localhost/a", "/a"),
        ("FILE:/a", "/a"),
        ("s3://a/b", None),
        ("headway:", None),
    ],
)
def test_paths_of_urls(url: str, path: str | None) -> None:
    assert files.local_path(url) == path


@pytest.mark.parametrize(
    ("url", "output", "allowed"),
    [
        ("/a", False, None),
        ("relative", False, "an absolute path, or a URL"),
        ("file:relative", True, "an absolute path, or a URL"),
        ("/a\0b", True, "an absolute path, or a URL"),
        (f"headway:{SHA}", False, None),
        (f"headway:{SHA}/a.csv", False, None),
        (f"headway:{SHA}/a/b", False, "headway:SHA256, as `headway upload` and `headway result` print it"),
        ("headway:short", False, "headway:SHA256, as `headway upload` and `headway result` print it"),
        ("headway:", True, None),
        ("headway:a.csv", True, None),
        ("headway:a/b", True, "headway:NAME, a name without a slash"),
        ("local:///a", True, None),
        ("zip://a.csv::file:///z.zip", False, None),
        ("simplecache::http://example.org/a", False, None),
    ],
)
def test_which_urls_there_are(url: str, output: bool, allowed: str | None) -> None:
    assert files.flaw(url, output=output) == allowed


@pytest.mark.parametrize("url", ["nowhere://a", "zip://a::nowhere://b"])
def test_an_unknown_scheme_is_told_with_those_there_are(url: str) -> None:
    allowed = files.flaw(url, output=False)
    assert allowed is not None
    assert "nowhere" not in allowed
    assert {"file,", "headway,", "http,", "zip"} <= set(allowed.split())
    assert files.flaw(url, output=False, known_here=False) is None


def test_only_an_unusual_url_needs_fsspec() -> None:
    import subprocess
    import sys

    program = f"""
import sys
from headway import files
files.Input("a"); files.Output("file:///a"); files.flaw("headway:{SHA}", output=False)
assert "fsspec" not in sys.modules
files.flaw("local:///a", output=False)
assert "fsspec" in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


@pytest.mark.parametrize("kind", [Input, Output])
def test_a_url_that_cannot_be_is_refused_where_it_is_written(kind: type[Input | Output]) -> None:
    with pytest.raises(InvalidInput, match=r"url is 'headway:a/b'; allowed: headway:"):
        kind("headway:a/b")


def test_a_job_says_which_files_its_arguments_name() -> None:
    tasks = [Task(take, Input("/a"), out=Output("/b")), Task(take, [Input("/a"), Input("/c")])]
    new, _ = described(Job("files", tasks), 0)
    assert isinstance(new.work, Calls)
    assert (new.work.inputs, new.work.outputs) == (("/a", "/c"), ("/b",))
    assert new.spec(1, 0, "me").fetches
    new, _ = described(Job("none", [Task(take, 1)]), 0)
    assert isinstance(new.work, Calls)
    assert (new.work.inputs, new.work.outputs) == ((), ())
    assert not new.spec(1, 0, "me").fetches


def test_a_file_that_is_no_argument_is_refused() -> None:
    lost = Input("/a")

    def forgetful() -> Input:
        return lost

    with pytest.raises(HeadwayError, match=r"task 0 .* uses Input\('/a'\), which is no argument"):
        described(Job("forgetful", [Task(forgetful)]), 0)


def test_a_command_with_files_runs_in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    inputs, outputs = {"in.csv": "data{i}.csv", "b": Input("/b")}, {"out/c": Output("headway:c")}
    task = Task.command("./convert", "in.csv", stdout="log", inputs=inputs, outputs=outputs)
    new, _ = described(Job("convert", [task]), 0)
    assert isinstance(new.work, Commands)
    (command,) = new.work.commands
    assert command.argv == (f"{tmp_path}/./convert".replace("/./", "/"), "in.csv")
    assert (command.cwd, command.stdout) == ("", f"{tmp_path}/log")
    assert command.inputs == {"in.csv": f"{tmp_path}/data{{i}}.csv", "b": "/b"}
    assert command.outputs == {"out/c": "headway:c"}
    assert new.spec(1, 0, "me").fetches
    itself = Task.command("./bin/convert", inputs={"bin/convert": "convert"}).program
    assert itself is not None
    assert itself.argv == ("./bin/convert",), "it is among its inputs"
    elsewhere = Task.command("./convert", cwd="sub", outputs={"c": "/c"}).program
    assert elsewhere is not None
    assert (elsewhere.argv, elsewhere.cwd) == (("./convert",), f"{tmp_path}/sub")


@pytest.mark.parametrize("path", ["", "/etc/passwd", "../up", "a/../b", "a//b", "./a", "a\0b"])
@pytest.mark.parametrize("kind", ["inputs", "outputs"])
def test_a_path_outside_the_attempts_folder_is_refused(kind: str, path: str) -> None:
    task = Task.command("true", **{kind: {path: "/a"}})  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match=rf"work\.commands\[0\]\.{kind} is .* within the attempt's folder"):
        described(Job("outside", [task]), 0)
