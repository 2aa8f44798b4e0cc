"""Submissions of any size: how they are decoded, and that no other request waits for a large one."""

from __future__ import annotations

import asyncio
import time

import msgspec
import pytest

from headway import wire
from headway.testing import submission
from headway.web import bodies
from headway.web.bodies import SUBMITTED_MAX, WHOLE_MAX, read_submission

ENCODE = (msgspec.msgpack.encode, msgspec.json.encode)


def job(**terms: object) -> dict[str, object]:
    return {"work": {"type": "commands", "commands": [{"argv": ["true"]}]}, **terms}


@pytest.mark.parametrize("is_json", [False, True])
@pytest.mark.parametrize("jobs", [1, 5000])
def test_a_submission_is_the_same_in_pieces(is_json: bool, jobs: int) -> None:
    wanted = {"jobs": [job(name=f"é{number}", due=number) for number in range(jobs)], "key": "k", "client": "c"}
    wanted["blobs"] = {"a": b"b"}
    body = ENCODE[is_json](wanted)
    assert (len(body) > WHOLE_MAX) == (jobs > 1)
    expected = msgspec.convert(wanted, wire.Submission)
    assert asyncio.run(read_submission(body, is_json=is_json)) == expected
    assert submission() != expected


@pytest.mark.parametrize("is_json", [False, True])
def test_what_is_wrong_with_a_piece_is_said_as_of_the_whole(is_json: bool) -> None:
    for wrong, where in ({"due": "soon"}, "`$.jobs[4000].due`"), ({"dew": 1}, "`$.jobs[4000]`"):
        jobs = [job() for _ in range(4000)]
        for count in (0, 4000):
            body = ENCODE[is_json]({"jobs": [*jobs[:count], job(**wrong)]})
            with pytest.raises(msgspec.ValidationError) as error:
                asyncio.run(read_submission(body, is_json=is_json))
            assert str(error.value).endswith(f" - at {where.replace('4000', str(count))}")


@pytest.mark.parametrize("is_json", [False, True])
def test_more_jobs_than_a_submission_may_have_are_refused_before_they_are_looked_at(is_json: bool) -> None:
    body = ENCODE[is_json]({"jobs": [1] * (SUBMITTED_MAX + 1)})
    with pytest.raises(msgspec.ValidationError, match=f"length <= {SUBMITTED_MAX}"):
        asyncio.run(read_submission(body, is_json=is_json))


@pytest.mark.parametrize("is_json", [False, True])
def test_others_have_their_turn_while_a_large_one_is_decoded(is_json: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "SLICE_SECONDS", 0.0005)
    body = ENCODE[is_json]({"jobs": [job() for _ in range(20_000)]})

    async def test() -> int:
        turns = 0
        reading = asyncio.create_task(read_submission(body, is_json=is_json))
        while not reading.done():
            turns += 1
            await asyncio.sleep(0)
        return turns

    began = time.process_time()
    turns = asyncio.run(test())
    assert turns > 10, time.process_time() - began


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("count", [0, 1, 3, 4, 15, 16, 17, 300])
def test_an_answer_is_the_same_by_parts(packed: bool, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "ENCODED_AT_ONCE", 3)
    told = tuple(wire.RequestReport(number, 1.5, "é", "k", "about", '"') for number in range(count))
    answer = wire.Requests(told, more=True)
    assert asyncio.run(bodies.in_form_by_parts(answer, packed=packed)) == bodies.in_form(answer, packed=packed)


def test_others_have_their_turn_while_a_long_answer_is_encoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "ENCODED_AT_ONCE", 10)

    async def test() -> int:
        told = tuple(wire.RequestReport(number, 0, "", "", "", "") for number in range(95))
        made = asyncio.ensure_future(bodies.in_form_by_parts(wire.Requests(told), packed=True))
        rounds = 0
        while not made.done():
            await asyncio.sleep(0)
            rounds += 1
        return rounds

    assert asyncio.run(test()) >= 10


@pytest.mark.parametrize("is_json", [False, True])
@pytest.mark.parametrize("others", [0, 20])
def test_a_feature_that_is_text_is_named(is_json: bool, others: int) -> None:
    features: dict[str, object] = {f"other {number}": number for number in range(others)}
    body = ENCODE[is_json]({"jobs": [job(features=features), job(features={**features, "mesh": "fine", "x": "y"})]})
    with pytest.raises(msgspec.ValidationError) as refused:
        asyncio.run(read_submission(body, is_json=is_json))
    assert str(refused.value) == "Expected `float`, got `str` 'fine' - at `$.jobs[1].features[mesh]`"


@pytest.mark.parametrize("is_json", [False, True])
@pytest.mark.parametrize(
    ("terms", "said"),
    [
        ({"due": "soon"}, "Expected `float | null`, got `str` 'soon' - at `$.jobs[0].due`"),
        ({"width": 2.5}, "Expected `int`, got `float` 2.5 - at `$.jobs[0].width`"),
        ({"after": [-1]}, "Expected `int` >= 0, got -1 - at `$.jobs[0].after[0]`"),
        ({"name": ["a"]}, "Expected `str`, got `array` - at `$.jobs[0].name`"),
        (
            {"work": {"type": "commands", "commands": [{"argv": ["a"], "env": {"A": "b", "C d": 5}}]}},
            "Expected `str`, got `int` 5 - at `$.jobs[0].work.commands[0].env[C d]`",
        ),
    ],
)
def test_a_value_that_cannot_be_is_named_with_its_place(is_json: bool, terms: dict[str, object], said: str) -> None:
    with pytest.raises(msgspec.ValidationError) as refused:
        asyncio.run(read_submission(ENCODE[is_json]({"jobs": [job(**terms)]}), is_json=is_json))
    assert str(refused.value) == said


def test_in_a_long_body_the_entry_that_is_wrong_is_not_looked_for() -> None:
    body = ENCODE[True]({"jobs": [job(features={"mesh": "fine" * WHOLE_MAX})]})
    with pytest.raises(msgspec.ValidationError, match=r"got `str` - at `\$\.jobs\[0\]\.features\[\.\.\.\]`"):
        asyncio.run(read_submission(body, is_json=True))


@pytest.mark.parametrize("twin", [b'"features":3', b'"features":[]', b'"features":null'])
def test_an_entry_of_a_field_that_is_given_twice_is_refused_all_the_same(twin: bytes) -> None:
    whole = ENCODE[True]({"jobs": [job(features={"mesh": "fine"})]})
    with pytest.raises(msgspec.ValidationError, match=r"Expected `float`, got `str`.* - at `\$\.jobs\[0\]\.features"):
        asyncio.run(read_submission(whole.replace(b'"fine"}', b'"fine"},' + twin), is_json=True))


@pytest.mark.parametrize("rest", [b'"key":"\xff"}', b'"key":' + b"[" * 50_000, b'"key":', b""])
def test_what_is_wrong_first_is_said_whatever_comes_after_it(rest: bytes) -> None:
    with pytest.raises(msgspec.ValidationError, match=r"^Expected `array`, got `str`"):
        asyncio.run(read_submission(b'{"jobs":"x",' + rest, is_json=True))


@pytest.mark.parametrize("is_json", [False, True])
def test_text_that_is_not_utf_8_is_refused(is_json: bool) -> None:
    body = b'{"jobs":[],"key":"\xff"}' if is_json else b"\x82\xa4jobs\x90\xa3key\xa1\xff"
    with pytest.raises(msgspec.MsgspecError, match="Invalid UTF-8"):
        asyncio.run(read_submission(body, is_json=is_json))
