"""The garbage collector is kept from blocking the event loop."""

import gc
from collections.abc import Iterator

import pytest

from headway.live.collecting import EVENTS_AT_ONCE, Collecting


@pytest.fixture(autouse=True)
def by_itself_it_does_not_look() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


def looks() -> int:
    return sum(gc.get_stats()[generation]["collections"] for generation in (0, 1))


def test_what_is_new_is_looked_at_after_so_many_events() -> None:
    collecting, before = Collecting(), looks()
    collecting.follow(EVENTS_AT_ONCE - 1)
    assert looks() == before
    kept = [[number] for number in range(1000)]
    collecting.follow(1)
    assert looks() == before + 1
    assert not {id(one) for one in kept} & {id(one) for one in gc.get_objects(generation=0)}
    collecting.follow(EVENTS_AT_ONCE - 1)
    assert looks() == before + 1
