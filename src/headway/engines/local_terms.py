"""What the processes of a node are told when they are started: where everything lies, and whose the tasks are.

Where the engine runs as root, tasks may be another user's: the process of a slot becomes that user before it reads or
runs anything of a task. What tasks are given and save then lies on a *ground* of its own, outside the engine's folder,
which is root's alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec


class Account(msgspec.Struct, frozen=True):
    """A user, as whom tasks run.

    Attributes:
        groups: all groups, its first one too.
    """

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str
    shell: str

    @property
    def environment(self) -> dict[str, str]:
        """What its login would say of it."""
        return {"HOME": self.home, "USER": self.name, "LOGNAME": self.name, "SHELL": self.shell}

    def become(self) -> None:
        """Be this user from now on, for good; afterwards this process is nobody's to look into but root's.

        Raises:
            OSError: the system does not let this process.
        """
        os.setgroups(self.groups)
        os.setresgid(self.gid, self.gid, self.gid)
        os.setresuid(self.uid, self.uid, self.uid)

    @contextmanager
    def acting(self) -> Iterator[None]:
        """Have this user's rights, no others, for files that are opened meanwhile; for processes of one thread."""
        groups, gid, uid = os.getgroups(), os.getegid(), os.geteuid()
        os.setgroups(self.groups)
        os.setegid(self.gid)
        os.seteuid(self.uid)
        try:
            yield
        finally:
            os.seteuid(uid)
            os.setegid(gid)
            os.setgroups(groups)


class Terms(msgspec.Struct, frozen=True):
    """What a node is started with.

    Attributes:
        name: of the node.
        folder: of the node; the engine's secret is two above.
        kept: folder of the output of attempts.
        ground: folder of what tasks are given and save; without an account that of the engine.
        slots: how many slots the node has.
        orphaned_after: seconds without a driver after which it ends.
        output_max: bytes that are kept of each stream of an attempt.
        account: as whom tasks run; None: as whom the engine runs.
        uploads: with an account: folder of the files that the server keeps, which only root can read.
    """

    name: str
    folder: str
    kept: str
    ground: str
    slots: int
    orphaned_after: float
    output_max: int
    account: Account | None = None
    uploads: str = ""

    @property
    def scratch(self) -> str:
        """Folder of the files that attempts on this node are given and give."""
        return os.path.join(self.ground, "nodes", os.path.basename(self.folder))

    @property
    def checkpoints(self) -> str:
        """Folder of what tasks have saved."""
        return os.path.join(self.ground, "checkpoints")

    @property
    def fences(self) -> str:
        """Folder of the fences of tasks that put outputs."""
        return os.path.join(self.ground, "fences")

    @property
    def dropped(self) -> str:
        """With an account: folder of outputs that the server shall keep, until they are brought in."""
        return os.path.join(self.ground, "dropped")

    @property
    def user(self) -> str:
        """Name of the account; empty where there is none."""
        return self.account.name if self.account else ""
