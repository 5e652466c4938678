"""Every curve and series of the memory lens equals what a slow computation by definition gives."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallward.lens.workingset.analysis import Analysis, AnalysisSettings, analyse
from stallward.lens.workingset.lackey_kernel import CLASS_NAMES, INSTRUCTION
from stallward.lens.workingset.pages import INSTRUCTIONS, REFERENCES, PageSettings, Touches
from stallward.lens.workingset.sizes import WorkingSetSizes

Reference = tuple[int, int, int]
"""Class, address, size."""
PAGE_BYTES = 64
LETTERS = ("I ", " L", " S", " M")

references = st.lists(
    st.tuples(
        st.sampled_from([0, 0, 1, 2, 3]),
        st.integers(0, 40 * PAGE_BYTES)
        | st.integers(2**64 - 9 * PAGE_BYTES, 2**64 - 4 * PAGE_BYTES),
        st.integers(1, 40) | st.integers(1, 3 * PAGE_BYTES),
    ),
    min_size=1,
    max_size=200,
)


def text(trace: Sequence[Reference]) -> bytes:
    return "".join(f"{LETTERS[c]} {a:08x},{s}\n" for c, a, s in trace).encode()


def analysed(trace: Sequence[Reference], **settings: object) -> Analysis:
    pages = PageSettings(page_bytes=PAGE_BYTES, **settings)  # type: ignore[arg-type]
    wanted = AnalysisSettings(pages=pages, thetas=(1, 3, 10, 50))
    return analyse(io.BytesIO(text(trace)).readinto, wanted)


def touches(
    trace: Sequence[Reference], *, clock: str = INSTRUCTIONS, classes: Sequence[str] = CLASS_NAMES
) -> tuple[list[tuple[int, int, int]], int]:
    """Time, page and class of every touch, and the last time."""
    now, found = 0, []
    for kind, address, size in trace:
        selected = CLASS_NAMES[kind] in classes
        if (kind == INSTRUCTION) if clock == INSTRUCTIONS else selected:
            now += 1
        if selected:
            last = (address + size - 1) // PAGE_BYTES
            pages = range(address // PAGE_BYTES, last + 1)
            found += [(max(now, 1), page, kind) for page in pages]
    return found, now


def working_set(found: Sequence[tuple[int, int, int]], at: int, theta: int) -> set[int]:
    return {page for time, page, _ in found if at - theta < time <= at}


def faults_of_window(found: Sequence[tuple[int, int, int]], theta: int) -> int:
    last: dict[int, int] = {}
    faults = 0
    for time, page, _ in found:
        faults += page not in last or time - last[page] > theta
        last[page] = time
    return faults


def vmin_mean(found: Sequence[tuple[int, int, int]], theta: int, end: int) -> float:
    times: dict[int, list[int]] = {}
    for time, page, _ in found:
        times.setdefault(page, []).append(time)
    resident: set[tuple[int, int]] = set()
    for page, touched in times.items():
        resident |= {(page, time) for time in touched}
        for this, following in pairwise(touched):
            if following - this <= theta:
                resident |= {(page, time) for time in range(this, following)}
    return len(resident) / end


def faults_of_lru(found: Sequence[tuple[int, int, int]], size: int) -> int:
    memory: list[int] = []
    faults = 0
    for _, page, _ in found:
        if page in memory:
            memory.remove(page)
        else:
            faults += 1
            if len(memory) == size:
                memory.pop(0)
        memory.append(page)
    return faults


def lru_mean(found: Sequence[tuple[int, int, int]], size: int, end: int) -> float:
    seen: set[int] = set()
    total, place = 0, 0
    for time in range(1, end + 1):
        while place < len(found) and found[place][0] <= time:
            seen.add(found[place][1])
            place += 1
        total += min(size, len(seen))
    return total / end


@given(references)
def test_the_working_set_curve_is_that_of_the_definition(trace: list[Reference]) -> None:
    found, end = touches(trace)
    if not end:
        return
    curve = analysed(trace).working_set
    assert (curve.time, curve.pages) == (end, len({page for _, page, _ in found}))
    for theta in range(1, end + 1):
        faults, mean = curve.at(theta)
        assert faults == faults_of_window(found, theta)
        sizes = [len(working_set(found, at, theta)) for at in range(1, end + 1)]
        assert mean == pytest.approx(np.mean(sizes))


@given(references)
def test_vmin_holds_what_comes_back_in_time_and_is_the_bound_of_lru(
    trace: list[Reference],
) -> None:
    found, end = touches(trace)
    if not end:
        return
    analysis = analysed(trace)
    curve = analysis.working_set
    for theta, mean in zip(curve.thetas.tolist(), curve.vmin_mean_pages, strict=True):
        assert mean == pytest.approx(vmin_mean(found, theta, end))
    assert (curve.vmin_mean_pages <= curve.mean_pages + 1e-9).all()
    lru = analysis.lru
    assert lru is not None
    at_once = max(Counter(time for time, _ in {(time, page) for time, page, _ in found}).values())
    for size, mean, faults in zip(lru.sizes, lru.mean_pages, lru.faults, strict=True):
        if size >= at_once:  # with less, LRU drops a page while others are touched with it
            assert (curve.faults[curve.vmin_mean_pages >= mean - 1e-9] <= faults).all()


@given(references)
def test_the_lru_curve_is_that_of_a_simulated_memory(trace: list[Reference]) -> None:
    found, end = touches(trace)
    if not end:
        return
    curve = analysed(trace).lru
    assert curve is not None
    assert curve.sizes.tolist() == list(range(1, curve.pages + 1))
    for i, size in enumerate(curve.sizes.tolist()):
        assert curve.faults[i] == faults_of_lru(found, size)
        assert curve.mean_pages[i] == pytest.approx(lru_mean(found, size, end))
    assert not curve.standard_errors.any()


@given(references)
def test_the_sizes_over_time_are_those_of_the_definition(trace: list[Reference]) -> None:
    found, end = touches(trace)
    if not end:
        return
    for series in analysed(trace).sizes:
        assert series.times.tolist() == list(range(1, end + 1))
        for time, pages in zip(series.times.tolist(), series.pages.tolist(), strict=True):
            assert pages == len(working_set(found, time, series.theta))
        assert series.faults.sum() == faults_of_window(found, series.theta)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 8)), min_size=1, max_size=300),
    st.integers(0, 100),
)
def test_samples_stay_exact_when_the_time_between_them_doubles(
    steps: list[tuple[int, int]], untouched: int
) -> None:
    now, found, order = 1, [], []
    for passed, page in steps:
        now += passed
        if page not in order:
            order.append(page)
        found.append((now, order.index(page), 0))
    sizes = WorkingSetSizes((2, 30), samples=8)
    known = 0
    for time, page, kind in found:  # one by one, so that state is kept between calls
        known = max(known, page + 1)
        sizes.feed(
            Touches(
                np.array([page], dtype=np.int32),
                np.array([time], dtype=np.int64),
                np.array([kind], dtype=np.uint8),
            ),
            pages=known,
        )
    for series in sizes.series(now + untouched):
        assert series.times.size <= 8
        for time, pages in zip(series.times.tolist(), series.pages.tolist(), strict=True):
            assert pages == len(working_set(found, time, series.theta))


@given(
    references,
    st.sampled_from([INSTRUCTIONS, REFERENCES]),
    st.sets(st.sampled_from(CLASS_NAMES), min_size=1),
)
def test_clock_and_classes_select_what_they_say(
    trace: list[Reference], clock: str, chosen: set[str]
) -> None:
    classes = tuple(name for name in CLASS_NAMES if name in chosen)
    found, end = touches(trace, clock=clock, classes=classes)
    if not end or not found:
        return
    analysis = analysed(trace, clock=clock, classes=classes)
    assert analysis.time == end
    counts = [sum(kind == i for kind, _, _ in trace) for i in range(4)]
    assert list(analysis.references.values()) == counts
    assert analysis.working_set.at(3)[0] == faults_of_window(found, 3)


@given(references)
def test_the_map_marks_what_was_touched_and_nothing_else(trace: list[Reference]) -> None:
    found, end = touches(trace)
    if not end:
        return
    drawn = analysed(trace).map
    assert drawn.step == 1
    marks = {
        (int(drawn.addresses[row]) // PAGE_BYTES, int(column) + 1, kind)
        for kind in range(4)
        for row, column in np.argwhere(drawn.of_class(kind))
    }
    pages = 2**64 // PAGE_BYTES
    assert marks == {(page % pages, time, kind) for time, page, kind in found}
    assert (np.diff(drawn.addresses.astype(object)) > 0).all()


@given(references)
def test_more_memory_and_longer_windows_never_fault_more(trace: list[Reference]) -> None:
    """The inclusion property of both policies."""
    if not touches(trace)[1]:
        return
    analysis = analysed(trace)
    assert analysis.lru is not None
    for curve in (analysis.working_set, analysis.lru):
        assert (np.diff(curve.faults) <= 0).all()
        assert (np.diff(curve.mean_pages) >= 0).all()
        assert curve.faults[-1] == curve.pages
