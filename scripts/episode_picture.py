"""Draw the picture in the README: one pressure episode under several controllers.

``python scripts/episode_picture.py`` draws ``docs/pictures/episode.svg`` from the figures in
``docs/pictures/episode.csv``. With ``LABEL=DIRECTORY`` arguments, recordings of one scenario, it
replaces these figures first::

    for arm in none rule partition; do
        stallward record detector-anon --arm $arm --seconds 20 --burn-in-seconds 0 \
            --out build/episode/$arm
    done
    python scripts/episode_picture.py "no control=build/episode/none" \
        "the tuned rule=build/episode/rule" "partition=build/episode/partition"
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import Any, Final

import numpy as np

from stallward.env.recording.recording import load_recording
from stallward.evaluation.report.svg import (
    Scale,
    area,
    dots,
    line,
    log10,
    polyline,
    svg,
    tag,
    text,
)

PICTURES: Final = Path(__file__).parents[1] / "docs/pictures"
FIGURES: Final = PICTURES / "episode.csv"
PICTURE: Final = PICTURES / "episode.svg"
COLUMNS: Final = (
    "arm", "time_s", "p95_ms", "target_ms",
    "first_mib", "first_swap_mib", "second_mib", "second_swap_mib",
)  # fmt: skip
MIB: Final = 2**20
EPISODE_S: Final = 15.0
STEP_S: Final = 0.2
WINDOW_S: Final = 1.0

WIDTH: Final = 960.0
HEIGHT: Final = 470.0
LEFT: Final = 78.0
PANEL: Final = 266.0
GAP: Final = 22.0
LATENCY_MS: Final = (20.0, 5000.0)
PROGRAM_MIB: Final = 260.0
IN_MEMORY: Final = "#c9741a"
IN_SWAP: Final = "#f1c99b"
MET: Final = "#1f5fbf"
MISSED: Final = "#b3261e"
STYLE: Final = """
text{font:13px system-ui,-apple-system,"Segoe UI",Helvetica,Arial,sans-serif;fill:#37414d}
.h{font-size:16px;font-weight:600;fill:#111820}.s{font-size:12px;fill:#66717d}
.t{font-size:12px;fill:#b3261e}.e{text-anchor:end}.m{text-anchor:middle}
"""


def figures_of(label: str, directory: Path) -> list[dict[str, Any]]:
    """The figures of one recording: a row for each step of the episode."""
    recording = load_recording(directory)
    time_s = np.asarray(recording.ticks["time_s"], dtype=np.float64)
    start_s = float(time_s[0])
    answered_s = recording.requests.scheduled_s + recording.requests.sojourn_ms * 1e-3
    rows: list[dict[str, Any]] = []
    for at_s in np.arange(1.0, EPISODE_S + 1e-9, STEP_S):
        in_window = (answered_s > start_s + at_s - WINDOW_S) & (answered_s <= start_s + at_s)
        latencies = recording.requests.sojourn_ms[in_window]
        tick = min(int(np.searchsorted(time_s, start_s + at_s)), time_s.size - 1)
        row: dict[str, Any] = {
            "arm": label,
            "time_s": round(float(at_s), 1),
            "p95_ms": round(float(np.quantile(latencies, 0.95)), 1) if latencies.size else "",
            "target_ms": recording.run.slo_ms,
        }
        for slot, name in enumerate(("first", "second")):
            row[f"{name}_mib"] = _mib(recording.tick(f"slot{slot}_memory_usage_bytes")[tick])
            row[f"{name}_swap_mib"] = _mib(recording.tick(f"slot{slot}_swap_bytes")[tick])
        rows.append(row)
    return rows


def _mib(size_bytes: float) -> str:
    return "" if np.isnan(size_bytes) else f"{size_bytes / MIB:.0f}"


def draw(rows: list[dict[str, str]]) -> str:
    """The picture: one panel for each arm, side by side."""
    parts = [tag("style", STYLE), tag("rect", width=WIDTH, height=HEIGHT, rx=8, fill="#ffffff")]
    arms = list(dict.fromkeys(row["arm"] for row in rows))
    for index, arm in enumerate(arms):
        panel = [row for row in rows if row["arm"] == arm]
        parts += _panel(LEFT + index * (PANEL + GAP), arm, panel, first=index == 0)
    for at, colour, key in ((LEFT, IN_MEMORY, "in memory"), (LEFT + 100.0, IN_SWAP, "in swap")):
        parts.append(tag("rect", x=at, y=438.0, width=14.0, height=12.0, rx=2, fill=colour))
        parts.append(text(at + 20.0, 449.0, key, class_="s"))
    label = "p95 latency and memory over one pressure episode, under " + ", ".join(arms)
    return svg(WIDTH, HEIGHT, parts, label=label) + "\n"


def _panel(left: float, arm: str, rows: list[dict[str, str]], *, first: bool) -> list[str]:
    right = left + PANEL
    x = Scale(low=0.0, high=EPISODE_S, start=left, end=right)
    parts = [text(left, 30.0, arm[0].upper() + arm[1:], class_="h")]
    parts += _latency(x, rows, first=first)
    parts.append(text(left, 264.0, "memory of the background programs", class_="s"))
    for name, label, top in (("first", "First", 276.0), ("second", "Second", 344.0)):
        parts += _memory(x, rows, name, top)
        if first:
            parts.append(text(left - 8.0, top + 24.0, label, class_="e"))
            parts.append(text(left - 8.0, top + 40.0, "program", class_="e"))
    parts += [text(x(s), 416.0, f"{s:g} s", class_="s m") for s in (0.0, 5.0, 10.0)]
    return parts


def _latency(x: Scale, rows: list[dict[str, str]], *, first: bool) -> list[str]:
    y = Scale(low=LATENCY_MS[0], high=LATENCY_MS[1], start=228.0, end=66.0, warp=log10)
    known = [row for row in rows if row["p95_ms"]]
    time_s = np.array([float(row["time_s"]) for row in known])
    p95_ms = np.array([float(row["p95_ms"]) for row in known])
    target_ms = float(rows[0]["target_ms"])
    parts = [text(x.start, 52.0, "p95 latency of the application", class_="s")]
    for tick_ms in (20.0, 100.0, 500.0, 2000.0):
        parts.append(line(x.start, y(tick_ms), x.end, y(tick_ms), stroke="#e6e9ed"))
        if first:
            parts.append(text(x.start - 8.0, y(tick_ms) + 4.0, f"{tick_ms:g} ms", class_="e"))
    parts.append(line(x.start, y(target_ms), x.end, y(target_ms), stroke=MISSED,
                      stroke_dasharray="5 4"))  # fmt: skip
    if first:
        parts.append(text(x.end, y(target_ms) + 16.0, f"target {target_ms:.0f} ms", class_="t e"))
    points = x.many(time_s), y.many(p95_ms)
    radius = 3.4 if time_s.size < 20 else 1.8
    parts.append(polyline(*points, stroke=MET, stroke_width=2.0))
    for missed, colour in ((False, MET), (True, MISSED)):
        chosen = (p95_ms > target_ms) == missed
        parts.append(dots(points[0][chosen], points[1][chosen], radius, stroke=colour))
    return parts


def _memory(x: Scale, rows: list[dict[str, str]], name: str, top: float) -> list[str]:
    base = top + 50.0
    height = Scale(low=0.0, high=PROGRAM_MIB, start=base, end=top)
    known = [row for row in rows if row[f"{name}_mib"]]
    time_s = np.array([float(row["time_s"]) for row in known])
    memory = np.array([float(row[f"{name}_mib"]) for row in known])
    swap = np.array([float(row[f"{name}_swap_mib"]) for row in known])
    at = x.many(time_s)
    parts = [line(x.start, base, x.end, base, stroke="#c9ced4")]
    for values, colour in ((memory + swap, IN_SWAP), (memory, IN_MEMORY)):
        parts.append(area(at, height.many(values), base, fill=colour))
    return parts


def main(arguments: list[str]) -> None:
    """Take the figures from recordings or from their file, and write the picture."""
    if arguments:
        rows = []
        for argument in arguments:
            label, _, directory = argument.partition("=")
            rows += figures_of(label, Path(directory))
        with FIGURES.open("w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    with FIGURES.open(newline="") as file:
        PICTURE.write_text(draw(list(csv.DictReader(file))))


if __name__ == "__main__":
    main(sys.argv[1:])
