"""Draw every arm of several comparisons: how often it met the target, and the work it allowed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from stallward.evaluation.report.svg import Scale, line, tag, text, title
from stallward.evaluation.results.comparison import ArmResult, ComparisonResult

ROW: Final = 19.0
NAMES: Final = 130.0
PANEL: Final = 400.0
TOP: Final = 74.0
MET: Final = "#1f6feb"
WORK: Final = "#d9730d"
STYLE: Final = """
text{font:13px system-ui,-apple-system,"Segoe UI",Helvetica,Arial,sans-serif;fill:#37414d}
.h{font-size:16px;font-weight:600;fill:#111820}.s{font-size:12px;fill:#66717d}
.e{text-anchor:end}.m{text-anchor:middle}
"""


def arms_picture(results: Sequence[ComparisonResult]) -> str:
    """An SVG image with a row for each arm and a panel for each comparison. Pure.

    The arms are in the order of the mean share of windows that met the target, then of the work.
    """
    labels = _ordered(results)
    width = NAMES + PANEL * len(results)
    height = TOP + ROW * len(labels) + 30
    parts = [
        title("Windows that met the target, and background work, of every arm"),
        tag("style", STYLE),
        tag("rect", width=width, height=height, rx=8, fill="#ffffff"),
        *_legend(),
    ]
    for i, label in enumerate(labels):
        middle = TOP + ROW * (i + 0.5)
        if i % 2 == 0:
            parts.append(
                tag("rect", x=0.0, y=middle - ROW / 2, width=width, height=ROW, fill="#f4f6f8")
            )
        parts.append(text(NAMES - 8, middle + 4.5, label, class_="e"))
    for i, result in enumerate(results):
        parts.extend(_panel(result, labels, NAMES + PANEL * i, height))
    return tag(
        "svg",
        *parts,
        viewBox=f"0 0 {width:.0f} {height:.0f}",
        role="img",
        xmlns="http://www.w3.org/2000/svg",
    )


def _ordered(results: Sequence[ComparisonResult]) -> list[str]:
    arms = [result.table.arms for result in results]

    def merit(label: str) -> tuple[float, float]:
        own = [of[label] for of in arms if label in of]
        return sum(map(_met, own)) / len(own), sum(map(_work, own)) / len(own)

    return sorted({label for of in arms for label in of}, key=merit, reverse=True)


def _legend() -> list[str]:
    return [
        tag("circle", cx=NAMES + 8, cy=20.0, r=5.0, fill=MET),
        text(NAMES + 18, 24.5, "windows that met the target"),
        tag("circle", cx=NAMES + 218, cy=20.0, r=5.0, fill=WORK),
        text(NAMES + 228, 24.5, "background work, relative to having the machine alone"),
    ]


def _panel(
    result: ComparisonResult, labels: Sequence[str], left: float, height: float
) -> list[str]:
    x = Scale(low=0.0, high=1.0, start=left + 8, end=left + PANEL - 44)
    bottom = height - 26
    parts = [text(left + 8, 58.0, result.scenario, class_="h")]
    for value in (0.0, 0.25, 0.5, 0.75, 1.0):
        parts.append(line(x(value), TOP - 4, x(value), bottom, stroke="#d8dee4"))
        parts.append(text(x(value), height - 10, f"{100 * value:.0f} %", class_="m s"))
    for i, label in enumerate(labels):
        arm = result.table.arms.get(label)
        if arm is None:
            continue
        y = TOP + ROW * (i + 0.5)
        met, work = _met(arm), _work(arm)
        parts.append(line(x(met), y, x(work), y, stroke="#c3ccd5", stroke_width=2))
        parts.append(tag("circle", cx=x(work), cy=y, r=5.0, fill=WORK))
        parts.append(tag("circle", cx=x(met), cy=y, r=5.0, fill=MET))
    return parts


def _met(arm: ArmResult) -> float:
    return arm.metrics.slo_attainment.value or 0.0


def _work(arm: ArmResult) -> float:
    return min(arm.metrics.background_work.value or 0.0, 1.0)
