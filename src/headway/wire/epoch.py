"""The name of a journal's story, which server and client tell each other."""

from __future__ import annotations

from typing import Final

EPOCH: Final = "Headway-Epoch"
"""A header. Answers carry the epoch of the server's journal; a request that carries another one is refused (409)."""
