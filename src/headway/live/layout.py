"""Where things lie in a data directory, beside the journal and its mark."""

from __future__ import annotations

from pathlib import Path
from typing import Final

TOKEN: Final = "token"
"""What callers have to show."""

URL: Final = "url"
"""Where the server is, while it runs."""

UPLOADS: Final = "uploads"
"""Files that the server keeps, each under its SHA-256."""

ENGINE: Final = "engine"
"""The engine's folder."""

OUTPUT: Final = Path(ENGINE, "output")
"""What attempts wrote, a folder a job."""

CHECKPOINTS: Final = Path(ENGINE, "checkpoints")
"""What tasks have saved, a folder a job."""
