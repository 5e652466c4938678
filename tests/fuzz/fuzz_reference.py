"""Slow reference readers of the kernel's files, written from its documentation.

They know nothing of the readers under test: every line is matched as a whole, and what does not
match makes the file one that must be refused, for which they return ``None``.
"""

from __future__ import annotations

import re
from typing import Final

MAX: Final = 2**64 - 1
_SPACE: Final = b" \t\r\x0b\x0c"
"""White space within a line, as ``bytes.split`` has it."""


def count(text: bytes) -> int | None:
    """The value of up to twenty ASCII digits, if it fits into 64 bits."""
    if not 1 <= len(text) <= 20 or any(byte not in b"0123456789" for byte in text):
        return None
    value = 0
    for byte in text:
        value = value * 10 + (byte - 48)
    return value if value <= MAX else None


def lines(content: bytes) -> list[bytes] | None:
    """The lines of a file whose last one must be whole."""
    if not content.endswith(b"\n"):
        return None
    return content[:-1].split(b"\n")


def words(line: bytes) -> list[bytes]:
    """The words of a line, split at white space."""
    return re.findall(rb"[^" + _SPACE + rb"]+", line)


def flat(content: bytes, wanted: list[bytes]) -> list[int | None] | None:
    """The wanted counters of ``KEY VALUE`` lines, which have one space and each key once."""
    by_key: dict[bytes, bytes] = {}
    for line in lines(content) or [b""]:
        parts = line.split(b" ")
        if len(parts) != 2 or parts[0] in by_key:
            return None
        by_key[parts[0]] = parts[1]
    values = [count(by_key[key]) if key in by_key else None for key in wanted]
    broken = any(
        key in by_key and value is None for key, value in zip(wanted, values, strict=True)
    )
    return None if broken else values


def psi(content: bytes) -> tuple[int | None, int | None] | None:
    """The totals of ``some`` and ``full``; one line may be missing, and none may stand twice."""
    totals: dict[bytes, int] = {}
    for line in lines(content) or [b"-"]:
        if not line:
            continue
        match = re.fullmatch(rb"(some|full)( .*)? total=([0-9]{1,20})", line, re.DOTALL)
        value = None if match is None else count(match[3])
        if match is None or value is None or match[1] in totals:
            return None
        totals[match[1]] = value
    return (totals.get(b"some"), totals.get(b"full")) if totals else None


def sizes(content: bytes, wanted: list[bytes]) -> list[int | None] | None:
    """The wanted values of ``KEY:  VALUE kB`` lines in bytes; no wanted key may stand twice."""
    by_key: dict[bytes, int] = {}
    for line in lines(content) or [b"MemTotal:"]:
        key, colon, rest = line.partition(b":")
        if key not in wanted:
            continue
        parts = words(rest)
        value = count(parts[0]) if len(parts) == 2 and parts[1] == b"kB" and colon else None
        if value is None or value * 1024 > MAX or key in by_key:
            return None
        by_key[key] = value * 1024
    return [by_key.get(key) for key in wanted]


def io_stat(content: bytes) -> tuple[int, int] | None:
    """The sums of bytes read and written over ``MAJ:MIN key=value...`` lines."""
    read = written = 0
    for line in (lines(content) or [b"-"]) if content else []:
        first, *pairs = words(line) or [b""]
        if re.fullmatch(rb"[0-9]+:[0-9]+", first) is None or any(b"=" not in p for p in pairs):
            return None
        for pair in pairs:
            key, _, text = pair.partition(b"=")
            if key in {b"rbytes", b"wbytes"}:
                value = count(text)
                if value is None:
                    return None
                read += value if key == b"rbytes" else 0
                written += value if key == b"wbytes" else 0
    return (read, written) if max(read, written) <= MAX else None


def single(content: bytes) -> tuple[int | None] | None:
    """The only counter of a file, in a tuple; it is None for ``max``."""
    if content == b"max\n":
        return (None,)
    value = count(content[:-1]) if content.endswith(b"\n") else None
    return None if value is None else (value,)


def pids(content: bytes) -> set[int] | None:
    """The pids of a file without 0, which stands for a process of another namespace."""
    if content and not content.endswith(b"\n"):
        return None
    numbers = set()
    for word in words(content.replace(b"\n", b" ")):
        value = count(word)
        if value is None or len(word) > 10:
            return None
        numbers.add(value)
    return numbers - {0}


def stat_field(content: bytes, number: int) -> bytes | None:
    """Field ``number`` (3 or more) of /proc/PID/stat; the name ends with the last parenthesis."""
    _, parenthesis, rest = content.rpartition(b")")
    fields = words(rest.replace(b"\n", b" "))
    return fields[number - 3] if parenthesis and len(fields) > number - 3 else None


def keyed(content: bytes, key: bytes) -> list[bytes]:
    """The texts after ``KEY:`` in all lines that start so, except the first line of the file."""
    return [
        line.partition(b":")[2].strip(_SPACE)
        for line in content.split(b"\n")[1:]
        if line.startswith(key + b":")
    ]
