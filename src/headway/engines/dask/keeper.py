"""The process that starts a cluster for a server, and keeps it (`python -m headway.engines.dask.keeper DIR`).

DIR/cluster.json says what is started. Servers come through the socket DIR/keeper: each is told where the cluster is as
soon as that is known, or why it cannot be started. The cluster ends when a server says so, or when none has been there
for long. So it outlives a server that was killed, with all that runs there.
"""

from __future__ import annotations

import fcntl
import logging
import os
import select
import signal
import socket
import sys
import time
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import msgspec

from headway.errors import InvalidInput, did_you_mean
from headway.sockets import short

CLUSTER_FILE: Final = "cluster.json"
SOCKET: Final = "keeper"
KEEPER_LOG: Final = "keeper.log"
KEEPER_LOCK: Final = "keeper.lock"

END_LINE: Final = b"end\n"
"""What a server sends that wants the cluster to end."""

CLASSES: Final = {"local": "distributed.LocalCluster", "ssh": "distributed.SSHCluster"}
"""Classes of clusters by short names."""

_A_CLASS: Final = "MODULE.CLASS of a class of Dask clusters, such as dask_jobqueue.SLURMCluster"
_TLS_FILES: Final = {"ca.crt": "tls_ca_file", "node.crt": "tls_client_cert", "node.key": "tls_client_key"}
_GRACE_SECONDS: Final = 10.0
_AGAIN_SECONDS: Final = 0.05
_CLOSING_SECONDS: Final = 20

log = logging.getLogger("headway.engines.dask.keeper")


class Start(msgspec.Struct, frozen=True):
    """What is started.

    Attributes:
        start: the class of the cluster, as `MODULE.CLASS`, or a short name of `CLASSES`.
        options: the arguments of the class.
        workers: how many it is to have; 0: as the class has it.
        orphaned_after: seconds without a server after which it ends.
    """

    start: str
    options: dict[str, Any] = msgspec.field(default_factory=dict)
    workers: int = 0
    orphaned_after: float = 60.0


class WrongTerm(msgspec.Struct, frozen=True):
    """What is wrong in a `Start`, so that it cannot start another time either.

    Attributes:
        field: its name there.
        allowed, hint: see `InvalidInput`.
    """

    field: str
    allowed: str
    hint: str


class ClusterPlace(msgspec.Struct, frozen=True):
    """What servers are told.

    Attributes:
        start: what the cluster was started with.
        address: of the scheduler; empty: there is no cluster.
        tls: the folder with the certificates for it; empty: there are none.
        error: why there is no cluster.
        wrong: likewise; None: that may be another time.
    """

    start: Start
    address: str = ""
    tls: str = ""
    error: str = ""
    wrong: WrongTerm | None = None


def class_of(start: str) -> tuple[str, str]:
    """Module and name of the class of a cluster."""
    module, _, name = CLASSES.get(start, start).rpartition(".")
    return module, name


def _class(start: str) -> Any:
    """The class of a cluster.

    Raises:
        InvalidInput: there is none of this name.
    """
    name_of_module, name = class_of(start)
    try:
        module = import_module(name_of_module)
    except Exception as error:  # whatever a module raises
        hint = f"{name_of_module} cannot be imported: {_named(error)}{_what_has_it(error)}"
        raise InvalidInput("start", start, _A_CLASS, hint=hint) from error
    found = getattr(module, name, None)
    if not callable(found):
        near = did_you_mean(name, [one for one in dir(module) if one.endswith("Cluster")])
        raise InvalidInput("start", start, _A_CLASS, hint=f"{name_of_module} has no class {name}. {near}".rstrip())
    return found


def _what_has_it(error: Exception) -> str:
    """What to do if a package is not installed; those with clusters of Dask have the names of their modules."""
    if not isinstance(error, ModuleNotFoundError) or not error.name or "." in error.name:
        return ""
    return f". Install it where the server runs, probably by: pip install {error.name.replace('_', '-')}"


def made(wanted: Start, folder: Path) -> tuple[Any, ClusterPlace]:
    """Start the cluster, and say where it is.

    Raises:
        InvalidInput: there is no such class, or it does not take these options.
    """
    kind = _class(wanted.start)
    options: dict[str, Any] = dict(wanted.options)
    is_local = wanted.start in ("local", CLASSES["local"])
    if is_local:
        options = {"dashboard_address": None, "memory_limit": 0} | options
        if wanted.workers:
            options.setdefault("n_workers", wanted.workers)
        if "security" not in options and "protocol" not in options:
            from distributed.security import Security

            options |= {"security": Security.temporary(), "protocol": "tls://"}
    try:
        cluster = kind(**options)
    except Exception as error:
        if type(first := _first(error)) not in (TypeError, ValueError):
            raise
        allowed = f"the arguments of {'.'.join(class_of(wanted.start))}"
        raise InvalidInput("options", wanted.options, allowed, hint=_named(first)) from error
    if not hasattr(cluster, "scheduler_address"):
        raise InvalidInput(
            "start", wanted.start, _A_CLASS, hint="That is something else: it says no scheduler_address."
        )
    if wanted.workers and not is_local:
        cluster.scale(wanted.workers)
    address = str(cluster.scheduler_address)
    tls = str(_certificates(cluster.security, folder / "tls")) if address.startswith("tls://") else ""
    return cluster, ClusterPlace(wanted, address, tls)


def _certificates(security: Any, folder: Path) -> Path:
    """Write what Dask keeps in memory, or in files of any names, into a folder as engines want it."""
    folder.mkdir(mode=0o700, exist_ok=True)
    for name, attribute in _TLS_FILES.items():
        given = str(getattr(security, attribute))
        text = given if "-----BEGIN" in given else Path(given).read_text("ascii")
        with open(os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="ascii") as file:
            file.write(text)
    return folder


def serve(listener: socket.socket, place: ClusterPlace, patience: float, there: list[socket.socket]) -> None:
    """Tell servers where the cluster is, until one ends it or none has been there for so many seconds.

    Args:
        there: gets the connections of servers; one that wants the cluster to end waits until this is closed.
    """
    told = msgspec.json.encode(place) + b"\n"
    left = time.monotonic()
    while there or time.monotonic() < left + patience:
        wait = None if there else max(0.0, left + patience - time.monotonic())
        for one in select.select([listener, *there], [], [], wait)[0]:
            if one is listener:
                connected, _ = listener.accept()
                with suppress(OSError):
                    connected.sendall(told)
                there.append(connected)
                continue
            try:
                said = one.recv(64)
            except OSError:
                said = b""
            if said == END_LINE:
                return
            one.close()
            there.remove(one)
            left = time.monotonic()


def _tell_failure(listener: socket.socket, place: ClusterPlace) -> None:
    """Tell one server, if one comes soon, why there is no cluster."""
    listener.settimeout(_GRACE_SECONDS)
    with suppress(OSError):
        connected, _ = listener.accept()
        with connected:
            connected.sendall(msgspec.json.encode(place) + b"\n")


def _first(error: BaseException) -> BaseException:
    """What went wrong at first: Dask wraps what a class of workers raises, such as a wrong argument."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def _named(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _said(error: BaseException) -> str:
    """What went wrong, and at first."""
    first = _first(error)
    return _named(error) if first is error else f"{_named(error).rstrip('.')}, because of {_named(first)}"


def _locked(path: Path) -> bool:
    """Whether this process may keep the cluster. One that is about to end is waited for."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    until = time.monotonic() + _GRACE_SECONDS
    while time.monotonic() < until:
        with suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        time.sleep(_AGAIN_SECONDS)
    return False


def main() -> None:
    """Start the cluster and keep it."""
    folder = Path(sys.argv[1])
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    if not _locked(folder / KEEPER_LOCK):
        return  # another one keeps it
    wanted = msgspec.json.decode((folder / CLUSTER_FILE).read_bytes(), type=Start)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the server ends first, and then this
    with socket.socket(socket.AF_UNIX) as listener:
        (folder / SOCKET).unlink(missing_ok=True)
        with short(folder / SOCKET) as path:
            listener.bind(path)
        listener.listen()
        try:
            cluster, place = made(wanted, folder)
        except Exception as error:  # whatever a class of clusters raises: the server is told
            log.warning("the cluster does not start", exc_info=error)
            wrong = WrongTerm(error.field, error.allowed, error.hint) if isinstance(error, InvalidInput) else None
            _tell_failure(listener, ClusterPlace(wanted, error=_said(error), wrong=wrong))
            sys.exit(1)
        there: list[socket.socket] = []
        try:
            serve(listener, place, wanted.orphaned_after, there)
        finally:
            (folder / SOCKET).unlink(missing_ok=True)
            cluster.close(timeout=_CLOSING_SECONDS)


if __name__ == "__main__":
    main()
