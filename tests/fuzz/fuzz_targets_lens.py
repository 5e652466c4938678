"""Targets: what the tracers read of the kernel, and the files of traces."""

from __future__ import annotations

import re
from typing import Any, Final

from fuzz_mutations import Material
from fuzz_target import Folder, Target, sound
from fuzz_targets_kernel import kernel, sample

from stallward.lens.errors import TraceFileError
from stallward.lens.plot.file import read_trace
from stallward.lens.trace.block_io.disks import parse_diskstats
from stallward.lens.trace.columns import Value
from stallward.lens.trace.csv_file import CsvSink
from stallward.lens.trace.memory_maps import (
    FIELDS_OF_KEYS,
    parse_map_sizes,
    parse_mapping_kinds,
)
from stallward.lens.trace.psi_averages import parse_psi_averages
from stallward.lens.trace.tables import TABLES
from stallward.lens.trace.tick import Layout, Tick

_SIZE: Final = re.compile(rb"([A-Za-z_]+):[ \t]+(\d{1,15}) kB")


def _sizes(content: bytes, value: Any) -> None:
    sums: dict[str, int] = {}
    for line in content.split(b"\n"):
        match = _SIZE.fullmatch(line)
        if match is not None and match[1] in FIELDS_OF_KEYS:
            name = FIELDS_OF_KEYS[match[1]]
            sums[name] = sums.get(name, 0) + int(match[2]) * 1024
    assert {name: getattr(value, name) for name in FIELDS_OF_KEYS.values()} == {
        name: sums.get(name) for name in FIELDS_OF_KEYS.values()
    }


def _kinds(_content: bytes, value: Any) -> None:
    sound(b"", value)
    assert value.heap_bytes <= value.anon_bytes


def _averages(content: bytes, value: Any) -> None:
    sound(content, value)
    for averages in value:
        assert averages.avg10_percent is None or averages.avg10_percent >= 0.0


def _trace_csv() -> bytes:
    """A short trace of the largest processes."""
    folder = Folder()
    path = folder.path / "sample.csv"
    (table,) = (table for table in TABLES if table.kind == "largest")
    sink = CsvSink.create(path, Layout(table=table))
    row: dict[str, Value] = {
        "pid": 7,
        "name": 'a "b", c',
        "rank": 1,
        "ordered_by": "rss",
        "rss_bytes": 4096,
    }
    for number in (1, 2):
        sink.take(Tick(number=number, time_us=number, wall_us=number, rows=[row]))
    sink.close()
    return path.read_bytes()


def _read_trace() -> Target:
    folder = Folder()

    def run(content: bytes) -> list[dict[str, object]]:
        trace = read_trace(folder.file("trace.csv", content))
        rows: list[dict[str, object]] = trace.columns.to_pylist()
        return rows

    def check(_content: bytes, rows: list[dict[str, object]]) -> None:
        (table,) = (table for table in TABLES if table.kind == "largest")
        assert all(tuple(row) == table.names for row in rows)

    return Target(
        name="trace-file",
        run=run,
        material=Material(samples=(_trace_csv(),)),
        errors=(TraceFileError,),
        names="trace.csv",
        check=check,
        slow=4,
    )


def targets() -> tuple[Target, ...]:
    """Every target of this file."""
    smaps = sample("smaps.txt")
    return (
        kernel("map-sizes", parse_map_sizes, (*smaps, *sample("smaps-rollup.txt")), _sizes),
        kernel("mapping-kinds", parse_mapping_kinds, smaps, _kinds, (b"[heap]", b"[stack]")),
        kernel("psi-averages", parse_psi_averages, sample("psi-memory.txt"), _averages),
        kernel("diskstats", parse_diskstats, sample("diskstats.txt"), sound),
        _read_trace(),
    )
