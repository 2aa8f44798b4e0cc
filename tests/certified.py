"""Certificates for tests: valid, expired, of other hosts, with keys that do not fit."""

from __future__ import annotations

import datetime
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Pair(NamedTuple):
    """The files of a certificate and its key."""

    certificate: Path
    key: Path


def pair(folder: Path, *hosts: str, days: tuple[float, float] = (-1, 60), issuer: Pair | None = None) -> Pair:
    """A certificate for these hosts, valid from the first day to the last, counted from now; self-signed or issued."""
    folder.mkdir(exist_ok=True, parents=True)
    found = Pair(folder / "cert.pem", folder / "key.pem")
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, hosts[0] if hosts else "authority")])
    signer, by = key, subject
    if issuer is not None:
        by = x509.load_pem_x509_certificate(issuer.certificate.read_bytes()).subject
        loaded = serialization.load_pem_private_key(issuer.key.read_bytes(), None)
        assert isinstance(loaded, ec.EllipticCurvePrivateKey)
        signer = loaded
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(by)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + datetime.timedelta(days=days[0]))
        .not_valid_after(now + datetime.timedelta(days=days[1]))
        .add_extension(x509.BasicConstraints(ca=not hosts, path_length=None), critical=True)
    )
    if hosts:
        names = [x509.DNSName(host) if host[-1].isalpha() else x509.IPAddress(ip_address(host)) for host in hosts]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    found.certificate.write_bytes(builder.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    found.key.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    found.key.chmod(0o600)
    return found
