"""The page of the experiments of the latd thesis: its figures and ours. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np

from stallward.evaluation.report.charts import Style, cdf_chart, styles
from stallward.evaluation.report.drawing import axes, draw, hue, rule, svg_of
from stallward.evaluation.report.experiment_page import ExperimentPage, PageChart, PageSection
from stallward.evaluation.results.interval import Interval
from stallward.papers.experiments.charts import BesideRow, SweepLine, beside_chart, sweep_chart
from stallward.papers.experiments.latd.analysis import QUANTILES
from stallward.papers.experiments.latd.published import (
    BEST_SWAPPINESS,
    NOTHING,
    PUBLISHED,
    RISE_AT,
    SOURCE,
)
from stallward.papers.experiments.latd.result import (
    LatdExperimentResult,
    MemorySeries,
    ScenarioFigures,
    SweepPoint,
)
from stallward.papers.experiments.latd.steps import (
    ISOLATED,
    SCENARIOS,
    SWAPPED_HOG,
    SWEPT_HOGS,
)
from stallward.papers.experiments.latd.tables import memory_table, scenario_table, sweep_table
from stallward.papers.experiments.latd.workload import MIB, ZONE_MIB

# ---------- The pictures of the experiments of the latd thesis.

MEMORY_COLOURS: Final = {
    "zone in use": "var(--ref0)",
    "detector": "var(--c1)",
    "hog": "var(--c0)",
    "page cache": "var(--c2)",
}
"""What a picture of memory draws -> its colour."""
_PANEL: Final = (500.0, 230.0)


def time_panel(found: ScenarioFigures, colour: str, low_ms: float, high_ms: float) -> str:
    """The latency of each image of one run against the time at which it was asked for."""
    request_s = np.array(found.request_s)
    latency_ms = np.array(found.latency_ms[: request_s.size])
    last_s = float(request_s.max()) if request_s.size else 1.0
    drawn = axes(
        (0.0, low_ms), (max(last_s, 1e-3), high_ms), ("s", "ms"), log=(False, True), size=_PANEL
    )
    drawn.plot(request_s, latency_ms, ".", color=hue(colour), alpha=0.75, markersize=4)
    return svg_of(drawn, "Latency over time in ms")


def memory_panel(memory: MemorySeries) -> str:
    """Resident sets and page cache against the images that were asked for."""
    last = float(max((*memory.images, 1)))
    drawn = axes((0.0, 0.0), (last, 1.06 * ZONE_MIB), ("images", "MiB"), size=_PANEL)
    rule(drawn, y=ZONE_MIB)
    images = np.array(memory.images, dtype=np.float64)
    series = (memory.used_bytes, memory.detector_bytes, memory.hog_bytes, memory.cache_bytes)
    for colour, values in zip(MEMORY_COLOURS.values(), series, strict=True):
        draw(drawn, images, np.array(values) / MIB, colour)
    return svg_of(drawn, "Memory over images in MiB")


def sweep_line(
    label: str, colour: str, points: Sequence[SweepPoint], of: Callable[[SweepPoint], Interval]
) -> SweepLine:
    """One line of a sweep, from its points."""
    return SweepLine(
        label=label, colour=colour, points={point.value: of(point) for point in points}
    )


# ---------- What the page of the latd experiments says in words.

MEANING: Final = {
    ISOLATED: "the detector alone",
    "anon": "a hog allocates anonymous memory without end, touches it once and holds it",
    "anon-again": "a hog touches its anonymous memory again and again",
    "file-once": "a hog reads a mapped file once",
    "file-again": "a hog reads a mapped file again and again",
    "latd": "as anon, with Algorithm 1",
    "latd-again": "as anon-again, with Algorithm 1",
    "latd-cgroup": "as file-again, with Algorithm 2",
    "latd-grow": "as file-again, with Algorithm 3",
}
"""Name of a scenario -> what runs in it."""
NOT_REPEATED: Final = (
    "The laptop with 16 GB, and YOLOv3 on its GPU: here the zone is a 26th of that, and a "
    "detector of about the same shape (mapped weights, an image read for each request) runs on a "
    "CPU. So compare multiples of the latency in isolation rather than milliseconds.",
    "Each of 1,000 images read once: here 150 images are drawn at random, and about an eighth of "
    "them is read for the first time in the measured part.",
    "The program of its listing G.2: it writes once through MAP_PRIVATE, which makes anonymous "
    "pages. The text, pages of a file that are read again and again, is what runs here.",
    "Miss rates by cachestat: it estimates them from four kernel functions, which have changed. "
    "Here every lookup is counted, of the detector alone and of both programs.",
    "Figures of Algorithm 3, and of the swappiness: the thesis has none.",
)
"""What of the thesis could not be repeated, or is not as it was, and why."""


_SWEEP_COLOURS: Final = ("var(--c0)", "var(--c3)", "var(--c1)")


def latd_page(result: LatdExperimentResult) -> ExperimentPage:
    """The whole page."""
    sections: list[PageSection] = []
    if result.scenarios:
        sections += _scenarios(result)
    if result.utilisation:
        sections.append(_utilisation(result))
    if result.swappiness:
        sections.append(_swappiness(result))
    sections += [
        PageSection(title="What is not as in the thesis", notes=NOT_REPEATED),
        _method(result),
    ]
    return ExperimentPage(
        experiment="experiment latd", source=SOURCE, headline=headline(result), sections=sections
    )


def headline(result: LatdExperimentResult) -> str:
    """What was found, in sentences."""
    parts = []
    for name, what in (
        ("anon", "beside a hog of anonymous memory"),
        ("latd", "under latd beside that"),
        ("file-again", "beside a file read again and again"),
        ("latd-cgroup", "under latd-cgroup beside that"),
    ):
        found, theirs = result.scenarios.get(name), PUBLISHED[name].times
        if found is not None and found.figures.times_isolated.value is not None:
            ours = found.figures.times_isolated.value
            parts.append(f"{ours:.1f} times {what} (thesis: {theirs:g})")
    if not parts:
        return "Sweeps only: no run of the scenarios is finished."
    return f"The detector's p95 as a multiple of its p95 alone: {', '.join(parts)}."


def _scenarios(result: LatdExperimentResult) -> list[PageSection]:
    names = list(result.scenarios)
    style = {name: Style(label=name, colour="var(--ref0)") for name in names[:1]}
    style |= styles(list(SCENARIOS)[1:])
    style[ISOLATED] = Style(label=ISOLATED, colour="var(--ref0)", dash="7 3", reference=True)
    found = result.scenarios
    key = {name: style[name].colour for name in names}
    times = [
        BesideRow(
            label=name,
            colour=style[name].colour,
            ours=one.figures.times_isolated,
            theirs=PUBLISHED.get(name, NOTHING).times,
        )
        for name, one in found.items()
    ]
    misses = [
        BesideRow(
            label=name,
            colour=style[name].colour,
            ours=_in_percent(one.figures.miss_share),
            theirs=_hundredfold(PUBLISHED.get(name, NOTHING).miss_share),
        )
        for name, one in found.items()
    ]
    beside = PageSection(
        title="The thesis and here",
        what=(
            "Left the p95 as a multiple of that in isolation, right the miss rate of the "
            "detector's lookups in the page cache. Filled dots are ours, with 95 % intervals over "
            "the repeats; hollow ones are the thesis's."
        ),
        charts=(
            PageChart(
                title="p95 / p95 alone",
                svg=beside_chart(
                    times, unit=" x", log=True, label="p95 as multiples of isolation"
                ),
            ),
            PageChart(
                title="Miss rate",
                svg=beside_chart(misses, unit=" %", log=False, label="Miss rates"),
            ),
        ),
        table=scenario_table(result),
        notes=tuple(f"{name}: {MEANING[name]}." for name in names),
    )
    distributions = PageSection(
        title="Latency of an image",
        what="From when the detector is asked until it answers. Dots are the p50, p95, p98, p99.",
        key=key,
        charts=(
            PageChart(
                svg=cdf_chart(
                    {name: np.array(one.latency_ms) for name, one in found.items()},
                    style,
                    axis="latency of an image, ms",
                    marked=QUANTILES,
                )
            ),
        ),
    )
    return [beside, distributions, _over_time(found, key), _memory(result)]


def _in_percent(share: Interval) -> Interval:
    return Interval(
        value=_hundredfold(share.value),
        low=_hundredfold(share.low),
        high=_hundredfold(share.high),
    )


def _hundredfold(value: float | None) -> float | None:
    return None if value is None else 100.0 * value


def _over_time(found: Mapping[str, ScenarioFigures], key: Mapping[str, str]) -> PageSection:
    latencies = np.concatenate([np.array(one.latency_ms) for one in found.values()])
    low, high = 0.8 * float(latencies.min()), 1.2 * float(latencies.max())
    return PageSection(
        title="Latency over time",
        what="The first run of each, from when the hog starts.",
        charts=tuple(
            PageChart(title=name, svg=time_panel(one, key[name], max(low, 1e-2), high))
            for name, one in found.items()
        ),
    )


def _memory(result: LatdExperimentResult) -> PageSection:
    return PageSection(
        title="Memory over images",
        what=(
            "Resident sets of both programs, the zone's page cache, and what the zone holds, "
            "against the images asked for; first runs. The table has means over the repeats: "
            "detector and page cache before the hog starts and at their least afterwards, the hog "
            "at its most and at the end."
        ),
        key=MEMORY_COLOURS,
        charts=tuple(
            PageChart(title=name, svg=memory_panel(one.memory))
            for name, one in result.scenarios.items()
        ),
        table=memory_table(result),
        notes=tuple(
            f"{name} in the thesis: {one.memory}."
            for name, one in PUBLISHED.items()
            if one.memory and name in result.scenarios
        ),
    )


def _utilisation(result: LatdExperimentResult) -> PageSection:
    lines = [
        sweep_line(hog, colour, result.utilisation[hog], lambda point: point.figures.p95_ms)
        for hog, colour in zip(SWEPT_HOGS, _SWEEP_COLOURS, strict=True)
        if hog in result.utilisation
    ]
    return PageSection(
        title="Utilisation",
        what=(
            f"The p95 against what detector and hog want together, as a share of {ZONE_MIB} MiB. "
            "The detector's images come on top, as page cache. The thesis saw no appreciable rise "
            "before 99 % of memory was in use."
        ),
        key={one.label: one.colour for one in lines},
        charts=(
            PageChart(
                svg=sweep_chart(
                    lines,
                    axis="memory wanted by both",
                    share=True,
                    marked=RISE_AT,
                    note="thesis: the rise",
                    label="p95 against the share of memory that is wanted",
                )
            ),
        ),
        table=sweep_table(result.utilisation, "wanted", share=True),
    )


def _swappiness(result: LatdExperimentResult) -> PageSection:
    percentiles = (
        ("p50", "var(--c2)", lambda point: point.figures.p50_ms),
        ("p95", "var(--c1)", lambda point: point.figures.p95_ms),
        ("p98", "var(--c6)", lambda point: point.figures.p98_ms),
    )
    lines = [sweep_line(name, colour, result.swappiness, of) for name, colour, of in percentiles]
    return PageSection(
        title="Swappiness",
        what=(
            f"Beside the hog {SWAPPED_HOG}, with this swappiness of all groups "
            "(static:swappiness=N). The thesis found 90 best, and gives no figures."
        ),
        key={one.label: one.colour for one in lines},
        charts=(
            PageChart(
                svg=sweep_chart(
                    lines,
                    axis="swappiness",
                    share=False,
                    marked=BEST_SWAPPINESS,
                    note="thesis: best",
                    label="Latency against swappiness",
                )
            ),
        ),
        table=sweep_table({SWAPPED_HOG: result.swappiness}, "swappiness", share=False),
    )


def _method(result: LatdExperimentResult) -> PageSection:
    node = result.node
    counted = (
        f"Page-cache lookups were not counted: {result.not_counted}."
        if result.not_counted
        else "Page-cache lookups were counted by eBPF."
    )
    return PageSection(
        title="Node and method",
        notes=(
            f"Node: {node.kind}, kernel {node.kernel}, {node.cpu_count} CPUs, {node.cpu}, disk "
            f"{node.disk}. The daemon runs in every run, also without control.",
            f"{result.done_runs} of {result.planned_runs} runs are finished; seed {result.seed}. "
            f"Steal time in the worst run: {100 * result.stolen_share_worst:.1f} %. {counted}",
        ),
    )
