"""Events and the decisions of their rounds, as rows of the journal.

The body of an event is an array of its fields and of what its round decided, nil if there was none. Journals of format
3 and older have the fields alone: only the policy can say what was decided then.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, get_args

import msgspec

from headway.core.scheduler import Scheduler
from headway.model.actions import Action
from headway.model.events import Event, JobSubmitted
from headway.model.instant import Instant
from headway.model.job import JobId
from headway.model.plan import Allocation, Claim, Deal, Decision, Lend, Rent, RentalRuling, Switch
from headway.model.slots import Slots, numbers, of_numbers
from headway.model.tier import Tier
from headway.wire.reading import any_form

EventRow = tuple[int, Instant, str, bytes]
"""An event as the table has it: its number, its instant, the name of its class, and its body."""

_PAIR: Final = b"\x92"
"""How an array of two begins."""

_NONE: Final = b"\xc0"

_encode = msgspec.msgpack.Encoder().encode
_events: dict[str, msgspec.msgpack.Decoder[Any]] = {
    kind.__name__: msgspec.msgpack.Decoder(kind, dec_hook=any_form) for kind in get_args(Event)
}
_pair = msgspec.msgpack.Decoder(tuple[msgspec.Raw, msgspec.Raw])


class _PackedAllocation(msgspec.Struct, array_like=True, frozen=True):
    """An allocation; its slots are as `_packed` writes them."""

    job: JobId
    slots: int | tuple[int, ...] | bytes
    task: int | None
    claim: Claim
    tier: Tier
    seats: tuple[int, ...]


class _Decided(msgspec.Struct, array_like=True, frozen=True):
    """A decision where there is one pool, with the same fields."""

    allocations: tuple[_PackedAllocation, ...]
    promises: tuple[tuple[JobId, Instant | None], ...]
    wake: Instant | None
    raised: str
    forward: bool
    consults: bool


class _Lent(msgspec.Struct, array_like=True, frozen=True):
    """Slots that go to a pool, as `_packed` writes them."""

    slots: int | tuple[int, ...] | bytes
    pool: str
    claim: Claim = Claim.FREE


class _InPools(_Decided, array_like=True, frozen=True):
    """A decision where there are several pools, where tasks are planned, or where nodes are switched or rented."""

    pool: str = ""
    lends: tuple[_Lent, ...] = ()
    deals: tuple[Deal, ...] = ()
    then: tuple[_InPools, ...] = ()
    about: tuple[str, ...] = ()
    planned: tuple[tuple[JobId, int, Instant, str], ...] = ()
    switches: tuple[Switch, ...] = ()
    ruled: tuple[Switch, ...] = ()
    look: Instant | None = None
    rents: tuple[Rent, ...] = ()
    returns: tuple[int, ...] = ()
    ruled_rentals: tuple[RentalRuling, ...] = ()


_decided = msgspec.msgpack.Decoder(_InPools)


def decided_row(seq: int, at: Instant, event: Event, decision: Decision | None, job: bytes = b"") -> EventRow:
    """An event as the table has it, with what its round decided; None: there was no round.

    Args:
        job: the job of a `JobSubmitted` as it is written, where it was encoded before.
    """
    decided = _NONE if decision is None else _encode(_record(decision))
    told: Any = event
    if job and isinstance(event, JobSubmitted):
        told = {name: getattr(event, name) for name in event.__dataclass_fields__} | {"job": msgspec.Raw(job)}
    return (seq, at, type(event).__name__, b"".join((_PAIR, _encode(told), decided)))


def event_of(kind: str, body: bytes) -> Event:
    """An event from the columns `kind` and `body` of the table."""
    event: Event = _events[kind].decode(_pair.decode(body)[0] if body[:1] == _PAIR else body)
    return event


def decision_of(body: bytes) -> Decision | None:
    """What the round of an event decided; None if there was none, or if that is not recorded."""
    if body[:1] != _PAIR:
        return None
    packed = bytes(_pair.decode(body)[1])
    return None if packed == _NONE else _decision(_decided.decode(packed))


def is_recorded(body: bytes) -> bool:
    """Whether it is recorded what the round of an event decided, if there was one."""
    return body[:1] == _PAIR


def replay(core: Scheduler, event: Event, body: bytes, *, compare: bool = False) -> list[Action]:
    """Let a core handle an event as it was handled when its row was written; returns the actions.

    Where it is not recorded what was decided, the policy decides.

    Args:
        body: of its row.
        compare: ask the policy too, see `Scheduler.replay`.
    """
    return core.replay(event, decision_of(body), compare=compare) if is_recorded(body) else core.handle(event)


def _record(decision: Decision) -> _Decided:
    allocations = tuple(
        _PackedAllocation(wanted.job, _packed(wanted.slots), wanted.task, wanted.claim, wanted.tier, wanted.seats)
        for wanted in decision.allocations
    )
    rest = decision.promises, decision.wake, decision.raised, decision.forward, decision.consults
    in_pools = decision.pool or decision.lends or decision.deals or decision.then or decision.about
    switched = decision.switches or decision.ruled or decision.look is not None
    rented = decision.rents or decision.returns or decision.ruled_rentals
    if not (in_pools or decision.planned or switched or rented):
        return _Decided(allocations, *rest)
    lends = tuple(_Lent(_packed(lend.slots), lend.pool, lend.claim) for lend in decision.lends)
    then = tuple(map(_record_in_pools, decision.then))
    return _InPools(
        *(allocations, *rest, decision.pool, lends, decision.deals, then, decision.about, decision.planned),
        *(decision.switches, decision.ruled, decision.look),
        *(decision.rents, decision.returns, decision.ruled_rentals),
    )


def _record_in_pools(decision: Decision) -> _InPools:
    record = _record(decision)
    return record if isinstance(record, _InPools) else _InPools(*msgspec.structs.astuple(record))


def _decision(record: _InPools) -> Decision:
    allocations = tuple(
        Allocation(wanted.job, _slots(wanted.slots), wanted.task, wanted.claim, wanted.tier, wanted.seats)
        for wanted in record.allocations
    )
    return Decision(
        *(allocations, record.promises, record.wake, record.raised, record.forward, record.consults, record.pool),
        tuple(Lend(_slots(lent.slots), lent.pool, lent.claim) for lent in record.lends),
        record.deals,
        tuple(map(_decision, record.then)),
        record.about,
        record.planned,
        *(record.switches, record.ruled, record.look, record.rents, record.returns, record.ruled_rentals),
    )


def _packed(slots: Slots) -> int | tuple[int, ...] | bytes:
    """The number of the only slot, or the first and the count of each run. What is no set of slots: its bytes."""
    if slots < 0:
        return slots.to_bytes(slots.bit_length() // 8 + 1, "little", signed=True)
    if slots and not slots & (slots - 1):
        return slots.bit_length() - 1
    return tuple(_ends(slots))


def _ends(slots: Slots) -> Iterator[int]:
    """The first slot of each run, and how many there are."""
    first = count = 0
    for slot in numbers(slots):
        if count and slot == first + count:
            count += 1
            continue
        if count:
            yield first
            yield count
        first, count = slot, 1
    if count:
        yield first
        yield count


def _slots(packed: int | tuple[int, ...] | bytes) -> Slots:
    if isinstance(packed, int):
        return 1 << packed
    if isinstance(packed, bytes):
        return int.from_bytes(packed, "little", signed=True)
    runs = zip(packed[::2], packed[1::2], strict=True)
    return of_numbers(slot for first, count in runs for slot in range(first, first + count))
