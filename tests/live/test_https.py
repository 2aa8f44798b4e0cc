"""A server that speaks HTTPS: commands, client, executor and services trust its certificate and no other."""

from __future__ import annotations

import os
import shutil
import ssl
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway import Client, HeadwayExecutor, Job, Service, Task, wire
from headway.errors import CertificateRefused, Unreachable

from ..certified import pair
from ..waiting import LIMIT
from .conftest import ONE_NODE, Up, headway


def twice(request: int) -> int:
    return 2 * request


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """A server with a certificate of its own making."""
    server = Up(tmp_path_factory.mktemp("https"), ONE_NODE)
    server.start("--tls-self-signed", "--policy", "services:batch=tempo")
    yield server
    server.stop()


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HEADWAY_URL", "HEADWAY_TOKEN", "HEADWAY_TLS_CA"):
        monkeypatch.delenv(name, raising=False)


def test_client_executor_commands_and_services_find_the_certificate_beside_the_url(up: Up, tmp_path: Path) -> None:
    assert up.url.startswith("https://127.0.0.1:")
    (tmp_path / "file").write_bytes(os.urandom(3 << 20))
    with Client(data=up.data) as client:
        assert client.submit(Job("squares", [Task(pow, number, 2) for number in range(5)])).result(LIMIT) == [
            *(0, 1, 4, 9, 16)
        ]
        url = client.upload(tmp_path / "file")
        client.download(url, tmp_path / "back")
        assert (tmp_path / "back").read_bytes() == (tmp_path / "file").read_bytes()
        with HeadwayExecutor(client) as executor:
            assert list(executor.map(twice, range(20))) == [2 * number for number in range(20)]
        service = client.serve(Service("double", twice, window=20, threshold=5.0))
        assert [client.ask("double", number) for number in range(10)] == [2 * number for number in range(10)]
        client.cancel(service)
    ran = headway("submit", "--data", up.data, "--", "true")
    assert ran.returncode == 0, ran.stderr
    assert headway("wait", ran.stdout.strip(), "--data", up.data).returncode == 0


def test_remote_clients_name_the_certificate(up: Up, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token = (up.data / "token").read_text().strip()
    copied = tmp_path / "copied.pem"
    shutil.copy(up.data / "tls.pem", copied)
    monkeypatch.setenv("HEADWAY_DATA_DIR", str(tmp_path / "none"))
    monkeypatch.setenv("HEADWAY_URL", up.url)
    monkeypatch.setenv("HEADWAY_TOKEN", token)
    with pytest.raises(CertificateRefused, match=r"not accepted: self.signed certificate") as refused:
        Client()
    assert "HEADWAY_TLS_CA" in refused.value.hint
    assert "not accepted" in headway("jobs").stderr
    with Client(tls_ca=copied) as client:
        assert client.myself().role is wire.Role.ADMINISTRATOR
    assert headway("jobs", "--tls-ca", copied).returncode == 0
    monkeypatch.setenv("HEADWAY_TLS_CA", str(copied))
    assert headway("jobs").returncode == 0
    with Client(up.url.replace("127.0.0.1", "localhost")) as client:
        assert client.nodes()
    monkeypatch.setenv("HEADWAY_TLS_CA", str(tmp_path / "missing"))
    with pytest.raises(CertificateRefused, match="missing cannot be read"):
        Client()
    monkeypatch.setenv("HEADWAY_TLS_CA", str(tmp_path / "empty"))
    (tmp_path / "empty").write_text("nothing")
    with pytest.raises(CertificateRefused, match="empty has no certificate"):
        Client()
    monkeypatch.setenv("HEADWAY_TLS_CA", str(pair(tmp_path / "other", "127.0.0.1").certificate))
    with pytest.raises(CertificateRefused, match="not accepted"):
        Client()


def test_without_https_nothing_is_said_to_it(up: Up) -> None:
    token = (up.data / "token").read_text().strip()
    with pytest.raises(Unreachable):
        Client(up.url.replace("https", "http"), token=token)
    context = ssl.create_default_context(cafile=str(up.data / "tls.pem"))
    with urllib.request.urlopen(up.url + wire.HEALTH.path, timeout=LIMIT, context=context) as answer:
        assert answer.status == 200


def test_the_certificate_outlives_a_restart_and_a_given_one_takes_its_place(tmp_path: Path) -> None:
    server = Up(tmp_path, ONE_NODE)
    given = pair(tmp_path / "pair", "cluster.example.org")
    try:
        server.start("--tls-self-signed")
        first = (server.data / "tls.pem").read_text()
        with Client(data=server.data, patience=LIMIT) as client:
            job = client.submit(Job("held", [Task(pow, 2, 5)], release=3600.0)).job
            assert job is not None
            server.stop()
            server.start("--tls-self-signed", "--port", server.url.rpartition(":")[2])
            assert (server.data / "tls.pem").read_text() == first
            assert client.job(job).job.name == "held"  # the same client goes on
            server.stop()
            server.start("--tls-cert", str(given.certificate), "--tls-key", str(given.key))
            assert (server.data / "tls.pem").read_text() == given.certificate.read_text()
            assert client.job(job).job.name == "held"  # it reads what to trust with each connection
        token = (server.data / "token").read_text().strip()
        with pytest.raises(CertificateRefused, match=r"not accepted: .*(mismatch|not valid for)") as refused:
            Client(server.url, token=token, tls_ca=given.certificate)
        assert "name of the server that its certificate has" in refused.value.hint
        with pytest.raises(Unreachable, match="closed without an answer") as plain:
            Client(server.url.replace("https:", "http:"), token=token)
        assert plain.value.hint.startswith("If it speaks HTTPS, its URL begins with https://.")
        server.stop()
        server.start()
        with pytest.raises(CertificateRefused, match="does not speak HTTPS"):
            Client(server.url.replace("http:", "https:"), data=server.data)
    finally:
        server.stop()


def test_a_server_does_not_start_with_a_certificate_that_no_client_would_take(tmp_path: Path) -> None:
    old = pair(tmp_path / "old", "127.0.0.1", days=(-2, -1))
    new = pair(tmp_path / "new", "127.0.0.1")
    for words, said in [
        (("--tls-cert", old.certificate, "--tls-key", old.key), "certificate has expired"),
        (("--tls-cert", new.certificate, "--tls-key", old.key), "does not fit the certificate"),
        (("--tls-cert", new.certificate, "--tls-key", tmp_path / "none"), "cannot be read"),
        (("--tls-cert", new.certificate), "has no key in PEM"),
        (("--tls-key", new.key), "--tls-key was given without --tls-cert"),
        (("--tls-self-signed", "--tls-cert", new.certificate), "were both given"),
    ]:
        ran = headway("up", "--data", tmp_path / "data", "--slots", 1, *words)
        assert (ran.returncode, said in ran.stderr) == (2, True), (words, ran.stderr)
