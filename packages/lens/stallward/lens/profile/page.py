"""The page of a profile. Pure."""

from __future__ import annotations

from typing import Final

import numpy as np

from stallward.agent.profile import ApplicationProfile, ProfileRun
from stallward.evaluation.report.drawing import axes, draw, mark, rule, svg_of
from stallward.evaluation.report.experiment_page import ExperimentPage, PageChart, PageSection
from stallward.lens.profile.text import headline, profile_table

_MIB: Final = 1 << 20
_PARTS: Final = {
    "memory": "var(--c0)",
    "anonymous": "var(--c1)",
    "files": "var(--c2)",
    "in swap": "var(--c3)",
}
_FITS, _TOO_LITTLE = "var(--c2)", "var(--c0)"


def profile_page(profile: ApplicationProfile) -> ExperimentPage:
    """The whole page."""
    told = profile.alone_s is not None
    return ExperimentPage(
        experiment="profile",
        source=profile.source,
        headline=headline(profile),
        sections=[
            PageSection(
                title="With less and less memory",
                what=(
                    "The line is what the application needs. Filled circles are limits with which "
                    "it was undisturbed."
                ),
                charts=(
                    *([_by_limit(profile, "slowdown")] if told else []),
                    _by_limit(profile, "stall_share"),
                ),
                table=profile_table(profile),
            ),
            PageSection(
                title="With ample memory, over time",
                what="All memory of its group, with page cache.",
                key=_PARTS,
                charts=(_demand(profile),),
                notes=(f"Measured {profile.measured_at} on {profile.node}.",),
            ),
        ],
    )


def _by_limit(profile: ApplicationProfile, figure: str) -> PageChart:
    """A figure of all runs but the ample one, against the limit."""

    def value(run: ProfileRun) -> float | None:
        found = getattr(run, figure)
        return None if found is None else float(found)

    known = [(run, found) for run in profile.runs if (found := value(run)) is not None]
    limited = [(run, found) for run, found in known if not run.ample]
    sizes = np.array([run.limit_bytes / _MIB for run, _ in limited], dtype=np.float64)
    values = np.array([found for _, found in limited], dtype=np.float64)
    names = {"slowdown": "slowdown", "stall_share": "share of the time that waits for memory"}
    drawn = axes(
        (0.0, 0.0),
        (1.08 * float(sizes.max(initial=1.0)), 1.08 * max(float(values.max(initial=0.0)), 0.01)),
        ("limit, MiB", names[figure]),
    )
    rule(drawn, x=profile.working_set_bytes / _MIB)
    if sizes.size:
        draw(drawn, sizes, values, "var(--c1)")
    for (run, found), size in zip(limited, sizes.tolist(), strict=True):
        label = f"{size:,.0f} MiB: {found:.3g}"
        colour = _FITS if run.fits else _TOO_LITTLE
        mark(drawn, (size, found), colour, label, hollow=not run.fits)
    title = names[figure].capitalize()
    return PageChart(title=title, svg=svg_of(drawn, title))


def _demand(profile: ApplicationProfile) -> PageChart:
    points = profile.demand
    times = np.array([one.time_s for one in points], dtype=np.float64)
    columns = {
        "memory": [one.memory_bytes for one in points],
        "anonymous": [one.anonymous_bytes for one in points],
        "files": [one.file_bytes for one in points],
        "in swap": [one.swap_bytes for one in points],
    }
    highest = max(max(column, default=0) for column in columns.values()) / _MIB
    drawn = axes(
        (0.0, 0.0),
        (max(float(times.max(initial=0.0)), 1e-3), 1.08 * max(highest, 1.0)),
        ("time, s", "MiB"),
        size=(1040.0, 330.0),
    )
    for name, column in columns.items():
        if times.size:
            draw(drawn, times, np.array(column, dtype=np.float64) / _MIB, _PARTS[name])
    return PageChart(svg=svg_of(drawn, "Memory over time"))
