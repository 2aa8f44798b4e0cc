"""The name of a journal's history, which server and client exchange."""

from __future__ import annotations

from typing import Final

EPOCH: Final = "Headway-Epoch"
"""A header. Answers carry the epoch of the server's journal; a request that carries another one is refused (409)."""

OTHER: Final = (
    "is not the one that this client knows: it was restored from a backup, or has lost its end; jobs and messages of"
    " before may have other numbers now, or be gone"
)
"""The error for a journal of another epoch, after the words that say whose it is."""

START_AGAIN: Final = "Start again with a new client; `headway jobs` lists what there is."
"""What can be done then."""
