"""The decider's interface, called as by a server."""

from __future__ import annotations

import asyncio
import json
from typing import Any, ClassVar

import pytest

from headway import __version__
from headway.advice.language import PlanText, PolicyOffer, Question
from headway.errors import InvalidInput
from headway.model.instant import SECOND
from headway.model.plan import Plan, Reason
from headway.model.policy import Policy
from headway.model.snapshot import Snapshot
from headway.policies import registry
from headway.web.decider import DECIDER_ROUTES, DeciderRoutes

OFFERS = (PolicyOffer("easy", "EASY backfilling.", {"order": "release"}),)

ONE_NODE: dict[str, Any] = {"now": 0, "nodes": [{"spec": {"name": "a", "slots": 4}}], "jobs": []}


class Odd:
    """Fails, or plans slots that do not exist, or only asks for another round."""

    per_instant: ClassVar[bool] = True
    task_rounds: ClassVar[bool] = False

    def __init__(self, slots: Any) -> None:
        self._slots = slots

    def __call__(self, view: Snapshot) -> Plan:
        plan = view.plan()
        if self._slots is None:
            raise ZeroDivisionError("no plan today")
        if self._slots:
            plan.hold(1, self._slots)
        else:
            plan.wake = 77
        return plan


def find(text: str) -> Policy:
    odd = {"fails": Odd(None), "below": Odd(-1), "beyond": Odd(1 << 4), "wakes": Odd(0), "names": Odd("the first")}
    return odd.get(text) or registry.find(text)


def asked(
    method: str, path: str, body: bytes = b"", *, token: str = "", body_max: int = 1 << 20, **headers: str
) -> tuple[int, dict[str, str], Any]:
    """Status, headers and content of an answer."""
    decider = DeciderRoutes(find, OFFERS, "deadline", token=token, token_file="/there", body_max=body_max)
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "scheme": "http",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }
    asyncio.run(decider.app(scope, receive, send))
    head = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], head, json.loads(b"".join(part.get("body", b"") for part in sent[1:]))


def plan(snapshot: dict[str, Any], status: int = 200, **question: Any) -> Any:
    got, _, content = asked("POST", "/v1/plan", json.dumps({"snapshot": snapshot, **question}).encode())
    assert got == status, content
    return content


def spec(number: int, **terms: Any) -> dict[str, Any]:
    return {"spec": {"id": number, **terms}}


def test_a_snapshot_written_by_hand_gets_a_plan() -> None:
    jobs = [
        spec(1, kind="rigid", width=2, estimate=10 * SECOND),
        spec(2, kind="rigid", width=3, estimate=5 * SECOND),
        spec(3, kind="rigid", width=1, estimate=10 * SECOND),
        {
            **spec(4, kind="rigid"),
            "attempts": [{"task": 0, "slots": [0], "start": -SECOND, "expected_end": 10 * SECOND}],
        },
    ]
    assert plan(ONE_NODE | {"jobs": jobs}, policy="easy", explain=True) == {
        "allocations": [{"job": 1, "slots": [1, 2]}, {"job": 3, "slots": [3]}],
        "promises": [{"job": 2, "start": 10 * SECOND, "slots": 3}],
        "waiting": [{"job": 2, "reason": "NO_ROOM_NOW", "start": 10 * SECOND}],
        "now": 0,
    }
    assert "waiting" not in plan(ONE_NODE | {"jobs": jobs}, policy="easy")


def test_workflows_claims_and_wakes_are_written_in_words_and_numbers() -> None:
    tasks = [{"estimate": SECOND}, {"estimate": SECOND, "after": [0]}]
    workflow = spec(1, kind="workflow", tasks=2, plan=tasks)
    placed = plan(ONE_NODE | {"jobs": [workflow]}, policy="heft")
    assert placed["allocations"] == [{"job": 1, "task": 0, "slots": [0]}]
    taken = {"attempts": [{"task": 0, "slots": [0], "start": 0, "expected_end": 9, "fed": True}], "held": [0]}
    one_slot = {"now": 5, "nodes": [{"spec": {"name": "a"}}], "jobs": [{**spec(1, tasks=3), **taken}]}
    urgent = spec(2, priority=9, due=8 * SECOND, estimate=SECOND)
    claimed = plan(one_slot | {"jobs": [*one_slot["jobs"], urgent]}, policy="priority")
    assert {"job": 2, "slots": [0], "claim": "after"} in claimed["allocations"]
    assert plan(one_slot, policy="wakes") == {"wake": 77, "now": 5}


def test_a_question_without_a_policy_gets_the_default() -> None:
    job = spec(1, tasks=2, due=SECOND)
    assert plan(ONE_NODE | {"jobs": [job]}) == plan(ONE_NODE | {"jobs": [job]}, policy="deadline")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "the question is not valid"),
        (b"{", "the question is not valid"),
        (b"[" * 100_000, "the question is not valid"),
        (b"[]", "Expected `object`, got `array`"),
        (b"{}", "missing required field `snapshot`"),
        (b'{"snapshot": 1}', "Expected `object`, got `int` - at `$.snapshot`"),
        (b'{"snapshot": {"now": 0, "nodes": [], "jobs": []}, "polcy": 1}', "unknown field `polcy`"),
        (
            b'{"snapshot": {"now": 0, "nodes": {}, "jobs": []}}',
            "Expected `array`, got `object` - at `$.snapshot.nodes`",
        ),
        (b'{"snapshot": {"now": 0, "nodes": [{"spec": []}], "jobs": []}}', "`$.snapshot.nodes[0].spec`"),
        (b'{"snapshot": {"now": 1e400, "nodes": [], "jobs": []}}', "out of range"),
        (b'{"snapshot": {"now": NaN, "nodes": [], "jobs": []}}', "malformed"),
        (b'{"policy": "esy", "snapshot": {"now": 0, "nodes": [], "jobs": []}}', "policy is 'esy'; allowed: "),
        (b'{"policy": "easy:x=1", "snapshot": {"now": 0, "nodes": [], "jobs": []}}', "parameter of policy easy is 'x'"),
    ],
)
def test_what_is_no_question_is_said(body: bytes, said: str) -> None:
    status, _, content = asked("POST", "/v1/plan", body)
    assert status == (422 if "policy" in said else 400)
    assert said in content["error"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"now": 2**62}, "snapshot.now is 4611686018427387904; allowed: an instant"),
        ({"jbs": []}, "snapshot.jbs: there is no such field"),
        ({"nodes": [{"spec": {"name": "a", "slots": 0}}]}, "snapshot.nodes[0].spec.slots is 0; allowed: 1 to 1000000"),
        ({"nodes": [{"spec": {"name": "a", "slots": 10**12}}]}, "nodes[0].spec.slots is 1000000000000; allowed: 1"),
        ({"nodes": [{"spec": {"name": "a"}, "places": [10**12]}]}, "nodes[0].places is 1000000000000; allowed: 0 to"),
        ({"nodes": [{"spec": {"name": "a"}, "places": [-1]}]}, "nodes[0].places is -1; allowed: 0 to"),
        ({"nodes": [{"spec": {"name": "a"}}, {"spec": {"name": "a"}}]}, "nodes[1].spec.name is 'a'; allowed: a name"),
        ({"nodes": [{"spec": {"name": "a"}}], "departed": [{"spec": {"name": "b"}}]}, ""),
        ({"jobs": [spec(1, width=2)]}, "jobs[0].spec.width is 2; allowed: 1 unless the job is rigid"),
        ({"jobs": [spec(1), spec(1)]}, "jobs[1].spec.id is 1; allowed: an id that no other job has"),
        ({"jobs": [spec(1, kind="bags")]}, "jobs[0].spec.kind is 'bags'; allowed: bag, rigid, workflow"),
        ({"jobs": [spec(1) | {"helt": [0]}]}, "jobs[0].helt: there is no such field"),
        ({"jobs": [spec(1) | {"held": [0]}]}, "jobs[0].held is (0,); allowed: of a bag, slots on which something runs"),
        ({"jobs": [spec(1) | {"held": [9]}]}, "jobs[0].held is 9; allowed: slots of nodes that are up"),
        ({"jobs": [spec(1) | {"fresh": 1}]}, "jobs[0].unfinished is 0; allowed: 1 or more: leave out jobs"),
        ({"jobs": [spec(1) | {"unfinished": 7}]}, "jobs[0].unfinished is 7; allowed: 1, as follows from the rest"),
        ({"jobs": [spec(1) | {"priority": None, "estimate": -1}]}, "jobs[0].estimate is -1; allowed: 0 or more"),
        (
            {"jobs": [spec(1) | {"attempts": [{"task": 0, "slots": [4], "start": 0, "expected_end": 1}]}]},
            "jobs[0].attempts[0].slots is 4; allowed: slots that the nodes have",
        ),
        ({"arrived": [5]}, "snapshot.arrived is 5; allowed: ids of jobs of the snapshot"),
    ],
)
def test_what_cannot_be_the_case_is_said(change: dict[str, Any], said: str) -> None:
    is_described = "there is no such field" in said or "bag, rigid, workflow" in said
    content = plan(ONE_NODE | change, 200 if not said else 400 if is_described else 422)
    assert said in content.get("error", "")


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        ("fails", "policy fails raised ZeroDivisionError: no plan today"),
        ("below", "policy below wants slots that do not exist"),
        ("beyond", "policy beyond wants slots that do not exist"),
        ("names", "policy names raised TypeError: the policy gave Allocation(job=1, slots='the first', "),
    ],
)
def test_a_policy_that_fails_is_an_error_of_the_decider(policy: str, said: str) -> None:
    assert plan(ONE_NODE, 500, policy=policy)["error"].startswith(said)


def test_policies_health_and_what_is_not_there() -> None:
    assert asked("GET", "/v1/policies")[2] == {
        "default": "deadline",
        "policies": [{"policy": "easy", "summary": "EASY backfilling.", "parameters": {"order": "release"}}],
    }
    assert asked("GET", "/health")[2] == {"version": __version__, "accepts": True}
    status, _, content = asked("GET", "/v1/plans")
    assert (status, content["error"]) == (404, "GET /v1/plans: Not Found")
    assert asked("GET", "/v1/plan")[0] == 405


def test_a_question_has_a_size() -> None:
    status, _, content = asked("POST", "/v1/plan", b"x" * 101, body_max=100)
    assert (status, content["error"]) == (413, "the body has more than 100 bytes")


def test_a_token_is_demanded_where_there_is_one() -> None:
    for route in DECIDER_ROUTES:
        status, head, content = asked(route.method, route.path, b"{}", token="s3cret")
        assert (status == 401) == (route.path != "/health"), route.name
        assert status != 401 or (head["www-authenticate"] == "Bearer" and "no token" in content["error"])
    status, _, content = asked("GET", "/v1/policies", token="s3cret", authorization="Bearer secret")
    assert (status, content["hint"]) == (401, "It is in the file /there of the decider.")
    assert asked("GET", "/v1/policies", token="s3cret", authorization="Bearer s3cret")[0] == 200


def test_it_describes_itself() -> None:
    found = asked("GET", "/openapi.json")[2]
    schemas = found["components"]["schemas"]
    assert {(method.upper(), path) for path, methods in found["paths"].items() for method in methods} == {
        (route.method, route.path) for route in DECIDER_ROUTES
    }
    assert schemas["Question"]["required"] == ["snapshot"]
    assert set(schemas["Question"]["properties"]) == set(Question.__struct_fields__)
    assert set(schemas["PlanText"]["properties"]) == set(PlanText.__struct_fields__)
    assert schemas["JobSpec"]["properties"]["kind"] == {
        "enum": ["bag", "rigid", "service", "workflow"],
        "default": "bag",
    }
    assert {"width", "tasks", "plan", "sizes"} <= schemas["JobSpec"]["properties"].keys()
    assert schemas["WaitingText"]["properties"]["reason"]["enum"] == sorted(reason.name for reason in Reason)
    assert set(found["paths"]["/v1/plan"]["post"]["requestBody"]["content"]) == {"application/json"}
    for reference in json.dumps(found).split('"$ref": "#/components/schemas/')[1:]:
        assert reference.partition('"')[0] in schemas


def test_find_raises_for_what_is_not_installed() -> None:
    with pytest.raises(InvalidInput):
        find("nothing")
