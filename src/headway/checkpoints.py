"""What a task saves of its progress, so that it continues from there when its node dies or it loses its slot.

A function calls `headway.checkpoint(state)` now and then. At its beginning it asks `headway.resumed()` for the last
saved state. Both do nothing outside a task, so the same function can be called anywhere.

Each attempt saves into a folder of its own, PLACE.ATTEMPT. When a later attempt begins to use checkpoints, it renames
that folder to its own number: from then on the earlier attempt, if it still runs, has no place to save to. A checkpoint
is written beside the last one and counts once it is complete; the one before is kept as well.
"""

from __future__ import annotations

import contextlib
import os
import sys
from _thread import allocate_lock  # the Lock of `threading`
from typing import Any, Final, Protocol

from headway.errors import HeadwayError

CHECKPOINTS_KEPT: Final = 2
"""How many checkpoints of a task are kept: the last one, and the one before in case that is unreadable."""

_NUMBER: Final = r"[1-9][0-9]{0,17}"
_DRAFT: Final = ".draft"
_TRIES: Final = 100
"""So often a folder is made again that others remove at the same time."""

_PLAIN: Final = b"headway checkpoint\n"
_BY_VALUE: Final = b"headway checkpoint python %d.%d\n" % sys.version_info[:2]


class Left(BaseException):
    """The task continues elsewhere: this attempt ends here. Not an error, and not for the task to catch."""


class CheckpointListener(Protocol):
    """Receives what becomes of checkpoints."""

    def saved(self) -> bool:
        """The state was saved; returns whether the attempt shall end now, because the task continues elsewhere."""

    def unreadable(self, detail: str) -> None:
        """A checkpoint could not be read and is not used."""


def take_over(place: str, attempt: int) -> str:
    """Take over what an earlier attempt saved; returns the path of this attempt's folder, which may not exist yet.

    Args:
        place: path of the folders of the task's attempts, without their numbers.
        attempt: number of the attempt, from 1.
    """
    folder = f"{place}.{attempt}"
    for earlier in range(attempt - 1, 0, -1):
        with contextlib.suppress(FileNotFoundError):
            os.rename(f"{place}.{earlier}", folder)
            break
    return folder


def make_folder(path: str) -> None:
    """Make a folder, with those above it, although others may remove these as long as they are empty.

    Raises:
        OSError: it cannot be made.
    """
    for _ in range(_TRIES):
        with contextlib.suppress(FileNotFoundError):
            os.makedirs(path, mode=0o700, exist_ok=True)
            return
    os.makedirs(path, mode=0o700, exist_ok=True)


class Checkpoints:
    """The checkpoints of an attempt to run a function.

    Args:
        place, attempt: see `take_over`.
        listener: receives what is saved, and what cannot be read.

    Attributes:
        has_left: the attempt must end with what it saved last.
    """

    def __init__(self, place: str, attempt: int, listener: CheckpointListener) -> None:
        self._place = place
        self._attempt = attempt
        self._listener = listener
        self._pid = os.getpid()
        self._lock = allocate_lock()
        self._folder = ""
        self._is_there = False
        self._last = 0
        self.has_left = False

    def save(self, state: object) -> bool:
        """Save a state, whole or not at all; returns whether it was saved. See `checkpoint`.

        Raises:
            Left: it was saved, and the attempt shall end.
        """
        with self._lock:
            numbers = self._begin()
            content = _written(state)
            draft = os.path.join(self._folder, _DRAFT)
            try:
                if not self._is_there:
                    make_folder(self._folder)
                    self._is_there = True
                with open(draft, "wb") as file:
                    file.writelines(content)
                    file.flush()
                    os.fsync(file.fileno())
                os.rename(draft, self._path(self._last + 1))
            except FileNotFoundError:
                print("A later attempt of this task has begun: nothing is saved any more.", file=sys.stderr)
                return False
            except OSError as error:
                print(f"The checkpoint could not be saved: {error}", file=sys.stderr)
                with contextlib.suppress(OSError):  # it may be what fills the disk
                    os.unlink(draft)
                return False
            self._last += 1
            for number in numbers:
                if number <= self._last - CHECKPOINTS_KEPT:
                    with contextlib.suppress(OSError):  # a later attempt has just taken them over
                        os.unlink(self._path(number))
        if self._listener.saved():
            self.has_left = True
            raise Left
        return True

    def load(self, default: Any) -> Any:
        """The last saved state that can be read. See `resumed`."""
        with self._lock:
            for number in reversed(self._begin()):
                try:
                    return _read(self._path(number))
                except BaseException as error:  # noqa: BLE001 - unpickling runs foreign code, which may want to exit
                    detail = f"checkpoint {number} cannot be read: {type(error).__name__}: {error}"
                    print(f"{detail}; the task goes on from the one before, or from its start.", file=sys.stderr)
                    self._listener.unreadable(detail)
                    with contextlib.suppress(OSError):  # a folder, which was not made here, stays
                        os.unlink(self._path(number))
            return default

    def _begin(self) -> list[int]:
        """Make the folder; returns the numbers of the checkpoints in it, in order."""
        if os.getpid() != self._pid:
            raise HeadwayError(
                "a checkpoint was asked for by a process that the task started",
                "Only the process that calls the function saves and resumes: hand the state over to it.",
            )
        if not self._folder:
            self._folder = take_over(self._place, self._attempt)
        import re  # large, and programs do without

        try:
            numbers = sorted(int(name) for name in os.listdir(self._folder) if re.fullmatch(_NUMBER, name))
        except (FileNotFoundError, NotADirectoryError):
            return []
        self._is_there = True
        self._last = max(self._last, *numbers, 0)
        return numbers

    def _path(self, number: int) -> str:
        return os.path.join(self._folder, str(number))


def _written(state: object) -> tuple[bytes, bytes]:
    """A state as it is stored: by reference if possible, else by value, which only this Python can read."""
    import pickle  # large, and programs do without

    with contextlib.suppress(Exception):  # the second try reports what is wrong
        return _PLAIN, pickle.dumps(state, pickle.HIGHEST_PROTOCOL)
    import cloudpickle  # large, and rarely needed

    return _BY_VALUE, cloudpickle.dumps(state, pickle.HIGHEST_PROTOCOL)


def _read(path: str) -> Any:
    """A state that was stored.

    Raises:
        Exception: anything, because unpickling runs foreign code.
    """
    import pickle

    with open(path, "rb") as file:
        head = file.readline(80)
        if head not in (_PLAIN, _BY_VALUE):
            said = head.decode("ascii", "replace").strip()
            raise ValueError(f"it begins with {said!r}, not as one that Python {sys.version.split()[0]} can read")
        return pickle.load(file)


current: Checkpoints | None = None
"""Those of the attempt that this process runs; None outside a task."""


def checkpoint(state: object) -> bool:
    """Save the state of the task, so that it continues from there if this attempt ends early.

    The state is pickled. The file is on the disk when this returns; the previous one is kept until then, and longer.
    The scheduler counts only what is done after it as lost. In a rigid job each rank saves its own.

    If the scheduler wants the task to continue elsewhere, this does not return after the state has been saved: the
    attempt ends as if the function had raised, and the next one finds the state.

    Returns:
        Whether it was saved. It is not saved outside a task, when a later attempt of the task has begun, or when the
        disk is full; then the task's stderr says why.

    Raises:
        Exception: what pickling the state raises.
        HeadwayError: called by a process other than the one that runs the function.
    """
    return current is not None and current.save(state)


def resumed(default: Any = None) -> Any:
    """The state that this task saved last, in an earlier attempt or in this one; `default` if there is none.

    A state that cannot be read (it is damaged, a class is gone, it was saved by value under another Python) is skipped,
    and the one before it is used; the task's stderr and an incident in the journal say so.

    Raises:
        HeadwayError: called by a process other than the one that runs the function.
    """
    return default if current is None else current.load(default)
