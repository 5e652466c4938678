"""The commands that ``stallward`` finds by the entry points of this package."""

from __future__ import annotations

from stallward.actuator.cli.lazy import lazy_app

WORKINGSET = lazy_app(
    "stallward.lens.cli.workingset:workingset",
    "Analyse when a program uses which of its memory.",
    "stallward workingset -- sqlite3 :memory: 'select 1'",
)
TRACE = lazy_app(
    "stallward.lens.cli.trace.command:trace",
    "Trace memory, stalls, page cache and block I/O over time.",
    "stallward trace process --out trace.parquet -- sqlite3 :memory:",
)
PLOT = lazy_app(
    "stallward.lens.cli.plot:plot",
    "Draw a trace as SVG and PNG.",
    "stallward plot trace.parquet",
)
RESIDENT = lazy_app(
    "stallward.lens.cli.resident:resident",
    "Watch which pages of a process are in memory or touched.",
    "stallward resident --pid 4711 --window 1 --seconds 60",
)
PROFILE = lazy_app(
    "stallward.lens.cli.profile:profile",
    "Measure what memory an application needs (needs root).",
    "stallward profile --scenario detector-anon --seconds 30",
)
DESCRIBE_TRACE = lazy_app(
    "stallward.lens.cli.describe:trace",
    "List the columns of traces: unit, meaning and source.",
    "stallward describe trace",
)
