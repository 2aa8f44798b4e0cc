"""What the processes of a node receive when they start: where everything is, and as which user tasks run.

If the engine runs as root, tasks may run as another user: the process of a slot becomes that user before it reads or
runs anything of a task. The files that tasks get and save are then on a *ground* of their own, outside the engine's
folder, which only root can use. Where each task runs as the account of its job's user, each account has a ground of its
own within that one.
"""

# Annotations are values here, not text: msgspec compiles the text of each field when it first needs a type.

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import msgspec

from headway.errors import FileTrouble

NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
"""What the system says where a disk is full, or what a user may have of it."""

ROOM_SECONDS: Final = 60.0
"""So long an attempt waits in all for room on the disk of its node, before it is given back to be tried again."""


WANTED_MAX: Final = 100_000
"""So many files of the server a run may ask for."""

OWNERS: Final = "*"
"""Stands for the name of an account, if each launch names its own."""

SOME: Final = "?"
"""Stands for the name of an account, if some launches name one."""


class NoRoomForFiles(FileTrouble):
    """The disk is full, so that a task cannot get its files or give them: no fault of the task."""


class Account(msgspec.Struct, frozen=True):
    """A user as which tasks run.

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
        """The variables that a login of this user sets."""
        return {"HOME": self.home, "USER": self.name, "LOGNAME": self.name, "SHELL": self.shell}

    def become(self) -> None:
        """Be this user from now on, for good; then only root can look into this process.

        Raises:
            OSError: the system does not allow it.
        """
        os.setgroups(self.groups)
        os.setresgid(self.gid, self.gid, self.gid)
        os.setresuid(self.uid, self.uid, self.uid)

    @contextmanager
    def acting(self) -> Iterator[None]:
        """Use this user's rights, and no others, for files opened in the body; only in processes with one thread."""
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
        folder: of the node; the engine's secret is two levels above.
        output: folder of the output of attempts.
        ground: folder of what tasks get and save; without an account the engine's folder.
        slots: how many slots the node has.
        orphaned_after: seconds without a driver after which it ends.
        output_max: bytes of each stream of an attempt that are kept.
        account: the user as which tasks run; None: the user as which the engine runs.
        uploads: with an account: folder of the files that the server keeps, which only root can read. On a node apart:
            folder of those that the node has got.
        accounts: folder of the grounds of accounts, one for each: a launch may name the account that it runs as, else
            it runs as the engine does; empty: none names one.
        owners: with `accounts`: each launch names one.
        allow_root: with `accounts`: it may name root.
        apart: the node has no disk in common with its driver, so files come and go over the line.
        asks: files of the server are asked for, although the node has a disk in common with it.
        common: folder of what tasks save and of fences, if several nodes of different machines have it in common;
            empty: the ground.
    """

    name: str
    folder: str
    output: str
    ground: str
    slots: int
    orphaned_after: float
    output_max: int
    account: Account | None = None
    uploads: str = ""
    apart: bool = False
    accounts: str = ""
    owners: bool = False
    allow_root: bool = False
    common: str = ""
    asks: bool = False

    @property
    def scratch(self) -> str:
        """Folder of the files that attempts on this node get and give."""
        return os.path.join(self.ground, "nodes", os.path.basename(self.folder))

    @property
    def checkpoints(self) -> str:
        """Folder of what tasks have saved."""
        return os.path.join(self.common or self.ground, "checkpoints")

    @property
    def fences(self) -> str:
        """Folder of the fences of tasks that put outputs."""
        return os.path.join(self.common or self.ground, "fences")

    @property
    def dropped(self) -> str:
        """With an account: folder for outputs that the server keeps, until they are brought in."""
        return os.path.join(self.ground, "dropped")

    @property
    def user(self) -> str:
        """Name of the account; empty if there is none, `OWNERS` or `SOME` if each launch, or some, names its own."""
        if self.accounts:
            return OWNERS if self.owners else SOME
        return self.account.name if self.account else ""

    @property
    def keeps_apart(self) -> bool:
        """Whether tasks run as others than this process does."""
        return bool(self.accounts) or self.account is not None

    def of(self, account: Account) -> "Terms":
        """For what runs as one of several accounts."""
        ground = os.path.join(self.accounts, str(account.uid))
        return msgspec.structs.replace(self, account=account, accounts="", owners=False, ground=ground)


def dropped_name(name: str, job: int, task: int, rank: int) -> str:
    """What a file is called in the folder `Terms.dropped`; `name`: the SHA-256 of its bytes."""
    return f"{name}.{job}.{task}.{rank}"
