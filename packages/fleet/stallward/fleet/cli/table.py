"""``stallward ctl fleet``: one line for each of many nodes, and what they have in common."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Final

import typer

from stallward.actuator.cli import output
from stallward.actuator.cli.options import Json
from stallward.actuator.cli.status_text import with_slot_name
from stallward.actuator.client import DaemonStatus
from stallward.fleet.cli.connect import connect_fleet

_HEADERS: Final = ("node", "version", "decides", "policy", "p95, ms", "target, ms", "paused", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRow:
    """What one node says."""

    node: str
    version: str = ""
    controller: str = ""
    """What decides."""
    policy: str = ""
    """The loaded policy, its digest and its mode; empty for none."""
    p95_ms: float | None = None
    slo_ms: float | None = None
    paused: int = 0
    """How many slots are paused now."""
    slots: int = 0
    problems: tuple[str, ...] = ()
    """What a person might look at."""


def fleet(
    nodes: Annotated[Path, typer.Option(help="The file that says where the nodes are.")],
    problems: Annotated[
        bool, typer.Option("--problems", help="Only nodes with something to look at.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Print a line for each of many nodes.

    It says what decides there, and how the application is doing. The exit code is 1 if a node does
    not answer.
    """
    with connect_fleet(nodes) as connected:
        answers = connected.ask(lambda _name, client: client.status())
        rows = [
            node_row(name, answers.given[name])
            if name in answers.given
            else NodeRow(node=name, problems=(answers.failed[name].cause,))
            for name in connected.clients
        ]
    shown = [row for row in rows if row.problems or not problems]
    if as_json:
        output.print_json([asdict(row) for row in shown])
    else:
        if shown:
            output.table(_HEADERS, [_cells(row) for row in shown])
        for text in summary_lines(rows, answers.failed):
            output.line(text)
    if answers.failed:
        raise typer.Exit(1)


def node_row(name: str, status: DaemonStatus) -> NodeRow:
    """The row of a node that answers."""
    record, policy = status.last_tick, status.policy
    latency = None if record is None else record.sample.latency
    p95_ms = None if latency is None else latency.p95_ms
    states = () if record is None else record.sample.slot_states
    digest = "" if policy is None else f"{policy.name} {policy.sha256[:12]}"
    return NodeRow(
        node=name,
        version=status.version,
        controller=status.controller,
        policy="" if policy is None else f"{digest} ({status.mode.name.lower()})",
        p95_ms=p95_ms,
        slo_ms=status.slo_ms,
        paused=sum(state.paused for state in states),
        slots=len(status.slots),
        problems=tuple(_problems(status, p95_ms)),
    )


def _problems(status: DaemonStatus, p95_ms: float | None) -> list[str]:
    found = []
    if p95_ms is not None and status.slo_ms is not None and p95_ms > status.slo_ms:
        found.append("misses the target")
    if status.last_tick is not None and status.last_tick.fallback:
        found.append("the default controller decides in place of one that failed")
    if status.canary is not None and status.canary.returned:
        found.append(status.canary.returned)
    sources = {"": status.latency} | {
        f" of {one.name}": one.latency for one in status.applications
    }
    for whose, source in sources.items():
        fault = "" if source is None else source.fault
        if fault and not any(fault in problem for problem in status.problems):
            found.append(f"no latencies{whose}: {fault}")
    found += (with_slot_name(problem, status.slots) for problem in status.problems)
    if status.experiment is not None:
        found.append("an experiment runs")
    return found


def _cells(row: NodeRow) -> tuple[str, ...]:
    return (
        row.node,
        row.version,
        row.controller,
        row.policy,
        "" if row.p95_ms is None else f"{row.p95_ms:.1f}",
        "" if row.slo_ms is None else f"{row.slo_ms:g}",
        f"{row.paused}/{row.slots}" if row.slots else "",
        "; ".join(row.problems),
    )


def summary_lines(rows: list[NodeRow], failed: Mapping[str, object]) -> list[str]:
    """What the nodes have in common."""
    answering = [row for row in rows if row.node not in failed]
    known = [row for row in answering if row.p95_ms is not None and row.slo_ms is not None]
    kept = sum((row.p95_ms or 0.0) <= (row.slo_ms or 0.0) for row in known)
    lines = [
        f"{len(rows)} nodes: {len(answering)} answer, {kept} of {len(known)} with requests keep "
        "the target"
    ]
    for what, values in (
        ("version", Counter(row.version for row in answering)),
        ("policy", Counter(row.policy or "none" for row in answering)),
    ):
        counts = ", ".join(f"{count} {value}" for value, count in values.most_common())
        lines += [f"{what}: {counts}"] if counts else []
    return lines
