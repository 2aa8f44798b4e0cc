"""Certificates that a server is given or makes, and what is said of those that cannot be used."""

from __future__ import annotations

import logging
import sys
import time
from pathlib import Path

import pytest

from headway import certificates
from headway.certificates import OWN_DAYS, given, self_signed
from headway.errors import CertificateRefused

from ..certified import Pair, pair

DAY = 86_400.0


def test_a_given_certificate_is_shown_alone_without_its_key_and_its_issuers(tmp_path: Path) -> None:
    authority = pair(tmp_path / "authority")
    made = pair(tmp_path / "own", "here", "10.0.0.1", issuer=authority)
    both = tmp_path / "both.pem"
    both.write_bytes(made.key.read_bytes() + made.certificate.read_bytes() + authority.certificate.read_bytes())
    both.chmod(0o600)
    for found in (given(made.certificate, made.key), given(both, both)):
        assert found.certificate == made.certificate.read_text()
        assert found.names == ("here", "10.0.0.1")
        assert found.until == pytest.approx(time.time() + 60 * DAY, abs=60)


def _expired(folder: Path) -> Pair:
    return pair(folder, "here", days=(-2, -1))


def _not_yet(folder: Path) -> Pair:
    return pair(folder, "here", days=(1, 2))


def _with_the_key_of_another(folder: Path) -> Pair:
    return pair(folder, "here")._replace(key=pair(folder / "other", "here").key)


def _missing(folder: Path) -> Pair:
    return pair(folder, "here")._replace(certificate=folder / "none")


def _keyless(folder: Path) -> Pair:
    return pair(folder, "here")._replace(key=folder / "none")


def _a_folder(folder: Path) -> Pair:
    return pair(folder, "here")._replace(key=folder)


def _swapped(folder: Path) -> Pair:
    made = pair(folder, "here")
    return Pair(made.key, made.key)


def _damaged(folder: Path) -> Pair:
    made = pair(folder, "here")
    text = made.certificate.read_text().splitlines()
    made.certificate.write_text("\n".join([text[0], text[1][::-1], *text[2:]]))
    return made


def _damaged_key(folder: Path) -> Pair:
    made = pair(folder, "here")
    made.key.write_text(made.key.read_text().replace("M", "m"))
    return made


def _no_key(folder: Path) -> Pair:
    made = pair(folder, "here")
    made.key.write_text("no key")
    return made


def _open_to_all(folder: Path) -> Pair:
    made = pair(folder, "here")
    made.key.chmod(0o644)
    return made


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (_expired, "the certificate in .*cert.pem is not valid: certificate has expired"),
        (_not_yet, "is not valid: certificate is not yet valid"),
        (_with_the_key_of_another, "the key in .*other/key.pem does not fit the certificate in .*cert.pem"),
        (_missing, "the certificate in .*none cannot be read: No such file"),
        (_keyless, "the key in .*none cannot be read: No such file"),
        (_a_folder, "the key in .* cannot be read: "),
        (_swapped, "key.pem has no certificate in PEM"),
        (_damaged, "cert.pem has no certificate that can be read"),
        (_damaged_key, "the key in .*key.pem cannot be used"),
        (_no_key, "key.pem has no key in PEM"),
        (_open_to_all, "may be read by everybody: its mode is 0644"),
    ],
)
def test_one_that_cannot_be_used_is_refused_with_its_reason(tmp_path: Path, make: object, said: str) -> None:
    assert callable(make)
    made = make(tmp_path)
    with pytest.raises(CertificateRefused, match=said):
        given(*made)


def test_an_encrypted_key_is_refused_without_asking_anybody(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization

    made = pair(tmp_path, "here")
    key = serialization.load_pem_private_key(made.key.read_bytes(), None)
    made.key.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    with pytest.raises(CertificateRefused, match="is encrypted"):
        given(*made)


def test_one_that_ends_soon_is_said_to(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        given(*pair(tmp_path, "here", days=(-1, 10.5)))
    assert "expires in 10 days" in caplog.text


def test_the_servers_own_certificate_stays_until_it_ends_soon_or_the_host_is_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "pair.pem"
    first = self_signed(file, "127.0.0.1")
    assert file.stat().st_mode & 0o077 == 0
    assert {"localhost", "127.0.0.1", "::1"} <= set(first.names)
    assert "PRIVATE" not in first.certificate
    assert self_signed(file, "127.0.0.1").certificate == first.certificate
    assert self_signed(file, "0.0.0.0").certificate == first.certificate
    other = self_signed(file, "headway.example.org")
    assert other.certificate != first.certificate
    assert "headway.example.org" in other.names
    monkeypatch.setattr(certificates, "RENEW_DAYS", OWN_DAYS)
    assert self_signed(file, "headway.example.org").certificate != other.certificate


def test_a_damaged_own_certificate_is_replaced(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "pair.pem"
    file.write_text("nothing")
    with caplog.at_level(logging.WARNING):
        assert self_signed(file, "127.0.0.1").names
    assert "it is replaced" in caplog.text


def test_where_none_can_be_made_the_missing_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "cryptography"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(CertificateRefused) as refused:
        self_signed(tmp_path / "pair.pem", "127.0.0.1")
    assert certificates.EXTRA in refused.value.hint
    assert not (tmp_path / "pair.pem").exists()
