"""What the commands of rollouts print."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from stallward.fleet.rollout.plan import RolloutPlan
from stallward.fleet.rollout.progress import NodeState, Outcome, Progress, Step

_NAMED: Final = 20
"""At most so many nodes are named; the file has all of them."""
_MEANING: Final = {
    NodeState.WAITING: "not switched: what decided before decides",
    NodeState.SWITCHING: "told to switch",
    NodeState.ACTIVE: "the policy decides",
    NodeState.BACK: "what decided before, or was chosen there meanwhile, decides",
    NodeState.NOT_REACHED: "not reached: what decided before decides",
    NodeState.UNSURE: "not reached: the policy may decide",
}


def wave_rows(plan: RolloutPlan) -> list[tuple[str, str, str, str]]:
    """The waves that are planned, with the first node of each."""
    rows, done = [], 0
    for number, target in enumerate(plan.waves, start=1):
        rows.append((str(number), str(target - done), str(target), plan.nodes[done]))
        done = target
    return rows


def count_rows(progress: Progress) -> list[tuple[str, str]]:
    """How many nodes are in which state; together they are all nodes."""
    counts = progress.counts
    return [(str(counts[state]), _MEANING[state]) for state in NodeState if counts[state]]


def outcome_line(step: Step) -> str:
    """How it ended."""
    match step.outcome:
        case Outcome.COMPLETE:
            return "It is complete."
        case Outcome.PAUSED:
            return f"It is paused: {step.why}. The same command goes on; ctl recall undoes it."
        case _:
            return f"All nodes go back: {step.why}."


def left_lines(progress: Progress, path: Path) -> list[str]:
    """The nodes that are not where they were to be, and why."""
    told = [
        f"{name} ({state.value}): {progress.why[name]}"
        for name, state in progress.states.items()
        if progress.why.get(name)
    ]
    more = len(told) - _NAMED
    return [*told[:_NAMED], f"{more} more are named in {path}"] if more > 0 else told


def progress_values(progress: Progress, step: Step) -> dict[str, Any]:
    """The same as one JSON document."""
    return {
        "outcome": None if step.outcome is None else step.outcome.value,
        "why": step.why,
        "policy": progress.plan.policy,
        "counts": {state.value: progress.counts[state] for state in NodeState},
        "nodes": {
            name: {"state": state.value, "why": progress.why.get(name, "")}
            for name, state in progress.states.items()
        },
        "waves": [asdict(verdict) for verdict in progress.verdicts],
    }
