"""Policies on twins, as arms that are compared with rules and settings."""

from __future__ import annotations

from stallward.env.simulation.simulation import SimulationSettings
from stallward.training.network.arrays import TrainedPolicy
from stallward.training.selection.arm import Arm
from stallward.training.selection.rollout import Act


def arm_of_policy(policy: TrainedPolicy) -> Arm:
    """A trained policy, which needs no memory of its own."""
    return Arm(
        make=lambda _nodes: policy.act,
        action_table=policy.table.name,
        ticks_per_action=policy.ticks_per_action,
        partition=policy.partition,
    )


def arm_of_actor(act: Act, settings: SimulationSettings) -> Arm:
    """An actor during its training.

    Args:
        act: Its likeliest actions.
        settings: The settings that it is trained with.
    """
    return Arm(
        make=lambda _nodes: act,
        action_table=settings.action_table,
        ticks_per_action=settings.ticks_per_action,
        partition=settings.partition,
    )
