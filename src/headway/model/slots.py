"""Sets of slots as bit sets: slot number i is bit i of a Python integer.

Union, intersection and difference of any number of slots are one operation each, and a set is a value: it can be kept,
compared and written down.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

Slots = int
"""A set of slots; bit i stands for slot number i. Never negative."""

NO_SLOTS: Final[Slots] = 0

MANY: Final = 64
"""From so many numbers on a set is made of bytes."""

PART: Final = 4096
"""The numbers of a larger set are read in parts of so many."""

_PART: Final = (1 << PART) - 1


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
    found = list(numbers)
    if len(found) < MANY:
        slots = NO_SLOTS
        for number in found:
            slots |= 1 << number
        return slots
    bits = bytearray(max(found) // 8 + 1)  # each union of large sets would copy them
    for number in found:
        bits[number >> 3] |= 1 << (number & 7)
    return int.from_bytes(bits, "little")


def count(slots: Slots) -> int:
    """How many slots are in the set."""
    return slots.bit_count()


def numbers(slots: Slots) -> Iterator[int]:
    """The slot numbers of the set, smallest first.

    >>> list(numbers(0b10110))
    [1, 2, 4]
    """
    base = 0
    while slots.bit_length() > PART:  # each step through a large set would copy it
        first = (slots ^ (slots - 1)).bit_length() - 1
        slots >>= first
        base += first
        part = slots & _PART
        while part:
            low = part & -part
            yield base + low.bit_length() - 1
            part ^= low
        slots >>= PART
        base += PART
    while slots:
        low = slots & -slots
        yield base + low.bit_length() - 1
        slots ^= low


def runs(slots: Slots) -> Iterator[tuple[int, int]]:
    """The set as runs of consecutive slots: the number of the first and how many, lowest first.

    >>> list(runs(0b110111))
    [(0, 3), (4, 2)]
    """
    base = 0
    while slots:
        gap = (slots & -slots).bit_length() - 1
        slots >>= gap
        length = (~slots & (slots + 1)).bit_length() - 1
        slots >>= length
        yield base + gap, length
        base += gap + length


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
    while length > 1:  # the end is above `below`, and `left` of the slots in `rest` are wanted
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
    return slots & ((1 << (below + 1)) - 1)
