"""Where something is in a file of TOML: parsers do not tell."""

from __future__ import annotations

import re


def first_line(text: str, name: str) -> int | None:
    """The first line that names a table, or a key outside all tables; None: there is none.

    >>> first_line('[role.user]\\nslots = 4\\n[[node]]\\n', "node")
    3
    """
    names = re.compile(rf"\s*\[{{0,2}}\s*[\"']?{re.escape(name)}[\"']?\s*[\].=]")
    return next((place for place, row in enumerate(text.splitlines(), 1) if names.match(row)), None)
