"""``stallward ab ... --nodes FILE``: one experiment on many nodes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import typer

from stallward.actuator.cli import output
from stallward.actuator.experiments.plan import Candidate, ExperimentPlan
from stallward.actuator.experiments.wire import Experiment
from stallward.agent.errors import UsageError
from stallward.evaluation.results.serialise import to_json
from stallward.fleet.cli.connect import connect_fleet
from stallward.fleet.cli.experiments_text import (
    left_out_lines,
    node_rows,
    progress_line,
    report_lines,
    report_rows,
    status_rows,
)
from stallward.fleet.connections import Fleet
from stallward.fleet.experiment_plan import FleetPlan, newest_of
from stallward.fleet.experiment_report import report_on_fleet
from stallward.fleet.experiments import gather, start, stop


def start_fleet(
    file: Path, plan: ExperimentPlan, treatments: tuple[Candidate, ...], *, partly: bool
) -> None:
    """Start an experiment on many nodes, and name those that take no part.

    Args:
        file: Names the nodes.
        plan: What each of them runs; its seed is that of all draws.
        treatments: What is compared with the baseline.
        partly: Whether to go on with the nodes that can.
    """
    wanted = FleetPlan(plan=plan, treatments=treatments, seed=plan.seed)
    with connect_fleet(file) as fleet:
        started = start(fleet, wanted, partly=partly)
    for name, error in started.refused.items():
        may_run = " It may run there all the same." if name in started.left else ""
        output.note(f"{name} does not take part: {error}{may_run}")
    longest = output.duration(plan.blocks * (plan.block_s + plan.burn_in_s))
    output.line(
        f"started on {len(started.experiments)} nodes: {plan.pairs} pairs on each, at most "
        f"{longest}, seed {wanted.seed}"
    )


def show_fleet(file: Path) -> None:
    """Say where the experiment is on each node, also which do not answer."""
    with connect_fleet(file) as fleet:
        found = _gather(fleet)
    output.table(("node", "state", "blocks", "lost", "now"), status_rows(found.part))
    output.line()
    for text in (*left_out_lines(found.others), progress_line(found.part)):
        output.line(text)


def stop_fleet(file: Path) -> None:
    """Stop the experiment on all nodes; the exit code is 1 if it may still run on one."""
    with connect_fleet(file) as fleet:
        answers = stop(fleet)
    stopped = [one for one in answers.given.values() if one is not None]
    for name, error in answers.failed.items():
        output.note(f"{name} may still run it: {error}")
    blocks = sum(len(one.blocks) for one in stopped)
    output.line(f"stopped on {len(stopped)} nodes, after {blocks} blocks together")
    if answers.failed:
        raise typer.Exit(1)


def report_fleet(file: Path, *, as_json: bool) -> None:
    """Say what the experiment showed on all nodes that answer."""
    with connect_fleet(file) as fleet:
        found = _gather(fleet)
    report = report_on_fleet(found.part)
    if as_json:
        output.print_json(
            {
                "experiments": to_json(found.part),
                "left_out": found.others,
                "report": to_json(report),
            }
        )
        return
    output.table(("node", "treatment", "ratio", "95 %", "blocks", "lost"), node_rows(report))
    output.line()
    output.table(
        ("treatment over baseline", "ratio", "95 %", "at every look", "p"), report_rows(report)
    )
    output.line()
    for text in report_lines(report, found.others):
        output.line(text)


@dataclass(frozen=True, slots=True)
class _Found:
    part: dict[str, Experiment]
    """What each node runs or ran as its part."""
    others: dict[str, str]
    """Why each other node is not among them."""


def _gather(fleet: Fleet) -> _Found:
    """The experiment on many nodes that began last.

    Raises:
        UsageError: If no node takes part in one.
    """
    answers = gather(fleet)
    part, others = newest_of({n: one for n, one in answers.given.items() if one is not None})
    others |= {n: "there was no experiment" for n, one in answers.given.items() if one is None}
    others |= {name: str(error) for name, error in answers.failed.items()}
    if not part:
        why = "; ".join(f"{name}: {text}" for name, text in list(others.items())[:3])
        raise UsageError(
            f"No node takes part in an experiment on many nodes. {why}",
            next_step="Start one: stallward ab start --nodes FILE.",
        )
    return _Found(part, others)
