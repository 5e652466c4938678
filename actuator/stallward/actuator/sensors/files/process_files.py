"""The files of one process besides stat: status, schedstat, io and smaps_rollup."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stallward.actuator.errors import PartlyReadError, SensorError
from stallward.actuator.sensors.files.cpu import IoBytes
from stallward.actuator.sensors.files.flat import checked_count, parse_count

_KIB: Final = 1024
_SIZES: Final = re.compile(
    rb"\nVmRSS:[\t ]+(\d{1,15}) kB\nRssAnon:[\t ]+(\d{1,15}) kB"
    rb"\nRssFile:[\t ]+(\d{1,15}) kB\nRssShmem:[\t ]+(\d{1,15}) kB\n"
)
"""The form of these lines since kernel 4.5; any other form is parsed line by line."""
_READ: Final = b"\nread_bytes:"
_WRITTEN: Final = b"\nwrite_bytes:"
_IO: Final = re.compile(_READ + rb" (\d{1,18})" + _WRITTEN + rb" (\d{1,18})\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStatus:
    """The /proc/PID/status of a process; kernel threads have no memory fields."""

    state: bytes
    """The state as one letter, as in field 3 of /proc/PID/stat."""
    threads: int | None = None
    rss_bytes: int | None = None
    anon_bytes: int | None = None
    """Anonymous and shared memory, which needs swap to be reclaimed."""
    file_bytes: int | None = None
    swap_bytes: int | None = None


def _value(content: bytes, key: bytes, path: Path | str) -> bytes | None:
    """Return the rest of the line that begins with ``key`` (which begins with a newline)."""
    start = content.find(key)
    if start < 0:
        return None
    end = content.find(b"\n", start + 1)
    if end < 0:
        raise SensorError(path, f"cut short: {content[-60:]!r}")
    return content[start + len(key) : end].strip()


def _size(content: bytes, key: bytes, path: Path | str) -> int | None:
    value = _value(content, key, path)
    if value is None:
        return None
    if not value.endswith(b" kB"):
        raise SensorError(path, f"not a size in kB: {value[:40]!r}")
    return checked_count(parse_count(value[:-3].rstrip(), path) * _KIB, path)


def parse_status(content: bytes, path: Path | str) -> ProcessStatus:
    """Parse /proc/PID/status.

    A process's name cannot fake a line, since the kernel escapes newlines in it.

    Raises:
        PartlyReadError: If the number of threads or a size cannot be understood.
        SensorError: If it is not a process's status, or cut short.
    """
    state = _value(content, b"\nState:", path)
    threads = _value(content, b"\nThreads:", path)
    if not content.endswith(b"\n") or not state or threads is None:
        raise SensorError(path, f"not a process's status: {content[:60]!r}")
    lost: dict[str, str] = {}
    count = _understood("threads", parse_count, (threads, path), lost)
    rss, anon, file = _resident(content, path, lost)
    swap = _understood("swap_bytes", _size, (content, b"\nVmSwap:", path), lost)
    status = ProcessStatus(
        state=state[:1],
        threads=count,
        rss_bytes=rss,
        anon_bytes=anon,
        file_bytes=file,
        swap_bytes=swap,
    )
    if lost:
        what = "; ".join(lost.values())
        raise PartlyReadError(path, what, value=status, lost=frozenset(lost))
    return status


def _understood(
    name: str,
    read: Callable[..., int | None],
    arguments: tuple[object, ...],
    lost: dict[str, str],
) -> int | None:
    """Return what ``read`` does; if it cannot, ``None``, and note the reason in ``lost``."""
    try:
        return read(*arguments)
    except SensorError as error:
        lost[name] = f"{name}: {error.what}"
        return None


def _resident(
    content: bytes, path: Path | str, lost: dict[str, str]
) -> tuple[int | None, int | None, int | None]:
    """Parse the resident memory: total, anonymous with shared, and file pages."""
    match = _SIZES.match(content, max(content.find(b"\nVmRSS:"), 0))
    if match is not None:
        rss, anon, file, shared = match.groups()
        return int(rss) * _KIB, (int(anon) + int(shared)) * _KIB, int(file) * _KIB

    return (
        _understood("rss_bytes", _size, (content, b"\nVmRSS:", path), lost),
        _understood("anon_bytes", _anonymous, (content, path), lost),
        _understood("file_bytes", _size, (content, b"\nRssFile:", path), lost),
    )


def _anonymous(content: bytes, path: Path | str) -> int | None:
    own, shared = (_size(content, key, path) for key in (b"\nRssAnon:", b"\nRssShmem:"))
    return own if own is None or shared is None else checked_count(own + shared, path)


def parse_schedstat(content: bytes, path: Path | str) -> int:
    """Parse how long one thread waited for a CPU; returns microseconds of the nanoseconds.

    Raises:
        SensorError: If the content is malformed or cut short.
    """
    return parse_run_and_wait(content, path)[1]


def parse_run_and_wait(content: bytes, path: Path | str) -> tuple[int, int]:
    """Parse how long one thread ran, and how long it waited for a CPU, in microseconds.

    Raises:
        SensorError: If the content is malformed or cut short.
    """
    words = content.split()
    if len(words) != 3 or not content.endswith(b"\n"):
        raise SensorError(path, f"not a thread's schedstat: {content[:60]!r}")
    return parse_count(words[0], path) // 1000, parse_count(words[1], path) // 1000


def parse_process_io(content: bytes, path: Path | str) -> IoBytes:
    """Parse /proc/PID/io: bytes that the process itself had read from and written to storage.

    Raises:
        PartlyReadError: If one of the two cannot be understood.
        SensorError: If none can, or the content is cut short.
    """
    if not content.endswith(b"\n"):
        raise SensorError(path, f"cut short: {content[-60:]!r}")
    match = _IO.match(content, max(content.find(_READ), 0))
    if match is not None and match.end(1) == content.find(_WRITTEN):
        return IoBytes(read_bytes=int(match[1]), written_bytes=int(match[2]))
    lost: dict[str, str] = {}
    read = _understood("read_bytes", _bytes_of, (content, _READ, path), lost)
    written = _understood("written_bytes", _bytes_of, (content, _WRITTEN, path), lost)
    value = IoBytes(read_bytes=read, written_bytes=written)
    if not lost:
        return value
    what = "; ".join(lost.values())
    if read is written is None:
        raise SensorError(path, what)
    raise PartlyReadError(path, what, value=value, lost=frozenset(lost))


def _bytes_of(content: bytes, key: bytes, path: Path | str) -> int:
    value = _value(content, key, path)
    if value is None:
        raise SensorError(path, f"not a process's io: {content[:60]!r}")
    return parse_count(value, path)


def parse_pss(content: bytes, path: Path | str) -> int | None:
    """Parse ``Pss`` of /proc/PID/smaps_rollup; ``None`` for a process without memory.

    Raises:
        SensorError: If the content is malformed or cut short.
    """
    if content and not content.endswith(b"\n"):
        raise SensorError(path, f"cut short: {content[-60:]!r}")
    return _size(content, b"\nPss:", path)
