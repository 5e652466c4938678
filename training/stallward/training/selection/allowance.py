"""What the application may suffer under a policy that is compared with another controller."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from stallward.env.objective import SUFFERED
from stallward.env.simulation.constraints import Constraints
from stallward.env.simulation.simulation import SimulationSettings
from stallward.env.twin.inputs.fitted import FittedTwin
from stallward.training.selection.arm import Arm
from stallward.training.selection.rollout import evaluate

_NODES: Final = 128


def allow_as_much(
    constraints: Constraints,
    arm: Arm,
    twins: Sequence[FittedTwin],
    settings: SimulationSettings,
    *,
    seed: int,
) -> Constraints:
    """Allow what the application suffers under a controller, where that is more.

    A verdict asks which of two controllers does more work while the target is met as often. A
    policy that may suffer less than the other one pays for that with work.

    Args:
        constraints: The constraints so far, on the same twins.
        arm: The controller.
        twins: The twins.
        settings: The settings of the simulation.
        seed: Everything random follows from it.
    """
    outcomes = [
        evaluate(
            arm.make(_NODES),
            [twin],
            arm.on(settings),
            constraints=constraints.one(k),
            episodes=_NODES,
            seed=seed,
        )
        for k, twin in enumerate(twins)
    ]
    suffered = np.array([[getattr(outcome, name) for outcome in outcomes] for name in SUFFERED])
    return replace(constraints, allowed=np.maximum(constraints.allowed, suffered))
