"""Experiments on many nodes, as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from stallward.actuator.cli.status_text import phase_text
from stallward.actuator.experiments.block_tally import Loss
from stallward.actuator.experiments.plan import PrimaryMeasure
from stallward.actuator.experiments.state import Progress
from stallward.actuator.experiments.wire import Experiment
from stallward.evaluation.cli.ab import candidate_text, change_text, measure_text, range_text
from stallward.fleet.experiment_report import FleetReport, TreatmentReport

_DIFFER_P = 0.05
"""Below this chance of equal effects nodes are said to differ."""


def status_rows(part: Mapping[str, Experiment]) -> list[tuple[str, str, str, str, str]]:
    """Where each node is."""
    rows = []
    for name, one in part.items():
        lost = sum(block.loss is not Loss.NONE for block in one.blocks)
        now = "" if one.phase is None else phase_text(one.phase)
        blocks = f"{len(one.blocks)}/{one.plan.blocks}"
        rows.append((name, str(one.progress), blocks, str(lost), now))
    return rows


def left_out_lines(others: Mapping[str, str]) -> list[str]:
    """Which nodes take no part or do not answer, and why."""
    return [f"{name} is left out: {why}" for name, why in others.items()]


def progress_line(part: Mapping[str, Experiment]) -> str:
    """How many nodes are in which state, and the seed."""
    counts = Counter(one.progress for one in part.values())
    states = ", ".join(f"{counts[one]} {one}" for one in Progress if counts[one])
    seed = next(iter(part.values())).plan.fleet_seed
    return f"{len(part)} nodes: {states}; seed {seed}"


def node_rows(report: FleetReport) -> list[tuple[str, str, str, str, str, str]]:
    """The primary measure of each node."""
    return [
        (
            name,
            one.treatment.policy or "-",
            "" if part.ratio.value is None else f"{part.ratio.value:.3f}",
            range_text(part.ratio),
            str(part.blocks),
            str(part.lost_blocks),
        )
        for one in report.treatments
        for name, part in one.nodes.items()
    ]


def report_rows(report: FleetReport) -> list[tuple[str, str, str, str, str]]:
    """The measures of each treatment over all nodes, the primary one first."""
    primary = report.plan.primary
    rows = []
    for one in report.treatments:
        ordered = sorted(one.ratios, key=lambda measure: measure is not primary)
        for measure in ordered:
            ratio = one.ratios[measure]
            rows.append(
                (
                    f"{_short(one)}: {measure_text(measure)}"
                    + (" (primary)" if measure is primary else ""),
                    "" if ratio.ratio.value is None else f"{ratio.ratio.value:.3f}",
                    range_text(ratio.ratio),
                    range_text(ratio.always),
                    "" if ratio.p_value is None else f"{ratio.p_value:.3f}",
                )
            )
    return rows


def report_lines(report: FleetReport, others: Mapping[str, str]) -> list[str]:
    """What a report says in words.

    Args:
        report: The report.
        others: Why nodes are not in it.
    """
    lines = left_out_lines(others)
    if report.running:
        lines.append(f"It still runs on {report.running} nodes.")
    lines += [
        f"{name} stopped because the treatment certainly keeps the target less often there, or "
        "answers in fewer seconds."
        for name in report.broken
    ]
    for one in report.treatments:
        lines += _treatment_lines(one, report.plan.primary)
    return lines


def _treatment_lines(one: TreatmentReport, primary: PrimaryMeasure) -> list[str]:
    ratio = one.ratios.get(primary)
    if ratio is None or ratio.ratio.value is None:
        return [f"{_short(one)}: no pair of blocks is known yet."]
    lines = [
        f"{_short(one)} {candidate_text(one.treatment)}: {ratio.pairs} pairs on {ratio.nodes} "
        "nodes."
    ]
    if one.losses_differ:
        lines.append(
            "The arms lose blocks at different rates, so what is left of them is not comparable."
        )
    differ = ratio.nodes_differ
    if differ is not None:
        alike = "do not certainly differ" if differ.p_value > _DIFFER_P else "differ"
        lines.append(
            f"The nodes {alike} in the effect (p {differ.p_value:.3f}); on a further node like "
            f"these the ratio is {range_text(differ.another)} in 95 of 100 cases."
        )
    if not one.significant[primary]:
        lines.append(
            f"The arms do not certainly differ in the primary measure ({measure_text(primary)})."
        )
        return lines
    beyond = "" if ratio.ratio.excludes(1.0) else " That is certain for these nodes only."
    lines.append(f"{change_text(primary, ratio.ratio.value)}{beyond}")
    return lines


def _short(one: TreatmentReport) -> str:
    return one.treatment.policy.rpartition("/")[2] or "the configured controller"
