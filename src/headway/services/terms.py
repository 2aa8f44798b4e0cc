"""What a service and its instances are told."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec

from headway.errors import InvalidInput

ARGV: Final = (sys.executable, "-P", "-m", "headway.services.instance")
"""The command of an instance. It imports nothing from the folder where it is started before it knows what."""


class InstanceId(NamedTuple):
    """An instance: the attempt of a task."""

    job: int
    task: int
    attempt: int


class ServiceAnswer(NamedTuple):
    """What a handler has answered: a body, and its media type."""

    body: bytes
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSettings:
    """The settings of a service.

    Attributes:
        threshold: seconds within which a request shall be answered.
        window: seconds of each window of measures.
        time_limit: seconds that an instance may work on a request. After that the caller gets an error, and the
            instance is to be killed.
        wait_limit: seconds after its arrival at which a request that no instance has is given up. The caller gets an
            error.
        load_limit: seconds that an instance may take to load the handler. After that it is to be killed.
        queue_max: how many requests may wait.
        queue_bytes_max: bytes that their bodies may have together.
        request_max, answer_max: bytes that the body of a request and of an answer may have.

    Raises:
        InvalidInput: one of them is not allowed.
    """

    threshold: float = 1.0
    window: float = 20.0
    time_limit: float = 60.0
    wait_limit: float = 60.0
    load_limit: float = 600.0
    queue_max: int = 10_000
    queue_bytes_max: int = 64 << 20
    request_max: int = 1 << 20
    answer_max: int = 8 << 20

    def __post_init__(self) -> None:
        for name in ("threshold", "window", "time_limit", "wait_limit", "load_limit"):
            value = getattr(self, name)
            least, most = 0.001 if name != "window" else 0.1, 86_400.0
            if not (math.isfinite(value) and least <= value <= most):
                raise InvalidInput(name, value, f"{least:g} to {most:g} seconds")
        for name in ("queue_max", "queue_bytes_max", "request_max", "answer_max"):
            value = getattr(self, name)
            if not 1 <= value <= 1 << 30:
                raise InvalidInput(name, value, f"1 to {1 << 30}")


def check_handler(name: str, field: str) -> None:
    """Check that a function is named like one; empty: there is none.

    Raises:
        InvalidInput: it is not.
    """
    module, _, path = name.partition(":")
    if name and not all(part.isidentifier() for part in (*module.split("."), *path.split("."))):
        raise InvalidInput(field, name, "module:function")


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceTerms:
    """What an instance is told by variables of its environment.

    It also reads HEADWAY_JOB, HEADWAY_TASK and HEADWAY_ATTEMPT, which every task has.

    Attributes:
        service: its name.
        socket: path of the broker's socket.
        key: secret of the service. It gives no other right.
        version: of the handler.
        handler: a function, `module:function`.
        command: a program that is run for each request. With neither, the broker sends a pickled function.
        paths: folders that modules are imported from, ahead of the folder that it runs in and of others.
        patience: seconds for which it tries to reach a broker that is gone. The server may be starting again.

    Raises:
        InvalidInput: it has two handlers, or the function is not named like one.
    """

    service: str
    socket: str
    key: str
    version: str = ""
    handler: str = ""
    command: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    patience: float = 60.0

    def __post_init__(self) -> None:
        if self.handler and self.command:
            raise InvalidInput("handler", self.handler, "a function or a command, one of them")
        check_handler(self.handler, "handler")

    def environment(self) -> dict[str, str]:
        """The variables that say this to an instance."""
        return {
            "HEADWAY_SERVICE": self.service,
            "HEADWAY_SERVICE_SOCKET": self.socket,
            "HEADWAY_SERVICE_KEY": self.key,
            "HEADWAY_SERVICE_VERSION": self.version,
            "HEADWAY_SERVICE_HANDLER": self.handler,
            "HEADWAY_SERVICE_COMMAND": msgspec.json.encode(self.command).decode(),
            "HEADWAY_SERVICE_PATHS": msgspec.json.encode(self.paths).decode(),
            "HEADWAY_SERVICE_PATIENCE": f"{self.patience:g}",
        }

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> InstanceTerms:
        """What these variables say.

        Raises:
            InvalidInput: one is missing, or has a value that is not allowed.
        """

        def variable(name: str, default: str | None = None) -> str:
            value = environment.get(f"HEADWAY_{name}", default)
            if value is None:
                raise InvalidInput(f"HEADWAY_{name}", None, "a variable that the server sets for instances of services")
            return value

        try:
            command, paths = (
                msgspec.json.decode(variable(name, "[]"), type=tuple[str, ...])
                for name in ("SERVICE_COMMAND", "SERVICE_PATHS")
            )
            patience = float(variable("SERVICE_PATIENCE", "60"))
        except (msgspec.MsgspecError, ValueError) as error:
            raise InvalidInput(
                "HEADWAY_SERVICE_COMMAND, _PATHS or _PATIENCE", str(error), "JSON lists; seconds"
            ) from error
        return cls(
            service=variable("SERVICE"),
            socket=variable("SERVICE_SOCKET"),
            key=variable("SERVICE_KEY"),
            version=variable("SERVICE_VERSION", ""),
            handler=variable("SERVICE_HANDLER", ""),
            command=command,
            paths=paths,
            patience=patience,
        )
