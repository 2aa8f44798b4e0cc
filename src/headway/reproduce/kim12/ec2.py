"""EC2 on this machine: a real `moto` server, and a hypervisor that makes its running instances real.

Each running instance is a process that runs the instance's user data. It is killed with all that it started when the
instance is terminated, and an instance whose process has ended is terminated.
"""

from __future__ import annotations

import base64
import re
import sys
import threading
import time
from importlib.util import find_spec
from types import TracebackType
from typing import Any, Final, Self

from headway.errors import HeadwayError
from headway.reproduce.children import Children

REGION: Final = "eu-west-1"
CREDENTIALS: Final = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x"}
"""Variables of the environment; moto takes any."""

SERVER: Final = "moto"
PERIOD: Final = 0.1
START_SECONDS: Final = 60.0
QUIET: Final = {"PYTHONWARNINGS": "ignore"}


def check_installed() -> None:
    """Refuse what needs `moto` where it is not installed.

    Raises:
        HeadwayError: it is not.
    """
    wanted = {"boto3": "boto3", "moto": "moto", "flask": "moto", "distributed": "distributed"}
    missing = dict.fromkeys(package for module, package in wanted.items() if find_spec(module) is None)
    if missing:
        hint = "Install what a cloud and a Dask of its own need: pip install 'headway[dask,aws]' 'moto[ec2,server]'."
        raise HeadwayError(f"this experiment needs {', '.join(missing)}: not installed", hint)


class Moto:
    """The server and its hypervisor, until the context ends.

    Args:
        children: of which the server is one, and each instance by its name.

    Attributes:
        endpoint: its address.
        image: of which instances can be started.
        trouble: what went wrong with the hypervisor.

    Raises:
        HeadwayError: it does not start.
    """

    def __init__(self, children: Children) -> None:
        self._children = children
        children.start(SERVER, [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"], QUIET)
        self._until = time.monotonic() + START_SECONDS
        self.endpoint = self._found_address()
        self._client = client(self.endpoint)
        self.image = self._first_image()
        self._running = set[str]()
        self._over = threading.Event()
        self.trouble: list[str] = []
        self._thread = threading.Thread(target=self._serve, name="hypervisor", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Nothing is made real any more. Instances go on until they are killed with the other children."""
        self._over.set()
        self._thread.join()
        self._client.close()

    def _wait(self) -> None:
        """Wait a little.

        Raises:
            HeadwayError: the server has ended, or has taken too long to start.
        """
        if self._children.has_ended(SERVER) or time.monotonic() > self._until:
            raise HeadwayError("moto does not start", self._children.said(SERVER))
        time.sleep(PERIOD)

    def _found_address(self) -> str:
        while not (said := re.search(r"http://127\.0\.0\.1:\d+", self._children.said(SERVER))):
            self._wait()
        return said[0]

    def _first_image(self) -> str:
        from botocore.exceptions import BotoCoreError

        while True:
            try:
                return str(self._client.describe_images(Owners=["amazon"])["Images"][0]["ImageId"])
            except BotoCoreError:
                self._wait()

    def instances(self) -> dict[str, str]:
        """The state of each instance."""
        found = self._client.describe_instances()["Reservations"]
        return {one["InstanceId"]: one["State"]["Name"] for some in found for one in some["Instances"]}

    def alive(self) -> list[str]:
        """Those that are neither terminated nor about to be."""
        return [name for name, state in self.instances().items() if state in ("pending", "running")]

    def _serve(self) -> None:
        try:
            while not self._over.wait(PERIOD):
                self._look()
        except Exception as error:  # noqa: BLE001  # whoever has the hypervisor looks at it
            self.trouble.append(repr(error))

    def _look(self) -> None:
        for name, state in self.instances().items():
            if state == "running" and name not in self._running:
                self._boot(name)
            elif state == "running" and self._children.has_ended(name):
                self._client.terminate_instances(InstanceIds=[name])
            elif state != "running" and name in self._running:
                self._running.discard(name)
                self._children.kill(name)

    def _boot(self, name: str) -> None:
        told = self._client.describe_instance_attribute(InstanceId=name, Attribute="userData")
        file = self._children.folder / f"{name}.sh"
        file.write_bytes(base64.b64decode(told["UserData"].get("Value", "")))
        self._children.start(name, ["/bin/sh", file])
        self._running.add(name)


def client(endpoint: str) -> Any:
    """A client of the server."""
    import boto3
    from botocore.config import Config

    terms = Config(retries={"total_max_attempts": 1, "mode": "standard"}, connect_timeout=5, read_timeout=20)
    return boto3.client(
        "ec2", REGION, endpoint_url=endpoint, aws_access_key_id="x", aws_secret_access_key="x", config=terms
    )
