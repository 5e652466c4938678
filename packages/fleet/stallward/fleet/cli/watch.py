"""Watching many nodes on the command line."""

from __future__ import annotations

import json
from pathlib import Path

from stallward.actuator.cli import output
from stallward.actuator.cli.tick_text import TickPrinter
from stallward.fleet.connections import Fleet
from stallward.fleet.discovery.fleet_source import FleetSource
from stallward.fleet.following import FleetFollower
from stallward.fleet.watch import FleetWatch


def watch_fleet(file: Path, *, every: int, count: int, as_json: bool) -> None:
    """Print one line for each tick of many nodes, and at the end what became of all ticks.

    Args:
        file: Names the nodes.
        every: Show every n-th tick of a node.
        count: Stop after so many lines; 0 for never.
        as_json: Whether to print one JSON object a line.
    """
    source = FleetSource(file)
    for problem in source.look().problems.values():
        raise problem
    printers: dict[str, TickPrinter] = {}
    with (
        Fleet(source.nodes) as fleet,
        FleetWatch(fleet, every=every) as watch,
        FleetFollower(source, watch, output.note),
    ):
        try:
            for number, tick in enumerate(watch, start=1):
                if tick.node not in printers:
                    names = watch.slots(tick.node)
                    printers[tick.node] = TickPrinter(as_json=as_json, names=names)
                text = printers[tick.node].line(tick.record)
                if as_json:
                    output.line(json.dumps({"node": tick.node, "tick": json.loads(text)}))
                else:
                    output.line(f"{tick.node} | {text}")
                if count and number >= count:
                    break
        finally:
            for text in count_lines(watch):
                output.note(text)


def count_lines(watch: FleetWatch) -> list[str]:
    """What became of the ticks of each node that did not all arrive, and of all together."""
    lines = []
    for name, count in list(watch.counts.items()):
        gone = {
            "lost": count.lost,
            "while not watched": count.unwatched,
            "unexplained": count.unexplained,
            "restarts of the loop": count.restarts,
        }
        texts = [f"{number} {what}" for what, number in gone.items() if number]
        texts += [count.problem] if count.problem else []
        if texts:
            lines.append(f"{name}: {count.received} ticks, {', '.join(texts)}")
    counts = watch.counts.values()
    received, lost = (sum(getattr(one, key) for one in counts) for key in ("received", "lost"))
    others = sum(one.unwatched + one.unexplained for one in counts)
    lines.append(
        f"{len(watch.counts)} nodes: {received} ticks received, {lost} lost because they were not "
        f"taken in time, {others} missing otherwise"
    )
    return lines
