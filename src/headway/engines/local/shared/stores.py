"""Files of a node whose agent and driver share no disk: which there are, and where they lie on the node.

The driver asks for them in pieces and sends them in pieces, over the line that it has anyway (`shared.frames`).
"""

from __future__ import annotations

import os
from contextlib import suppress
from enum import Enum, IntEnum
from typing import Final

from headway.engines.local.shared.terms import Terms

PIECE_MAX: Final = 1 << 20
"""Bytes of a piece: so many hold up an agent, or an event loop, for a millisecond or two."""

TRIES: Final = 3
"""So often a file is brought whose bytes arrive otherwise than they were."""

_DIGEST: Final = "[0-9a-f]{64}"
_OUTPUT: Final = r"[0-9]{1,20}/[0-9]{1,20}\.[0-9]{1,20}(\.[0-9]{1,20})?\.(out|err)"


class Store(IntEnum):
    """A kind of files.

    Attributes:
        UPLOAD: files that clients uploaded or tasks gave, by the SHA-256 of their bytes.
        OUTPUT: what attempts wrote: `JOB/TASK.ATTEMPT[.RANK].out` or `.err`.
        CHECKPOINT: what a member of an attempt has saved, as an archive: `JOB/TASK/RANK.ATTEMPT`. What a task, or a
            whole job, has saved can be removed: `JOB/TASK`, `JOB`.
    """

    UPLOAD = 0
    OUTPUT = 1
    CHECKPOINT = 2


_CHECKPOINT: Final = r"[0-9]{1,20}(/[0-9]{1,20}(/[0-9]{1,20}\.[0-9]{1,20})?)?"
_NAMES: Final = {Store.UPLOAD: _DIGEST, Store.OUTPUT: _OUTPUT, Store.CHECKPOINT: _CHECKPOINT}


class Arrived(Enum):
    """What became of a file that came; `AGAIN`: its bytes were others, and it may be asked for once more."""

    HERE = 0
    NOT = 1
    NO_ROOM = 2
    AGAIN = 3


def path_of(terms: Terms, store: Store, name: str) -> str:
    """Where a file is on the node.

    Raises:
        FileNotFoundError: none can have this name.
    """
    import re  # large, and few processes of a node name files

    if not re.fullmatch(_NAMES[store], name):
        raise FileNotFoundError(name)
    folder = {Store.UPLOAD: terms.uploads, Store.OUTPUT: terms.output, Store.CHECKPOINT: terms.checkpoints}[store]
    return os.path.join(folder, name)


def remove(terms: Terms, store: Store, name: str) -> None:
    """Remove a file, and the folder of its job if that is empty now; what is not there is ignored."""
    with suppress(OSError):
        path = path_of(terms, store, name)
        if store is Store.CHECKPOINT:
            import shutil  # large, and rarely needed

            shutil.rmtree(path, ignore_errors=True)
            return
        os.unlink(path)
        if store is Store.OUTPUT:
            os.rmdir(os.path.dirname(path))
