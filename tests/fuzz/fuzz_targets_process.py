"""Targets: the files of one process, and the kernel's own type information."""

from __future__ import annotations

import itertools
import struct
from pathlib import Path
from typing import Any, Final

import fuzz_reference as reference
from fuzz_target import Target, sound
from fuzz_targets_kernel import kernel, sample

from stallward.actuator.errors import KernelFileError
from stallward.actuator.kernel.bpf import Btf
from stallward.actuator.kernel.memory.mappings import mappings
from stallward.actuator.kernel.process_roots import parse_pid
from stallward.actuator.kernel.process_table import parse_seen, parse_user_ids
from stallward.actuator.levers.process.page_advice import private_ranges
from stallward.actuator.sensors.files.meminfo import parse_min_pages
from stallward.actuator.sensors.processes import tree_process
from stallward.papers.levers.file_ranges import file_ranges
from stallward.papers.levers.reader.memory_groups import memory_group_name


def _seen(content: bytes, value: Any) -> None:
    assert value.start_time_ticks == reference.count(reference.stat_field(content, 22) or b"")
    assert -1 <= value.parent < 1 << 31, f"the parent {value.parent} is no pid"


def _ranges(content: bytes, path: Path) -> list[tuple[int, int]]:
    ranges = list(itertools.islice(private_ranges(content), 100_000))
    assert len(ranges) < 100_000, "pieces without end"
    return ranges


def _file_ranges(content: bytes, _path: Path) -> list[tuple[int, int]]:
    found = list(mappings(content))
    ranges = file_ranges(found, "all", 1 << 16)
    assert set(file_ranges(found, "first", 1 << 16)) <= set(ranges)
    assert len(ranges) < 100_000, "grabs without end"
    return ranges


def _min_pages(content: bytes, value: int) -> None:
    marks = [words for words in map(bytes.split, content.split(b"\n")) if words[:1] == [b"min"]]
    assert value == sum(int(words[1]) for words in marks)


def _ranges_check(content: bytes, value: Any) -> None:
    for address, length in value:
        assert 0 <= address < 1 << 64
        assert 0 < length <= 1 << 64


BTF_NAMES: Final = ("read_it", "btf_trace_hit", "outer", "colours", "nothing")


def make_btf() -> bytes:
    """Type information of a kernel with a function, a tracepoint, a structure and an enum."""
    names, types = b"\0", b""

    def name(text: str) -> int:
        nonlocal names
        names += text.encode() + b"\0" if text else b""
        return len(names) - len(text) - 1 if text else 0

    def add(text: str, kind: int, size: int, *rest: int, count: int = 0) -> None:
        nonlocal types
        types += struct.pack(f"<{3 + len(rest)}I", name(text), kind << 24 | count, size, *rest)

    add("int", 1, 4, 0x20)
    add("", 4, 16, name("near"), 1, 0, name("far"), 1, 64, count=2)
    add("", 10, 2)
    add("outer", 4, 24, name("first"), 1, 0, 0, 3, 64, count=2)
    add("", 13, 1, name("what"), 1, name("where"), 1, count=2)
    add("read_it", 12, 5)
    add("", 2, 5)
    add("btf_trace_hit", 8, 7)
    add("colours", 6, 4, name("RED"), 3, name("GREEN"), 7, count=2)
    add("", 17, 0, 0)
    header = struct.pack("<HBBIIIII", 0xEB9F, 1, 0, 24, 0, len(types), len(types), len(names))
    return header + types + names


def _btf(content: bytes, path: Path) -> tuple[Any, ...]:
    btf = Btf(content, path, BTF_NAMES)
    return (
        btf.tracepoint("btf_trace_hit"),
        btf.field_offset("outer", "far", "first"),
        btf.field_offset("nothing", "x"),
        btf.enumerator("colours", "GREEN"),
    )


def targets() -> tuple[Target, ...]:
    """All targets of this file."""
    stat = sample("stat.txt", "stat-hostile-name.txt")
    return (
        kernel(
            "process-stat-tree",
            lambda content, path: parse_seen(content, path, 7),
            stat,
            _seen,
            errors=(KernelFileError,),
        ),
        kernel(
            "process-users",
            lambda content, _path: parse_user_ids(content),
            sample("status.txt"),
            sound,
            (b"Uid:", b"4294967295"),
        ),
        kernel(
            "process-groups",
            lambda content, _path: memory_group_name(content, v2=b"0::" not in content),
            (b"10:memory:/box/bg\n4:cpu,cpuacct:/\n0::/other\n", b"0::/../../kubepods/pod7\n"),
            sound,
            (b"memory", b"::", b".."),
        ),
        kernel(
            "pid-file",
            lambda content, _path: parse_pid(content),
            (b"4711\n", b"4711\n/var/lib/postgresql/data\n5432\n"),
            sound,
        ),
        kernel("process-stat-used", tree_process.parse_used, stat, sound),
        kernel("process-maps", _ranges, sample("maps.txt"), _ranges_check, (b"rw-p",)),
        kernel(
            "file-ranges", _file_ranges, sample("maps.txt"), _ranges_check, (b"r--p", b"00:01")
        ),
        kernel(
            "zoneinfo", parse_min_pages, sample("zoneinfo.txt"), _min_pages, (b"        min ",)
        ),
        kernel("btf", _btf, (make_btf(),), sound),
    )
