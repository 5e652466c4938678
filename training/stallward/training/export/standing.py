"""How a policy stands beside ``partition``, which decides without one, on the twins. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

Difference = Literal["better", "worse", "not certain"]
HEADERS: Final = (
    "twin", "policy", "lower bound", "partition", "lower bound", "missed", "allowed", "verdict",
)  # fmt: skip
_LISTED: Final = 4
"""How many scenarios a sentence names at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A policy and ``partition`` on the same draws of one twin; scores are those of the card."""

    scenario: str
    trained_on: bool
    policy: float
    policy_low: float
    """95 % lower confidence bound of the score."""
    partition: float
    partition_low: float
    missed: float
    """Share of windows that miss the target under the policy."""
    allowed: float
    """The share that is allowed."""

    @property
    def difference(self) -> Difference:
        """What the policy is; certain if the lower bound of one is above the score of the other."""
        if self.policy_low > self.partition:
            return "better"
        return "worse" if self.partition_low > self.policy else "not certain"


def standings(facts: Mapping[str, Any]) -> tuple[Standing, ...]:
    """The standing on each twin that both were evaluated on; none without an evaluation.

    Args:
        facts: The facts of the policy's training.
    """
    evaluation = facts.get("evaluation", {})
    both = {name: evaluation.get(name, {}) for name in ("ppo", "partition")}
    return tuple(
        Standing(
            scenario=scenario,
            trained_on=scenario in facts.get("twins", ()),
            policy=outcome["score"],
            policy_low=outcome["score_low"],
            partition=both["partition"][scenario]["score"],
            partition_low=both["partition"][scenario]["score_low"],
            missed=outcome["window_violated"],
            allowed=facts["allowed"][scenario]["window_violated"],
        )
        for scenario, outcome in both["ppo"].items()
        if scenario in both["partition"]
    )


def standing_rows(compared: Sequence[Standing]) -> list[tuple[str, ...]]:
    """The rows of a table with :data:`HEADERS`, twins that were not trained on first."""
    return [
        (
            one.scenario,
            *(f"{score:.3f}" for score in (one.policy, one.policy_low)),
            *(f"{score:.3f}" for score in (one.partition, one.partition_low)),
            *(f"{share:.1%}" for share in (one.missed, one.allowed)),
            one.difference,
        )
        for one in sorted(compared, key=lambda one: one.trained_on)
    ]


def good_for(facts: Mapping[str, Any]) -> list[str]:
    """Sentences that say what a policy is good for, as far as the twins tell.

    Args:
        facts: The facts of the policy's training.
    """
    compared = standings(facts)
    if not compared:
        return ["It was not evaluated beside `partition`, so nothing says what it is good for."]
    better, worse, unclear = (
        [one.scenario for one in compared if one.difference == difference]
        for difference in ("better", "worse", "not certain")
    )
    unseen = sum(not one.trained_on for one in compared)
    said = [
        f"Twins on which it is better than `partition`: {len(better)}; worse: {len(worse)}; not "
        f"certain: {len(unclear)}. Not trained on: {unseen} of these."
    ]
    if all(one.policy == one.partition for one in compared):
        said.append(
            "Its scores are those of `partition`, as which it began: it has learned nothing."
        )
    elif better:
        said.append(f"Try it live beside applications like those of {_named(better)}.")
        if worse:
            said.append(f"Keep `partition` beside those of {_named(worse)}.")
    else:
        said.append("Keep `partition`: these twins show nothing that the policy does better.")
    if over := [one.scenario for one in compared if one.missed > one.allowed]:
        said.append(f"It misses the target more often than is allowed on {_named(over)}.")
    return said


def _named(scenarios: Sequence[str]) -> str:
    """The first few scenarios, and the number of the others."""
    named = [f"`{one}`" for one in scenarios[:_LISTED]]
    if len(scenarios) > _LISTED:
        named.append(f"{len(scenarios) - _LISTED} others")
    return " and ".join(filter(None, (", ".join(named[:-1]), named[-1])))
