"""Where things are in a data directory, beside the journal and its mark."""

from __future__ import annotations

from pathlib import Path
from typing import Final

TOKEN_FILE: Final = "token"
"""The token that callers must show."""

ALERT_SECRET: Final = "alert-secret"
"""The secret with which alerts are signed."""

TOKENS_FILE: Final = "tokens.json"
"""The tokens of users, as hashes."""

PAIR: Final = "tls-pair.pem"
"""The certificate that the server made for itself, with its key."""

CERTIFICATE: Final = "tls.pem"
"""The certificate that the server shows, for clients that find it through this directory."""

URL: Final = "url"
"""The server's address, while it runs."""

PORT: Final = "port"
"""The port where the server listens by default: the one that it had before."""

TRACK_RECORD: Final = "track-record"
"""What came of earlier forecasts: their process writes it, see `foresight.remembered`."""

UPLOADS_FOLDER: Final = "uploads"
"""Files that the server keeps, each under its SHA-256."""

ENGINE: Final = "engine"
"""The engine's folder."""

SITES_FOLDER: Final = "sites"
"""Folders of the engines of other sites, one each."""

OUTPUTS_FOLDER: Final = Path(ENGINE, "output")
"""What attempts wrote, one folder for each job."""

CHECKPOINTS: Final = Path(ENGINE, "checkpoints")
"""Checkpoints of tasks, one folder for each job."""


def output_file(data: Path, name: str) -> Path | None:
    """Where an output of an attempt is in this data directory; None if its name says that an engine keeps it elsewhere.

    This answers without an engine. The engine of the data directory names an output by the full path that its file had
    when it was written. The directory may have been moved, copied or reached by another name since, so only the job's
    folder and the file's name count.
    """
    *_, job, file = ("", "", *name.split("/"))
    is_here = name.startswith("/") and job.isdecimal() and file not in ("", ".", "..")
    return data / OUTPUTS_FOLDER / job / file if is_here else None
