"""EC2 for tests: a real `moto` server, and a hypervisor that makes its running instances real.

Each running instance is a process in a session of its own, which runs the instance's user data; it is killed with all
that it started when the instance is terminated, and an instance whose process has ended is terminated.
"""

from __future__ import annotations

import base64
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from .waiting import free_port, until

REGION = "eu-west-1"
PERIOD = 0.1


def client(endpoint: str) -> Any:
    """A client of the server, for looking at it from outside."""
    import boto3
    from botocore.config import Config

    terms = Config(retries={"total_max_attempts": 1, "mode": "standard"}, connect_timeout=5, read_timeout=20)
    return boto3.client(
        "ec2", REGION, endpoint_url=endpoint, aws_access_key_id="x", aws_secret_access_key="x", config=terms
    )


class Moto:
    """The server and its hypervisor.

    Attributes:
        endpoint: its address.
        image: of which instances can be started.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        port = free_port()
        self.endpoint = f"http://127.0.0.1:{port}"
        self._log = (folder / "moto.log").open("wb")
        words = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
        quiet = {**os.environ, "PYTHONWARNINGS": "ignore"}
        self.server = subprocess.Popen(words, stdout=self._log, stderr=self._log, env=quiet)
        self._client = client(self.endpoint)
        self.image = until(self._first_image)
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._over = threading.Event()
        self.trouble: list[str] = []
        self._thread = threading.Thread(target=self._serve, name="hypervisor")
        self._thread.start()

    def _first_image(self) -> str:
        from botocore.exceptions import BotoCoreError

        assert self.server.poll() is None, (self.folder / "moto.log").read_text()
        try:
            images = self._client.describe_images(Owners=["amazon"])["Images"]
        except BotoCoreError:
            return ""
        return str(images[0]["ImageId"])

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
        except Exception as error:  # noqa: BLE001  # told to the test
            if not self._over.is_set() and self.server.poll() is None:
                self.trouble.append(repr(error))

    def _look(self) -> None:
        for name, state in self.instances().items():
            if state == "running" and name not in self._running:
                self._running[name] = self._boot(name)
            elif state == "running" and self._running[name].poll() is not None:
                self._client.terminate_instances(InstanceIds=[name])
            elif state != "running" and name in self._running:
                self._halt(name)

    def _boot(self, name: str) -> subprocess.Popen[bytes]:
        told = self._client.describe_instance_attribute(InstanceId=name, Attribute="userData")
        script = base64.b64decode(told["UserData"].get("Value", ""))
        file = self.folder / f"{name}.sh"
        file.write_bytes(script)
        with (self.folder / f"{name}.log").open("wb") as log:
            return subprocess.Popen(["/bin/sh", file], stdout=log, stderr=log, cwd=self.folder, start_new_session=True)

    def _halt(self, name: str) -> None:
        process = self._running[name]
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def end(self) -> None:
        """Kill all."""
        self._over.set()
        self._thread.join()
        for name in self._running:
            self._halt(name)
        self.server.kill()
        self.server.wait()
        self._client.close()
        self._log.close()
        time.sleep(0)
