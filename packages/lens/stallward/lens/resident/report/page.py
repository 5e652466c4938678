"""The page of what was seen of a process. Pure."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.evaluation.report.drawing import axes, draw, mark, svg_of
from stallward.evaluation.report.experiment_page import (
    ExperimentPage,
    PageChart,
    PageSection,
    PageTable,
)
from stallward.evaluation.report.text import short_count
from stallward.lens.resident.report.result import ResidentResult
from stallward.lens.resident.series import ResidentSeries

_COLOURS: Final = {
    "present": "var(--c0)",
    "reserved": "var(--c2)",
    "swapped": "var(--c3)",
    "referenced": "var(--c1)",
}
_MOST_ROWS: Final = 30
_NAME_LENGTH: Final = 48
_MIB: Final = 1 << 20

Array = NDArray[np.float64]


def mib(pages: float, page_bytes: int) -> str:
    """A number of pages as MiB."""
    return f"{pages * page_bytes / _MIB:,.1f}"


def headline(result: ResidentResult) -> str:
    """What was seen, in a few sentences."""
    unit = result.page_bytes
    words = [
        f"Up to {mib(result.peak_present_pages, unit)} MiB were present and "
        f"{mib(result.peak_swapped_pages, unit)} MiB in swap."
    ]
    if result.windows:
        longest = result.windows[-1]
        words.append(
            f"In {longest.window:.3g} s it touches {mib(longest.mean_pages, unit)} MiB in the "
            f"mean and up to {mib(longest.peak_pages, unit)} MiB (by {result.referenced_by})."
        )
    words.append(f"{result.looks:,} looks took {result.look_ms:.2f} ms each.")
    if result.error is not None:
        words.append(f"It ended early: {result.error}")
    return " ".join(words)


def mapping_table(result: ResidentResult, most: int = _MOST_ROWS) -> PageTable:
    """The mappings with the most present pages, in MiB."""
    unit = result.page_bytes
    return PageTable(
        headers=("mapping", "mapped MiB", "present", "peak", "swapped", "touched"),
        rows=[
            (
                _short(one.name),
                mib(one.mapped_pages, unit),
                mib(one.present_pages, unit),
                mib(one.peak_present_pages, unit),
                mib(one.swapped_pages, unit),
                "-" if one.mean_referenced_pages is None else mib(one.mean_referenced_pages, unit),
            )
            for one in result.mappings[:most]
        ],
    )


def _short(name: str) -> str:
    """The end of a long name."""
    return name if len(name) <= _NAME_LENGTH else f"...{name[3 - _NAME_LENGTH :]}"


def resident_page(series: ResidentSeries, result: ResidentResult) -> ExperimentPage:
    """The whole page."""
    sections = [
        PageSection(
            title="Present, in swap, and reserved only",
            what=(
                "Pages with an entry in the page tables that are in memory, those that are in "
                "swap, and address space that is reserved without an entry."
            ),
            key={name: _COLOURS[name] for name in ("present", "swapped", "reserved")},
            charts=(
                _over_time(series, ("present", "swapped"), "Present and in swap"),
                _over_time(series, ("reserved",), "Reserved without an entry"),
            ),
        )
    ]
    if result.windows:
        sections.append(
            PageSection(
                title="Working set",
                what=(
                    f"Pages touched in windows of {result.windows[-1].window:.3g} s, over time, "
                    "and the mean in windows of other lengths."
                ),
                key={name: _COLOURS[name] for name in ("present", "referenced")},
                charts=(
                    _over_time(series, ("present", "referenced"), "Over time"),
                    _windows(result),
                ),
            )
        )
    sections.append(
        PageSection(
            title="Mappings",
            what=f"The {_MOST_ROWS} with the most present pages.",
            table=mapping_table(result),
            notes=(
                f"Page tables were read by {result.page_tables_by}; a page has "
                f"{result.page_bytes:,} bytes.",
            ),
        )
    )
    return ExperimentPage(
        experiment="resident",
        source=result.source,
        headline=headline(result),
        sections=sections,
    )


def _over_time(series: ResidentSeries, names: tuple[str, ...], label: str) -> PageChart:
    times = series.column("time")
    columns = {name: series.column(name) for name in names}
    highest = max(float(np.nanmax(one, initial=1.0)) for one in columns.values())
    drawn = axes(
        (0.0, 0.0),
        (max(float(times[-1]), 1e-9), 1.05 * highest),
        (f"time, {series.clock}", "pages"),
    )
    steps = np.rint(series.column("window") / series.every)
    for name, column in columns.items():
        known = np.isfinite(column)
        if name == "referenced":
            known &= steps == np.nanmax(steps)  # shorter windows see less
        if known.any():
            draw(drawn, times[known], column[known], _COLOURS[name])
    return PageChart(title=label, svg=svg_of(drawn, label))


def _windows(result: ResidentResult) -> PageChart:
    lengths = np.array([one.window for one in result.windows])
    means = np.array([one.mean_pages for one in result.windows])
    drawn = axes(
        (0.0, 0.0),
        (1.05 * float(lengths.max()), 1.1 * max(float(means.max()), 1.0)),
        ("window, s", "pages touched"),
    )
    draw(drawn, lengths, means, _COLOURS["referenced"])
    for one in result.windows:
        label = f"{short_count(one.mean_pages)} pages in {one.window:.3g} s ({one.windows} times)"
        mark(drawn, (one.window, one.mean_pages), _COLOURS["referenced"], label, hollow=True)
    label = "Against the window"
    return PageChart(title=label, svg=svg_of(drawn, label))
