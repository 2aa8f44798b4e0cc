"""What is said of certificates that do not do, against a server with TLS as a scheduler has it."""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headway.engines.dask.certified import Handshake, look
from headway.engines.dask.settings import DaskSettings
from headway.errors import EngineError
from headway.model.node import NodeSpec

from ....certified import Pair, pair


@contextmanager
def serving(own: Pair, authority: Pair) -> Iterator[str]:
    """A server that wants certificates of this authority; its address."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=authority.certificate)
    context.load_cert_chain(*own)
    context.verify_mode = ssl.CERT_REQUIRED
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.05)

        def serve() -> None:
            while not over.is_set():
                try:
                    line, _ = server.accept()
                    line.settimeout(2)
                    with line, context.wrap_socket(line, server_side=True) as safe:
                        safe.recv(1)
                except (OSError, ssl.SSLError):
                    continue

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"tls://127.0.0.1:{server.getsockname()[1]}"
        over.set()
        thread.join()


def folder(path: Path, own: Pair, authority: Pair) -> Path:
    path.mkdir()
    for name, of in (("ca.crt", authority.certificate), ("node.crt", own.certificate), ("node.key", own.key)):
        (path / name).write_bytes(of.read_bytes())
    return path


@pytest.fixture
def authority(tmp_path: Path) -> Pair:
    return pair(tmp_path / "authority")


def made(tmp_path: Path, authority: Pair, host: str = "127.0.0.1", days: tuple[float, float] = (-1, 60)) -> Pair:
    return pair(tmp_path / f"{host}{days}", host, days=days, issuer=authority)


@pytest.mark.parametrize(
    ("server", "ours", "said"),
    [
        ({}, {}, Handshake()),
        ({"days": (-9, -1)}, {}, Handshake("its certificate is refused here: certificate has expired")),
        ({}, {"days": (-9, -1)}, Handshake("it refuses node.crt: certificate expired")),
    ],
)
def test_what_has_expired_is_said(
    tmp_path: Path,
    authority: Pair,
    server: dict[str, tuple[float, float]],
    ours: dict[str, tuple[float, float]],
    said: Handshake,
) -> None:
    with serving(made(tmp_path, authority, **server), authority) as address:
        assert look(address, folder(tmp_path / "tls", made(tmp_path, authority, **ours), authority)) == said


def test_a_worker_whose_certificate_has_expired_since_it_was_started_is_said_to_have_one(
    tmp_path: Path, authority: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = pytest.importorskip("headway.engines.dask.engine", reason="headway[dask] is not installed")
    monkeypatch.setattr(engine, "_CONNECT_SECONDS", 0.2)
    tls = folder(tmp_path / "tls", made(tmp_path, authority), authority)

    async def scenario(address: str) -> None:
        dask = engine.DaskEngine(tmp_path / "engine", DaskSettings("tls://127.0.0.1:1", tls))
        await dask._find_scheduler()
        await dask._install(dask._node(NodeSpec("m1"), address, 1))

    with serving(made(tmp_path, authority, days=(-9, -1)), authority) as address:
        said = f"the worker of node 'm1' does not answer at {address}: its certificate is refused here: certificate has"
        with pytest.raises(EngineError, match=re.escape(f"{said} expired")):
            asyncio.run(scenario(address))


def test_a_certificate_of_another_host_is_no_hindrance_and_is_said(tmp_path: Path, authority: Pair) -> None:
    with serving(made(tmp_path, authority, "10.9.9.9"), authority) as address:
        seen = look(address, folder(tmp_path / "tls", made(tmp_path, authority), authority))
    assert seen.trouble == ""
    assert "127.0.0.1" in seen.other_host


def test_another_authority_and_a_missing_tls_are_said(tmp_path: Path, authority: Pair) -> None:
    other = pair(tmp_path / "other")
    with serving(made(tmp_path, authority), authority) as address:
        seen = look(address, folder(tmp_path / "tls", pair(tmp_path / "stranger", "127.0.0.1", issuer=other), other))
        assert seen.trouble.startswith("its certificate is refused here: ")
        assert "wants TLS" in look(address.replace("tls", "tcp"), None).trouble
    assert look(address, tmp_path / "tls") == Handshake("nothing listens there")
    assert look(address.replace("tls", "tcp"), None) == Handshake("nothing listens there")
    assert "cannot be used" in look(address, tmp_path / "nothing").trouble


def test_one_that_does_not_speak_tls_is_said_to(tmp_path: Path, authority: Pair) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            line, _ = server.accept()
            with line:
                line.sendall(b"a frame of Dask, as it is without TLS")
                line.recv(1)

        thread = threading.Thread(target=answer)
        thread.start()
        tls = folder(tmp_path / "tls", made(tmp_path, authority), authority)
        seen = look(f"tls://127.0.0.1:{server.getsockname()[1]}", tls)
        thread.join()
    assert seen == Handshake("it does not speak TLS: say tcp:// and give no folder of certificates")
