"""The whole analysis of a trace in one pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from stallward.lens.errors import TraceError
from stallward.lens.workingset.lackey import LackeyReader, ReadInto, References
from stallward.lens.workingset.lackey_kernel import CLASS_NAMES
from stallward.lens.workingset.lru.stack_distances import LruCurve, StackDistances
from stallward.lens.workingset.pages import PageSettings, PageTable
from stallward.lens.workingset.reference_map import (
    WHOLE,
    AddressRange,
    ReferenceMap,
    ReferenceMapper,
)
from stallward.lens.workingset.sizes import SizeSeries, WorkingSetSizes
from stallward.lens.workingset.working_set import IntervalCounts, WorkingSetCurve

DEFAULT_THETAS: Final = (100_000, 1_000_000, 10_000_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalysisSettings:
    """What is analysed, and how."""

    pages: PageSettings = field(default_factory=PageSettings)
    thetas: tuple[int, ...] = DEFAULT_THETAS
    """Windows for the size over time."""
    lru_rate: float | None = 1.0
    """The share of pages that LRU is computed from; 1 is exact, ``None`` leaves it out."""
    lru_pages: int | None = None
    """The most pages that LRU is computed from; where there are more, the share is halved until
    it fits. ``None`` for no bound."""
    zoom: AddressRange = WHOLE
    """The part of the address space that the reference map shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """What a trace says."""

    settings: AnalysisSettings
    lines: int
    references: dict[str, int]
    """Class -> references, also of classes that were not selected."""
    time: int
    """T, by the clock of the settings."""
    pages: int
    """Pages that were touched by the selected classes."""
    working_set: WorkingSetCurve
    sizes: tuple[SizeSeries, ...]
    """One for each window, rising."""
    lru: LruCurve | None
    map: ReferenceMap
    error: TraceError | None = None
    """Why the trace could not be read to its end; all else is of what came before."""
    lru_error: TraceError | None = None
    """Why LRU is not known although it was asked for."""


class TraceAnalysis:
    """Takes references chunk by chunk; memory grows with pages, not with time."""

    def __init__(self, settings: AnalysisSettings) -> None:
        self._settings = settings
        self._table = PageTable(settings.pages)
        self._intervals = IntervalCounts()
        self._sizes = WorkingSetSizes(settings.thetas)
        rate = settings.lru_rate
        self._distances = (
            None if rate is None else StackDistances(rate=rate, most_pages=settings.lru_pages)
        )
        self._mapper = ReferenceMapper(settings.pages.page_bytes, settings.zoom)

    def feed(self, references: References) -> None:
        """Take the next references."""
        table = self._table
        for touches in table.touches(references):
            numbers = table.page_numbers
            self._intervals.feed(touches, table.pages)
            self._sizes.feed(touches, table.pages)
            self._mapper.feed(touches, numbers)
            if self._distances is not None:
                self._distances.feed(touches, numbers)

    def result(self, *, lines: int = 0, error: TraceError | None = None) -> Analysis:
        """What the references so far say.

        Args:
            lines: How many lines of a trace were read.
            error: Why it could not be read to its end.

        Raises:
            TraceError: If time is counted in instructions and there was none.
        """
        table = self._table
        time = table.now
        if table.pages and not time:
            raise error or TraceError(
                "The trace has no instructions to count time in.",
                next_step="Take --clock references.",
            )
        if not table.pages:
            raise error or TraceError(
                "The trace has no references of the selected classes.",
                next_step="Read the output of `valgrind --tool=lackey --trace-mem=yes`.",
            )
        lru, lru_error = self._lru()
        return Analysis(
            settings=self._settings,
            lines=lines,
            references=dict(zip(CLASS_NAMES, table.counts.tolist(), strict=True)),
            time=time,
            pages=table.pages,
            working_set=self._intervals.curve(time),
            sizes=tuple(self._sizes.series(time)),
            lru=lru,
            map=self._mapper.map(time),
            error=error,
            lru_error=lru_error,
        )

    def _lru(self) -> tuple[LruCurve | None, TraceError | None]:
        """LRU, or why it is not known: what else a long trace says must not be lost with it."""
        if self._distances is None:
            return None, None
        try:
            return self._distances.curve(self._table.now), None
        except TraceError as error:
            return None, error


def analyse(
    read_into: ReadInto,
    settings: AnalysisSettings,
    *,
    report: Callable[[int], None] = lambda _lines: None,
) -> Analysis:
    """Analyse Lackey's text.

    Args:
        read_into: Where the text comes from.
        settings: What is analysed.
        report: Called now and then with the number of lines that were read.

    Returns:
        The analysis, of all that could be read; ``error`` says why that is not all.

    Raises:
        TraceError: If nothing could be read.
    """
    reader = LackeyReader(read_into)
    analysis = TraceAnalysis(settings)
    error = None
    try:
        for references in reader:
            analysis.feed(references)
            report(reader.lines)
    except TraceError as found:
        error = found
    return analysis.result(lines=reader.lines, error=error)
