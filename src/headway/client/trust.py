"""Which certificates a client trusts, and what it says of those that it does not."""

from __future__ import annotations

import ssl
from typing import Final

from headway.client.address import Address
from headway.errors import CertificateRefused, HeadwayError

_EXPIRED: Final = 10
_NOT_YET: Final = 9
_OTHER_HOST: Final = (62, 64)


def context_of(address: Address) -> ssl.SSLContext | None:
    """The context for connections to a server; None: the system says whom to trust.

    Raises:
        CertificateRefused: the file with the certificates to trust cannot be read, or has none.
    """
    if address.ca is None or not address.url.startswith("https://"):
        return None
    from headway.certificates import trusting  # most clients speak to a server of this machine without it

    try:
        text = address.ca.read_text("ascii", "replace")
    except OSError as error:
        said = f"the certificates to trust in {address.ca} cannot be read: {error.strerror or error}"
        raise CertificateRefused(said, "HEADWAY_TLS_CA or --tls-ca names a file in PEM.") from error
    context = trusting(text, str(address.ca))
    context.check_hostname = not address.pinned
    return context


def refusal(error: BaseException | None, address: Address) -> HeadwayError | None:
    """What is wrong with the certificate of a server, if an error says that something is."""
    while error is not None and not isinstance(error, ssl.SSLError):
        within = [part for part in error.args if isinstance(part, ssl.SSLError)]  # as urllib3 wraps it
        error = within[0] if within else error.__cause__ or error.__context__
    if error is None or isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return None
    if not isinstance(error, ssl.SSLCertVerificationError):
        if error.reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE"):
            said = f"{address.url} does not speak HTTPS: {error.reason}"
            return CertificateRefused(said, "Is it http://? `headway up --tls-self-signed` starts a server with HTTPS.")
        return None
    said, code = f"the certificate of {address.url} is not accepted: {error.verify_message}", error.verify_code
    if code in (_EXPIRED, _NOT_YET):
        hint = "Have it renewed, and start the server with the new one; or set the clock of this machine."
    elif code in _OTHER_HOST:
        hint = "Use a name of the server that its certificate has, or a certificate that has this name."
    elif address.pinned:
        hint = f"Only the one in {address.ca} is trusted, which the server wrote there. Is it the server you mean?"
    else:
        whom = "those of the system" if address.ca is None else f"those in {address.ca}"
        hint = (
            f"Trusted are {whom}. HEADWAY_TLS_CA or --tls-ca names a file with others, such as a copy of the file "
            "`tls.pem` in the server's data directory."
        )
    return CertificateRefused(said, hint)
