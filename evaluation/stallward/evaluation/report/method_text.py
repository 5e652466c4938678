"""The method of a comparison as lines of a report."""

from __future__ import annotations

from dataclasses import dataclass

from stallward.env.recording.run_info import NodeInfo
from stallward.evaluation.report.text import number, seconds, target
from stallward.evaluation.results.comparison import ComparisonResult, Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """A line about the method."""

    name: str
    text: str


def method_facts(result: ComparisonResult) -> list[Fact]:
    """The known facts about the node and the method; unknown facts are left out."""
    method, node, table = result.method, result.node, result.table
    lifted = [label for label, arm in table.arms.items() if arm.facts.budgets_lifted]
    memory = f"{node.memory_total_bytes / 2**30:.1f} GiB" if node.memory_total_bytes else ""
    background = ", ".join(f"{name} ({unit})" for name, unit in method.unit_of_group.items())
    target_text = f"{target(table)} in each window ({table.slo_source})"
    if method.controller_slo_ms != table.slo_ms:  # older results judged by another target
        target_text += f"; controllers were given {number(method.controller_slo_ms, 'ms')} ms"
    blocks = (
        f"{method.rounds} rounds of {seconds(method.block_s)} after "
        f"{seconds(method.burn_in_s)} of burn-in, order drawn from seed {method.seed}"
    )
    facts = [
        Fact(name="node", text=_in_words(node)),
        *(Fact(name="node after resuming", text=_in_words(one)) for one in result.other_nodes),
        Fact(name="memory", text=memory),
        Fact(name="sandbox", text=f"{method.sandbox_limit_bytes / 2**20:.0f} MiB"),
        Fact(name="background", text=background),
        Fact(name="SLO", text=target_text),
        Fact(name="blocks", text=blocks),
        Fact(name="intervals", text=_intervals(table)),
        Fact(name="invalid blocks", text=_invalid(table)),
        Fact(name="policies", text=", ".join(f"{k}: {v}" for k, v in method.policies.items())),
        Fact(name="arms left out", text=" ".join(method.left_out.values())),
        Fact(name="* budgets lifted", text=", ".join(lifted)),
        Fact(name="† background processes terminated", text=_terminated(table)),
        Fact(name="† killed by the kernel under an arm's limit", text=_limit_kills(table)),
    ]
    return [fact for fact in facts if fact.text]


def _intervals(table: Table) -> str:
    if table.resampled == "blocks":
        return (
            "95 %, rounds resampled 2000 times jointly for arm and references, t-corrected for "
            "the number of rounds"
        )
    return "95 %, windows inside the single block resampled; variation between blocks is missing"


def _in_words(node: NodeInfo) -> str:
    known = {
        "kind": node.kind,
        "kernel": node.kernel,
        "cpu_count": node.cpu_count,
        "disk": node.disk,
        "cpu": node.cpu,
    }
    return ", ".join(f"{key} {value}" for key, value in known.items() if value != "")


def _terminated(table: Table) -> str:
    return ", ".join(
        f"{label}: {arm.facts.terminated_processes} in {arm.blocks} blocks"
        for label, arm in table.arms.items()
        if arm.facts.terminated_processes
    )


def _limit_kills(table: Table) -> str:
    return ", ".join(
        f"{label}: {arm.facts.limit_kills} in {arm.blocks} blocks"
        for label, arm in table.arms.items()
        if arm.facts.limit_kills
    )


def _invalid(table: Table) -> str:
    text = ", ".join(
        f"{label} {arm.facts.invalid_blocks}"
        for label, arm in table.arms.items()
        if arm.facts.invalid_blocks
    )
    return f"{text} (the sandbox ran out of memory; run again)" if text else "none"
