"""What becomes of a command of Slurm: what it prints, a refusal, or no answer."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Final

from headway.engines.slurm.calling import NotKilled, called

_PASSING: Final = (
    *("unable to contact", "timed out", "connection refused", "connection reset", "zero bytes", "temporarily"),
    *("munge", "authentication", "standby mode", "shutting down", "transport", "unexpected message", "try again"),
    *("no route to host", "unreachable", "broken pipe", "communication", "slurm_msg_sendto", "slurm_receive_msg"),
    *("missing socket", "send failure", "receive failure", "lengths are longer", "connect to database"),
)
"""In what a command says: it may be tried again later."""

_FULL: Final = ("submit limit", "maxsubmit")
"""Likewise: nothing was done, because there are too many jobs just now, or because of a limit that stays."""

_HINT: Final = re.compile(r"""Try ["'].+ --help["'] for more information""")


class SlurmUnavailable(Exception):
    """Slurm does not answer, or asks to come again later. The command may have been carried out."""


class SlurmFull(SlurmUnavailable):
    """Slurm has no room for another job now; nothing was done."""


class SlurmRefused(Exception):
    """Slurm has refused it; the text is its own."""


async def printed_by(
    program: str, words: Sequence[str], environment: Mapping[str, str], limit: float, given: str = ""
) -> str:
    """What a command of Slurm prints.

    Args:
        program: path of it.
        limit: seconds after which it is killed: without its controller it would wait for minutes.
        given: what it reads.

    Raises:
        SlurmUnavailable: it took too long, or Slurm asks to come again later.
        SlurmFull: likewise, because there are too many jobs.
        SlurmRefused: it failed for another reason.
    """
    name = PurePath(program).name
    try:
        done = await called(program, words, environment, limit, given)
    except NotKilled as error:
        raise SlurmUnavailable(f"{name} gave no answer within {limit:g} s: {error}") from None
    except TimeoutError:
        raise SlurmUnavailable(f"{name} gave no answer within {limit:g} s") from None
    except OSError as error:
        raise SlurmUnavailable(f"{name} cannot be started: {error}") from error
    if done.code:
        said = _telling(done.complained) or f"{name} ended with status {done.code}"
        if any(sign in said.lower() for sign in _FULL):
            raise SlurmFull(said)
        passes = done.code < 0 or any(sign in said.lower() for sign in _PASSING)  # below 0: something killed it
        raise SlurmUnavailable(said) if passes else SlurmRefused(said)
    return done.printed


def number_of(printed: str) -> int:
    """The number of a job, from what `sbatch --parsable` printed.

    Raises:
        SlurmUnavailable: there is none; the job may have been submitted.
    """
    number = printed.strip().partition(";")[0]
    if not number.isdecimal():
        raise SlurmUnavailable(f"sbatch printed {printed.strip()!r}, which is no number of a job")
    return int(number)


def _telling(complained: str) -> str:
    """What a command of Slurm complained of, in a line: without the hint that it has help, unless that is all.

    >>> _telling("sbatch: unrecognized option '--bogus'\\nTry 'sbatch --help' for more information\\n")
    "sbatch: unrecognized option '--bogus'"
    """
    lines = [line.strip() for line in complained.splitlines() if line.strip()]
    return "; ".join([line for line in lines if not _HINT.match(line)] or lines)
