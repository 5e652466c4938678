"""``stallward ctl shadow``: how a policy in shadow mode differs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from stallward.actuator.cli import output
from stallward.actuator.cli.connect import DEFAULT_SOCKET, Socket, connect
from stallward.actuator.cli.options import LONGEST_S, Json
from stallward.actuator.record.reading import read_records
from stallward.actuator.record.shadow_summary import ShadowSummary, ShadowTally, SlotUse
from stallward.agent.desired import MIB
from stallward.agent.errors import UsageError


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


def shadow(
    socket: Socket = DEFAULT_SOCKET,
    seconds: Annotated[
        float, typer.Option(min=1.0, max=LONGEST_S, help="How long to watch.")
    ] = 60,
    recording: Annotated[
        Path | None, typer.Option(help="Instead, the daemon's record: [record] dir.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Say how often a policy in shadow mode wanted something else.

    Also what it wanted of each slot, and when they differed longest.
    """
    tally = ShadowTally()
    names: tuple[str, ...] = ()
    if recording is None:
        with connect(socket) as client:
            names = client.status().slots
            deadline_s = time.monotonic() + seconds
            for watched in client.watch():
                record = watched.record
                tally.take(record)
                if time.monotonic() >= deadline_s:
                    break
    else:
        for record in read_records(recording):
            tally.take(record)
    summary = tally.summary()
    if summary is None:
        raise UsageError(
            "No policy ran in shadow mode.",
            next_step="Load one, and turn it on: stallward ctl mode shadow.",
        )
    if as_json:
        output.print_json(asdict(summary))
        return
    names = names or tuple(group.name.rpartition("/")[2] for group in record.sample.slots)
    output.table(("", "decides", "shadow"), shadow_rows(summary, names))
    output.line()
    for text in shadow_lines(summary):
        output.line(text)
