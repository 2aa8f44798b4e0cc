"""Sets of slots as bit sets: slot number i is bit i of a Python integer.

Union, intersection and difference of any number of slots are one operation each, and a set is a value: it can be kept,
compared and written down.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

Slots = int
"""A set of slots; bit i stands for slot number i. Never negative."""

NO_SLOTS: Final[Slots] = 0

MANY_NUMBERS: Final = 64
"""From so many numbers on a set is made of bytes."""

FEW_NUMBERS: Final = 32
"""Of so few numbers, single slots are taken away as fast as halves are counted."""

JOINED_AT_ONCE: Final = 8
"""Half as many runs are joined one after the other; of more, halves are joined."""

NUMBERS_AT_ONCE: Final = 4096
"""The numbers of a larger set are read in parts of so many."""

_AT_ONCE_MASK: Final = (1 << NUMBERS_AT_ONCE) - 1

_WHOLE: Final = [(1 << NUMBERS_AT_ONCE) - 1]
"""All slots below a number that is beyond every slot that was asked about; the only item, which grows."""


def below(number: int) -> Slots:
    """The slots with lower numbers than this.

    >>> bin(below(3))
    '0b111'
    """
    beyond = _WHOLE[0].bit_length() - number
    if number <= NUMBERS_AT_ONCE or beyond < 0:
        known = (1 << number) - 1
        if beyond < 0:
            _WHOLE[0] = known
        return known
    return _WHOLE[0] >> beyond  # a subtraction from a large number takes several times as long


def span(first: int, count: int) -> Slots:
    """The `count` slots from number `first` on.

    >>> bin(span(2, 3))
    '0b11100'
    """
    return ((1 << count) - 1) << first


def of_numbers(numbers: Iterable[int]) -> Slots:
    """The set of the slots with these numbers.

    >>> bin(of_numbers([1, 4]))
    '0b10010'
    """
    if isinstance(numbers, range) and numbers.step == 1:
        return span(numbers.start, len(numbers))
    found = numbers if isinstance(numbers, list) else list(numbers)
    if len(found) < MANY_NUMBERS:
        slots = NO_SLOTS
        for number in found:
            slots |= 1 << number
        return slots
    first, last = found[0], found[-1]
    if last - first == len(found) - 1 and found == list(range(first, last + 1)):
        return span(first, len(found))
    bits = bytearray(max(found) // 8 + 1)  # each union of large sets would copy them
    for number in found:
        bits[number >> 3] |= 1 << (number & 7)
    return int.from_bytes(bits, "little")


def in_order(numbers: Sequence[int]) -> Sequence[int]:
    """The same numbers; as a range, which takes no memory, if each is one more than the one before.

    >>> in_order((3, 4, 5)), in_order((3, 5))
    (range(3, 6), (3, 5))
    """
    if isinstance(numbers, range) or not numbers:
        return numbers
    first, last = numbers[0], numbers[-1]
    if last - first != len(numbers) - 1 or any(there != number for number, there in enumerate(numbers, first)):
        return numbers
    return range(first, last + 1)


def end_of(numbers: Sequence[int]) -> int:
    """One more than the greatest of these numbers; 0 if there is none.

    >>> end_of((3, 5, 4)), end_of(range(3, 6)), end_of(())
    (6, 6, 0)
    """
    if isinstance(numbers, range):  # `max` would look at each
        return numbers.stop if numbers else 0
    return 1 + max(numbers, default=-1)


def outside(slots: Slots, others: Slots) -> Slots:
    """The slots of the first set that are not in the second. Of large sets `slots & ~others` takes ten times as long.

    >>> bin(outside(0b1011, 0b10))
    '0b1001'
    """
    return slots ^ (slots & others)


def count(slots: Slots) -> int:
    """How many slots are in the set."""
    return slots.bit_count()


def first(slots: Slots) -> int:
    """The lowest number in a set that is not empty. Of a large set little more is read than what is below it.

    >>> first(0b10100)
    2
    """
    part, end = slots & _AT_ONCE_MASK, NUMBERS_AT_ONCE
    while not part:
        end *= 4
        part = slots & below(end)
    return (part & -part).bit_length() - 1


def numbers(slots: Slots) -> Iterator[int]:
    """The slot numbers of the set, smallest first.

    >>> list(numbers(0b10110))
    [1, 2, 4]
    """
    base = 0
    while slots.bit_length() > NUMBERS_AT_ONCE:  # each step through a large set would copy it
        begin = first(slots)
        slots >>= begin
        base += begin
        part = slots & _AT_ONCE_MASK
        if part == _AT_ONCE_MASK:
            yield from range(base, base + NUMBERS_AT_ONCE)
        else:
            found = _bounds_of_part(part, base)
            for place in range(0, len(found), 2):
                yield from range(found[place], found[place + 1])
        slots >>= NUMBERS_AT_ONCE
        base += NUMBERS_AT_ONCE
    while slots:
        low = slots & -slots
        yield base + low.bit_length() - 1
        slots ^= low


def bounds(slots: Slots) -> list[int]:
    """Where the runs of consecutive slots of a set begin and end: the first number of each, then that after its last.

    >>> bounds(0b110111)
    [0, 3, 4, 6]
    """
    if slots.bit_length() <= NUMBERS_AT_ONCE:
        return _bounds_of_part(slots, 0)
    parts: list[list[int]] = []
    while slots:  # from the top, because each step through all of a large set would copy it
        end = slots.bit_length()
        begin = max(0, end - NUMBERS_AT_ONCE)
        part = slots >> begin
        if part & (part + 1):
            parts.append(_bounds_of_part(part, begin))
        else:
            begin = (slots ^ below(end)).bit_length()
            parts.append([begin, end])
        slots &= below(begin)
    found: list[int] = []
    for several in reversed(parts):
        if found and found[-1] == several[0]:
            del found[-1], several[0]
        found += several
    return found


def _bounds_of_part(part: Slots, base: int) -> list[int]:
    found: list[int] = []
    while part:
        gap = (part & -part).bit_length() - 1
        part >>= gap
        base += gap
        length = (~part & (part + 1)).bit_length() - 1
        part >>= length
        found.append(base)
        base += length
        found.append(base)
    return found


def cut(found: list[int], wanted: int) -> list[int]:
    """Take the `wanted` lowest slots, or all if there are fewer, out of a set given by its `bounds`.

    Returns:
        The bounds of what is taken.
    """
    place = 0
    while place < len(found) and wanted > 0:
        here = found[place + 1] - found[place]
        if here > wanted:
            middle = found[place] + wanted
            taken = [*found[:place], found[place], middle]
            found[: place + 1] = [middle]
            return taken
        wanted -= here
        place += 2
    taken = found[:place]
    del found[:place]
    return taken


def unite(found: list[int], more: list[int]) -> None:
    """Add a set to another one that has none of its slots, both given by their `bounds`."""
    for place in range(0, len(more), 2):
        begin, end = more[place], more[place + 1]
        low = bisect_left(found, begin)
        if low < len(found) and found[low] == begin:  # a run ends where this one begins
            if low + 1 < len(found) and found[low + 1] == end:
                del found[low : low + 2]
            else:
                found[low] = end
        elif low < len(found) and found[low] == end:
            found[low] = begin
        else:
            found[low:low] = [begin, end]


def take_out(found: list[int], taken: list[int]) -> None:
    """Take slots out of a set that has them all, both given by their `bounds`."""
    for place in range(0, len(taken), 2):
        begin, end = taken[place], taken[place + 1]
        low = bisect_right(found, begin) - 1
        if found[low] == begin:
            if found[low + 1] == end:
                del found[low : low + 2]
            else:
                found[low] = end
        elif found[low + 1] == end:
            found[low + 1] = begin
        else:
            found[low + 1 : low + 1] = [begin, end]


def shared(some: list[int], others: list[int], wanted: int = -1) -> list[int]:
    """The slots that two sets have in common, all by their `bounds`.

    Args:
        wanted: how many are enough: those are the lowest; -1: all of them.

    >>> shared([0, 4, 6, 9], [2, 7])
    [2, 4, 6, 7]
    >>> shared([0, 4, 6, 9], [2, 7], wanted=1)
    [2, 3]
    """
    few, many = (some, others) if len(some) < len(others) else (others, some)
    found: list[int] = []
    for place in range(0, len(few), 2):
        begin, end = few[place], few[place + 1]
        low = bisect_right(many, begin) & ~1  # of the run that has `begin`, or else of the next one
        while low < len(many) and many[low] < end:
            since, until = many[low], many[low + 1]
            if since < begin:
                since = begin
            if until > end:
                until = end
            found.append(since)
            found.append(until)
            low += 2
            if wanted >= 0:
                wanted -= until - since
                if wanted <= 0:
                    found[-1] += wanted
                    return found
    return found


def end_of_shared(some: list[int], others: list[int]) -> int:
    """The number after the last slot that two sets have in common, both by their `bounds`; 0 if they have none.

    >>> end_of_shared([0, 4, 6, 9], [2, 7])
    7
    """
    for place in range(len(some) - 2, -1, -2):
        begin, end = some[place], some[place + 1]
        low = bisect_left(others, end)
        if low & 1:
            return end
        if low and others[low - 1] > begin:
            return others[low - 1]
    return 0


def size(found: list[int]) -> int:
    """How many slots are in a set that is given by its `bounds`.

    >>> size([0, 4, 6, 9])
    7
    """
    return sum(found[1::2]) - sum(found[::2])


def of_bounds(found: list[int]) -> Slots:
    """The set of `bounds`.

    >>> bin(of_bounds([0, 3, 4, 6]))
    '0b110111'
    """
    return _joined(found, 0, len(found)) << found[0] if found else NO_SLOTS


def _joined(found: list[int], begin: int, end: int) -> Slots:
    """A part of `bounds`, as if its first slot had number 0: then a step costs no more than what it joins."""
    base = found[begin]
    if end - begin <= JOINED_AT_ONCE:
        slots = (1 << (found[begin + 1] - base)) - 1
        for place in range(begin + 2, end, 2):
            slots |= ((1 << (found[place + 1] - found[place])) - 1) << (found[place] - base)
        return slots
    middle = (begin + end) // 4 * 2
    return _joined(found, begin, middle) | _joined(found, middle, end) << (found[middle] - base)


def runs(slots: Slots) -> Iterator[tuple[int, int]]:
    """The set as runs of consecutive slots: the number of the first and how many, lowest first.

    >>> list(runs(0b110111))
    [(0, 3), (4, 2)]
    """
    found = bounds(slots)
    for place in range(0, len(found), 2):
        yield found[place], found[place + 1] - found[place]


def lowest(slots: Slots, wanted: int) -> Slots:
    """The `wanted` lowest numbered slots of the set; all of them if there are fewer.

    If they are consecutive the answer is one mask. Otherwise the place where the count is reached is found by halving
    what is left to look at, so all of it costs about as much as counting the set once.

    >>> bin(lowest(0b1101101, 3))
    '0b1101'
    """
    if wanted <= 0:
        return NO_SLOTS
    if not slots:
        return NO_SLOTS
    first = (slots ^ (slots - 1)).bit_length() - 1
    run = ((1 << wanted) - 1) << first
    if slots & run == run:
        return run
    below, rest = first, slots >> first
    left, length = wanted, rest.bit_length()
    while length > FEW_NUMBERS:  # the end is above `below`, and `left` of the slots in `rest` are wanted
        half = length >> 1
        lower = rest & ((1 << half) - 1)
        there = lower.bit_count()
        if there >= left:
            rest, length = lower, half
        else:
            left -= there
            below += half
            rest >>= half
            length -= half
    for _ in range(left - 1):
        rest &= rest - 1
    return slots & ((1 << (below + (rest & -rest).bit_length())) - 1) if rest else slots
