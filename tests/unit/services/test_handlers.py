"""What handlers get, and what becomes of their answers."""

from __future__ import annotations

import asyncio
import json
import math
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest

from headway.errors import HandlerFailed, InvalidInput, Malformed
from headway.services.frames import AnswerFrame, Junk, Splitter, frame
from headway.services.handlers import BYTES_TYPE, JSON_TYPE, command_handler, function_handler, loaded
from headway.services.terms import InstanceTerms, ServiceAnswer


def echo(value: object) -> object:
    return value


@dataclass
class Reading:
    """What a handler may return."""

    value: float


def test_json_is_decoded_and_encoded_and_bytes_are_passed_on() -> None:
    handle = function_handler(echo, 100)
    assert handle("application/json", b'{"a": [1, null]}') == ServiceAnswer(b'{"a":[1,null]}', JSON_TYPE)
    assert handle("application/problem+json; charset=utf-8", b"2") == ServiceAnswer(b"2", JSON_TYPE)
    assert handle("", b"\xff") == ServiceAnswer(b"\xff", BYTES_TYPE)
    assert handle("text/plain", b"text") == ServiceAnswer(b"text", BYTES_TYPE)
    for value in (bytearray(b"x"), memoryview(b"x")):
        assert function_handler(lambda body, value=value: value, 100)("", b"") == ServiceAnswer(b"x", BYTES_TYPE)


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[" * 100_000, b"NaN", b"[1, -Infinity]", b"1e999"])
def test_a_body_that_is_not_json_is_the_callers_fault(body: bytes) -> None:
    with pytest.raises(Malformed, match="the request is not JSON"):
        function_handler(echo, 100)(JSON_TYPE, body)


def test_a_coroutine_function_is_awaited_in_a_loop_that_stays() -> None:
    loops = set()

    async def handler(value: Any) -> Any:
        loops.add(asyncio.get_running_loop())
        await asyncio.sleep(0)
        return value + 1

    handle = function_handler(handler, 100)
    assert [handle(JSON_TYPE, b"1").body, handle(JSON_TYPE, b"2").body] == [b"2", b"3"]
    (loop,) = loops
    loop.close()


def deep() -> object:
    value: list[object] = []
    for _ in range(2_000):
        value = [value]
    return value


@pytest.mark.parametrize("value", [object(), {1: object()}, deep(), 1j])
def test_what_cannot_be_sent_is_a_failure(value: object) -> None:
    with pytest.raises(HandlerFailed, match="which cannot be sent as JSON"):
        function_handler(lambda body: value, 100)("", b"")


@pytest.mark.parametrize(
    ("value", "place"),
    [
        (math.nan, "nan at `$`"),
        ({"a": [1, None, {"b": -math.inf}]}, "-inf at `$['a'][2]['b']`"),
        ([None, (0.5, math.inf)], "inf at `$[1][1]`"),
        (Reading(math.nan), "nan at `$['value']`"),
    ],
)
def test_a_number_that_json_does_not_have_is_a_failure_that_names_its_place(value: object, place: str) -> None:
    with pytest.raises(HandlerFailed, match="which cannot be sent as JSON") as failed:
        function_handler(lambda body: value, 100)("", b"")
    assert place in str(failed.value)


@pytest.mark.parametrize("value", [None, [None, 1.5], {"null": math.pi, "no": None}, "null", Reading(0.0)])
def test_null_is_sent_where_it_is_meant(value: object) -> None:
    answer = function_handler(lambda body: value, 100)("", b"")
    assert json.loads(answer.body) == (asdict(value) if isinstance(value, Reading) else value)


@pytest.mark.parametrize("value", [b"x" * 101, bytearray(101), memoryview(bytes(101)), "x" * 99])
def test_a_large_answer_is_a_failure(value: object) -> None:
    with pytest.raises(HandlerFailed, match="the answer has 101 bytes; allowed: at most 100"):
        function_handler(lambda body: value, 100)("", b"")


@pytest.mark.parametrize("error", [ValueError("what"), SystemExit("what"), MemoryError("what")])
def test_what_a_handler_raises_is_told_and_shown(error: BaseException, capsys: pytest.CaptureFixture[str]) -> None:
    def handler(body: bytes) -> None:
        raise error

    with pytest.raises(HandlerFailed, match=f"the handler raised {type(error).__name__}: what"):
        function_handler(handler, 100)("", b"")
    assert type(error).__name__ in capsys.readouterr().err


def command(code: str, answer_max: int = 100) -> Any:
    return command_handler((sys.executable, "-S", "-c", code), answer_max)


def test_a_program_gets_the_body_and_its_stdout_is_the_answer() -> None:
    code = "import os, sys; print(os.environ['HEADWAY_SERVICE_KIND'], sys.stdin.read()[::-1], end='')"
    assert command(code)("text/plain", b"abc") == ServiceAnswer(b"text/plain cba", BYTES_TYPE)
    assert command("pass")("", b"x" * (1 << 20)) == ServiceAnswer(b"", BYTES_TYPE)  # it need not read its stdin


def test_a_program_that_fails_says_why(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(HandlerFailed, match="the program ended with exit status 3: so be it"):
        command("import sys; print('so be it', file=sys.stderr); sys.exit(3)")("", b"")
    with pytest.raises(HandlerFailed, match="the program was killed by SIGKILL"):
        command("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")("", b"")
    with pytest.raises(HandlerFailed, match="no/such/program cannot be run"):
        command_handler(("/no/such/program",), 100)("", b"")
    assert "so be it" in capfd.readouterr().err


def test_a_program_that_answers_without_end_is_killed() -> None:
    with pytest.raises(HandlerFailed, match="the answer has more than 100 bytes"):
        command("while True: print('x' * 1000)")("", b"")


def test_a_function_is_found_by_its_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert loaded("os.path:join.__call__")("a", "b") == "a/b"
    with pytest.raises(InvalidInput, match="a function of module os, module:function"):
        loaded("os:environ")
    with pytest.raises(InvalidInput, match="allowed: a function of module os"):
        loaded("os:nothing")
    with pytest.raises(ModuleNotFoundError):
        loaded("no_such_module:f")


def test_terms_go_through_the_environment_unchanged() -> None:
    for terms in (
        InstanceTerms(service="s", socket="/a b", key="k", version="2", handler="a.b:c.d", patience=1.5),
        InstanceTerms(service="ü", socket="/s", key="k", command=("p", "with space", "")),
        InstanceTerms(service="s", socket="/s", key="k", paths=("/here", "/with space")),
    ):
        assert InstanceTerms.read(terms.environment()) == terms
    environment = terms.environment()
    del environment["HEADWAY_SERVICE_KEY"]
    with pytest.raises(InvalidInput, match="HEADWAY_SERVICE_KEY"):
        InstanceTerms.read(environment)
    with pytest.raises(InvalidInput, match="HEADWAY_SERVICE_COMMAND"):
        InstanceTerms.read({**terms.environment(), "HEADWAY_SERVICE_COMMAND": "p"})


@pytest.mark.parametrize("handler", ["a", "a:", ":b", "a b:c", "a:b()"])
def test_a_handler_is_named_by_module_and_function(handler: str) -> None:
    with pytest.raises(InvalidInput, match="handler is "):
        InstanceTerms(service="s", socket="/s", key="k", handler=handler)


def test_frames_are_cut_wherever_they_are_split() -> None:
    messages = [frame(AnswerFrame(number, "", b"x" * number, 0.0)) for number in (0, 1, 300, 7)]
    whole = b"".join(messages)
    for size in (1, 2, 3, 5, 64, len(whole)):
        splitter = Splitter(1000)
        bodies = [body for at in range(0, len(whole), size) for body in splitter.feed(whole[at : at + size])]
        assert bodies == [message[4:] for message in messages]
        assert not splitter.halfway
    assert splitter.feed(whole[:-1]) == [message[4:] for message in messages[:-1]]
    assert splitter.halfway


def test_a_frame_has_a_longest_length_even_if_it_comes_byte_by_byte() -> None:
    splitter = Splitter(99)
    assert splitter.feed((99).to_bytes(4, "little")) == []
    with pytest.raises(Junk, match="a frame of 100 bytes; allowed: at most 99"):
        Splitter(99).feed((100).to_bytes(4, "little"))
    splitter = Splitter(99)
    assert [splitter.feed(b"\x64"), splitter.feed(b"\x00\x00")] == [[], []]
    with pytest.raises(Junk, match="a frame of 100 bytes; allowed: at most 99"):
        splitter.feed(b"\x00")
