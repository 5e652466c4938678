"""Slow reference readers of the kernel's files, written from its documentation.

They know nothing of the readers under test. What a reader cannot understand must be absent, and is
``None`` here; a file of which nothing can be understood must be refused, for which they return
``None`` as a whole.
"""

from __future__ import annotations

import re
from typing import Final

MAX: Final = 2**63 - 1
MACHINE: Final = 10**18 - 1
"""No machine has more bytes, pages or events."""
_SPACE: Final = b" \t\r\x0b\x0c"
"""White space within a line, as ``bytes.split`` has it."""


def count(text: bytes) -> int | None:
    """The value of up to twenty ASCII digits, if it is no negative number without its sign."""
    if not 1 <= len(text) <= 20 or any(byte not in b"0123456789" for byte in text):
        return None
    value = 0
    for byte in text:
        value = value * 10 + (byte - 48)
    return value if value <= MAX else None


def whole_lines(content: bytes) -> tuple[list[bytes], bool]:
    """The lines that end with a newline, and whether the file does."""
    *found, rest = content.split(b"\n")
    return found, bool(found) and not rest


def words(line: bytes) -> list[bytes]:
    """The words of a line, split at white space."""
    return re.findall(rb"[^" + _SPACE + rb"]+", line)


def flat(content: bytes, wanted: list[bytes], most: int = MAX) -> list[int | None] | None:
    """The wanted counters of ``KEY VALUE`` lines, which have one space and each key once."""
    found, whole = whole_lines(content)
    values: list[int | None] = []
    for key in wanted:
        texts = [line[len(key) + 1 :] for line in found if line.split(b" ")[0] == key]
        value = count(texts[0]) if len(texts) == 1 else None
        values.append(value if value is None or value <= most else None)
    named = [key for key in wanted if any(line.split(b" ")[0] == key for line in found)]
    odd = not named and any(len(line.split(b" ")) != 2 for line in found)
    nothing = (named or not whole) and all(value is None for value in values)
    return None if odd or nothing else values


def psi(content: bytes) -> tuple[int | None, int | None] | None:
    """The totals of ``some`` and ``full``; a line that stands twice tells nothing."""
    totals = []
    for kind in (b"some", b"full"):
        found = [line for line in whole_lines(content)[0] if line.split(b" ")[0] == kind]
        match = re.fullmatch(rb"[a-z]+ .* total=([0-9]{1,20})", found[0]) if found else None
        totals.append(count(match[1]) if match and len(found) == 1 else None)
    return None if totals == [None, None] else (totals[0], totals[1])


def sizes(content: bytes, wanted: list[bytes]) -> list[int | None] | None:
    """The wanted values of ``KEY:  VALUE kB`` lines in bytes, none of which exceeds its total."""
    found, whole = whole_lines(content)
    by_key: dict[bytes, int | None] = {}
    for key in wanted:
        texts = [line.partition(b":")[2] for line in found if line.partition(b":")[0] == key]
        parts = words(texts[0]) if len(texts) == 1 else []
        value = count(parts[0]) if len(parts) == 2 and parts[1] == b"kB" else None
        usable = value is not None and len(parts[0]) <= 15
        if texts or not whole:
            by_key[key] = value * 1024 if value is not None and usable else None
    if not any(line.partition(b":")[0] in wanted for line in found):
        return None
    if by_key.get(b"MemTotal") == 0:
        by_key[b"MemTotal"] = None
    for key, size in by_key.items():
        whole_key = b"SwapTotal" if key == b"SwapFree" else b"MemTotal"
        total = None if key == b"SwapTotal" else by_key.get(whole_key)
        if size is not None and total is not None and size > total:
            by_key[key] = None
    if by_key.get(b"SwapTotal") == 0 and b"SwapFree" in by_key:
        by_key[b"SwapFree"] = 0
    for part, users in {b"Shmem": [b"AnonPages", b"Cached"], b"Buffers": [b"Cached"]}.items():
        if by_key.get(part, 0) is None:
            by_key |= dict.fromkeys(users, None)
    values = [by_key.get(key) for key in wanted]
    return None if all(value is None for value in values) else values


def io_stat(content: bytes) -> tuple[int | None, int | None] | None:
    """The sums of bytes read and written over ``MAJ:MIN ... MAJ:MIN key=value...`` lines."""
    *found, rest = content.split(b"\n")
    sums: dict[bytes, int | None] = {b"rbytes": 0, b"wbytes": 0}
    device = rb"[0-9]+:[0-9]+"
    if not re.fullmatch(rb"(\s*" + device + rb"(\s+" + device + rb")*\s* )?", rest):
        return None
    for line in found:
        if not words(line) or re.fullmatch(device, words(line)[0]) is None:
            return None
        for word in words(line):
            key, equals, text = word.partition(b"=")
            if not equals and re.fullmatch(device, word) is None:
                return None
            if key in sums:
                value, before = count(text) if equals else None, sums[key]
                total = None if value is None or before is None else before + value
                sums[key] = total if total is not None and total <= MAX else None
    read, written = sums.values()
    return None if read is None and written is None else (read, written)


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
