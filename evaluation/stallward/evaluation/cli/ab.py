"""``stallward ab``: experiments with two controllers on a node that serves."""

from __future__ import annotations

import secrets
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from stallward.actuator.cli import output
from stallward.actuator.cli.connect import DEFAULT_SOCKET, Nodes, Socket, connect, on_many_nodes
from stallward.actuator.cli.options import Json
from stallward.actuator.experiments.plan import Candidate, ExperimentPlan, PrimaryMeasure
from stallward.actuator.experiments.wire import Experiment
from stallward.agent.errors import UsageError
from stallward.evaluation.cli.ab_text import report_lines, report_rows, status_lines
from stallward.evaluation.experiments.node_report import report_on
from stallward.evaluation.results.serialise import to_json

Measure = Annotated[
    str, typer.Option(help="Primary measure: block-p99, block-p95, p95, worst or work.")
]


def start(
    treatment: Annotated[
        list[str] | None,
        typer.Option(
            help="A policy, as for `ctl load`; none: what decides without one. "
            "With --nodes it may be repeated."
        ),
    ] = None,
    baseline: Annotated[
        str, typer.Option(help="The same of the controller that it is compared with.")
    ] = "",
    pairs: Annotated[int, typer.Option(min=1, max=1000, help="The most pairs of blocks.")] = 20,
    block_seconds: Annotated[
        float, typer.Option(min=10.0, max=86400.0, help="Measured length of a block.")
    ] = 60.0,
    burn_in_seconds: Annotated[
        float, typer.Option(min=0.0, max=86400.0, help="What `ab plan` says, or more.")
    ] = 30.0,
    measure: Measure = "block-p99",
    margin: Annotated[
        float,
        typer.Option(min=0.0, max=1.0, help="Share of seconds by which it may miss more often."),
    ] = 0.05,
    stop_when_certain: Annotated[
        bool, typer.Option("--stop-when-certain", help="End once the arms certainly differ.")
    ] = False,
    seed: Annotated[
        int | None,
        typer.Option(min=0, max=2**63 - 1, help="The seed of the orders of pairs [drawn]."),
    ] = None,
    socket: Socket = DEFAULT_SOCKET,
    nodes: Nodes = None,
    partly: Annotated[
        bool, typer.Option("--partly", help="Continue with those of many nodes that can.")
    ] = False,
) -> None:
    """Compare two controllers on the node, in pairs of blocks whose order is drawn.

    The daemon runs it by itself, also after a restart, and puts back what was in force before at
    the end. It stops if the treatment certainly keeps the target less often than --margin allows.
    With --nodes it is started on many nodes or on none; which treatment each runs is drawn.
    """
    treatments = tuple(Candidate(policy=_on_node(one)) for one in treatment or [""])
    wanted = ExperimentPlan(
        baseline=Candidate(policy=_on_node(baseline)),
        treatment=treatments[0],
        pairs=pairs,
        block_s=block_seconds,
        burn_in_s=burn_in_seconds,
        seed=secrets.randbits(63) if seed is None else seed,
        primary=primary_measure(measure),
        stop_when_certain=stop_when_certain,
        margin=margin,
    )
    if nodes is not None:
        on_many_nodes("ab.start")(nodes, wanted, treatments, partly=partly)
        return
    if len(treatments) > 1 or partly:
        raise UsageError(
            "One node compares one treatment.", next_step="Name many nodes with --nodes."
        )
    with connect(socket) as client:
        client.experiments.start(wanted)
    longest = output.duration(wanted.blocks * (block_seconds + burn_in_seconds))
    output.line(f"started: {pairs} pairs, at most {longest}, seed {wanted.seed}")


def status(socket: Socket = DEFAULT_SOCKET, nodes: Nodes = None) -> None:
    """Say where the experiment is, and which blocks were lost."""
    if nodes is not None:
        on_many_nodes("ab.status")(nodes)
        return
    for text in status_lines(_experiment(socket)):
        output.line(text)


def stop(socket: Socket = DEFAULT_SOCKET, nodes: Nodes = None) -> None:
    """Stop the experiment, and put back what was in force before."""
    if nodes is not None:
        on_many_nodes("ab.stop")(nodes)
        return
    with connect(socket) as client:
        ended = client.experiments.stop()
    output.line(f"stopped after {len(ended.blocks)} of {ended.plan.blocks} blocks")


def report(socket: Socket = DEFAULT_SOCKET, nodes: Nodes = None, as_json: Json = False) -> None:
    """Say what the experiment showed, also while it runs."""
    if nodes is not None:
        on_many_nodes("ab.report")(nodes, as_json=as_json)
        return
    experiment = _experiment(socket)
    shown = report_on(experiment)
    if as_json:
        # The report has the percentiles of each block in place of its whole histogram.
        blocks = tuple(replace(one, latencies=None) for one in experiment.blocks)
        plain = replace(experiment, blocks=blocks)
        output.print_json({"experiment": to_json(plain), "report": to_json(shown)})
        return
    rows = report_rows(shown)
    if rows:
        output.table(("treatment over baseline", "ratio", "95 %", "at every look", "p"), rows)
        output.line()
    for text in report_lines(experiment, shown):
        output.line(text)


def primary_measure(name: str) -> PrimaryMeasure:
    """The measure of a name.

    Raises:
        UsageError: If there is none of this name.
    """
    if name not in set(PrimaryMeasure):
        raise UsageError(
            f"{name!r:.40} is not a measure.",
            next_step=f"Choose one of: {', '.join(PrimaryMeasure)}.",
        )
    return PrimaryMeasure(name)


def _on_node(policy: str) -> str:
    """The name of a policy for the daemon: files need a whole path."""
    return str(Path(policy).resolve()) if policy and Path(policy).exists() else policy


def _experiment(socket: Path) -> Experiment:
    with connect(socket) as client:
        found = client.experiments.get()
    if found is None:
        raise UsageError(
            "There was no experiment on this node.", next_step="Start one: stallward ab start."
        )
    return found
