"""The settings of the engine for Dask, and the certificates that it shows."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from headway.engines.local.driver.settings import LocalSettings
from headway.errors import InvalidInput

TLS_FILES: Final = ("ca.crt", "node.crt", "node.key")
"""Files of a folder of certificates: who signs, our certificate, and its key."""

_SCHEMES: Final = ("tcp://", "tls://")
_PERIOD_RANGE: Final = (0.05, 60.0)
_GONE_RANGE: Final = (1.0, 86400.0)

DEFAULT_SITE: Final = "dask"


@dataclass(frozen=True, slots=True)
class DaskSettings:
    """The settings of a `DaskEngine`.

    Attributes:
        address: of the scheduler: `tcp://HOST:PORT` or `tls://HOST:PORT`; empty: the cluster is started.
        tls: with `tls://`: folder with `TLS_FILES`.
        start: the class of the cluster that is started, see `keeper.Start`; empty: there is one.
        options, workers: of that cluster.
        site: of the nodes that are found.
        shared: paths mean the same on the workers' machines as here: what the server keeps is used there in place.
        folder: on the workers: where agents keep what they need, made if it is not there; empty: in the folder for
            temporary files.
        period: seconds between two looks at which workers there are.
        gone_after: seconds after which a worker that is not there any more has left for good.
        read_ahead: short tasks that a slot is given ahead of their turn.
        agents: lease, grace and output of what runs there.

    Raises:
        InvalidInput: one of them is not allowed.
    """

    address: str = ""
    tls: Path | None = None
    start: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    workers: int = 0
    site: str = DEFAULT_SITE
    shared: bool = False
    folder: str = ""
    period: float = 1.0
    gone_after: float = 300.0
    read_ahead: int = 4
    agents: LocalSettings = LocalSettings()  # noqa: RUF009  # frozen

    def __post_init__(self) -> None:
        if self.start and (self.address or self.tls is not None):
            raise InvalidInput("address", self.address, "none where a cluster is started")
        if not self.start:
            self._check_address()
        if self.folder and not self.folder.startswith("/"):
            raise InvalidInput("folder", self.folder, "a full path on the workers' machines")
        for name, (least, most) in (("period", _PERIOD_RANGE), ("gone_after", _GONE_RANGE)):
            if not least <= getattr(self, name) <= most:
                raise InvalidInput(name, getattr(self, name), f"{least:g} to {most:g} seconds")

    def _check_address(self) -> None:
        host, _, port = self.address.partition("://")[2].rpartition(":")
        if not self.address.startswith(_SCHEMES) or not host or not (port.isdecimal() and 0 < int(port) < 1 << 16):
            raise InvalidInput("address", self.address, "tcp://HOST:PORT or tls://HOST:PORT of a Dask scheduler")
        if self.address.startswith("tls://") != (self.tls is not None):
            allowed = "a folder of certificates with tls://, none with tcp://"
            raise InvalidInput("tls", str(self.tls or ""), allowed, hint="--dask-tls FOLDER names it.")
        if self.tls is not None:
            check_tls(self.tls)


def check_tls(folder: Path) -> None:
    """Check that a folder has certificates that belong together.

    Raises:
        InvalidInput: a file is missing or unreadable, or the key is not that of the certificate.
    """
    missing = [name for name in TLS_FILES if not (folder / name).is_file()]
    if missing:
        raise InvalidInput("tls", str(folder), f"a folder with {', '.join(TLS_FILES)}; there is no {missing[0]}")
    authority, certificate, key = (folder / name for name in TLS_FILES)
    try:
        context = ssl.create_default_context(cafile=authority)
        context.load_cert_chain(certificate, key)
    except (ssl.SSLError, OSError) as error:
        allowed = "certificates in PEM whose key belongs to node.crt"
        raise InvalidInput("tls", str(folder), f"{allowed}; {error}") from error
