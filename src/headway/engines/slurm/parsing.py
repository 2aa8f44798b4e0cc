"""What Slurm's commands print, as values. The formats are those that `commands` asks for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from typing import Final, NamedTuple

from headway.engines.base import AttemptKey

QUEUE_FORMAT: Final = "%i|%T|%r|%j"
NODE_FORMAT: Final = "%N|%a|%T|%c|%X|%Y|%m|%E"

OLDEST_SLURM: Final = (22, 5)
"""The oldest version of Slurm whose commands are known to print this."""


class NodeStanding(Enum):
    """What a node of Slurm can be used for."""

    READY = "ready"
    CLOSED = "closed"
    """What runs there goes on, and nothing new starts: it is drained, reserved, or silent for the moment."""
    DOWN = "down"
    UNKNOWN = "unknown"
    """Slurm's controller has just begun, and has not heard of it yet: it is as it was."""


_READY: Final = frozenset({"idle", "mixed", "allocated", "completing", "planned", "powered_down", "powering_up"})
_CLOSED: Final = frozenset({"draining", "maint", "reserved", "blocked", "powering_down", "power_down", "reboot"})
_SHUT_BY: Final = "*@^$!%"
"""Marks behind a state: silent, to be rebooted (two), in maintenance, to be switched off, being switched off."""


class SlurmNode(NamedTuple):
    """A node of a partition.

    Attributes:
        state: Slurm's own word, for people.
        cores: those that have a CPU of Slurm, at least one.
        memory: in MiB.
        why: the reason that somebody gave for its state; empty if there is none.
    """

    name: str
    standing: NodeStanding
    state: str
    cpus: int
    cores: int
    memory: int
    why: str


def standing_of(state: str, availability: str) -> NodeStanding:
    """What a node can be used for, by its state and by that of the partition (`up`, `down`, `drain`, `inact`)."""
    word = re.match("[a-z_]*", state.lower())
    base = word.group() if word else ""
    if base == "unknown":
        return NodeStanding.UNKNOWN
    if base in _CLOSED:
        return NodeStanding.CLOSED
    if base not in _READY:
        return NodeStanding.DOWN
    return NodeStanding.CLOSED if set(state) & set(_SHUT_BY) or availability != "up" else NodeStanding.READY


def nodes(printed: str) -> dict[str, SlurmNode]:
    """The nodes of a partition by name, from `sinfo --Node --format=NODE_FORMAT`."""
    found = {}
    for line in printed.splitlines():
        words = line.strip().split("|", 7)
        if len(words) == 8:
            name, availability, state, cpus, sockets, cores, memory, why = words
            count = max(1, _number(cpus))
            real = min(count, max(1, _number(sockets) * _number(cores)))
            reason = "" if why.lower() in ("none", "(null)", "") else why
            standing = standing_of(state, availability)
            found[name] = SlurmNode(name, standing, state, count, real, _number(memory), reason)
    return found


def _number(text: str) -> int:
    """A number that may have a mark behind it, such as `4+`; 0 if it is none."""
    digits = re.match(r"\d+", text)
    return int(digits.group()) if digits else 0


class Queued(NamedTuple):
    """A job of Slurm.

    Attributes:
        state: in capitals, such as RUNNING or NODE_FAIL.
        reason: why it waits, or why it has ended.
    """

    job: int
    state: str
    reason: str


PartKey = tuple[AttemptKey, int]
"""An attempt and the number of a part of it, each on one node."""

SlurmJobKey = tuple[PartKey, int]
"""A part and the number of its job. A controller that was killed gives the numbers of its last jobs to others."""


def job_name(identity: str, key: AttemptKey, number: int) -> str:
    """The name of the job that runs a part of an attempt, for the server with this identity."""
    return "headway-{}-{}.{}.{}.{}".format(identity, *key, number)


def jobs(printed: str, identity: str) -> dict[PartKey, list[Queued]]:
    """The jobs of this server's parts, from `squeue --format=QUEUE_FORMAT`; the others are none of its business."""
    wanted = re.compile(rf"headway-{re.escape(identity)}-(\d+)\.(\d+)\.(\d+)\.(\d+)")
    found: dict[PartKey, list[Queued]] = {}
    for line in printed.splitlines():
        words = line.strip().split("|", 3)
        if len(words) == 4 and words[0].isdecimal() and (match := wanted.fullmatch(words[3])):
            job, task, attempt, number = map(int, match.groups())
            queued = Queued(int(words[0]), words[1].upper(), words[2])
            found.setdefault(((job, task, attempt), number), []).append(queued)
    return found


def fields(printed: str) -> Iterator[tuple[str, str]]:
    """The fields of a line of `scontrol show ... --oneliner`, `NAME=VALUE` each."""
    for word in printed.split():
        name, equals, value = word.partition("=")
        if equals:
            yield name, value


class Partition(NamedTuple):
    """A partition; `seconds_max`: the longest that a job may run there, None: as long as it likes."""

    name: str
    seconds_max: float | None


def partition(printed: str) -> Partition:
    """A partition, from `scontrol show partition --oneliner`."""
    known = dict(fields(printed))
    return Partition(known.get("PartitionName", ""), seconds(known.get("MaxTime", "UNLIMITED")))


def seconds(text: str) -> float | None:
    """A length of time as Slurm writes it, `D-HH:MM:SS`; None if it has no end.

    >>> seconds("1-02:03:04"), seconds("UNLIMITED")
    (93784.0, None)
    """
    match = re.fullmatch(r"(?:(\d+)-)?(\d+):(\d+):(\d+)", text)
    if match is None:
        return None
    days, hours, minutes, rest = (int(part or 0) for part in match.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + rest)


def version(printed: str) -> tuple[int, int] | None:
    """The version of Slurm, from `sinfo --version`; None if it is not to be found there.

    >>> version("slurm-wlm 22.05.8")
    (22, 5)
    """
    match = re.search(r"(\d+)\.(\d+)", printed)
    return (int(match[1]), int(match[2])) if match else None


def controller(printed: str) -> str:
    """The machine of Slurm's controller, from `scontrol show config`; empty if it is not said.

    >>> controller("SlurmctldHost[0]        = head(10.0.0.1)")
    '10.0.0.1'
    """
    match = re.search(r"^SlurmctldHost\[0\]\s*=\s*([^\s(]+)(?:\(([^)]+)\))?", printed, re.MULTILINE)
    return (match[2] or match[1]) if match else ""
