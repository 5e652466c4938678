"""What tracing a process costs: the processor time of a trace, by the size of the process."""

from __future__ import annotations

import mmap
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stallward.actuator.cli.output import Report
from stallward.actuator.kernel.paths import Paths
from stallward.actuator.runtime.process_start import interpreter
from stallward.benchmarks.errors import BenchError
from stallward.lens.trace.csv_file import CsvSink
from stallward.lens.trace.page_cache import PageCacheLens, no_counters
from stallward.lens.trace.run import Summary, trace
from stallward.lens.trace.targets import OneProcess
from stallward.lens.trace.tick import Layout
from stallward.lens.trace.tracers.pagetype import PageTypeTracer
from stallward.lens.trace.tracers.process import ProcessTracer
from stallward.lens.trace.tracers.tracer import Tracer
from stallward.lens.trace.waiting import Stop

SIZES_MB: Final = (100, 2000)
_PERIOD_S: Final = 0.1
_HOLD: Final = f"""
import mmap, sys
size = int(sys.argv[1]) * 1_000_000
memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
memory.madvise({mmap.MADV_NOHUGEPAGE})
for start in range(0, size, 4096):
    memory[start] = 1
print(flush=True)
sys.stdin.read()
"""
"""Holds memory in pages of 4 KiB, which take the kernel longest to count, until stdin ends."""

_VARIANTS: Final = {
    "process": "`trace process`: smaps_rollup, stat, status, io",
    "process_pss_every_10": "`trace process --pss-every 10`",
    "process_no_pss": "`trace process --pss-every 0`: without smaps_rollup",
    "pagetype": "`trace pagetype`: smaps, stat, status",
}
MEANINGS: Final = {
    f"{variant}_{size_mb}_mb_{figure}": f"{meaning}, of {size_mb} MB, {what}"
    for variant, meaning in _VARIANTS.items()
    for size_mb in SIZES_MB
    for figure, what in (
        ("cpu_share", "share of one processor, 10 ticks a second"),
        ("lost_share", "ticks that were lost"),
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceCost:
    """What a trace took."""

    cpu_share: float
    """Processor time of a tick by the period: what it would take if no tick were lost."""
    lost_share: float


def bench_traces(
    *, seconds: float, paths: Paths, report: Report, sizes_mb: Sequence[int] = SIZES_MB
) -> dict[str, float | None]:
    """Trace processes of known sizes ten times a second.

    Args:
        seconds: How long each trace is.
        paths: The roots of the kernel's files.
        report: Is told how far it is.
        sizes_mb: The sizes of the processes.

    Returns:
        The figures, by the names of :data:`MEANINGS`.
    """
    figures: dict[str, float | None] = {}
    steps = len(sizes_mb) * len(_VARIANTS)
    for size_mb in sizes_mb:
        with _process_of(size_mb) as pid:
            for variant in _VARIANTS:
                report(f"{variant}, {size_mb} MB", len(figures) / 2 / steps)
                target = OneProcess(paths.proc, pid)
                tracer = _OPENERS[variant](paths, target)
                cost = _measure(tracer, target, seconds)
                figures[f"{variant}_{size_mb}_mb_cpu_share"] = cost.cpu_share
                figures[f"{variant}_{size_mb}_mb_lost_share"] = cost.lost_share
    return figures


@contextmanager
def _process_of(size_mb: int) -> Iterator[int]:
    command = [*interpreter(), "-c", _HOLD, str(size_mb)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        if process.stdout is None or not process.stdout.readline():
            raise BenchError(
                f"A process could not take {size_mb} MB.",
                next_step="Free that much memory, or measure on another machine.",
            )
        yield process.pid
        process.communicate(b"")


def _measure(tracer: Tracer, target: OneProcess, seconds: float) -> TraceCost:
    summary, stop = Summary(), Stop()
    with tempfile.TemporaryDirectory() as folder:
        sink = CsvSink.create(Path(folder) / "trace.csv", Layout(table=tracer.table))
        cpu_s = time.process_time()
        trace(
            tracer,
            target,
            [sink],
            stop,
            period_s=_PERIOD_S,
            seconds=seconds,
            summary=summary,
        )
        cpu_s = time.process_time() - cpu_s
        sink.close()
    tracer.close()
    stop.close()
    return TraceCost(
        cpu_share=cpu_s / (summary.ticks * _PERIOD_S),
        lost_share=summary.lost / (summary.lost + summary.ticks),
    )


def _process(paths: Paths, target: OneProcess) -> Tracer:
    return ProcessTracer(paths.proc, target, page_cache=_none(paths))


def _pss_now_and_then(paths: Paths, target: OneProcess) -> Tracer:
    return ProcessTracer(paths.proc, target, maps_every=10, page_cache=_none(paths))


def _without_pss(paths: Paths, target: OneProcess) -> Tracer:
    return ProcessTracer(paths.proc, target, maps_every=0, page_cache=_none(paths))


def _pagetype(paths: Paths, target: OneProcess) -> Tracer:
    return PageTypeTracer(paths.proc, target)


def _none(paths: Paths) -> PageCacheLens:
    """No lookups are counted: their cost is of those who look up, and known."""
    return PageCacheLens(paths.sys, open_=no_counters)


_OPENERS: Final[dict[str, Callable[[Paths, OneProcess], Tracer]]] = {
    "process": _process,
    "process_pss_every_10": _pss_now_and_then,
    "process_no_pss": _without_pss,
    "pagetype": _pagetype,
}
