"""What the picture of a trace shows: panels with lines. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np

from stallward.lens.errors import TraceFileError
from stallward.lens.plot.file import TraceFile
from stallward.lens.plot.panel import (
    Line,
    Panel,
    PanelSpec,
    Values,
    as_is,
    busy_percent,
    growth,
    growth_mib,
    size_mib,
)
from stallward.lens.plot.series import Array, Series, series_of

# ---------- Which columns the pictures of traces show: a table


def _stalls(place: str) -> PanelSpec:
    return PanelSpec(
        title="Stalled" if place == "node" else "Stalled, in the group",
        unit="% of the time",
        values=busy_percent,
        columns={
            f"{place}_psi_{resource}_{line}_us": f"{resource}, {line}"
            for resource in ("memory", "io")
            for line in ("some", "full")
        },
    )


NODE: Final = (
    PanelSpec(
        title="Memory",
        unit="MiB",
        values=size_mib,
        columns={
            "node_memory_used_bytes": "used",
            "node_memory_buffer_bytes": "buffers",
            "node_memory_cache_bytes": "cache",
            "node_memory_free_bytes": "free",
        },
        stacked=True,
    ),
    PanelSpec(
        title="Swap in use",
        unit="MiB",
        values=size_mib,
        columns={"node_swap_used_bytes": "node", "group_swap_bytes": "group"},
    ),
    PanelSpec(
        title="Group",
        unit="MiB",
        values=size_mib,
        columns={
            "group_memory_usage_bytes": "in use",
            "group_memory_limit_bytes": "limit",
            "group_anon_bytes": "anonymous",
            "group_file_bytes": "files",
        },
    ),
    _stalls("node"),
    _stalls("group"),
    PanelSpec(
        title="Paging",
        unit="pages per second",
        values=growth,
        columns={
            "node_swap_in_pages": "swapped in",
            "node_swap_out_pages": "swapped out",
            "node_refault_file_pages": "file refaults",
            "node_refault_anon_pages": "anonymous refaults",
            "node_steal_direct_pages": "direct reclaim",
        },
    ),
    PanelSpec(
        title="Page cache",
        unit="lookups per second",
        values=growth,
        columns={"node_page_cache_hits": "hits", "node_page_cache_misses": "misses"},
    ),
)
PSI: Final = tuple(
    PanelSpec(
        title=f"{name}{', in the group' if place == 'group' else ''}",
        unit="% of the time",
        values=busy_percent,
        columns={f"{place}_psi_{resource}_{line}_us": line for line in ("some", "full")},
        faint={f"{place}_psi_{resource}_some_avg10_percent": "some, avg10 of the kernel"},
    )
    for place in ("node", "group")
    for resource, name in (("memory", "Memory"), ("io", "I/O"), ("cpu", "CPU"))
)
_RATES: Final = (
    PanelSpec(
        title="Page faults",
        unit="per second",
        values=growth,
        columns={"minor_faults": "minor", "major_faults": "major"},
    ),
    PanelSpec(
        title="Page cache",
        unit="lookups per second",
        values=growth,
        columns={"page_cache_hits": "hits", "page_cache_misses": "misses"},
    ),
    PanelSpec(
        title="Storage",
        unit="MiB/s",
        values=growth_mib,
        columns={"io_read_bytes": "read", "io_written_bytes": "written"},
    ),
    PanelSpec(
        title="Processor time",
        unit="% of one CPU",
        values=busy_percent,
        columns={"cpu_usage_us": "all threads"},
    ),
)
ONE_PROCESS: Final = (
    PanelSpec(
        title="Memory",
        unit="MiB",
        values=size_mib,
        columns={
            "rss_bytes": "RSS",
            "pss_bytes": "PSS",
            "private_bytes": "USS",
            "swap_bytes": "swap",
        },
    ),
    PanelSpec(
        title="Resident pages",
        unit="MiB",
        values=size_mib,
        columns={"anon_bytes": "anonymous and shared", "file_bytes": "files"},
        stacked=True,
    ),
    *_RATES,
)
ONE_PAGETYPE: Final = (
    PanelSpec(
        title="By mapping",
        unit="MiB",
        values=size_mib,
        columns={
            "anon_mapping_bytes": "anonymous",
            "file_mapping_bytes": "files",
            "shmem_mapping_bytes": "shared memory",
            "stack_bytes": "stack",
        },
        stacked=True,
    ),
    PanelSpec(
        title="By page",
        unit="MiB",
        values=size_mib,
        columns={"anon_bytes": "anonymous and shared", "file_bytes": "files"},
        stacked=True,
    ),
    PanelSpec(
        title="State",
        unit="MiB",
        values=size_mib,
        columns={
            "private_dirty_bytes": "private, dirty",
            "private_clean_bytes": "private, clean",
            "referenced_bytes": "referenced",
            "swap_bytes": "in swap",
        },
    ),
)
PAGE_CACHE: Final = (
    PanelSpec(
        title="Hit ratio of the node",
        unit="share of lookups",
        values=as_is,
        columns={"hit_ratio": "hits"},
    ),
    PanelSpec(
        title="Lookups of the node",
        unit="per second",
        values=growth,
        columns={"page_cache_hits": "hits", "page_cache_misses": "misses"},
    ),
    PanelSpec(
        title="Page cache",
        unit="MiB",
        values=size_mib,
        columns={"memory_cached_bytes": "cached", "memory_buffer_bytes": "buffers"},
    ),
)


MOST_LINES: Final = 7
"""How many processes a panel shows: those with the largest values."""


def panels_of(trace: TraceFile) -> tuple[Panel, ...]:
    """The panels of a trace; those without any value are left out.

    Raises:
        TraceFileError: If none is left.
    """
    series = series_of(trace)
    make = _MAKERS.get(trace.table.kind)
    panels = () if make is None else tuple(panel for panel in make(series) if panel.lines)
    if not panels:
        raise TraceFileError(
            f"{trace.path} has nothing to draw.", next_step="Trace for a second at least."
        )
    return panels


def _panel(spec: PanelSpec, series: Series) -> Panel:
    lines = [
        _line(label, series, spec.values(series, name), whole=spec.stacked)
        for name, label in spec.columns.items()
        if series.known(name)
    ]
    lines += [
        Line(label=label, seconds=series.seconds, values=series.columns[name], faint=True)
        for name, label in (spec.faint or {}).items()
        if series.known(name)
    ]
    return Panel(title=spec.title, unit=spec.unit, lines=_with_values(lines), stacked=spec.stacked)


def _line(label: str, series: Series, values: Array, *, whole: bool = False) -> Line:
    """A line through the ticks at which a value is known: not every tick has PSS."""
    known = np.isfinite(values) | whole
    return Line(label=label, seconds=series.seconds[known], values=values[known])


def _with_values(lines: Sequence[Line]) -> tuple[Line, ...]:
    return tuple(line for line in lines if np.isfinite(line.values).any())


def _compared(
    title: str, unit: str, values: Values, column: str, series: Sequence[Series]
) -> Panel:
    """A panel with a line for each series: the largest ones."""
    lines = _with_values(
        [
            _line(one.label, one, values(one, column), whole=values is _mean_ms)
            for one in series
            if one.known(column)
        ]
    )
    peaks = sorted((float(np.nanmax(line.values)) for line in lines), reverse=True)
    least = peaks[:MOST_LINES][-1] if peaks else 0.0
    shown = [line for line in lines if float(np.nanmax(line.values)) >= least][:MOST_LINES]
    return Panel(title=title, unit=unit, lines=tuple(shown))


def _node(series: Sequence[Series]) -> list[Panel]:
    return [_panel(spec, series[0]) for spec in NODE]


def _psi(series: Sequence[Series]) -> list[Panel]:
    return [_panel(spec, series[0]) for spec in PSI]


def _process(series: Sequence[Series]) -> list[Panel]:
    if len(series) == 1:
        return [_panel(spec, series[0]) for spec in ONE_PROCESS]
    main = "pss_bytes" if any(one.known("pss_bytes") for one in series) else "rss_bytes"
    return [
        _compared(main[:3].upper(), "MiB", size_mib, main, series),
        _compared("Swap", "MiB", size_mib, "swap_bytes", series),
        _compared("Major faults", "per second", growth, "major_faults", series),
        _compared("Page-cache misses", "per second", growth, "page_cache_misses", series),
        _compared("Read from storage", "MiB/s", growth_mib, "io_read_bytes", series),
        _compared("Written to storage", "MiB/s", growth_mib, "io_written_bytes", series),
        _compared("Processor time", "% of one CPU", busy_percent, "cpu_usage_us", series),
    ]


def _pagetype(series: Sequence[Series]) -> list[Panel]:
    if len(series) == 1:
        return [_panel(spec, series[0]) for spec in ONE_PAGETYPE]
    return [
        _compared("Anonymous and shared pages", "MiB", size_mib, "anon_bytes", series),
        _compared("Pages of files", "MiB", size_mib, "file_bytes", series),
        _compared("Anonymous mappings", "MiB", size_mib, "anon_mapping_bytes", series),
        _compared("File mappings", "MiB", size_mib, "file_mapping_bytes", series),
    ]


def _pagecache(series: Sequence[Series]) -> list[Panel]:
    node = [one for one in series if one.label.startswith("(node)")]
    processes = [one for one in series if one not in node]
    return [
        *(_panel(spec, one) for one in node for spec in PAGE_CACHE),
        _compared("Hits by process", "per second", growth, "page_cache_hits", processes),
        _compared("Misses by process", "per second", growth, "page_cache_misses", processes),
    ]


def _blockio(series: Sequence[Series]) -> list[Panel]:
    disks = [_short(one) for one in series if one.label.endswith("diskstats")]
    processes = [_short(one) for one in series if not one.label.endswith("diskstats")]
    return [
        _compared("Disks", "MiB/s", growth_mib, "io_bytes", disks),
        _compared("Disks", "requests per second", growth, "requests", disks),
        _compared("Disks: mean time of a request", "ms", _mean_ms, "io_time_us", disks),
        _compared("Processes", "MiB/s", growth_mib, "io_bytes", processes),
        _compared("Processes", "requests per second", growth, "requests", processes),
        _compared("Processes: mean time of a request", "ms", _mean_ms, "io_time_us", processes),
    ]


def _short(series: Series) -> Series:
    label = series.label.rpartition(" ")[0]  # without the source
    return Series(label=label, seconds=series.seconds, columns=series.columns)


def _mean_ms(series: Series, name: str) -> Array:
    requests = series.rate("requests")
    out = np.full(requests.size, np.nan)
    mean_ms = np.divide(series.rate(name) / 1e3, requests, out=out, where=requests > 0.0)
    return np.asarray(mean_ms)


_MAKERS: Final[Mapping[str, Callable[[Sequence[Series]], list[Panel]]]] = {
    "node": _node,
    "psi": _psi,
    "process": _process,
    "pagetype": _pagetype,
    "pagecache": _pagecache,
    "blockio": _blockio,
}
