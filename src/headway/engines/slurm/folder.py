"""The folder that the server and the nodes share: what runners are told, and what they tell.

    secret, identity, lock      of the engine; one server at a time
    door                        where the server takes news
    run                         the script of every job
    bundle                      the modules of runners (`bundle`)
    attempts/J.T.A.P/           of job, task, attempt and part: what runs of it on one node
        part                    what its runner is told
        told                    what it tells, record by record
        claim                   which job of Slurm runs it: the first one; another one ends at once
        log                     what the job itself prints
        kept/                   what its tasks give to the server (`carrying`)
    files/J.T.A.P/              likewise, but only the server writes there: the files that its tasks have asked for
        answers                 which of them are there, record by record
    nodes/J.T.A.P/              likewise: the folders in which its tasks run; of accounts in `accounts/`
    gone/                       of all these, what is being removed
    output/, checkpoints/, fences/      as on one machine

How files are written, so that no half of one is read, is in `written`.

`told` is made by the server: a file that is there is looked up afresh each time it is opened, while a network file
system may believe for a minute that a missing one is still missing.
"""

from __future__ import annotations

import fcntl
import logging
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from headway.engines.base import AttemptKey
from headway.engines.local.shared.accounts import hand_over, prepare_ground
from headway.engines.local.shared.output import OUTPUT_FOLDER
from headway.engines.local.shared.terms import Account
from headway.engines.slurm.written import (
    ANSWERS,
    FILES_FOLDER,
    DoorPlate,
    Order,
    Torn,
    WrittenAttempt,
    end_of_text,
    read,
    write,
)
from headway.errors import EngineError

log = logging.getLogger(__name__)

_ACCOUNTS: Final = "accounts"
_SAID_MAX: Final = 2000

KEPT_FOLDER: Final = "kept"
"""In the folder of a part, that of what its tasks give to the server."""

BUNDLE: Final = "bundle"
"""The file with the modules of runners."""

SCRIPT: Final = '#!/bin/sh\nexec "$@"\n'


class SlurmFolder:
    """The folder of an engine.

    Args:
        accounts: some of what runs does so as accounts of users. Each has a ground of its own in `accounts/`, and
            those parts of attempts, and output of jobs, that are its.

    Attributes:
        identity: of the engine, for the names of its jobs.
        word: what runners say with news.
    """

    def __init__(self, root: Path, *, accounts: bool = False) -> None:
        self.root = root
        self.accounts = accounts
        self.identity = self.word = ""
        self._lock = -1

    @property
    def is_open(self) -> bool:
        """Whether this process uses it."""
        return self._lock >= 0

    @property
    def attempts(self) -> Path:
        """Where the folders of the parts of attempts are."""
        return self.root / "attempts"

    @property
    def files(self) -> Path:
        """Where the files are that tasks have asked for."""
        return self.root / FILES_FOLDER

    @property
    def _gone(self) -> Path:
        """Where what is being removed is."""
        return self.root / "gone"

    @property
    def script(self) -> Path:
        """The script of every job."""
        return self.root / "run"

    @property
    def bundle(self) -> Path:
        """The modules of runners."""
        return self.root / BUNDLE

    @property
    def output(self) -> Path:
        """Where the output of attempts is."""
        return self.root / OUTPUT_FOLDER

    def ground(self, account: Account | None) -> Path:
        """Where what tasks are given and save is."""
        return self.root if account is None else self.root / _ACCOUNTS / str(account.uid)

    def grounds(self) -> list[Path]:
        """All of these folders."""
        return [self.root, *((self.root / _ACCOUNTS).iterdir() if self.accounts else ())]

    def of(self, key: AttemptKey, number: int) -> Path:
        """The folder of a part of an attempt."""
        return self.attempts / "{}.{}.{}.{}".format(*key, number)

    def files_of(self, key: AttemptKey, number: int) -> Path:
        """The folder of the files that a part has asked for."""
        return self.files / "{}.{}.{}.{}".format(*key, number)

    def open(self) -> None:
        """Make the folder, for its owner only, and be the only server that uses it.

        Raises:
            EngineError: it cannot be written to, or another server uses it.
        """
        try:
            mode = 0o711 if self.accounts else 0o700  # they get to what is theirs, by its name
            own = (self.output, self.root / _ACCOUNTS) if self.accounts else ()
            shared = (self.attempts, self.files, *own)
            for folder in (self.root, *shared):
                folder.mkdir(mode=mode, parents=True, exist_ok=True)
                folder.chmod(mode)
            for folder in (self.root / "fences", self.root / "nodes"):
                folder.mkdir(mode=0o700, exist_ok=True)
            self._take()
            shutil.rmtree(self._gone, ignore_errors=True)
            self._gone.mkdir(mode=0o700, exist_ok=True)
            self.script.write_text(SCRIPT)
            self.script.chmod(0o644 if self.accounts else 0o600)
            self.word = self._kept("secret", 32)
            self.identity = self._kept("identity", 6)
        except OSError as error:
            self.close()
            hint = "Name a folder that you may write to, on a file system that all nodes of the partition share."
            raise EngineError(f"the folder {self.root} cannot be used: {error}", hint) from error

    def _take(self) -> None:
        """Lock the folder.

        Raises:
            EngineError: another process has it.
        """
        self._lock = os.open(self.root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            hint = "Stop that server, or give this one a folder of its own."
            raise EngineError(f"the folder {self.root} is used by another server", hint) from None
        except OSError as error:
            log.warning("%s cannot be locked (%s): see that no two servers use it", self.root, error.strerror)

    def _kept(self, name: str, size: int) -> str:
        """A random word that is made once."""
        path = self.root / name
        word = path.read_text("ascii") if path.exists() else ""
        if len(word) != 2 * size:  # none yet, or the power failed before it was on the disk
            word = secrets.token_hex(size)
            draft = path.with_suffix(".draft")
            draft.touch(mode=0o600)
            draft.write_text(word)
            draft.replace(path)
        return word

    def close(self) -> None:
        """Let another server use it."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def hang_up_plate(self, host: str, port: int) -> None:
        """Say where this server takes news."""
        write(self.root / "door", DoorPlate(host, port, self.word))
        if self.accounts:
            (self.root / "door").chmod(0o644)

    def give(self, order: Order, account: Account | None = None) -> None:
        """Write what a runner is told.

        Args:
            account: as which it runs, where there are several.

        Raises:
            OSError: it cannot be written.
            EngineError: the ground of its account cannot be used.
        """
        folder = self.of(order.record.key, order.number)
        folder.mkdir(mode=0o700, exist_ok=True)
        told, part = folder / "told", folder / "part"
        own = [told, part]
        told.touch(mode=0o600)
        if order.terms.asks:
            own.append(folder / KEPT_FOLDER)
            own[-1].mkdir(mode=0o700, exist_ok=True)
            files = self.files_of(order.record.key, order.number)
            files.mkdir(mode=0o700, exist_ok=True)
            answers = files / ANSWERS
            answers.touch(mode=0o600)
            if account is not None:  # names of files are secrets, and the account cannot list them
                answers.chmod(0o644)
                files.chmod(0o711)
        write(part, order)
        if account is not None:
            ground = self.ground(account)
            prepare_ground(ground, account)
            for place in (ground / "nodes", self.output / str(order.record.job)):
                hand_over(place, account)
            for path in (*own, folder):  # the folder last: from then on the account can change what is in it
                os.chown(path, account.uid, account.gid, follow_symlinks=False)

    def given(self) -> Iterator[WrittenAttempt]:
        """The attempt that each part belongs to. What belongs to none, or cannot be read, is removed."""
        for folder in sorted(self.attempts.iterdir()):
            try:
                yield read(folder / "part", Order).record
            except (OSError, Torn) as error:
                log.warning("%s is not whole, and is removed: %s", folder, error)
                self._remove(folder)
        for place in (self.files, *(ground / "nodes" for ground in self.grounds())):
            for left in place.iterdir() if place.exists() else ():
                if not (self.attempts / left.name).exists():
                    self._remove(left)

    def remove(self, key: AttemptKey, numbers: tuple[int, ...]) -> None:
        """Remove what is known of an attempt, with the files of its tasks: a runner that finds nothing of it ends."""
        for number in numbers:
            part = self.of(key, number)
            places = [part, self.files_of(key, number)]
            with suppress(OSError):  # it is not there
                owner = part.lstat().st_uid
                ground = self.root if owner == os.geteuid() else self.root / _ACCOUNTS / str(owner)
                places.append(ground / "nodes" / part.name)
            for place in places:
                self._remove(place)

    def _remove(self, place: Path) -> None:
        """Remove a folder, though a job may just begin there: Slurm makes its `log` then."""
        gone = self._gone / f"{place.name}.{secrets.token_hex(4)}"
        with suppress(OSError):  # it is not there; or it stays until the next start
            place.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)

    def is_claimed(self, key: AttemptKey, number: int) -> bool:
        """Whether a runner has begun with a part."""
        return (self.of(key, number) / "claim").exists()

    def said(self, key: AttemptKey, number: int) -> str:
        """The end of what the job of a part has printed; empty if it is nothing."""
        with suppress(OSError):
            return end_of_text(self.of(key, number) / "log", _SAID_MAX).strip()
        return ""
