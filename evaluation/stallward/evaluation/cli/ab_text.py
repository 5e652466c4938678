"""Experiments on nodes, as text."""

from __future__ import annotations

import time
from typing import Final

from stallward.actuator.cli import output
from stallward.actuator.cli.status_text import phase_text
from stallward.actuator.experiments.block_tally import Loss
from stallward.actuator.experiments.plan import Candidate, PrimaryMeasure
from stallward.actuator.experiments.state import Progress
from stallward.actuator.experiments.wire import Experiment
from stallward.evaluation.experiments.node_report import ArmBlocks, NodeReport
from stallward.evaluation.results.interval import Interval

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
    Progress.GUARDRAIL: "It stopped because the treatment certainly keeps the target less often.",
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
