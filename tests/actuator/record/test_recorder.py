"""The recorder process: everything that was sent is on disk, also after a kill."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from pathlib import Path

from stallward.actuator.ipc.channels import MessageSocket
from stallward.actuator.record.frames import read_frames
from stallward.actuator.record.recorder import RecorderOptions
from stallward.actuator.runtime.process_start import command_line


def _start(path: Path, max_bytes: int = 1 << 30) -> tuple[subprocess.Popen[bytes], MessageSocket]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    options = RecorderOptions(fd=theirs.fileno(), path=path, max_bytes=max_bytes)
    command = command_line("stallward.actuator.record.recorder", options)
    process = subprocess.Popen(command, pass_fds=(theirs.fileno(),), stderr=subprocess.PIPE)
    theirs.close()
    return process, MessageSocket(ours)


def _end(process: subprocess.Popen[bytes]) -> tuple[int, str]:
    _, errors = process.communicate(timeout=10)
    return process.returncode, errors.decode()


def test_everything_sent_is_written(tmp_path: Path) -> None:
    path = tmp_path / "run" / "ticks.frames"
    process, sender = _start(path)
    records = [bytes([i]) * 3000 for i in range(100)]
    assert all(sender.send(record) for record in records)
    sender.connection.close()
    assert _end(process) == (0, "")
    assert list(read_frames(path)) == records


def test_a_killed_recorder_leaves_whole_frames(tmp_path: Path) -> None:
    path = tmp_path / "ticks.frames"
    process, sender = _start(path)
    deadline_s = time.monotonic() + 10
    sender.send(b"first")
    while not (path.exists() and list(read_frames(path))) and time.monotonic() < deadline_s:
        time.sleep(0.01)
    process.kill()
    _end(process)
    assert list(read_frames(path)) == [b"first"]
    assert not sender.send(b"second"), "nobody is there"
    assert sender.dropped == 1
    sender.connection.close()


def test_it_outlives_signals_meant_for_the_daemon(tmp_path: Path) -> None:
    path = tmp_path / "ticks.frames"
    process, sender = _start(path)
    while not path.exists():
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGTERM)
    os.kill(process.pid, signal.SIGINT)
    sender.send(b"last")
    sender.connection.close()
    assert _end(process) == (0, "")
    assert list(read_frames(path)) == [b"last"]


def test_a_foreign_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ticks.frames"
    path.write_text("mine")
    process, sender = _start(path)
    status, errors = _end(process)
    assert status == 2
    assert "not a frames file" in errors
    assert "Traceback" not in errors
    assert path.read_text() == "mine"
    sender.connection.close()


def test_a_full_queue_drops_and_counts(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        sender = MessageSocket(ours)
        sent = sum(sender.send(bytes(4096)) for _ in range(10_000))
        assert 100 < sent < 10_000, "nobody reads"
        assert sender.dropped == 10_000 - sent
