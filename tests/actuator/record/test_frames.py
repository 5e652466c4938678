"""Frames survive a torn tail, and foreign files are refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stallward.actuator.errors import FramesError
from stallward.actuator.record.frames import (
    MAGIC,
    MAX_FRAME_BYTES,
    FrameWriter,
    encode_frame,
    extent,
    read_frames,
)


def _write(path: Path, *payloads: bytes) -> bytes:
    writer = FrameWriter(path)
    for payload in payloads:
        writer.append(payload)
    writer.close()
    return path.read_bytes()


def test_written_frames_are_read_back(tmp_path: Path) -> None:
    path = tmp_path / "run" / "ticks.frames"
    data = _write(path, b"one", b"two", b"three" * 1000)
    assert data.startswith(MAGIC)
    assert list(read_frames(path)) == [b"one", b"two", b"three" * 1000]
    assert extent(path).torn_bytes == 0


@settings(deadline=None, max_examples=50)
@given(
    payloads=st.lists(st.binary(min_size=1, max_size=40), min_size=1, max_size=5),
    cut=st.integers(0, 60),
)
def test_a_cut_anywhere_loses_only_the_torn_frames(
    tmp_path_factory: pytest.TempPathFactory, payloads: list[bytes], cut: int
) -> None:
    path = tmp_path_factory.mktemp("cut") / "ticks.frames"
    data = _write(path, *payloads)
    path.write_bytes(data[: max(len(data) - cut, 0)])
    read_back = list(read_frames(path))
    assert read_back == payloads[: len(read_back)]
    ends = [len(MAGIC)]
    for payload in payloads:
        ends.append(ends[-1] + len(encode_frame(payload)))
    assert len(read_back) == sum(end <= len(data) - cut for end in ends[1:])


def test_a_flipped_bit_ends_the_reading(tmp_path: Path) -> None:
    path = tmp_path / "ticks.frames"
    data = bytearray(_write(path, b"first", b"second"))
    data[-1] ^= 1
    path.write_bytes(data)
    assert list(read_frames(path)) == [b"first"]
    assert extent(path).torn_bytes == len(encode_frame(b"second"))


def test_an_absurd_length_ends_the_reading(tmp_path: Path) -> None:
    path = tmp_path / "ticks.frames"
    _write(path, b"first")
    with path.open("ab") as stream:
        stream.write((MAX_FRAME_BYTES + 1).to_bytes(4, "little") + bytes(100))
    assert list(read_frames(path)) == [b"first"]


def test_zeros_that_a_power_cut_left_are_torn(tmp_path: Path) -> None:
    path = tmp_path / "ticks.frames"
    _write(path, b"first")
    with path.open("ab") as stream:
        stream.write(bytes(4096))
    assert list(read_frames(path)) == [b"first"]
    assert extent(path).torn_bytes == 4096
    _write(path, b"second")
    assert list(read_frames(path)) == [b"first", b"second"]


def test_writing_goes_on_after_a_crash(tmp_path: Path) -> None:
    path = tmp_path / "ticks.frames"
    data = _write(path, b"first", b"torn")
    path.write_bytes(data[:-2])
    _write(path, b"second")
    assert list(read_frames(path)) == [b"first", b"second"]


def test_a_torn_magic_is_written_again(tmp_path: Path) -> None:
    path = tmp_path / "ticks.frames"
    path.write_bytes(MAGIC[:3])
    assert list(read_frames(path)) == []
    _write(path, b"first")
    assert list(read_frames(path)) == [b"first"]


def test_a_foreign_file_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(b"something else")
    with pytest.raises(FramesError, match="not a frames file"):
        list(read_frames(path))
    with pytest.raises(FramesError, match="not a frames file"):
        FrameWriter(path)
    assert path.read_bytes() == b"something else"


def test_a_missing_file_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(FramesError, match=r"cannot be read: No such file"):
        list(read_frames(tmp_path / "ticks.frames"))


def test_a_full_disk_is_a_clear_error(tmp_path: Path) -> None:
    writer = FrameWriter(tmp_path / "ticks.frames")
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, writer._fd)
    os.close(full)
    with pytest.raises(FramesError, match="No space left"):
        writer.append(b"frame")
