"""``report.html`` of a comparison: one file, no network, made from what the blocks left."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from stallward.env.recording.recording import load_recording
from stallward.evaluation.blocks.store import BLOCK_FILE, read_json
from stallward.evaluation.errors import EvaluationError
from stallward.evaluation.measures.block_measures import reduce, series_of
from stallward.evaluation.report.charts import (
    Array,
    Style,
    cdf_chart,
    styles,
    trade_chart,
    work_chart,
)
from stallward.evaluation.report.method_text import _method
from stallward.evaluation.report.page import asset, put_page, section
from stallward.evaluation.report.text import (
    COLUMNS,
    REFERENCES,
    Kind,
    headline,
    number,
    reference_cell,
    short,
    span,
)
from stallward.evaluation.report.timeline import Timeline, timeline_chart, timeline_of

RESULT_FILE = "result.json"
REPORT_FILE = "report.html"


def write_report(directory: Path) -> Path:
    """Write the report of the comparison in ``directory``.

    Raises:
        EvaluationError: If there is no result in it.
        RecordingError: If one of its blocks cannot be opened.
    """
    result = read_json(directory / RESULT_FILE)
    if result is None:
        raise EvaluationError(
            f"{directory} has no result.json.", next_step="Run `stallward compare` into it."
        )
    latencies, timelines = _load(directory, result)
    page = render_report(result, latencies, timelines)
    path = directory / REPORT_FILE
    put_page(path, page)
    return path


def page_of(title: str, body: str, script: str = "") -> str:
    """A page in one file, without the network."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>stallward: {escape(title)}</title><style>{asset('report.css')}</style></head>"
        f"<body><main>{body}</main>{script}</body></html>\n"
    )


def _load(
    directory: Path, result: Mapping[str, Any]
) -> tuple[dict[str, Array], dict[str, Timeline]]:
    """Pooled latencies of every condition, and of every arm the block of median p95."""
    blocks: dict[str, list[tuple[Path, Array]]] = {}
    rounds = int(result["method"]["rounds"])
    for path in sorted((directory / "blocks").iterdir()):
        facts = read_json(path / BLOCK_FILE)
        if facts is None or not 1 <= facts["round"] <= rounds:
            continue
        latency_ms = reduce(series_of(load_recording(path))).latency_ms
        blocks.setdefault(facts["condition"], []).append((path, latency_ms))
    shown = ["alone", "ample", *result["arms"]]
    latencies = {name: np.concatenate([latency for _, latency in blocks[name]]) for name in shown}
    timelines = {}
    for name in result["arms"]:
        usual = sorted(
            (b for b in blocks[name] if b[1].size), key=lambda b: float(np.quantile(b[1], 0.95))
        )
        if usual:
            path = usual[(len(usual) - 1) // 2][0]
            timelines[name] = timeline_of(load_recording(path), name)
    return latencies, timelines


def render_report(
    result: Mapping[str, Any],
    latencies_ms: Mapping[str, Array],
    timelines: Mapping[str, Timeline],
) -> str:
    """The whole page. Pure."""
    style = styles(list(result["arms"]))
    body = [
        _header(result),
        _legend(style),
        section(
            "The comparison",
            "Every figure with its 95 % interval. Impact is how much slower than alone, or than "
            "with memory enough for all (ample); background is work done over work with the "
            "node to itself.",
            _table(result, style),
        ),
        section(
            "Latency",
            "Distribution of all requests of all blocks; the vertical axis stretches the tail. "
            "Dots are p50, p95 and p99.",
            cdf_chart(latencies_ms, style, result["slo_ms"]),
        ),
        '<div class="pair">',
        section("The trade", "Lower and further right is better.", trade_chart(result, style)),
        section(
            "Background work", "Mean of the groups, with intervals.", work_chart(result, style)
        ),
        "</div>",
        _contrasts(result),
        _timelines(result, timelines, style),
        section("Node and method", "", _method(result)),
        "<footer>Made by stallward. Hover over a mark to read it; click an arm to dim it."
        "</footer>",
    ]
    script = f"<script>{asset('report.js')}</script>"
    return page_of(str(result["scenario"]), "".join(body), script)


def _header(result: Mapping[str, Any]) -> str:
    mode = {"live": "measured live", "twin": "computed on the twin, not measured"}
    rounds = result["method"]["rounds"]
    kicker = (
        f"<b>{escape(str(result['scenario']))}</b> · {escape(result['method']['summary'])} · "
        f"{mode[result['mode']]} · {rounds} block{'s' if rounds != 1 else ''} per arm"
    )
    return f'<header><p class="kicker">{kicker}</p><h1>{escape(headline(result))}</h1></header>'


def _swatch(style: Style) -> str:
    dash = f' stroke-dasharray="{style.dash}"' if style.dash else ""
    return (
        f'<svg class="swatch" viewBox="0 0 20 10" aria-hidden="true"><line x1="0" y1="5" x2="20" '
        f'y2="5" stroke="{style.colour}" stroke-width="4"{dash}/></svg>'
    )


def _legend(style: Mapping[str, Style]) -> str:
    buttons = "".join(
        f'<button type="button" aria-pressed="true" data-for="{escape(name)}" '
        f'title="{escape(name)}">'
        f"{_swatch(s)}{escape(short(name))}</button>"
        for name, s in style.items()
    )
    return f'<div class="legend" aria-label="arms">{buttons}</div>'


def _table(result: Mapping[str, Any], style: Mapping[str, Style]) -> str:
    head = "".join(
        f'<th title="{escape(column.meaning)}">{escape(column.title)}</th>' for column in COLUMNS
    )
    rows = []
    for name in REFERENCES:
        metrics = result["references"][name]
        cells = "".join(
            f"<td>{reference_cell(name, metrics, column, _html_cell)}</td>" for column in COLUMNS
        )
        rows.append(f'<tr><td class="arm">{_swatch(style[name])}{name}</td>{cells}</tr>')
    for label, arm in result["arms"].items():
        cells = "".join(f"<td>{_html_cell(arm[c.metric], c.kind)}</td>" for c in COLUMNS)
        lifted = " *" if arm.get("budgets_lifted") else ""
        lifted += " †" if arm.get("terminated_processes") else ""
        rows.append(
            f'<tr data-arm="{escape(label)}"><td class="arm">{_swatch(style[label])}'
            f"{escape(short(label))}{lifted}</td>{cells}</tr>"
        )
    return (
        f'<div class="scroll"><table><thead><tr><th>arm</th>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _html_cell(metric: Mapping[str, float | None], kind: Kind) -> str:
    return f"{number(metric['value'], kind)}<small>{span(metric, kind) or '&nbsp;'}</small>"


def _timelines(
    result: Mapping[str, Any], timelines: Mapping[str, Timeline], style: Mapping[str, Style]
) -> str:
    if not timelines:
        return ""
    every = np.concatenate([t.latency_ms for t in timelines.values()])
    low = 0.8 * float(np.quantile(every, 0.005))
    high = 1.3 * max(float(every.max()), result["slo_ms"])
    figures = []
    for label, timeline in timelines.items():
        chart = timeline_chart(
            timeline, style[label], slo_ms=result["slo_ms"], low_ms=low, high_ms=high
        )
        used = sum(len(lane.marks) for lane in timeline.lanes)
        acts = f"{used} lever change{'s' if used != 1 else ''}" if used else "no lever was used"
        figures.append(
            f'<figure data-arm="{escape(label)}"><figcaption><h3>{escape(label)}</h3>'
            f"<span>{acts}</span></figcaption>{chart}</figure>"
        )
    key = (
        '<div class="key"><span><i style="background:var(--psi)"></i>protected group stalled for '
        'memory (PSI some)</span><span><i style="background:var(--pause)"></i>paused</span><span>'
        '<i style="background:var(--limit)"></i>limited (darker is tighter)</span><span>'
        '<i style="background:var(--tune)"></i>kernel tuned</span><span>dashed line: SLO; '
        "shaded: burn-in</span></div>"
    )
    what = "The block of median p95 of each arm: every request, every stall, every lever."
    return section("One block per arm", what, key + "".join(figures))


_CONTRASTS: tuple[tuple[str, str, Kind], ...] = (
    ("mean_ratio", "mean", "number"),
    ("p95_ratio", "p95", "number"),
    ("p99_ratio", "p99", "number"),
    ("background_work_ratio", "background", "number"),
    ("slo_attainment_difference", "SLO met, difference", "share"),
)


def _contrasts(result: Mapping[str, Any]) -> str:
    """Every pair of arms; those whose interval holds no effect are grey."""
    found = result.get("contrasts", [])
    if not found:
        return ""
    head = "".join(f"<th>{escape(title)}</th>" for _, title, _ in _CONTRASTS)
    rows = []
    for pair in found:
        cells = "".join(
            f'<td class="{_sure(pair[key], kind)}">{_html_cell(pair[key], kind)}</td>'
            for key, _, kind in _CONTRASTS
        )
        names = f"{escape(short(pair['arm']))} / {escape(short(pair['against']))}"
        rows.append(f'<tr><td class="arm">{names}</td>{cells}</tr>')
    table = (
        f'<div class="scroll"><table><thead><tr><th>arms</th>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )
    what = (
        "The first arm's figure over the second's, resampled together round by round. Where the "
        "interval does not tell the two apart, the figure is grey."
    )
    return section("Arms against each other", what, table)


def _sure(metric: Mapping[str, float | None], kind: Kind) -> str:
    """Class of a cell: ``unsure`` if the interval holds no effect."""
    low, high = metric["low"], metric["high"]
    none = 0.0 if kind == "share" else 1.0
    return "unsure" if low is None or high is None or low <= none <= high else "sure"
