"""Where the server is and which token it needs: as given, from the environment, or from its data directory."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from headway.errors import InvalidInput, Unreachable

DATA_DIRECTORY: Final = "~/.local/share/headway"


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server is, and what is needed to speak to it.

    Attributes:
        url: without a path.
        token: that it demands.
        ca: the file with the certificates to trust; None: the system's are trusted.
        pinned: whether that file has the very certificate of this server, whatever its host is called.
    """

    url: str
    token: str = field(repr=False)
    ca: Path | None = None
    pinned: bool = False


def data_directory(given: str | Path | None = None) -> Path:
    """The directory given, else the one $HEADWAY_DATA_DIR names, else `~/.local/share/headway`.

    Raises:
        InvalidInput: it begins with a `~` of an unknown user.
    """
    named = given or os.environ.get("HEADWAY_DATA_DIR") or DATA_DIRECTORY
    try:
        return Path(named).expanduser()
    except RuntimeError:
        hint = "This account has no home directory: name the data directory with --data or HEADWAY_DATA_DIR."
        raise InvalidInput("data", str(named), "a folder that can be found", hint=hint) from None


def find_server(
    url: str | None = None,
    token: str | None = None,
    data: str | Path | None = None,
    tls_ca: str | Path | None = None,
) -> Address:
    """The server to talk to, by the first of these that exists.

    Its URL: `url`; the file `url` of the directory `data`; $HEADWAY_URL; the file `url` of the default data directory.
    Its token: `token`; $HEADWAY_TOKEN unless `data` is given; the file `token` of the data directory.
    What to trust, if it speaks HTTPS: the certificates in `tls_ca`; the very one in the file `tls.pem` of the directory
    that named the URL, or that was given; those in $HEADWAY_TLS_CA; those that the system trusts.

    Raises:
        Unreachable: no server, or no token for it, can be found that way.
        InvalidInput: the URL is not valid.
    """
    here = data is None
    directory = data_directory(data)
    named = url or (os.environ.get("HEADWAY_URL") if here else None)
    url = named or _line(directory / "url")
    if not url:
        raise Unreachable(
            f"no server is known: {directory / 'url'} is not there",
            "Start one with `headway up`, or name it with --url, --data or the variable HEADWAY_URL.",
        )
    if not url.startswith(("http://", "https://")):
        raise InvalidInput("url", url, "http://HOST:PORT or https://HOST:PORT")
    token = token or (os.environ.get("HEADWAY_TOKEN") if here else None) or _line(directory / "token")
    if not token:
        raise Unreachable(
            f"no token for {url}: {directory / 'token'} is not there or cannot be read",
            "Set HEADWAY_TOKEN to the content of the file `token` in the server's data directory.",
        )
    pin = directory / "tls.pem"
    if tls_ca is None and (data is not None or not named) and url.startswith("https://") and pin.exists():
        return Address(url.rstrip("/"), token, pin, pinned=True)
    ca = tls_ca or (os.environ.get("HEADWAY_TLS_CA") if url.startswith("https://") else None)
    return Address(url.rstrip("/"), token, Path(ca).expanduser() if ca else None)


def _line(path: Path) -> str:
    try:
        return path.read_text("utf-8").strip()
    except OSError:
        return ""
