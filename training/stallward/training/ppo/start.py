"""The policy with which a training begins, in place of ``partition``."""

from __future__ import annotations

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
            TrainingError: If it has other features or actions, or was trained with other numbers.
        """
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

    def shortened(self, args: Args) -> Args:
        """The settings with which the actor learns as well where there are few decisions.

        The critic is not new, or has little to learn: the policy to value is there already.

        Args:
            args: The settings of a training that begins as ``partition``.
        """
        rollouts = args.total_steps / (args.n_envs * args.n_steps)
        most = max(int(_CRITIC_SHARE * rollouts), 1)
        return replace(args, critic_rollouts=min(args.critic_rollouts, most))
