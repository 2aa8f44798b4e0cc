"""Machines of AWS EC2, by `boto3`.

Each instance has tags: `headway-token`, by which it was asked for, `headway-cluster`, and `Name`, its node. Before one
is asked for, it is looked whether there is one with that token; the token is also the `ClientToken`, with which EC2
itself gives one instance only, while a new one cannot be seen yet. If there are two with one token all the same, the
later one is terminated.

The user data are run by the instance when it starts, and let it join: as a worker of Dask, or a node of Slurm, with the
name that is asked for. Instances terminate when they shut down by themselves.

A new instance may not be listed for a while. Until then it is remembered here, so that it does not seem gone. A request
goes on when the server does not wait for it any more; to give a machine back waits for that.

What EC2 refuses is told in its own words. Whether a request was carried out that got no answer, or an error of the
server, is not known: it is asked again.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from headway.renting.prices import type_of
from headway.renting.provider import NotRented, RentedMachine, Unsure

T = TypeVar("T")

CLUSTER_TAG: Final = "headway-cluster"
TOKEN_TAG: Final = "headway-token"

OVER: Final = ("shutting-down", "terminated")
"""States in which an instance is not billed any more, and never will be."""

NOTICE_SECONDS: Final = 120.0
"""Seconds from the notice until a spot instance is taken back."""

NOTICES: Final = ("marked-for-termination", "marked-for-stop", "instance-terminated-by-price",
                  "instance-terminated-no-capacity", "instance-terminated-capacity-oversubscribed")  # fmt: skip
"""What the request of a spot instance says when that is taken back."""

CREDENTIALS: Final = (
    *("AuthFailure", "UnauthorizedOperation", "InvalidClientTokenId", "SignatureDoesNotMatch", "Blocked"),
    *("OptInRequired", "PendingVerification", "UnrecognizedClientException", "ExpiredToken", "AccessDenied"),
)
CLOCKS: Final = ("RequestExpired", "RequestTimeTooSkewed", "InvalidSignatureException")
"""What EC2 says to a request of another time."""

UNSURE_ERRORS: Final = (
    *("RequestLimitExceeded", "Throttling", "ThrottlingException", "InternalError", "InternalFailure", "Unavailable"),
    *("ServiceUnavailable", "IdempotentParameterMismatch", "ConcurrentTagAccess"),
)
"""Errors after which it is not known, or may be otherwise later."""

LISTED: Final = 120.0
"""Seconds after which a new instance is listed, if there is one."""

EC2_SECONDS: Final = 20.0
"""A request that has no answer after this has none."""


class EC2:
    """Rents instances in one region.

    Args:
        cluster: what the tokens of this cluster begin with.
        region, image: in which, and of which image.
        user_data: a script in which `{node}`, `{type}` and `{token}` are replaced.
        subnet, security_groups, key, role: as EC2 calls them; empty: its defaults.
        endpoint: another address than that of EC2, for tests.
        profile: of the credentials on this machine; empty: the default one.
    """

    def __init__(
        self,
        cluster: str,
        *,
        region: str,
        image: str,
        user_data: str = "",
        subnet: str = "",
        security_groups: Sequence[str] = (),
        key: str = "",
        role: str = "",
        endpoint: str = "",
        profile: str = "",
    ) -> None:
        import boto3  # large
        from botocore.config import Config

        self._cluster = cluster
        self._new: dict[str, tuple[RentedMachine, float]] = {}  # by token, and since when
        self._one: dict[str, threading.Lock] = defaultdict(threading.Lock)
        self._user_data = user_data
        self._fixed: dict[str, Any] = {"ImageId": image}
        if subnet:
            self._fixed["SubnetId"] = subnet
        if security_groups:
            self._fixed["SecurityGroupIds"] = list(security_groups)
        if key:
            self._fixed["KeyName"] = key
        if role:
            self._fixed["IamInstanceProfile"] = {"Name": role}
        # One try each: who asks again is the server, which knows for how long.
        settings = Config(
            connect_timeout=5.0, read_timeout=EC2_SECONDS, retries={"total_max_attempts": 1, "mode": "standard"}
        )
        session = boto3.Session(profile_name=profile or None, region_name=region)
        self._client = session.client("ec2", endpoint_url=endpoint or None, config=settings)

    async def start(self, token: str, type: str, node: str) -> RentedMachine:
        """Rent an instance; see `Provider`."""
        return await _told(lambda: self._start(token, type, node))

    async def end(self, token: str) -> bool:
        """Terminate an instance; see `Provider`."""
        return await _surely(lambda: self._end(token))

    async def machines(self) -> list[RentedMachine]:
        """All of this cluster; see `Provider`."""
        return await _surely(self._machines)

    async def reclaimed(self) -> dict[str, float]:
        """Spot instances that are about to be taken back; see `Provider`."""
        return await _surely(self._reclaimed)

    async def close(self) -> None:
        """Close the connections."""
        await asyncio.to_thread(self._client.close)

    # In a thread

    def _start(self, token: str, type: str, node: str) -> RentedMachine:
        with self._one[token]:
            there = self._one_each(self._found(TOKEN_TAG, token))
            if there:
                return _machine(there[0])
            made = self._run(token, type, node)
            self._new[token] = made, time.monotonic()
            return made

    def _run(self, token: str, type: str, node: str) -> RentedMachine:
        kind, spot = type_of(type)
        tags = {"Name": node, TOKEN_TAG: token, CLUSTER_TAG: self._cluster, "headway-type": type}
        market: dict[str, Any] = {"InstanceInitiatedShutdownBehavior": "terminate"}
        if spot:
            options = {"SpotInstanceType": "one-time", "InstanceInterruptionBehavior": "terminate"}
            market = {"InstanceMarketOptions": {"MarketType": "spot", "SpotOptions": options}}
        data = self._user_data
        for place, text in (("{node}", node), ("{type}", kind), ("{token}", token)):
            data = data.replace(place, text)
        answer = self._client.run_instances(
            **self._fixed,
            **market,
            InstanceType=kind,
            MinCount=1,
            MaxCount=1,
            ClientToken=token,
            UserData=data,
            TagSpecifications=[
                {"ResourceType": "instance", "Tags": [{"Key": key, "Value": text} for key, text in tags.items()]}
            ],
        )
        if not answer.get("Instances"):
            raise NotRented(f"EC2 gave no instance of type {kind}")
        return _machine({"Tags": [{"Key": TOKEN_TAG, "Value": token}, {"Key": "headway-type", "Value": type}],
                         **{key: answer["Instances"][0][key] for key in ("InstanceId", "State")}})  # fmt: skip

    def _end(self, token: str) -> bool:
        with self._one[token]:
            found = self._found(TOKEN_TAG, token)
            alive = [one["InstanceId"] for one in found if one["State"]["Name"] not in OVER]
            if not found and (new := self._not_listed(token)) is not None:
                alive = [new.name]
            if alive:
                self._client.terminate_instances(InstanceIds=alive)
                return False  # until it is seen to be so
            self._new.pop(token, None)
        self._one.pop(token, None)
        return True

    def _machines(self) -> list[RentedMachine]:
        made = [_machine(one) for one in self._one_each(self._found(CLUSTER_TAG, self._cluster))]
        listed = {machine.token for machine in made}
        new = [self._not_listed(token) for token in sorted(self._new.keys() - listed)]
        return made + [machine for machine in new if machine is not None]

    def _not_listed(self, token: str) -> RentedMachine | None:
        """A machine that is so new that it need not be listed yet."""
        machine, since = self._new.get(token, (None, 0.0))
        return machine if time.monotonic() < since + LISTED else None

    def _found(self, tag: str, text: str) -> list[dict[str, Any]]:
        """Instances with this tag; the first that were started first."""
        pages = self._client.get_paginator("describe_instances").paginate(
            Filters=[{"Name": f"tag:{tag}", "Values": [text]}]
        )
        found = [one for page in pages for some in page["Reservations"] for one in some["Instances"]]
        return sorted(found, key=lambda one: (one["LaunchTime"], one["InstanceId"]))

    def _one_each(self, found: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """One instance for each token: one that lives, if there is one; others that live are terminated."""
        first: dict[str, dict[str, Any]] = {}
        for one in sorted(found, key=lambda one: one["State"]["Name"] in OVER):
            first.setdefault(_tag(one, TOKEN_TAG), one)
        alive = [one for one in found if one["State"]["Name"] not in OVER]
        more = [one["InstanceId"] for one in alive if first[_tag(one, TOKEN_TAG)] is not one]
        if more:
            self._client.terminate_instances(InstanceIds=more)
        return list(first.values())

    def _reclaimed(self) -> dict[str, float]:
        alive = [one for one in self._found(CLUSTER_TAG, self._cluster) if one["State"]["Name"] not in OVER]
        requests = {one["SpotInstanceRequestId"]: one for one in alive if one.get("SpotInstanceRequestId")}
        if not requests:
            return {}
        pages = self._client.get_paginator("describe_spot_instance_requests").paginate(
            Filters=[{"Name": "spot-instance-request-id", "Values": list(requests)}]
        )
        return {
            _tag(requests[one["SpotInstanceRequestId"]], TOKEN_TAG): one["Status"]["UpdateTime"].timestamp()
            + NOTICE_SECONDS
            for page in pages
            for one in page["SpotInstanceRequests"]
            if one.get("Status", {}).get("Code") in NOTICES and one["SpotInstanceRequestId"] in requests
        }


def _tag(instance: Mapping[str, Any], name: str) -> str:
    return next((str(tag["Value"]) for tag in instance.get("Tags", ()) if tag["Key"] == name), "")


def _machine(instance: Mapping[str, Any]) -> RentedMachine:
    over = instance["State"]["Name"] in OVER
    return RentedMachine(
        str(instance["InstanceId"]), _tag(instance, TOKEN_TAG), _tag(instance, "headway-type"), ended=over
    )


async def _told(ask: Callable[[], T]) -> T:
    """Ask in a thread, and say what came of it as a provider does.

    Raises:
        NotRented, Unsure: see there.
    """
    from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, PartialCredentialsError

    try:
        return await asyncio.to_thread(ask)
    except ClientError as error:
        raise _refusal(error.response) from error
    except (NoCredentialsError, PartialCredentialsError) as error:
        raise NotRented(f"there is no credential for AWS: {error}") from error
    except BotoCoreError as error:
        raise Unsure(f"EC2 gave no answer: {error}") from error


async def _surely(ask: Callable[[], T]) -> T:
    """The same of what cannot be refused: until the refusal is over, the answer is not known.

    Raises:
        Unsure: see there.
    """
    try:
        return await _told(ask)
    except NotRented as error:
        raise Unsure(str(error.args[0])) from error


def _refusal(response: Mapping[str, Any]) -> NotRented | Unsure:
    """What EC2 says, as a provider says it."""
    code, words = str(response["Error"].get("Code", "")), str(response["Error"].get("Message", ""))
    status = int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 400))
    if code in CLOCKS:
        return NotRented(f"the clock of this computer, or of EC2, is off: {words} ({code})")
    if code in CREDENTIALS:
        return NotRented(f"the credential is wrong, or does not allow it: {words} ({code})")
    if code in UNSURE_ERRORS or status >= 500:
        return Unsure(f"EC2 says {words} ({code})")
    return NotRented(f"EC2 refuses: {words} ({code})")
