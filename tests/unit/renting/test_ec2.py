"""What EC2 says, and what is made of it; the conversation itself is in tests/live/test_rented_ec2.py."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

pytest.importorskip("boto3")

from botocore.exceptions import EndpointConnectionError, NoCredentialsError, ReadTimeoutError
from botocore.stub import ANY, Stubber

from headway.renting import ec2 as module
from headway.renting.ec2 import EC2
from headway.renting.provider import NotRented, RentedMachine, Unsure

pytestmark = pytest.mark.anyio

LAUNCHED = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def ec2(monkeypatch: pytest.MonkeyPatch) -> EC2:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    data = "join {node} {type} {token}"
    return EC2("c", region="eu-west-1", image="ami-1", user_data=data, subnet="subnet-1", key="k", role="r",
               security_groups=["sg-1"])  # fmt: skip


@pytest.fixture
def said(ec2: EC2) -> Stubber:
    """What EC2 answers, in order."""
    stub = Stubber(ec2._client)
    stub.activate()
    return stub


def instance(name: str, token: str = "c-1", state: str = "running", **more: Any) -> dict[str, Any]:
    tags = [{"Key": "headway-token", "Value": token}, {"Key": "headway-type", "Value": "small"}]
    return {"InstanceId": name, "State": {"Name": state}, "Tags": tags, "LaunchTime": LAUNCHED, **more}


def lists(said: Stubber, *instances: dict[str, Any]) -> None:
    said.add_response("describe_instances", {"Reservations": [{"Instances": list(instances)}]}, {"Filters": ANY})


async def test_an_instance_is_asked_for_with_all_that_was_declared(ec2: EC2, said: Stubber) -> None:
    lists(said)
    tags = {"Name": "cloud-r1", "headway-token": "c-1", "headway-cluster": "c", "headway-type": "small/spot"}
    said.add_response(
        "run_instances",
        {"Instances": [instance("i-1", state="pending")]},
        {
            "ImageId": "ami-1",
            "SubnetId": "subnet-1",
            "SecurityGroupIds": ["sg-1"],
            "KeyName": "k",
            "IamInstanceProfile": {"Name": "r"},
            "InstanceType": "small",
            "MinCount": 1,
            "MaxCount": 1,
            "ClientToken": "c-1",
            "UserData": ANY,  # encoded by then
            "TagSpecifications": [
                {"ResourceType": "instance", "Tags": [{"Key": key, "Value": text} for key, text in tags.items()]}
            ],
            "InstanceMarketOptions": {
                "MarketType": "spot",
                "SpotOptions": {"SpotInstanceType": "one-time", "InstanceInterruptionBehavior": "terminate"},
            },
        },
    )
    assert await ec2.start("c-1", "small/spot", "cloud-r1") == RentedMachine("i-1", "c-1", "small/spot")
    said.assert_no_pending_responses()


async def rented(ec2: EC2, said: Stubber) -> None:
    lists(said)
    said.add_response("run_instances", {"Instances": [instance("i-1", state="pending")]})
    await ec2.start("c-1", "small", "cloud-r1")


async def test_one_that_is_not_listed_yet_does_not_seem_gone(
    ec2: EC2, said: Stubber, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rented(ec2, said)
    lists(said)
    assert await ec2.machines() == [RentedMachine("i-1", "c-1", "small")]
    lists(said)
    said.add_response("terminate_instances", {}, {"InstanceIds": ["i-1"]})
    assert not await ec2.end("c-1")
    monkeypatch.setattr(module, "LISTED", 0.0)
    for _ in range(2):
        lists(said)
    assert await ec2.machines() == []
    assert await ec2.end("c-1")
    said.assert_no_pending_responses()


async def test_to_give_back_waits_for_a_request_that_nobody_waits_for_any_more(ec2: EC2, said: Stubber) -> None:
    """A server cancels a request whose machine is not wanted any more; it may be under way already."""
    run, may, runs = ec2._client.run_instances, threading.Event(), threading.Event()

    def slowly(**terms: Any) -> Any:
        runs.set()
        assert may.wait(20)
        return run(**terms)

    lists(said)
    said.add_response("run_instances", {"Instances": [instance("i-1", state="pending")]})
    lists(said, instance("i-1"))
    said.add_response("terminate_instances", {}, {"InstanceIds": ["i-1"]})
    ec2._client.run_instances = slowly
    request = asyncio.create_task(ec2.start("c-1", "small", "cloud-r1"))
    await asyncio.to_thread(runs.wait, 20)
    request.cancel()
    ending = asyncio.create_task(ec2.end("c-1"))
    await asyncio.sleep(0.05)
    assert not ending.done()
    may.set()
    assert not await ending
    said.assert_no_pending_responses()


async def test_one_that_is_there_is_not_asked_for_again(ec2: EC2, said: Stubber) -> None:
    lists(said, instance("i-1", state="pending"))
    assert await ec2.start("c-1", "small", "cloud-r1") == RentedMachine("i-1", "c-1", "small")
    lists(said, instance("i-1", state="terminated"))
    assert await ec2.start("c-1", "small", "cloud-r1") == RentedMachine("i-1", "c-1", "small", ended=True)
    said.assert_no_pending_responses()


async def test_of_two_with_one_token_the_later_one_is_terminated(ec2: EC2, said: Stubber) -> None:
    lists(said, instance("i-3"), instance("i-2"), instance("i-1", state="terminated"), instance("i-9", "c-2"))
    said.add_response("terminate_instances", {}, {"InstanceIds": ["i-3"]})
    assert await ec2.machines() == [RentedMachine("i-2", "c-1", "small"), RentedMachine("i-9", "c-2", "small")]
    said.assert_no_pending_responses()


async def test_all_with_a_token_are_terminated_until_they_are_seen_to_be(ec2: EC2, said: Stubber) -> None:
    lists(said, instance("i-1"), instance("i-2", state="stopped"), instance("i-3", state="terminated"))
    said.add_response("terminate_instances", {}, {"InstanceIds": ["i-1", "i-2"]})
    lists(said, instance("i-1", state="shutting-down"), instance("i-2", state="terminated"))
    assert [await ec2.end("c-1"), await ec2.end("c-1")] == [False, True]
    said.assert_no_pending_responses()


@pytest.mark.parametrize(
    ("code", "status", "kind", "words"),
    [
        ("AuthFailure", 401, NotRented, r"the credential is wrong, or does not allow it: so \(AuthFailure\)"),
        ("UnauthorizedOperation", 403, NotRented, "the credential is wrong"),
        ("RequestExpired", 400, NotRented, "the clock of this computer, or of EC2, is off: so"),
        ("InsufficientInstanceCapacity", 400, NotRented, r"EC2 refuses: so \(InsufficientInstanceCapacity\)"),
        ("VcpuLimitExceeded", 400, NotRented, "EC2 refuses: so"),
        ("RequestLimitExceeded", 400, Unsure, "EC2 says so"),
        ("IdempotentParameterMismatch", 400, Unsure, "EC2 says so"),
        ("InternalError", 500, Unsure, "EC2 says so"),
        ("Whatever", 503, Unsure, "EC2 says so"),
    ],
)
async def test_what_is_refused_is_told_from_what_may_have_been_done(
    ec2: EC2, said: Stubber, code: str, status: int, kind: type[Exception], words: str
) -> None:
    lists(said)
    said.add_client_error("run_instances", code, "so", status)
    with pytest.raises(kind, match=words):
        await ec2.start("c-1", "small", "cloud-r1")
    said.add_client_error("describe_instances", code, "so", status)
    with pytest.raises(Unsure, match=words):
        await ec2.machines()  # what there is, is not known until it is told


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (EndpointConnectionError(endpoint_url="http://x"), Unsure, "EC2 gave no answer: Could not connect"),
        (ReadTimeoutError(endpoint_url="http://x"), Unsure, "EC2 gave no answer: Read timeout"),
        (NoCredentialsError(), NotRented, "there is no credential for AWS"),
    ],
)
async def test_without_an_answer_it_is_not_known(
    ec2: EC2, monkeypatch: pytest.MonkeyPatch, error: Exception, kind: type[Exception], words: str
) -> None:
    def fails(*_: object, **__: object) -> Callable[..., object]:
        raise error

    monkeypatch.setattr(ec2._client, "get_paginator", fails)
    with pytest.raises(kind, match=words):
        await ec2.start("c-1", "small", "cloud-r1")
    with pytest.raises(Unsure, match=words):
        await ec2.end("c-1")


async def test_spot_instances_that_are_taken_back_are_told_with_the_time(ec2: EC2, said: Stubber) -> None:
    lists(said, instance("i-1"))
    assert await ec2.reclaimed() == {}
    lists(
        said,
        instance("i-1", "c-1", SpotInstanceRequestId="sir-1"),
        instance("i-2", "c-2", SpotInstanceRequestId="sir-2"),
        instance("i-3", "c-3", "terminated", SpotInstanceRequestId="sir-3"),
    )

    def request(number: int, code: str) -> dict[str, Any]:
        return {"SpotInstanceRequestId": f"sir-{number}", "Status": {"Code": code, "UpdateTime": LAUNCHED}}

    answer = {"SpotInstanceRequests": [request(1, "fulfilled"), request(2, "marked-for-termination")]}
    said.add_response("describe_spot_instance_requests", answer, {"Filters": ANY})
    assert await ec2.reclaimed() == {"c-2": LAUNCHED.timestamp() + 120}
    said.assert_no_pending_responses()
