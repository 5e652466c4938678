"""A record has a bounded size, follows no link, and is never read whole to go on with it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stallward.actuator.errors import FramesError
from stallward.actuator.record import segments as module
from stallward.actuator.record.frames import MAGIC, FrameWriter, encode_frame, read_frames
from stallward.actuator.record.segments import SegmentWriter, read_segments, segments

KIB = 1024


def payload(number: int, size: int = KIB) -> bytes:
    return number.to_bytes(4, "little") * (size // 4)


def numbers(path: Path) -> list[int]:
    return [int.from_bytes(one[:4], "little") for one in read_segments(path)]


def total_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


@pytest.mark.parametrize("restart_every", [1000, 7])
def test_the_newest_records_are_kept_within_the_bound(tmp_path: Path, restart_every: int) -> None:
    path, bound = tmp_path / "ticks.frames", 64 * KIB
    writer = SegmentWriter(path, bound)
    for number in range(300):
        if number % restart_every == 0:
            writer.close()
            writer = SegmentWriter(path, bound)
        writer.append(payload(number))
        assert total_bytes(tmp_path) <= bound
    writer.close()
    kept = numbers(path)
    assert kept == list(range(kept[0], 300)), "no gap, and the last is the newest"
    assert len(kept) > 40, "most of the bound is used"
    assert list(read_frames(path))[-1] == payload(299)


def test_a_record_below_its_bound_is_one_file(tmp_path: Path) -> None:
    path = tmp_path / "ticks.frames"
    for number in range(3):
        writer = SegmentWriter(path, 1 << 30)
        writer.append(payload(number))
        writer.close()
    assert list(tmp_path.iterdir()) == [path]
    assert numbers(path) == [0, 1, 2]


def test_a_large_file_is_set_aside_unread_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "ticks.frames"
    old = FrameWriter(path)
    old.append(payload(1))
    old.close()
    with path.open("r+b") as file:
        file.truncate(module.SEGMENT_BYTES + 1)
    monkeypatch.setattr(
        "stallward.actuator.record.frames.zlib.crc32", lambda _: pytest.fail("it is read")
    )
    SegmentWriter(path, 1 << 30).close()
    monkeypatch.undo()
    assert path.read_bytes() == MAGIC
    assert [one.name for one in segments(path)] == ["ticks.frames.000001"]
    assert numbers(path) == [1]


def test_a_file_larger_than_the_whole_bound_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "ticks.frames"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    SegmentWriter(path, 1 << 30).close()
    assert list(tmp_path.iterdir()) == [path]


def test_a_torn_segment_costs_only_its_tail(tmp_path: Path) -> None:
    path = tmp_path / "ticks.frames"
    whole = MAGIC + encode_frame(payload(1)) + encode_frame(payload(2))
    (tmp_path / "ticks.frames.000007").write_bytes(whole[:-1])
    writer = SegmentWriter(path, 1 << 30)
    writer.append(payload(3))
    writer.close()
    assert numbers(path) == [1, 3]


def test_segments_follow_one_another_by_number(tmp_path: Path) -> None:
    for name in ("ticks.frames.1000000", "ticks.frames.000009", "ticks.frames.txt", "x.000001"):
        (tmp_path / name).write_bytes(MAGIC)
    names = [one.name for one in segments(tmp_path / "ticks.frames")]
    assert names == ["ticks.frames.000009", "ticks.frames.1000000"]


def test_a_file_that_is_set_aside_while_it_is_read_is_read_once(tmp_path: Path) -> None:
    path = tmp_path / "ticks.frames"
    writer = FrameWriter(path)
    for number in (1, 2):
        writer.append(payload(number))
    writer.close()
    reading = read_segments(path)
    first = next(reading)
    path.rename(tmp_path / "ticks.frames.000001")
    assert [first, *reading] == [payload(1), payload(2)]


def test_segments_that_are_removed_while_others_are_read_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "ticks.frames"
    for name in ("ticks.frames.000001", "ticks.frames.000002", "ticks.frames.000003", path.name):
        (tmp_path / name).write_bytes(MAGIC + encode_frame(payload(len(name))))
    reading = read_segments(path)
    first = next(reading)
    for number in (1, 2):
        (tmp_path / f"ticks.frames.{number:06d}").unlink()
    assert [first, *reading] == [payload(19), payload(19), payload(12)]


def test_a_segment_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "ticks.frames"
    path.write_bytes(MAGIC)
    (tmp_path / "ticks.frames.000001").mkdir()
    with pytest.raises(FramesError, match=r"000001 cannot be read: Is a directory"):
        list(read_segments(path))


@pytest.mark.parametrize("there", [True, False])
def test_a_symbolic_link_is_not_followed(tmp_path: Path, there: bool) -> None:
    target, path = tmp_path / "target", tmp_path / "ticks.frames"
    if there:
        target.write_bytes(MAGIC)
    path.symlink_to(target)
    with pytest.raises(FramesError, match=r"ticks\.frames cannot be written.*symbolic link"):
        SegmentWriter(path, 1 << 30)
    assert target.exists() == there
    assert path.is_symlink()


def test_what_is_no_regular_file_is_refused_at_once(tmp_path: Path) -> None:
    path = tmp_path / "ticks.frames"
    os.mkfifo(path)
    with pytest.raises(FramesError, match="no regular file"):
        SegmentWriter(path, 1 << 30)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another user's file")
def test_a_file_of_another_user_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ticks.frames"
    path.write_bytes(MAGIC)
    os.chown(path, 65534, 65534)
    with pytest.raises(FramesError, match=r"belongs to another user \(65534\)"):
        SegmentWriter(path, 1 << 30)
    assert path.read_bytes() == MAGIC
