"""What there is room for, on a disk whose free space a test sets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from headway.errors import NoRoom
from headway.live.room import DISK_LOOK_EVERY, LOG_MAX, LOOK_COUNTS_FOR, RESERVE, DiskBounds, Free, Room, free_on
from headway.model.instant import to_seconds
from headway.testing import ManualClock

MIB = 1 << 20


class Disk:
    """A disk of 100 MiB with a reserve of 10, of which 40 may be output. The journal is on it too."""

    def __init__(self, bounds: DiskBounds = DiskBounds(10 * MIB, 40 * MIB)) -> None:  # noqa: B008  # frozen
        self.free = 50 * MIB
        self.stored = self.log = 0
        self.busy = True
        self.broken = False
        self.told: list[tuple[str, str]] = []
        self.clock = ManualClock()
        self.room = Room(Path("/data"), bounds, self, self._note, self.clock, lambda: self.busy, self._measure)

    @property
    def retained(self) -> Disk:
        return self

    def log_size(self) -> int:
        return self.log

    def submit(self, gives: Callable[[], bool] = lambda: False) -> None:
        """A submission comes, a while after everything else."""
        self.clock.advance(to_seconds(LOOK_COUNTS_FOR))
        self.room.check_work(gives)

    def _measure(self, folder: Path) -> Free:
        assert folder == Path("/data")
        if self.broken:
            raise OSError(5, "Input/output error")
        return Free(100 * MIB, self.free)

    def _note(self, kind: str, subject: str, detail: str) -> None:
        assert subject == "/data"
        self.told.append((kind, detail))


def test_below_the_reserve_nothing_new_is_taken_on() -> None:
    disk = Disk()
    disk.submit()
    disk.room.check_file(40 * MIB)
    assert disk.room.keeps(40 * MIB)
    disk.free = 10 * MIB - 1
    with pytest.raises(
        NoRoom, match=r"^the disk of /data has 10.0 MiB free, its reserve is 10.0 MiB: no submission is"
    ):
        disk.submit()
    with pytest.raises(NoRoom, match=r"its reserve is 10.0 MiB: an upload is not taken on\nMake room on it, or start"):
        disk.room.check_file(0)
    assert not disk.room.keeps(1)
    assert [kind for kind, _ in disk.told] == ["disk_short"]


def test_for_submissions_that_follow_each_other_the_disk_is_looked_at_once() -> None:
    disk = Disk()
    disk.submit()
    disk.free = 9 * MIB
    disk.clock.advance(to_seconds(LOOK_COUNTS_FOR) * 0.9)
    disk.room.check_work()
    disk.clock.advance(to_seconds(LOOK_COUNTS_FOR) * 0.1)
    with pytest.raises(NoRoom, match="no submission is taken on"):
        disk.room.check_work()


def test_an_upload_that_would_need_the_reserve_is_refused_alone() -> None:
    disk = Disk(DiskBounds(10 * MIB, 100 * MIB))
    disk.room.check_file(40 * MIB)
    with pytest.raises(NoRoom, match=r"an upload of 41\.0 MiB is not taken on"):
        disk.room.check_file(41 * MIB)
    disk.submit()
    assert disk.told == []


def test_there_is_room_again_with_somewhat_more_than_the_reserve() -> None:
    disk = Disk()
    disk.room.follow()
    disk.free = 9 * MIB
    disk.clock.advance(to_seconds(DISK_LOOK_EVERY))
    assert [kind for kind, _ in disk.told] == ["disk_short"]
    disk.free = 11 * MIB  # more than the reserve, but by less than an eighth
    disk.clock.advance(10 * to_seconds(DISK_LOOK_EVERY))
    assert disk.room.short
    disk.free = 12 * MIB
    disk.clock.advance(to_seconds(DISK_LOOK_EVERY))
    assert disk.told[1:] == [("disk_enough", "12.0 MiB are free: new work is accepted again")]
    disk.submit()
    disk.room.stop()
    disk.free = 0
    disk.clock.advance(100)
    assert len(disk.told) == 2


def test_output_has_a_bound_of_its_own() -> None:
    disk = Disk()
    disk.stored = 39 * MIB
    assert disk.room.keeps(MIB)
    assert not disk.room.keeps(MIB + 1)
    with pytest.raises(NoRoom, match=r"take 39\.0 MiB, allowed are 40\.0 MiB: an upload of 2\.0 MiB is"):
        disk.room.check_file(2 * MIB)
    assert disk.told == []
    disk.stored = 40 * MIB
    disk.submit()
    with pytest.raises(NoRoom, match="no submission is taken on whose tasks give files to be kept"):
        disk.submit(lambda: True)
    assert not disk.room.keeps(1)
    disk.stored = 36 * MIB
    disk.room.look()
    assert disk.room.crowded
    disk.stored = 35 * MIB
    disk.submit(lambda: True)
    assert disk.room.keeps(MIB)
    assert [kind for kind, _ in disk.told] == ["outputs_full", "outputs_fit"]


def test_a_program_that_reads_for_ever_makes_the_log_grow_so_far_and_no_further() -> None:
    disk = Disk()
    disk.log = LOG_MAX
    disk.submit()
    disk.log += 1
    with pytest.raises(NoRoom, match=r"the log of the journal has 512\.0 MiB, for another program has been reading it"):
        disk.submit()
    disk.log = LOG_MAX // 2
    disk.submit()
    assert [kind for kind, _ in disk.told] == ["journal_held", "journal_free"]


def test_nobody_looks_at_the_disk_while_there_is_nothing_to_look_for() -> None:
    disk = Disk()
    disk.busy = False
    disk.room.follow()
    assert disk.clock.alarms == []
    disk.free = 0
    disk.room.look()
    disk.room.follow()
    disk.clock.advance(to_seconds(DISK_LOOK_EVERY))
    assert len(disk.clock.alarms) == 1
    disk.free = 100 * MIB
    disk.clock.advance(to_seconds(DISK_LOOK_EVERY))
    assert disk.clock.alarms == []


def test_what_is_chosen_by_default_suits_small_disks() -> None:
    assert DiskBounds().on(100 * MIB) == (5 * MIB, 25 * MIB)
    assert DiskBounds().on(1 << 40) == (RESERVE, 1 << 38)
    assert DiskBounds(0, 1).on(1 << 40) == (0, 1)


def test_a_disk_that_cannot_be_looked_at_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    disk = Disk()
    disk.broken = True
    disk.room.look()
    disk.submit()
    assert caplog.messages == ["the free space on the disk of /data is not known: Input/output error"]
    disk.broken, disk.free = False, 0
    disk.room.look()
    assert disk.room.short


def test_a_real_disk_is_measured(tmp_path: Path) -> None:
    found = free_on(tmp_path)
    assert 0 <= found.free <= found.size
    assert found.size > MIB
