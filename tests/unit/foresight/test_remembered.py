"""What came of earlier bounds outlives the process that has learnt it, and nothing else is trusted."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

from headway.errors import HeadwayError
from headway.foresight import chances as chances_module
from headway.foresight.calibration import AHEAD, CORRECTED_LEVELS, MEMORY, Calibration
from headway.foresight.chances import Chances, TrackRecord
from headway.foresight.remembered import RECORD_FORMAT, RECORD_SIZE_MAX, TrackRecordFile
from headway.live.store.layout import TRACK_RECORD
from headway.model.instant import SECOND, Instant

HOUR = 3600.0
BOUNDS = np.array([0.5, 0.8, 1.0, 1.2, 1.4, 1.5]) * HOUR


def after(hours: float) -> Instant:
    return round(hours * HOUR * SECOND)


def taught(record: TrackRecord, since: int, until: int) -> None:
    """Each hour two jobs are expected to end in an hour: one ends in 0.6 to 2.6 hours, the other in three."""
    for number in range(since, until):
        ends = {2 * one: after(one + 0.6 + one % 5 / 2) for one in range(number)}
        ends |= {2 * one + 1: after(one + 3) for one in range(number)}
        record.learn({job: at for job, at in ends.items() if at <= after(number)}, (), after(number))
        record.told(after(number), (2 * number, 2 * number + 1), np.tile(BOUNDS, (2, 1)))


def moved(record: TrackRecord) -> list[float]:
    """How the record corrects bounds that are near, and some that are far."""
    return [*record.moved(BOUNDS[None, :])[0], *record.moved(30 * BOUNDS[None, :])[0]]


def file(folder: Path, epoch: str = "e") -> TrackRecordFile:
    return TrackRecordFile(folder, epoch)


def test_who_goes_on_from_the_file_tells_the_same_as_if_nothing_had_ended(tmp_path: Path) -> None:
    told = Chances()
    taught(told._starts, 0, 25)
    taught(told._ends, 0, 30)
    file(tmp_path).write(told)
    again = file(tmp_path).read()
    assert again.open_jobs == told.open_jobs != set()
    for record, same in ((told._starts, again._starts), (told._ends, again._ends)):
        assert moved(record) == moved(same) != moved(TrackRecord())
        for one in (record, same):
            taught(one, 30, 45)
        assert moved(record) == moved(same)
        assert record.open_jobs == same.open_jobs
    (path,) = tmp_path.iterdir()
    assert path.stat().st_mode & 0o777 == 0o600


def test_without_a_file_nothing_is_known_and_what_is_as_it_was_is_not_written_again(tmp_path: Path) -> None:
    kept = file(tmp_path)
    told = kept.read()
    assert moved(told._ends) == moved(TrackRecord())
    kept.write(told)
    (tmp_path / TRACK_RECORD).unlink()
    kept.write(told)
    assert list(tmp_path.iterdir()) == []
    taught(told._ends, 0, 1)
    kept.write(told)
    assert (tmp_path / TRACK_RECORD).is_file()


def test_a_folder_that_takes_no_files_is_said(tmp_path: Path) -> None:
    with pytest.raises(HeadwayError, match="cannot write"):
        file(tmp_path / "not there").write(Chances())


def _flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def _of_format(number: int, body: bytes = b"\x93") -> Callable[[Path], object]:
    """A file whose checksum is right."""
    head = f"headway track record {number} {sha256(body).hexdigest()}\n".encode()
    return lambda path: path.write_bytes(head + body)


def _linked(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (_flipped, "it is damaged"),
        (lambda path: os.truncate(path, path.stat().st_size - 1), "it is damaged"),
        (lambda path: os.truncate(path, 0), "it is no track record"),
        (lambda path: os.truncate(path, RECORD_SIZE_MAX + 1), "it is no track record"),
        (lambda path: path.write_bytes(os.urandom(1000)), "it is no track record"),
        (
            _of_format(RECORD_FORMAT + 1),
            f"it has format {RECORD_FORMAT + 1}, and this version of Headway reads {RECORD_FORMAT}",
        ),
        (_of_format(RECORD_FORMAT), "its content is not that of a track record: "),
        (lambda path: file(path.parent, "other").write(Chances()), "it is of another history of the journal"),
        (_linked, "it cannot be read"),
        (_pipe, "it is no track record"),
    ],
)
def test_what_cannot_be_used_is_set_aside_and_learnt_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, harm: Callable[[Path], object], said: str
) -> None:
    told = Chances()
    taught(told._ends, 0, 40)
    file(tmp_path).write(told)
    harm(tmp_path / TRACK_RECORD)
    with caplog.at_level(logging.WARNING):
        found = file(tmp_path).read()
    assert moved(found._ends) == moved(TrackRecord())
    assert found.open_jobs == set()
    [line] = caplog.messages
    assert f"{tmp_path / TRACK_RECORD} is not used: {said}" in line
    assert "it is now track-record.aside" in line
    assert os.path.lexists(tmp_path / "track-record.aside")
    file(tmp_path).write(told)
    assert moved(file(tmp_path).read()._ends) == moved(told._ends)
    assert len(caplog.messages) == 1


def test_what_can_be_neither_used_nor_set_aside_harms_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / TRACK_RECORD).mkdir()
    (tmp_path / "track-record.aside").write_text("older")
    with caplog.at_level(logging.WARNING):
        assert file(tmp_path).read().open_jobs == set()
    assert "it cannot be renamed" in caplog.text
    with pytest.raises(HeadwayError, match="cannot write"):
        file(tmp_path).write(Chances())


def test_of_bounds_that_wait_the_last_ones_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chances_module, "KEPT", 5)
    told = Chances()
    for number in range(4):
        told._ends.told(after(number), (2 * number, 2 * number + 1), np.tile(BOUNDS, (2, 1)))
    file(tmp_path).write(told)
    assert file(tmp_path).read().open_jobs == {4, 5, 6, 7}


def test_the_largest_file_is_read(tmp_path: Path) -> None:
    """As many outcomes as are remembered at each horizon, of as many jobs as may be open, and as many that wait."""
    largest, chance = Chances(), np.random.default_rng(1)
    for record in (largest._starts, largest._ends):
        for ahead in (60.0, *(2 * np.array(AHEAD))):
            bounds = ahead * chance.uniform(0.9, 1.1, (MEMORY, len(CORRECTED_LEVELS)))
            for part in np.array_split(bounds, 7):
                record._calibration.learn(part, part[:, 2])
        for number in range(9):
            jobs = tuple(range(10**9, 10**9 + chances_module.KEPT // 8))
            record.told(after(number), jobs, np.tile(BOUNDS, (len(jobs), 1)))
    file(tmp_path).write(largest)
    assert RECORD_SIZE_MAX / 4 < (tmp_path / TRACK_RECORD).stat().st_size < RECORD_SIZE_MAX / 2
    assert file(tmp_path).read().open_jobs == largest.open_jobs


def test_a_calibration_of_other_horizons_or_levels_is_refused() -> None:
    kept = Calibration().dump()
    for other in (replace(kept, seen=kept.seen[1:]), replace(kept, levels=kept.levels[1:])):
        with pytest.raises(ValueError, match="other horizons or levels"):
            Calibration.restore(other)
