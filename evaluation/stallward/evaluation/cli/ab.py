"""``stallward ab``: experiments with two controllers on a node that serves."""

from __future__ import annotations

import secrets
import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final

import typer

from stallward.actuator.cli import output
from stallward.actuator.cli.connect import DEFAULT_SOCKET, Nodes, Socket, connect, on_many_nodes
from stallward.actuator.cli.options import Json
from stallward.actuator.cli.policies import on_node
from stallward.actuator.cli.status_text import phase_text
from stallward.actuator.experiments.block_tally import Loss
from stallward.actuator.experiments.plan import Candidate, ExperimentPlan, PrimaryMeasure
from stallward.actuator.experiments.state import Progress
from stallward.actuator.experiments.wire import Experiment
from stallward.agent.errors import UsageError
from stallward.evaluation.experiments.analysis import LEAST_FIXED, LEAST_LOOKS
from stallward.evaluation.experiments.node_report import ArmBlocks, NodeReport, report_on
from stallward.evaluation.results.interval import Interval
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
    treatments = tuple(Candidate(policy=on_node(one)) for one in treatment or [""])
    wanted = ExperimentPlan(
        baseline=Candidate(policy=on_node(baseline)),
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
    least = LEAST_LOOKS if stop_when_certain else LEAST_FIXED
    if pairs < least:
        output.note(f"With fewer than {least} pairs no difference is certain, however large.")


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


def _experiment(socket: Path) -> Experiment:
    with connect(socket) as client:
        found = client.experiments.get()
    if found is None:
        raise UsageError(
            "There was no experiment on this node.", next_step="Start one: stallward ab start."
        )
    return found


# ---------- Experiments on nodes, as text

_MEASURES: Final = {
    PrimaryMeasure.P95: "typical p95 of a second",
    PrimaryMeasure.WORST: "p95 exceeded in 5 % of the seconds",
    PrimaryMeasure.WORK: "work of the background",
    PrimaryMeasure.BLOCK_P95: "p95 of a block's requests",
    PrimaryMeasure.BLOCK_P99: "p99 of a block's requests",
}
_PROCESSOR_TIME: Final = "processor time of the background"
_ENDS: Final = {
    Progress.COMPLETE: "All pairs were run.",
    Progress.CERTAIN: "It stopped because the arms certainly differ.",
    Progress.GUARDRAIL: "It stopped because the treatment certainly keeps the target less often, or "
    "answers in fewer seconds.",
    Progress.LOSSES: "It stopped because block after block was lost.",
    Progress.STOPPED: "It was stopped.",
}
_LOSSES: Final = {
    Loss.NO_REQUESTS: "too few requests",
    Loss.LEASE: "a client's lease decided",
    Loss.OTHER_CONTROLLER: "another controller decided",
    Loss.LOOP_SILENT: "the loop was silent",
    Loss.SERVICE_RESTARTED: "the service was restarted",
}


def status_lines(experiment: Experiment) -> tuple[str, ...]:
    """Where an experiment is."""
    plan = experiment.plan
    lines = [
        f"baseline {candidate_text(plan.baseline)}, treatment {candidate_text(plan.treatment)}",
        f"{plan.pairs} pairs of blocks of {plan.block_s:g} s after {plan.burn_in_s:g} s, primary "
        f"measure {plan.primary}, seed {plan.seed}",
    ]
    lines.append(phase_text(experiment.phase) if experiment.phase else _end(experiment))
    for number, block in enumerate(experiment.blocks, start=1):
        if block.loss is not Loss.NONE:
            lines.append(f"block {number} ({block.arm.name.lower()}) lost: {_LOSSES[block.loss]}")
    return tuple(lines)


def report_rows(report: NodeReport) -> list[tuple[str, str, str, str, str]]:
    """The measures of a report, the primary one first."""
    primary = report.plan.primary
    ordered = sorted(report.ratios, key=lambda measure: measure is not primary)
    return [
        (
            measure_text(measure, report.work_unit) + (" (primary)" if measure is primary else ""),
            f"{ratio.ratio.value:.3f}",
            range_text(ratio.ratio),
            range_text(ratio.always),
            "" if ratio.p_value is None else f"{ratio.p_value:.3f}",
        )
        for measure, ratio in ((one, report.ratios[one]) for one in ordered)
    ]


def report_lines(experiment: Experiment, report: NodeReport) -> tuple[str, ...]:
    """What a report says in words."""
    lines = [_end(experiment)] if experiment.phase is None else ["It still runs."]
    lines += [_arm(one) for one in report.arms]
    if report.losses_differ:
        lines.append(
            "The arms lose blocks at different rates, so what is left of them is not comparable."
        )
    if report.unknown_latencies:
        lines.append(
            f"Of {report.unknown_latencies} blocks, which an earlier version ran, only the p95 of "
            "each second is known: they have no p95 and p99 of all requests."
        )
    lines.append(_verdict(report))
    return tuple(lines)


def _verdict(report: NodeReport) -> str:
    measure, ratio = report.plan.primary, report.primary
    if ratio is None or ratio.ratio.value is None:
        return "No pair of blocks is known yet."
    if not report.significant[measure]:
        label = measure_text(measure, report.work_unit)
        return f"The arms do not certainly differ in the primary measure ({label})."
    return change_text(measure, ratio.ratio.value, report.work_unit)


def change_text(measure: PrimaryMeasure, ratio: float, work_unit: str | None = None) -> str:
    """What the treatment changes, for a measure that certainly differs."""
    change = 100.0 * (ratio - 1.0)
    which = "longer" if change > 0 else "shorter"
    if measure is PrimaryMeasure.WORK:
        which = "more" if change > 0 else "less"
    label = measure_text(measure, work_unit)
    return f"With the treatment the {label} is {abs(change):.0f} % {which}."


def measure_text(measure: PrimaryMeasure, work_unit: str | None = None) -> str:
    """What a measure is.

    Args:
        measure: The measure.
        work_unit: The unit of the background's work, empty for processor time; ``None`` where
            nodes may count in different units.
    """
    if measure is PrimaryMeasure.WORK and work_unit is not None:
        return f"{_MEASURES[measure]}, in {work_unit}" if work_unit else _PROCESSOR_TIME
    return _MEASURES[measure]


def _arm(one: ArmBlocks) -> str:
    name = one.arm.name.lower()
    kept = "" if one.attainment is None else f", target kept in {100 * one.attainment:.1f} %"
    lost = ", ".join(f"{count} lost ({_LOSSES[loss]})" for loss, count in one.lost.items())
    fell = one.fallback_share or 0.0
    fallback = f", default controller at {100 * fell:.1f} % of the ticks" if fell else ""
    return (
        f"{name}: {one.blocks} blocks{kept}{_latencies(one)}{fallback}{', ' if lost else ''}{lost}"
    )


def _latencies(one: ArmBlocks) -> str:
    """The percentiles of all requests of an arm."""
    seen = one.latencies
    if seen is None or seen.p50_ms is None or seen.p95_ms is None or seen.p99_ms is None:
        return ""
    return (
        f", p50 {seen.p50_ms:.3g} ms, p95 {seen.p95_ms:.3g} ms, p99 {seen.p99_ms:.3g} ms of "
        f"{seen.requests} requests"
    )


def _end(experiment: Experiment) -> str:
    text = _ENDS.get(experiment.progress, "It runs.")
    if experiment.ended_s is None:
        return text
    took = output.duration(experiment.ended_s - experiment.began_s)
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(experiment.ended_s))
    return f"{text} ({when}, after {took})"


def candidate_text(candidate: Candidate) -> str:
    """What a candidate is, as the rest of a sentence."""
    if not candidate.is_policy:
        return "is what decides without a policy"
    return f"is {candidate.policy} (sha256 {candidate.sha256[:12]})"


def range_text(interval: Interval) -> str:
    """The ends of an interval."""
    if interval.low is None or interval.high is None:
        return "unknown"
    return f"{interval.low:.3f}..{interval.high:.3f}"
