"""Why there is no connection: the host is not known, nothing answers there, or a certificate is not accepted.

Dask only says that a connection failed, and does not look at the names in certificates.
"""

from __future__ import annotations

import re
import socket
import ssl
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from headway.engines.dask.settings import TLS_FILES

CERTIFIED_SECONDS: Final = 3.0
"""A handshake may take so long."""

_REFUSAL_SECONDS: Final = 0.5
"""So soon the other side says that it does not take our certificate."""

_OTHER_HOST: Final = (62, 64)  # X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH


class Handshake(NamedTuple):
    """What a handshake tells.

    Attributes:
        trouble: why there can be no connection; empty: nothing is known against it.
        other_host: that the certificate is not for this host; empty: it is.
    """

    trouble: str = ""
    other_host: str = ""


def look(address: str, tls: Path | None) -> Handshake:
    """Connect to a scheduler or worker, and see what is said of the certificates.

    Args:
        address: `tls://HOST:PORT` or `tcp://HOST:PORT`.
        tls: folder with `TLS_FILES`; None: there is to be no TLS.
    """
    parts = urlsplit(address)
    host, port = parts.hostname or "", parts.port or 0
    if tls is None:
        try:
            wants_tls = _speaks_tls(host, port)
        except (OSError, UnicodeError) as error:
            return Handshake(_unreached(host, error))
        return Handshake("it wants TLS: say tls:// and give the folder of certificates" if wants_tls else "")
    authority, certificate, key = (str(tls / name) for name in TLS_FILES)
    try:
        context = ssl.create_default_context(cafile=authority)
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        return Handshake(f"the files in {tls} cannot be used: {error}")
    try:
        return Handshake(_shaken(context, host, port))
    except ssl.SSLCertVerificationError as error:
        if error.verify_code not in _OTHER_HOST:
            return Handshake(f"its certificate is refused here: {error.verify_message}")
        context.check_hostname = False
        try:
            return Handshake(_shaken(context, host, port), error.verify_message)
        except (OSError, ssl.SSLError) as again:
            return Handshake(_said(again), error.verify_message)
    except ssl.SSLError as error:
        return Handshake(_said(error))
    except (OSError, UnicodeError) as error:
        return Handshake(_unreached(host, error))


def _unreached(host: str, error: OSError | UnicodeError) -> str:
    """Why there is no connection to a host."""
    if isinstance(error, UnicodeError):
        return f"{host!r} is no name of a host"
    if isinstance(error, socket.gaierror):
        return f"no address of a host {host!r} is known here: {error.strerror}"
    if isinstance(error, ConnectionRefusedError):
        return "nothing listens there"
    if isinstance(error, TimeoutError):
        return f"nothing answers there within {CERTIFIED_SECONDS:g} s"
    return error.strerror or str(error)


def _shaken(context: ssl.SSLContext, host: str, port: int) -> str:
    """Shake hands; what the other side says against our certificate.

    Raises:
        ssl.SSLError: there is no agreement.
        OSError: there is no connection.
    """
    with (
        socket.create_connection((host, port), CERTIFIED_SECONDS) as line,
        context.wrap_socket(line, server_hostname=host) as safe,
    ):
        safe.settimeout(_REFUSAL_SECONDS)
        try:
            safe.recv(1)  # with TLS 1.3, our certificate is refused only behind the handshake
        except TimeoutError:
            return ""
        except ssl.SSLError as error:
            return f"it refuses node.crt: {_said(error)}"
    return ""


def _said(error: Exception) -> str:
    reason = str(getattr(error, "reason", None) or error).replace("_", " ").lower()
    if reason == "wrong version number":
        return "it does not speak TLS: say tcp:// and give no folder of certificates"
    return re.sub(r"^(ssl|tls)v\d+ alert ", "", reason)


def _speaks_tls(host: str, port: int) -> bool:
    """Whether it does.

    Raises:
        OSError: there is no connection.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection((host, port), CERTIFIED_SECONDS) as line:
        try:
            context.wrap_socket(line, server_hostname=host).close()
        except (OSError, ssl.SSLError):
            return False
    return True
