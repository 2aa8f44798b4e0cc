"""Files that a client sends and gets, and what it acknowledges, with a server that fails on request."""

from __future__ import annotations

import threading
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from headway import Client, HeadwayError, HeadwayExecutor, Input, InvalidInput, Job, Output, Task, wire
from headway.client import receipts
from headway.client.receipts import Receipts
from headway.model.events import Outcome

from ...waiting import LIMIT, until


def double(number: int) -> int:
    return 2 * number


def bag(*numbers: int) -> Job:
    return Job("doubles", [Task(double, number) for number in numbers])


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Results that were received are acknowledged without waiting for more."""
    monkeypatch.setattr(receipts, "EVERY_SECONDS", 0.0)


def test_the_same_bytes_are_sent_once(server: Any, client: Client, tmp_path: Path) -> None:
    content = b"a,b\n" * 100_000
    (tmp_path / "data.csv").write_bytes(content)
    name = sha256(content).hexdigest()
    assert client.upload(tmp_path / "data.csv") == Input(f"headway:{name}/data.csv")
    assert client.upload(str(tmp_path / "data.csv"), "other.csv") == Input(f"headway:{name}/other.csv")
    assert client.upload(content) == Input(f"headway:{name}")
    assert server.uploads == {name: content}
    assert server.asked["upload"] == 1
    assert client.upload(b"").url == f"headway:{sha256().hexdigest()}"


def test_an_upload_whose_answer_is_lost_is_sent_again_whole(server: Any, client: Client) -> None:
    server.drop.append("upload")
    client.upload(b"x" * 100_000)
    assert server.asked["upload"] == 2
    assert list(server.uploads.values()) == [b"x" * 100_000]


def test_an_upload_that_is_refused_is_said(server: Any, client: Client, tmp_path: Path) -> None:
    server.refuse = (507, wire.ErrorBody("the upload does not fit", "Make room."))
    with pytest.raises(HeadwayError, match="the upload does not fit\nMake room"):
        client.upload(b"x")
    with pytest.raises(HeadwayError, match=r"cannot read .*/nope: No such file"):
        client.upload(tmp_path / "nope")
    with pytest.raises(InvalidInput, match="name is 'a/b'; allowed: the name of a file"):
        client.upload(b"x", "a/b")


def test_a_file_comes_down_whole_or_not_at_all(server: Any, client: Client, tmp_path: Path) -> None:
    kept = client.upload(b"kept")
    target = tmp_path / "got"
    target.write_text("before")
    server.drop.append("download")
    assert client.download(kept, target) == target
    assert target.read_bytes() == b"kept"
    server.uploads.clear()
    with pytest.raises(HeadwayError, match="there is no such upload"):
        client.download(f"{kept.url}/name", target)
    assert target.read_bytes() == b"kept"
    assert list(tmp_path.iterdir()) == [target]
    with pytest.raises(HeadwayError, match=r"cannot write .*/no/got: No such file"):
        client.download(kept, tmp_path / "no" / "got")
    with pytest.raises(InvalidInput, match="url is '/a'; allowed: headway:SHA256"):
        client.download("/a", target)


def test_a_download_that_breaks_off_begins_again(server: Any, client: Client, tmp_path: Path) -> None:
    body = bytes(range(256)) * 12_000  # of several parts as it is read
    kept = client.upload(body)
    for after in (0, 1, 1_500_000, len(body) - 1):
        server.cut["download"] = after
        assert client.download(kept, tmp_path / "got").read_bytes() == body
        assert server.cut == {}
    assert server.asked["download"] == 8


def test_a_download_of_something_else_is_refused(server: Any, client: Client, tmp_path: Path) -> None:
    kept = client.upload(b"kept")
    target = tmp_path / "got"
    target.write_text("before")
    (name,) = server.uploads
    for changed in (b"kepT", b"", b"keptkept"):
        server.uploads[name] = changed
        with pytest.raises(HeadwayError, match=f"what came of headway:{name} is not what was kept"):
            client.download(kept, target)
        assert target.read_text() == "before"
    assert list(tmp_path.iterdir()) == [target]


def test_what_was_received_is_acknowledged_with_all_that_came_meanwhile(server: Any) -> None:
    with Client(server.url, token="right") as client:
        for numbers in ((1, 2), (3,), (4, 5, 6)):
            client.submit(bag(*numbers)).result(LIMIT)
        assert server.acknowledged == []
    (acknowledgement,) = server.acknowledged
    assert acknowledgement.client == server.submissions[0].client
    assert acknowledgement.results == (wire.TaskRange(1), wire.TaskRange(2), wire.TaskRange(3))


def test_it_is_acknowledged_after_a_while_even_if_nothing_more_comes(
    server: Any, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receipts, "EVERY_SECONDS", 0.1)
    client.submit(bag(1, 2)).result(LIMIT)
    until(lambda: server.acknowledged)
    assert server.acknowledged[0].results == (wire.TaskRange(1),)
    client.submit(bag(3)).result(LIMIT)
    until(lambda: len(server.acknowledged) == 2)
    assert server.acknowledged[1].results == (wire.TaskRange(2),)


@pytest.mark.usefixtures("at_once")
def test_an_acknowledgement_that_is_lost_is_sent_again(server: Any, client: Client) -> None:
    server.drop += ["acknowledge", "acknowledge"]
    client.submit(bag(1)).result(LIMIT)
    until(lambda: len(server.acknowledged) == 3)
    assert client.submit(bag(2)).result(LIMIT) == [4]


def test_who_wants_to_keep_results_acknowledges_them_itself(server: Any) -> None:
    with Client(server.url, token="right", acknowledge=False, name="me") as client:
        client.submit([bag(1), bag(2)]).result(LIMIT)
    assert server.acknowledged == []
    with Client(server.url, token="right", name="me") as again:
        again.acknowledge(1, 2)
    assert server.acknowledged == [wire.Acknowledgement("me", (wire.TaskRange(1), wire.TaskRange(2)))]
    with Client(server.url, token="right") as other, pytest.raises(HeadwayError, match="another client"):
        other.acknowledge(1)


def test_who_attaches_to_a_job_of_another_client_acknowledges_nothing(server: Any) -> None:
    with Client(server.url, token="right", acknowledge=False) as client:
        server.held = True
        job = client.submit(bag(1)).job
        with Client(server.url, token="right") as other:
            waiter = other.attach(job, trust=True)
            server.run_held()
            assert waiter.result(LIMIT) == [2]
    assert server.acknowledged == []


def test_a_server_that_is_gone_at_the_end_is_not_waited_for(server: Any) -> None:
    client = Client(server.url, token="right")
    client.submit(bag(1)).result(LIMIT)
    server.stop()
    closing = threading.Thread(target=client.close)
    closing.start()
    closing.join(LIMIT)
    assert not closing.is_alive()
    server.start()


def test_receipts_are_ranges_of_tasks_and_whole_jobs() -> None:
    held = Receipts()
    assert held.wait(5.0) is None
    for task in (3, 0, 1, 7, 2, 8):
        held.took(1, task)
    held.took(2, 0)
    held.took(3, 5)
    held.ended(2)
    assert held.ranges() == (
        wire.TaskRange(2),
        wire.TaskRange(1, 0, 4),
        wire.TaskRange(1, 7, 9),
        wire.TaskRange(3, 5, 6),
    )
    assert held.wait(5.0) == receipts.EVERY_SECONDS
    assert held.wait(5.5) == receipts.EVERY_SECONDS - 0.5
    assert held.wait(99.0) == 0.0
    held.clear()
    assert (held.ranges(), held.wait(100.0)) == ((), None)


def test_an_executors_calls_say_which_files_they_name(server: Any, client: Client) -> None:
    with HeadwayExecutor(client) as executor:
        executor.submit(double, 1).result(LIMIT)
        executor.submit(str, Input("/a")).result(LIMIT)
        executor.submit(str, Output("/b")).result(LIMIT)
    works = [submission.jobs[0].work for submission in server.submissions]
    assert [(work.inputs, work.outputs) for work in works] == [((), ()), (("/a",), ()), ((), ("/b",))]


def test_where_outputs_were_put_is_in_the_result(server: Any, client: Client) -> None:
    ending = wire.TaskEnding(Outcome.SUCCEEDED, outputs={"a": "/put/a"})
    server._ending = lambda work, task: ending
    job = client.submit(bag(1)).job
    (result,) = client.results(job)
    assert result.ending.outputs == {"a": "/put/a"}
