"""A network namespace with one link to this one, which can be cut: a machine that is there, and is not reached."""

from __future__ import annotations

import os
import shutil
import subprocess
from types import TracebackType

import pytest


class Apart:
    """The namespace, while the context lasts. Where none can be made, the test is skipped.

    Attributes:
        near, far: the addresses of the two ends of the link, here and there.
    """

    def __init__(self) -> None:
        number = os.getpid() % (1 << 14)
        network = f"10.213.{number >> 6}"
        self.near, self.far = (f"{network}.{(number & 63) * 4 + end}" for end in (1, 2))
        self._name = f"headway{number}"
        self._end = f"hw{number}"

    def __enter__(self) -> Apart:
        for program, package in (("ip", "iproute2"), ("nsenter", "util-linux")):
            if shutil.which(program) is None:
                pytest.skip(f"{program} is not installed; on Debian: apt-get install {package}")
        made = subprocess.run(["ip", "netns", "add", self._name], capture_output=True, text=True, check=False)
        if made.returncode:
            pytest.skip(f"a network namespace can be made by root alone, with CAP_SYS_ADMIN: {made.stderr.strip()}")
        there = f"{self._end}b"
        linked = self._tried("link", "add", self._end, "type", "veth", "peer", "name", there, "netns", self._name)
        if linked.returncode:
            self.__exit__(None, None, None)
            pytest.skip(f"network namespaces cannot be linked, which needs CAP_NET_ADMIN: {linked.stderr.strip()}")
        self._run("addr", "add", f"{self.near}/30", "dev", self._end)
        self._run("link", "set", self._end, "up")
        self._run("-n", self._name, "addr", "add", f"{self.far}/30", "dev", there)
        for end in (there, "lo"):
            self._run("-n", self._name, "link", "set", end, "up")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._tried("link", "del", self._end)
        self._run("netns", "del", self._name)

    def within(self, *words: str) -> list[str]:
        """A command that runs this one there."""
        return ["nsenter", f"--net=/run/netns/{self._name}", "--", *words]  # `ip netns exec` would hide control groups

    def cut(self) -> None:
        """Nothing passes any more, and nobody is told."""
        self._run("link", "set", self._end, "down")

    def mend(self) -> None:
        """The link is as before."""
        self._run("link", "set", self._end, "up")

    def _tried(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["ip", *words], capture_output=True, text=True, check=False)

    def _run(self, *words: str) -> None:
        done = self._tried(*words)
        assert done.returncode == 0, (words, done.stderr)
