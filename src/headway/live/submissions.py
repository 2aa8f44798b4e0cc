"""Submissions, from when they arrive until the driver takes them into a turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from headway import wire
from headway.errors import Unavailable
from headway.live import intake
from headway.live.intake import CheckedSubmission
from headway.live.ledger import Ledger
from headway.live.room import Room
from headway.live.store.journal import Journal
from headway.live.turn import refuse
from headway.model.instant import Instant
from headway.model.job import JobSpec

Allow = Callable[[Sequence[JobSpec]], None]
"""Raises if a caller may not have these jobs."""


class Submissions:
    """Checks submissions, and keeps those that can be accepted for the next turns.

    Args:
        ledger: numbers the jobs, and knows how earlier ones ended.
        journal: knows the answers to earlier submissions.
        room: says whether the disk has room for more.
        check_open: raises if nothing is accepted now.
        check_services: raises if no services are.
        heard: is told the number of a client that is there.
        now: the instant that an event would be of.
        ask_for_turn: is called when something waits to be taken.
    """

    def __init__(
        self,
        ledger: Ledger,
        journal: Journal,
        room: Room,
        *,
        check_open: Callable[[], None],
        check_services: Callable[[], None],
        heard: Callable[[int], None],
        now: Callable[[], Instant],
        ask_for_turn: Callable[[], None],
    ) -> None:
        self._ledger = ledger
        self._journal = journal
        self._room = room
        self._check_open = check_open
        self._check_services = check_services
        self._heard = heard
        self._now = now
        self._ask_for_turn = ask_for_turn
        self._small: list[CheckedSubmission] = []
        self._large: list[CheckedSubmission] = []
        self._large_next = False
        self._keys: dict[tuple[str, str], tuple[bytes, asyncio.Future[wire.Submitted]]] = {}

    def __bool__(self) -> bool:
        """Whether something waits to be taken."""
        return bool(self._small or self._large)

    async def submit(self, caller: str, submission: wire.Submission, allow: Allow) -> wire.Submitted:
        """Accept jobs, all or none; when this returns they are durable. See `Driver.submit` for what it raises."""
        answer = await intake.with_pauses(self._checked(caller, submission, allow))
        return await asyncio.shield(answer)  # shielded: if one caller leaves, others may still wait

    def hand_in(self, caller: str, submission: wire.Submission, allow: Allow) -> asyncio.Future[wire.Submitted]:
        """The same without a task, if the submission is short: it is checked when this returns."""
        if not intake.is_short(submission):
            return asyncio.ensure_future(self.submit(caller, submission, allow))
        return intake.at_once(self._checked(caller, submission, allow))

    def _checked(
        self, caller: str, submission: wire.Submission, allow: Allow
    ) -> intake.Pausing[asyncio.Future[wire.Submitted]]:
        """Check a submission, and keep it for a turn; returns where its answer will be."""
        self._check_open()
        ledger, journal = self._ledger, self._journal
        digest = yield from intake.digest(submission)
        self._heard(journal.clients.known(submission.client))
        before = intake.answered(journal, caller, submission, digest)
        if before is not None:
            answer = asyncio.get_running_loop().create_future()
            answer.set_result(before)
            return answer
        twin = self._keys.get((caller, submission.key)) if digest else None
        if twin is not None:
            its_digest, answer = twin
            intake.check_same(submission, digest, its_digest)
            return answer
        if any(isinstance(job.work, wire.Handling) for job in submission.jobs):
            self._check_services()
        self._room.check_work(lambda: any(intake.gives_uploads(job.work) for job in submission.jobs))
        answer = asyncio.get_running_loop().create_future()
        if digest:
            self._keys[caller, submission.key] = digest, answer
            answer.add_done_callback(partial(self._forget_key, (caller, submission.key)))
        first, count = ledger.job + 1, len(submission.jobs)
        ledger.job += count
        try:
            checked = yield from intake.look_at(
                submission,
                caller,
                digest,
                first=first,
                now=self._now(),
                ledger=ledger,
                journal=journal,
                answer=answer,
            )
            self._check_open()
            allow(checked.specs)  # nothing comes between this and that it waits to be taken
        except BaseException as error:
            if ledger.job == first - 1 + count:
                ledger.job = first - 1  # no later numbers were given since
            self._forget_key((caller, submission.key), answer)
            gone = Unavailable("the caller who sent this before has gone", "Send it again.")
            answer.set_exception(error if isinstance(error, Exception) else gone)
            answer.exception()  # read here: asyncio logs an exception that no other sender reads
            raise
        (self._large if checked.is_large else self._small).append(checked)
        self._ask_for_turn()
        return answer

    def _forget_key(self, key: tuple[str, str], answer: asyncio.Future[wire.Submitted]) -> None:
        """A submission is answered: if it was accepted, the journal has its key now."""
        if key in self._keys and self._keys[key][1] is answer:
            del self._keys[key]

    def take_large(self, others_wait: bool) -> CheckedSubmission | None:
        """Take a large submission for a turn of its own; None: not now. If anything else waits, every second turn is
        for that.
        """
        is_next = self._large_next or not (others_wait or self._small)
        self._large_next = bool(self._large) and not is_next
        return self._large.pop(0) if self._large and is_next else None

    def take_small(self) -> list[CheckedSubmission]:
        """All other submissions that wait."""
        taken, self._small = self._small, []
        return taken

    def refuse_all(self, error: Exception) -> None:
        """Refuse everything that waits."""
        refuse((*self._small, *self._large), error)
        self._small, self._large = [], []

    @property
    def waiting(self) -> list[CheckedSubmission]:
        """Those that wait to be taken."""
        return [*self._small, *self._large]


def allow_all(jobs: Sequence[JobSpec]) -> None:
    """For a caller whom nothing bounds."""
