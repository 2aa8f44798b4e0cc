"""Virtual time: an event loop that never waits, and processes on it that can die between any two of its steps."""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from headway.live.clock import Step
from headway.model.instant import SECOND, Duration, Instant

BASE: Instant = 1_700_000_000 * SECOND
"""When virtual time begins."""


class Died(BaseException):
    """The process has died in the middle of a step; nobody can handle this."""


class Stopped(AssertionError):
    """Nothing is left to happen, and somebody still waits."""


class Life:
    """One process from its start to its death: everything that was scheduled from within it belongs to it.

    Attributes:
        dead: nothing of it runs any more.
    """

    def __init__(self, loop: VirtualLoop, name: str) -> None:
        self.name = name
        self.dead = False
        self._loop = loop
        self._tasks: list[asyncio.Task[Any]] = []

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run something in this process."""
        context = contextvars.copy_context()
        context.run(_life.set, self)
        return self._loop.create_task(work, context=context)

    def call(self, step: Callable[..., object], *args: Any) -> None:
        """Call something in this process, in the next step of the loop."""
        context = contextvars.copy_context()
        context.run(_life.set, self)
        self._loop.call_soon(step, *args, context=context)

    def owns(self, task: asyncio.Task[Any]) -> None:
        """A task was made in this process."""
        self._tasks.append(task)
        if len(self._tasks) > 256:
            self._tasks = [task for task in self._tasks if not task.done()]

    def die(self) -> None:
        """Nothing of it runs from now on: no step, no timer, no cleanup."""
        if not self.dead:
            self.dead = True
            self._loop.bury(self)

    def clear(self) -> None:
        """After the run: let Python drop what the process was waiting in, without a word."""
        for task in self._tasks:
            if not task.done():
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                with suppress(BaseException):
                    task.get_coro().close()  # type: ignore[union-attr]


_life: contextvars.ContextVar[Life | None] = contextvars.ContextVar("life", default=None)


def current_life() -> Life | None:
    """The process that this runs in."""
    return _life.get()


class _Skip:
    """Instead of waiting, time jumps to the next timer."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[object]:
        self._loop.skip(timeout)
        return []

    def close(self) -> None:
        pass


class VirtualLoop(asyncio.BaseEventLoop):
    """An event loop without sockets, signals and waiting.

    Attributes:
        errors: what callbacks raised that nobody handled.
    """

    def __init__(self) -> None:
        super().__init__()
        self._clock_resolution = 1e-7  # timers that are due now are called now
        self._virtual = 0.0
        self._selector = _Skip(self)
        self._lives: list[Life] = []
        self.errors: list[dict[str, Any]] = []
        self.set_exception_handler(lambda loop, context: self._failed(context))

    def _failed(self, context: dict[str, Any]) -> None:
        if not isinstance(context.get("exception"), Died):
            self.errors.append(context)

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._virtual

    def stall(self, seconds: float) -> None:
        """Whatever runs now takes so long: nothing else happens meanwhile."""
        self._virtual += seconds

    def skip(self, timeout: float | None) -> None:
        """Go on to the next timer."""
        if timeout is None:
            raise Stopped("nothing is left to happen")
        if timeout > 0:
            self._virtual = max(self._virtual, self._scheduled[0].when())  # type: ignore[attr-defined]

    def _process_events(self, event_list: object) -> None:
        pass

    def _write_to_self(self) -> None:
        pass

    def new_life(self, name: str) -> Life:
        """A process that starts."""
        life = Life(self, name)
        self._lives.append(life)
        return life

    def create_task(self, coro: Any, **terms: Any) -> asyncio.Task[Any]:
        """Make a task; it belongs to the process that it is made in."""
        task: asyncio.Task[Any] = super().create_task(coro, **terms)
        context = terms.get("context")
        life = context.get(_life) if context is not None else _life.get()
        if life is not None:
            life.owns(task)
        return task

    def _call_soon(self, callback: Any, args: Any, context: Any) -> asyncio.Handle:
        handle = super()._call_soon(callback, args, context)  # type: ignore[misc]
        life = (_life.get() if context is None else context.get(_life)) if self._lives else None
        if life is not None and life.dead:
            handle.cancel()
        return handle  # type: ignore[no-any-return]

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:
        """Call back at a virtual time; a dead process is not called."""
        handle = super().call_at(when, callback, *args, context=context)
        life = _life.get() if context is None else context.get(_life)
        if life is not None and life.dead:
            handle.cancel()
        return handle

    def bury(self, life: Life) -> None:
        """Drop all that a process still wanted to do."""
        waiting: deque[asyncio.Handle] = self._ready  # type: ignore[attr-defined]
        for handle in [*waiting, *self._scheduled]:  # type: ignore[attr-defined]
            if handle._context is not None and handle._context.get(_life) is life:
                handle.cancel()

    def clear(self) -> None:
        """After the run."""
        for life in self._lives:
            life.dead = True
        for life in self._lives:
            life.clear()


class LoopClock:
    """The clock of a driver: virtual time, which somebody may set.

    Args:
        loop: its time.
        offset: how far the machine's clock is from virtual time, by itself.
    """

    def __init__(self, loop: VirtualLoop, offset: Duration = 0) -> None:
        self._loop = loop
        self._offset = offset
        self._watching: list[Callable[[Step], None]] = []

    def now(self) -> Instant:
        """Microseconds since the Unix epoch."""
        return BASE + self._offset + round(self._loop.time() * SECOND)

    def call_at(self, at: Instant, callback: Callable[[], object]) -> Callable[[], None]:
        """Call back by the loop."""
        delay = min(max(0, at - self.now()), 3600 * SECOND)
        when = (at - BASE - self._offset) / SECOND if delay < 3600 * SECOND else self._loop.time() + 3600
        return self._loop.call_at(max(when, self._loop.time()), callback).cancel

    def go_on_from(self, last: Instant) -> Duration:
        """Be ahead if the clock was set back while the driver was down."""
        ahead = max(0, last - self.now())
        self._offset += ahead
        return ahead

    def watch(self, stepped: Callable[[Step], None]) -> Callable[[], None]:
        """Call back after each `step`."""
        self._watching.append(stepped)
        return lambda: self._watching.remove(stepped)

    def step(self, by: Duration) -> None:
        """The machine's clock is set: forward, time jumps; back, it stays."""
        self._offset += max(0, by)
        for stepped in tuple(self._watching):
            stepped(Step(max(0, by), f"the clock was set by {by / SECOND:g} s"))
