"""The folder of what was seen: figures, tables, pictures and the page."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import numpy as np

from stallward.evaluation.report.experiment_page import write_experiment_page
from stallward.evaluation.results.serialise import save
from stallward.lens.page_tables import PAGE_BYTES, PAGE_SHIFT, MappingPages
from stallward.lens.pictures import write_pictures
from stallward.lens.resident.report.page import resident_page
from stallward.lens.resident.report.result import MappingFigures, ResidentResult, WindowSize
from stallward.lens.resident.report.tables import (
    TableFormat,
    looks_table,
    mappings_table,
    write_table,
)
from stallward.lens.resident.series import ResidentSeries, name_of

# ---------- From what was seen of a process to its figures.


def resident_result(series: ResidentSeries, *, source: str) -> ResidentResult:
    """The figures of what was seen.

    Args:
        series: What was seen.
        source: What was watched, in words.
    """
    looks, last = series.looks, series.looks[-1]
    return ResidentResult(
        source=source,
        pid=series.pid,
        clock=series.clock,
        page_bytes=PAGE_BYTES,
        page_tables_by=series.method,
        referenced_by=None if series.clear_s is None else "clear_refs",
        ended_by=series.ended_by,
        error=None if series.error is None else str(series.error),
        looks=len(looks),
        time=last.time - looks[0].time,
        look_ms=1e3 * series.look_s,
        clear_ms=None if series.clear_s is None else 1e3 * series.clear_s,
        peak_present_pages=max(look.present for look in looks),
        peak_swapped_pages=max(look.swapped for look in looks),
        peak_reserved_pages=max(look.reserved for look in looks),
        last_present_pages=last.present,
        last_file_pages=last.file,
        windows=window_sizes(series),
        mappings=_mappings(series),
    )


def window_sizes(series: ResidentSeries) -> tuple[WindowSize, ...]:
    """The working set against the length of the window.

    A look some time after the referenced bits were cleared says what was touched in a window of
    this length, so windows of several lengths come from clearing once.
    """
    groups: dict[int, list[tuple[float, int]]] = defaultdict(list)
    for look in series.looks:
        if look.window is not None and look.referenced is not None:
            groups[_steps(look.window, series)].append((look.window, look.referenced))
    return tuple(
        WindowSize(
            window=float(np.mean([window for window, _ in group])),
            windows=len(group),
            mean_pages=float(np.mean([pages for _, pages in group])),
            peak_pages=max(pages for _, pages in group),
        )
        for steps, group in sorted(groups.items())
        if steps > 0
    )


def _steps(window: float, series: ResidentSeries) -> int:
    """The length of a window in times between two looks."""
    return round(window / series.every)


def _mappings(series: ResidentSeries) -> tuple[MappingFigures, ...]:
    """The figures of all mappings of each name, those with the most present pages first."""
    now: dict[tuple[int, bytes], MappingPages] = {}
    present: dict[str, int] = defaultdict(int)
    peaks: dict[str, int] = defaultdict(int)
    touched: dict[str, list[int]] = defaultdict(list)
    longest = max((_steps(look.window or 0.0, series) for look in series.looks), default=0)
    changes = iter(series.changes)
    change = next(changes, None)
    for look in series.looks:
        while change is not None and change.time <= look.time:
            key = (change.pages.mapping.start, change.pages.mapping.name)
            name = name_of(change.pages)
            before = now.pop(key, None)
            present[name] -= 0 if before is None else before.present
            if not change.gone:
                now[key] = change.pages
                present[name] += change.pages.present
            change = next(changes, None)
        for name, pages in present.items():
            peaks[name] = max(peaks[name], pages)
        if longest > 0 and _steps(look.window or 0.0, series) == longest:
            sums: dict[str, int] = defaultdict(int)
            for one in now.values():
                sums[name_of(one)] += one.referenced or 0
            for name, pages in sums.items():
                touched[name].append(pages)
    figures = [
        MappingFigures(
            name=name,
            mapped_pages=sum(one.mapping.length >> PAGE_SHIFT for one in held),
            present_pages=sum(one.present for one in held),
            peak_present_pages=peaks[name],
            swapped_pages=sum(one.swapped for one in held),
            mean_referenced_pages=float(np.mean(touched[name])) if touched.get(name) else None,
        )
        for name in peaks
        for held in [[one for one in now.values() if name_of(one) == name]]
    ]
    return tuple(sorted(figures, key=lambda one: (-one.peak_present_pages, one.name)))


def write_resident(
    folder: Path, series: ResidentSeries, *, source: str, kind: TableFormat
) -> ResidentResult:
    """Write everything, and return the figures.

    Args:
        folder: The folder; made if it is missing.
        series: What was seen.
        source: What was watched, in words.
        kind: The format of the tables ``looks`` and ``mappings``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    result = resident_result(series, source=source)
    save(folder / "result.json", result)
    write_table(folder, "looks", looks_table(series), kind)
    write_table(folder, "mappings", mappings_table(series), kind)
    page = resident_page(series, result)
    write_experiment_page(page, folder / "report.html")
    write_pictures(folder / "pictures", page)
    return result
