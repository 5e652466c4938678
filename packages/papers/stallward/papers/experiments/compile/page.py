"""The page of the compile sweep: what the thesis found and what we did. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from stallward.evaluation.report.drawing import axes, hue, svg_of, tip
from stallward.evaluation.report.experiment_page import (
    ExperimentPage,
    PageChart,
    PageSection,
    PageTable,
)
from stallward.papers.experiments.compile.published import (
    FOUND,
    PROFILE_FAULTS,
    PROFILE_IDLE,
    PROFILE_REQUESTS,
    SOURCE,
)
from stallward.papers.experiments.compile.result import CompileResult, PowerFit, SizeFigures
from stallward.papers.experiments.compile.steps import ARMS, FILES, JOBS, UNPATCHED
from stallward.papers.experiments.figures import ratio

# ---------- The pictures of the compile sweep.

UNPATCHED_COLOUR: Final = "var(--ref0)"
ARM_COLOUR: Final = "var(--c1)"
FIT_COLOUR: Final = "var(--c5)"
_SIZE: Final = (560.0, 320.0)
_WIDE: Final = (1040.0, 320.0)
"""For a picture that has the page's width to itself."""
_MEMORY: Final = "memory, MiB"


def time_chart(sizes: Sequence[SizeFigures], fit: PowerFit | None, *, label: str) -> str:
    """How long the unpatched kernel takes in how much memory, and the fit: the thesis's 5.1."""
    mib = np.array([float(one.zone_mib) for one in sizes for _ in one.arms[UNPATCHED].seconds])
    seconds = np.array([second for one in sizes for second in one.arms[UNPATCHED].seconds])
    low, high = (0.95 * mib.min(), 0.0), (1.05 * mib.max(), 1.1 * seconds.max())
    drawn = axes(low, high, (_MEMORY, "s"), log=(True, False), size=_WIDE)
    at = [one.zone_mib for one in sizes]
    drawn.set_xticks(at, map(str, at))
    drawn.grid(visible=False, axis="x")
    if fit is not None:
        curve = np.geomspace(mib.min(), mib.max(), 120)
        drawn.plot(curve, fit.k / curve**fit.power + fit.c_s, color=hue(FIT_COLOUR), linewidth=2)
    drawn.plot(mib, seconds, ".", color=hue(UNPATCHED_COLOUR), markersize=10)
    return svg_of(drawn, label)


def box_chart(sizes: Sequence[SizeFigures], arm: str, *, label: str) -> str:
    """Box plots of an arm beside the unpatched kernel, at every size of memory.

    A box has the middle half of the runs with the median, and lines to both extremes.
    """
    seconds = [
        second for one in sizes for name in (UNPATCHED, arm) for second in one.arms[name].seconds
    ]
    low, high = (-0.5, 0.9 * min(seconds)), (len(sizes) - 0.5, 1.15 * max(seconds))
    drawn = axes(low, high, (_MEMORY, "s"), log=(False, True), size=_SIZE)
    drawn.set_xticks(range(len(sizes)), [str(one.zone_mib) for one in sizes])
    drawn.grid(visible=False, axis="x")
    for offset, (name, css) in zip((-0.2, 0.2), colours(arm).items(), strict=True):
        values = [one.arms[name].seconds for one in sizes]
        colour = hue(css)
        found = drawn.boxplot(
            values,
            positions=np.arange(len(sizes)) + offset,
            widths=0.3,
            whis=(0, 100),
            showcaps=False,
            patch_artist=True,
            manage_ticks=False,
            boxprops={"facecolor": (colour, 0.35), "edgecolor": colour},
            whiskerprops={"color": colour},
            medianprops={"color": colour, "linewidth": 3},
        )
        for box, drawn_values in zip(found["boxes"], values, strict=True):
            least, middle, most = np.percentile(drawn_values, [0, 50, 100])
            box.set_gid(tip(f"{name}: {middle:.1f} s ({least:.1f} to {most:.1f})"))
    return svg_of(drawn, label)


def colours(arm: str) -> Mapping[str, str]:
    """What a box chart draws -> its colour."""
    return {UNPATCHED: UNPATCHED_COLOUR, arm: ARM_COLOUR}


_MIB: Final = 1 << 20
NOT_REPEATED: Final = (
    "Linux 3.0.0 on a machine of 36 to 1024 MB: here a dozen files in a group whose memory is "
    "limited, with a copy of the compiler that is charged to it; the kernel and everything else "
    "are outside.",
    "Patches in the kernel: here the same things by system calls, at most ten times a second.",
    "16 and 512 pages a grab (6.3.3): user space can clear the referenced bits of a process only "
    "512 pages at a time, and the other sizes only set how long a lock is held.",
    "The variant under RCU (6.5): it differs in locks of the kernel.",
    "Profiles of the kernel: the shares of its functions. Faults, requests and idle time are "
    "counted instead.",
)
"""What of the document could not be repeated, and why."""


def compile_page(result: CompileResult) -> ExperimentPage:
    """The whole page."""
    sections: list[PageSection] = []
    if result.sizes:
        sections += [_times(result), _arms(result), _boxes(result), _why(result)]
    sections += [
        PageSection(title="What could not be repeated", notes=NOT_REPEATED),
        _method(result),
    ]
    return ExperimentPage(
        experiment="experiment compile",
        source=SOURCE,
        headline=headline(result),
        sections=sections,
    )


def headline(result: CompileResult) -> str:
    """What was found, in a sentence."""
    ratios = {arm: one for arm, one in result.ratios.items() if arm != UNPATCHED}
    if not ratios:
        return "No repeat is complete yet."
    better = [arm for arm, one in ratios.items() if one.high is not None and one.high < 1.0]
    worse = [arm for arm, one in ratios.items() if one.low is not None and one.low > 1.0]
    return (
        f"Certainly faster than the unpatched kernel over all sizes: {_names(better)}. Certainly "
        f"slower: {_names(worse)}. Each of the {len(ratios)} arms is judged by itself at 95 %, so "
        "that one in twenty may differ by chance. In the thesis none was faster, and most lost where "
        "memory was shortest."
    )


def _names(arms: list[str]) -> str:
    return ", ".join(arms) or "none"


def arms_table(result: CompileResult) -> PageTable:
    """Every arm: what the thesis found, and the time over the unpatched kernel's."""
    ends = (result.sizes[0], result.sizes[-1])
    rows = [
        (
            arm,
            FOUND[arm].section,
            FOUND[arm].found,
            ratio(result.ratios[arm]),
            *(ratio(size.arms[arm].ratio) for size in ends),
        )
        for arm in ARMS
        if arm != UNPATCHED
    ]
    return PageTable(
        headers=(
            "arm",
            "section",
            "thesis",
            "time over unpatched, all sizes",
            *(f"at {size.zone_mib} MiB" for size in ends),
        ),
        rows=rows,
    )


def fit_text(fit: PowerFit | None) -> str:
    """A fit in words."""
    if fit is None:
        return "too few runs"
    return (
        f"T = {fit.k:.3g} / M^{fit.power:.3g} + {fit.c_s:.1f} s, which explains "
        f"{100 * fit.explained_share:.0f} % of the variance"
    )


def _times(result: CompileResult) -> PageSection:
    return PageSection(
        title="Time by memory",
        what="Each dot is a run without a controller; the curve is the thesis's fit to them.",
        key={UNPATCHED: UNPATCHED_COLOUR, "T = k / M^4 + c": FIT_COLOUR},
        charts=(PageChart(svg=time_chart(result.sizes, result.fit, label="Time by memory")),),
        notes=(
            f"The thesis's power: {fit_text(result.fit)}.",
            f"The best power: {fit_text(result.free_fit)}.",
        ),
    )


def _arms(result: CompileResult) -> PageSection:
    return PageSection(
        title="Every heuristic",
        what="Time over that of the unpatched kernel: below 1 is faster.",
        table=arms_table(result),
    )


def _boxes(result: CompileResult) -> PageSection:
    return PageSection(
        title="Every size",
        what="A box has the middle half of the runs, and a thick line at the median.",
        key={UNPATCHED: UNPATCHED_COLOUR, "the arm": ARM_COLOUR},
        charts=tuple(
            PageChart(title=arm, svg=box_chart(result.sizes, arm, label=f"{arm} beside unpatched"))
            for arm in ARMS
            if arm != UNPATCHED
        ),
    )


def _why(result: CompileResult) -> PageSection:
    size = result.sizes[0]
    faults, idle, requests = (
        now / before for before, now in (PROFILE_FAULTS, PROFILE_IDLE, PROFILE_REQUESTS)
    )
    return PageSection(
        title="Why",
        what=(
            f"At {size.zone_mib} MiB, means over the runs. In the thesis, clearing bits made "
            f"{faults:.1f} times the ticks in the page fault handler, {idle:.1f} times the idle "
            f"ones and {requests:.1f} times those in requests of the disk (40 MB, one run)."
        ),
        table=why_table(size),
    )


def why_table(size: SizeFigures) -> PageTable:
    """Faults, idle processors and disk of every arm, at one size of memory."""
    return PageTable(
        headers=("arm", "time, s", "major faults", "disk requests", "disk, MiB", "CPUs idle"),
        rows=tuple(
            (
                arm,
                f"{one.mean_s.value:.1f}" if one.mean_s.value is not None else "-",
                f"{one.major_faults:,.0f}",
                f"{one.disk_requests:,.0f}",
                f"{one.disk_mib:,.0f}",
                f"{100 * one.idle_share:.0f} %",
            )
            for arm, one in size.arms.items()
        ),
    )


def _method(result: CompileResult) -> PageSection:
    node = result.node
    return PageSection(
        title="Method",
        notes=(
            f"`make -j{JOBS}` of {FILES} generated C files with gcc -O2, alone in a group whose "
            "memory is limited. Before each run the group is emptied, and the tree and the copy "
            "of the compiler are dropped from the page cache.",
            "Each repeat has every arm once at every size, in an order that is drawn.",
            f"A compilation had at most {result.peak_bytes / _MIB:.0f} MiB in memory and swap.",
            f"{result.done_runs} of {result.planned_runs} runs; steal time at most "
            f"{100 * result.stolen_share_worst:.1f} % in a run.",
            f"Linux {node.kernel}, {node.kind} cgroups, {node.cpu_count} processors.",
        ),
    )
