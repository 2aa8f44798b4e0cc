"""Certificates of a server that speaks HTTPS: those that it is given, and those that it makes for itself.

A certificate is checked as its clients will check it: the server shakes hands with itself before it listens. So one
that has expired, or whose key is another's, is found at the start and not by the first caller.
"""

from __future__ import annotations

import logging
import os
import re
import socket
import ssl
import stat
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final

from headway.errors import CertificateRefused, HeadwayError
from headway.private import write_private

log = logging.getLogger(__name__)

OWN_DAYS: Final = 3650
"""How long a certificate is valid that the server makes for itself."""

RENEW_DAYS: Final = 30
"""So long before its end such a one is replaced at a start; of others a warning says that they end soon."""

CERTIFICATE_MAX: Final = 1 << 20
"""Bytes of a file with certificates or a key."""

EXTRA: Final = "pip install 'headway[tls]'"

_PEM: Final = re.compile(rb"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
_DAY: Final = 86_400.0


@dataclass(frozen=True, slots=True)
class Secure:
    """What a server needs to speak HTTPS.

    Attributes:
        context: for its connections.
        certificate: what it shows, in PEM: the first of its chain.
        names: the hosts and addresses for which it is.
        until: when it expires, in seconds since the Unix epoch.
    """

    context: ssl.SSLContext
    certificate: str
    names: tuple[str, ...]
    until: float


def given(certificate: Path, key: Path) -> Secure:
    """The certificate and the key in these files, which may be one; before the certificate's issuers, if there are any.

    Raises:
        CertificateRefused: one cannot be read, they do not belong together, or the certificate is not valid now.
    """
    found = _secure(certificate, key)
    left = found.until - time.time()
    if left < RENEW_DAYS * _DAY:
        log.warning("the certificate in %s expires in %d days", certificate, left / _DAY)
    return found


def self_signed(file: Path, host: str) -> Secure:
    """The certificate that the server made for itself; a new one where there is none, or it expires soon.

    Args:
        file: has the certificate and its key.
        host: where the server listens.

    Raises:
        CertificateRefused: none can be made here; the message says which package is missing.
        HeadwayError: it cannot be written.
    """
    names = _names(host)
    if file.exists():
        try:
            found = _secure(file, file)
            if found.until - time.time() > RENEW_DAYS * _DAY and set(names) <= set(found.names):
                return found
            log.warning("the certificate in %s expires soon, or is not for %s: it is replaced", file, host)
        except CertificateRefused as error:
            log.warning("%s: it is replaced", error.args[0])
    write_private(file, _make(names))
    return _secure(file, file)


def _names(host: str) -> list[str]:
    """By which names a server of this machine is reached."""
    names = ["localhost", "127.0.0.1", "::1", socket.gethostname().lower(), socket.getfqdn().lower(), host.lower()]
    own = [name for name in names if re.fullmatch(r"[a-z0-9.:-]+", name) and not _is_any(name)]
    return [str(ip_address(name)) if _is_address(name) else name for name in dict.fromkeys(own)]


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _is_any(name: str) -> bool:
    return _is_address(name) and ip_address(name).is_unspecified


def _make(names: Sequence[str]) -> str:
    """A new key, and a certificate for it, in PEM."""
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
    except ImportError as error:
        raise CertificateRefused(
            f"a certificate cannot be made here: {error}",
            f"Install it: {EXTRA}. Or make a certificate with other tools, and name it with --tls-cert and --tls-key.",
        ) from error
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"Headway on {names[-1]}"[:64])])
    usage = dict.fromkeys(
        (
            *("content_commitment", "key_encipherment", "data_encipherment", "key_agreement"),
            *("key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
        ),
        False,
    )
    begin = datetime.now(UTC) - timedelta(hours=1)  # clients' clocks may be behind
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(begin + timedelta(days=OWN_DAYS))
        .add_extension(
            x509.SubjectAlternativeName(
                [x509.IPAddress(ip_address(name)) if _is_address(name) else x509.DNSName(name) for name in names]
            ),
            critical=False,
        )
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.KeyUsage(digital_signature=True, **usage), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return (private + certificate.public_bytes(serialization.Encoding.PEM)).decode()


def _secure(certificate: Path, key: Path) -> Secure:
    found = _PEM.search(_read(certificate, "certificate"))
    if found is None:
        raise CertificateRefused(f"{certificate} has no certificate in PEM", "It begins with BEGIN CERTIFICATE.")
    _read(key, "key")
    shown = found[0].decode("ascii", "replace") + "\n"
    client = trusting(shown, str(certificate))
    client.check_hostname = False
    context = _context(certificate, key)
    try:
        peer = _shake(context, client)
    except ssl.SSLCertVerificationError as error:
        raise CertificateRefused(
            f"the certificate in {certificate} is not valid: {error.verify_message}", "Have it renewed."
        ) from error
    except ssl.SSLError as error:
        raise CertificateRefused(f"the certificate in {certificate} cannot be used: {error}") from error
    said = [str(name).lower() for _, name in peer.get("subjectAltName", ())]
    names = tuple(str(ip_address(name)) if _is_address(name) else name for name in said)
    return Secure(context, shown, names, float(ssl.cert_time_to_seconds(peer["notAfter"])))


def _read(path: Path, what: str) -> bytes:
    """A file with a certificate or a key.

    Raises:
        CertificateRefused: it cannot be read, or a key may be read by everybody.
    """
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if not stat.S_ISREG(mode):
                raise CertificateRefused(f"the {what} in {path} cannot be read: it is no file")
            text = file.read(CERTIFICATE_MAX)
    except OSError as error:
        hint = "It must be a file in PEM that the account of the server may read."
        raise CertificateRefused(f"the {what} in {path} cannot be read: {error.strerror or error}", hint) from error
    if what == "key" and b"PRIVATE KEY-----" not in text:
        raise CertificateRefused(f"{path} has no key in PEM", "It begins with BEGIN PRIVATE KEY, or a kind of these.")
    if what == "key" and stat.S_IMODE(mode) & 0o007:
        said = f"the key in {path} may be read by everybody: its mode is {stat.S_IMODE(mode):04o}"
        raise CertificateRefused(said, f"`chmod o= {path}`, if no one else has read it.")
    return text


def _context(certificate: Path, key: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.set_alpn_protocols(["http/1.1"])

    def no_password() -> str:
        raise CertificateRefused(
            f"the key in {key} is encrypted", f"`openssl pkey -in {key} -out NEW` writes it as the server needs it."
        )

    try:
        context.load_cert_chain(certificate, key, no_password)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            said = f"the key in {key} does not fit the certificate in {certificate}"
            raise CertificateRefused(said, "Name the key with which the certificate was requested.") from error
        raise CertificateRefused(f"the key in {key} cannot be used: {error}", "It must be in PEM.") from error
    return context


def trusting(certificates: str, source: str) -> ssl.SSLContext:
    """A client's context that trusts these certificates, in PEM, and what they have signed; no others.

    Raises:
        CertificateRefused: there are none; `source` is what they are called.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # one that another has signed may be trusted by itself
    try:
        context.load_verify_locations(cadata=certificates)
    except (ssl.SSLError, ValueError) as error:
        raise CertificateRefused(f"{source} has no certificate that can be read: {error}") from error
    return context


def _shake(server: ssl.SSLContext, client: ssl.SSLContext) -> dict[str, Any]:
    """What a client learns of a server's certificate.

    Raises:
        ssl.SSLError: it does not accept it.
    """
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [client.wrap_bio(to_client, to_server), server.wrap_bio(to_server, to_client, server_side=True)]
    for _ in range(10):
        waits = 0
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                waits += 1
        if not waits:
            return ends[0].getpeercert() or {}
    raise HeadwayError("a handshake does not end")
