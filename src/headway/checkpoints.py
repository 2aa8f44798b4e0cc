"""What a task saves of its progress, so that it goes on from there when its node dies or its slot is taken from it.

A function says `headway.checkpoint(state)` now and then, and at its beginning asks `headway.resumed()` for what it
saved last. Both do nothing outside a task, so the same function can be called anywhere.

Each attempt saves into a folder of its own, PLACE.ATTEMPT. When a later one begins to use it, it takes that folder over
under its own number: from then on the earlier one, where it still runs, has no place to save to. A checkpoint is
written beside the last one and counts once it is whole, and the one before is kept as well.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import re
import sys
from threading import Lock
from typing import Any, Final, Protocol

from headway.errors import HeadwayError

KEPT: Final = 2
"""So many checkpoints of a task are kept: the last, and the one before should that be unreadable."""

_NUMBER = re.compile(r"[1-9][0-9]{0,17}")
_DRAFT: Final = ".draft"
_PLAIN: Final = b"headway checkpoint\n"
_BY_VALUE: Final = b"headway checkpoint python %d.%d\n" % sys.version_info[:2]


class Left(BaseException):
    """What was saved goes on elsewhere: this attempt ends here. Not an error, and not for the task to catch."""


class Listener(Protocol):
    """Who is told what becomes of checkpoints."""

    def saved(self) -> bool:
        """What was done until now is kept; whether the attempt is to end with it, because it goes on elsewhere."""

    def unreadable(self, detail: str) -> None:
        """A checkpoint could not be read and is not used."""


def take_over(place: str, attempt: int) -> str:
    """Make what an earlier attempt saved this one's; the path of this attempt's folder, which may not be there yet.

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


class Checkpoints:
    """The checkpoints of an attempt at a function.

    Args:
        place, attempt: see `take_over`.
        listener: is told of what is saved, and of what cannot be read.

    Attributes:
        has_left: the attempt was to end with what it saved last.
    """

    def __init__(self, place: str, attempt: int, listener: Listener) -> None:
        self._place = place
        self._attempt = attempt
        self._listener = listener
        self._pid = os.getpid()
        self._lock = Lock()
        self._folder = ""
        self._is_there = False
        self._last = 0
        self.has_left = False

    def save(self, state: object) -> bool:
        """Save a state, whole or not at all; whether it was saved. See `checkpoint`.

        Raises:
            Left: it was saved, and the attempt is to end.
        """
        with self._lock:
            numbers = self._begin()
            content = _written(state)
            try:
                if not self._is_there:
                    os.makedirs(self._folder, mode=0o700, exist_ok=True)
                    self._is_there = True
                draft = os.path.join(self._folder, _DRAFT)
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
                return False
            self._last += 1
            for number in numbers:
                if number <= self._last - KEPT:
                    with contextlib.suppress(OSError):  # a later attempt has just taken them over
                        os.unlink(self._path(number))
        if self._listener.saved():
            self.has_left = True
            raise Left
        return True

    def load(self, default: Any) -> Any:
        """The state that was saved last and can be read. See `resumed`."""
        with self._lock:
            for number in reversed(self._begin()):
                try:
                    return _read(self._path(number))
                except BaseException as error:  # noqa: BLE001 - reading runs code of others, which may want to exit
                    detail = f"checkpoint {number} cannot be read: {type(error).__name__}: {error}"
                    print(f"{detail}; the task goes on from the one before, or from its start.", file=sys.stderr)
                    self._listener.unreadable(detail)
                    with contextlib.suppress(OSError):  # a folder, which nobody here has made, stays
                        os.unlink(self._path(number))
            return default

    def _begin(self) -> list[int]:
        """Have the folder; the numbers of the checkpoints in it, in order."""
        if os.getpid() != self._pid:
            raise HeadwayError(
                "a checkpoint was asked for by a process that the task started",
                "Only the process that calls the function saves and resumes: hand the state over to it.",
            )
        if not self._folder:
            self._folder = take_over(self._place, self._attempt)
        try:
            numbers = sorted(int(name) for name in os.listdir(self._folder) if _NUMBER.fullmatch(name))
        except (FileNotFoundError, NotADirectoryError):
            return []
        self._is_there = True
        self._last = max(self._last, *numbers, 0)
        return numbers

    def _path(self, number: int) -> str:
        return os.path.join(self._folder, str(number))


def _written(state: object) -> tuple[bytes, bytes]:
    """A state as it is stored: by reference where that is possible, else by value, which this Python alone can read."""
    with contextlib.suppress(Exception):  # what is wrong is said by the second try
        return _PLAIN, pickle.dumps(state, pickle.HIGHEST_PROTOCOL)
    import cloudpickle  # large, and rarely needed

    return _BY_VALUE, cloudpickle.dumps(state, pickle.HIGHEST_PROTOCOL)


def _read(path: str) -> Any:
    """A state that was stored.

    Raises:
        Exception: anything, for reading runs code of others.
    """
    with open(path, "rb") as file:
        head = file.readline(80)
        if head not in (_PLAIN, _BY_VALUE):
            said = head.decode("ascii", "replace").strip()
            raise ValueError(f"it begins with {said!r}, not as one that Python {sys.version.split()[0]} can read")
        return pickle.load(file)


current: Checkpoints | None = None
"""Those of the attempt that this process runs; None outside a task."""


def checkpoint(state: object) -> bool:
    """Save the state of the task, from which it goes on should this attempt end before its time.

    The state is pickled. The file is on the disk when this returns; the one before is kept until then, and longer. The
    scheduler counts as lost only what is done after it. In a rigid job each rank saves its own.

    Where the scheduler wants the task to go on elsewhere, this does not return when the state has been saved: the
    attempt ends as if the function had raised, and the next one finds the state.

    Returns:
        Whether it was saved. It is not outside a task, when a later attempt of the task has begun, or when the disk
        takes no more; then the task's stderr says why.

    Raises:
        Exception: what pickling the state raises.
        HeadwayError: called by another process than the one that calls the function.
    """
    return current is not None and current.save(state)


def resumed(default: Any = None) -> Any:
    """The state that this task saved last, in an earlier attempt or in this one; `default` where there is none.

    One that cannot be read (it is damaged, a class is gone, it was saved by value under another Python) is left out for
    the one before it; the task's stderr and an incident in the journal say so.

    Raises:
        HeadwayError: called by another process than the one that calls the function.
    """
    return default if current is None else current.load(default)
