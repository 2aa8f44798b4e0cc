"""The folders from which the calling program imports modules, so that its tasks can import them too."""

from __future__ import annotations

import os
import site
import sys
import sysconfig
from functools import cache


def import_paths() -> tuple[str, ...]:
    """The folders from which this program imports, beyond its Python's installation, as `wire.Calls.paths` has them.

    The first is the folder of its script (the current one, if it has none), then those that PYTHONPATH and the program
    itself have added. Folders after the standard library in `sys.path` follow an empty text.
    """
    before: list[str] = []
    after: list[str] = []
    found = before
    for entry in sys.path:
        if entry in _installed():
            found = after
            continue
        try:
            path = os.path.abspath(entry)
        except (FileNotFoundError, TypeError):  # the current folder is gone; or no text, which imports ignore too
            continue
        found.append(path)
    return (*before, "", *after) if after else tuple(before)


@cache
def _installed() -> frozenset[str]:
    """The folders from which every program of this Python imports."""
    paths = sysconfig.get_paths()
    library = {paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    dynamic = {os.path.join(path, "lib-dynload") for path in library}
    archive = "python{}{}.zip".format(*sys.version_info[:2])
    archives = {os.path.join(os.path.dirname(path), archive) for path in library}
    return frozenset({*library, *dynamic, *archives, *site.getsitepackages(), site.getusersitepackages()})
