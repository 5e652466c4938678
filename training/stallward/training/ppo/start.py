"""The policy with which a training begins, in place of ``partition``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from stallward.agent.control_law.thresholds import as_values
from stallward.training.errors import TrainingError
from stallward.training.network.arrays import LOG_SCALES, TrainedPolicy
from stallward.training.ppo.args import Args

_CRITIC_SHARE: Final = 0.1
"""The most of a training in which only the critic is trained."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """A policy that is trained further."""

    name: str
    """What it is called on the card."""
    sha256: str
    """The digest of its file."""
    policy: TrainedPolicy
    """The policy, with its parameters."""

    def facts(self) -> dict[str, Any]:
        """What the provenance of a policy says of that with which its training began."""
        before = self.policy.provenance
        twins = {*before.get("twins", ()), *before.get("start", {}).get("twins", ())}
        return {"name": self.name, "sha256": self.sha256, "twins": sorted(twins)}

    def check(self, args: Args) -> None:
        """Refuse a policy that a training with these settings cannot begin with.

        Raises:
            TrainingError: If it has other features or actions, or was trained with other numbers,
                or what its file says of its own training cannot be repeated.
        """
        self._check_provenance()
        policy, settings = self.policy, args.settings
        there = {
            "features": policy.features.name,
            "actions": policy.table.name,
            "ticks of a decision": policy.ticks_per_action,
            **as_values(policy.partition),
        }
        here = {
            "features": args.features,
            "actions": settings.action_table,
            "ticks of a decision": settings.ticks_per_action,
            **as_values(settings.partition),
        }
        differing = [name for name in there if there[name] != here[name]]
        said = [f"{name} {there[name]} and not {here[name]}" for name in differing]
        if not np.array_equal(policy.fine, LOG_SCALES[: policy.features.size]):
            said.append("logarithms of other features")
        if said:
            raise TrainingError(
                f"{self.name} does not fit this training. It has: {', '.join(said)}.",
                next_step=f"Add --features {policy.features.name}."
                if len(said) == 1 and "features" in differing
                else "Name another policy with --from, or train from the beginning.",
            )

    def _check_provenance(self) -> None:
        """Refuse what could not be written after the training."""
        before = self.policy.provenance
        start = before.get("start", {})
        known = {
            "steps": isinstance(before.get("steps", 0), int),
            "twins": _are_names(before.get("twins", ())),
            "start": isinstance(start, Mapping) and _are_names(start.get("twins", ())),
        }
        wrong = [name for name, right in known.items() if not right]
        if wrong:
            raise TrainingError(
                f"What {self.name} says of its own training cannot be read: {', '.join(wrong)}.",
                next_step="Name another policy with --from, or train from the beginning.",
            )

    def shortened(self, args: Args) -> Args:
        """The settings with which the actor learns as well where there are few decisions.

        The critic is not new, or has little to learn: the policy to value is there already.

        Args:
            args: The settings of a training that begins as ``partition``.
        """
        rollouts = args.total_steps / (args.n_envs * args.n_steps)
        most = max(int(_CRITIC_SHARE * rollouts), 1)
        return replace(args, critic_rollouts=min(args.critic_rollouts, most))


def _are_names(value: object) -> bool:
    """Whether a value is a list of names, or a table by names."""
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        return False
    return all(isinstance(one, str) for one in value)
