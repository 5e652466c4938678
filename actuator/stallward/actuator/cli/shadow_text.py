"""The summary of a shadow run, as text."""

from __future__ import annotations

import time
from collections.abc import Sequence

from stallward.actuator.record.shadow_summary import ShadowSummary, SlotUse
from stallward.agent.desired import MIB


def shadow_rows(summary: ShadowSummary, names: Sequence[str]) -> list[tuple[str, str, str]]:
    """What both wanted of each slot: rows of a table."""
    rows = []
    for index, (decides, shadow) in enumerate(zip(summary.decides, summary.shadow, strict=True)):
        name = names[index] if index < len(names) else f"slot {index}"
        rows += [
            (f"{name}: paused", _percent(decides.paused_share), _percent(shadow.paused_share)),
            (f"{name}: limited", _percent(decides.limited_share), _percent(shadow.limited_share)),
            (f"{name}: mean limit, MiB", _mib(decides), _mib(shadow)),
        ]
    return rows


def shadow_lines(summary: ShadowSummary) -> list[str]:
    """What a summary says in words."""
    lines = [
        f"In {summary.seconds:.0f} s in shadow mode the policy wanted something else in "
        f"{_percent(summary.differs_share)} of the time: other pauses in "
        f"{_percent(summary.pauses_differ_share)}, other limits in "
        f"{_percent(summary.limits_differ_share)}, another tuning in "
        f"{_percent(summary.tuning_differs_share)}.",
    ]
    if summary.failed_share > 0.0:
        lines.append(f"It gave no usable decision in {_percent(summary.failed_share)}.")
    if summary.spans:
        lines.append("The longest times in which they differed:")
    for span in summary.spans:
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(span.began_s))
        p95 = "" if span.worst_p95_ms is None else f", p95 up to {span.worst_p95_ms:.3g} ms"
        lines.append(f"  {when}, {span.length_s:.1f} s{p95}")
    lines.append(
        "What it would have done to latencies, a shadow run cannot say: compare both with "
        "`stallward ab start`, or estimate it with `stallward ope` from a randomised recording."
    )
    return lines


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _mib(use: SlotUse) -> str:
    return "-" if use.mean_limit_bytes is None else f"{use.mean_limit_bytes / MIB:.0f}"
