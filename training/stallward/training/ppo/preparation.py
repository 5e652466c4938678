"""What all trainings on the same twins have in common: more twins, and what is allowed on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.env.simulation.constraints import Constraints
from stallward.env.twin.inputs.fitted import FittedTwin
from stallward.training.errors import TrainingError
from stallward.training.ppo.args import Args
from stallward.training.selection.allowance import allow_as_much
from stallward.training.selection.arm import Arm
from stallward.training.selection.selection import Selection, make_selection
from stallward.training.selection.static_settings import make_constraints
from stallward.training.synthetic_scenarios import make_synthetic_scenarios

_ALLOWANCE_SEED: Final = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """Twins to train on, and how policies are judged; no setting of the recipe changes it."""

    twins: tuple[FittedTwin, ...]
    """The twins to train on, recorded and synthetic."""
    constraints: Constraints
    """What the applications may suffer on these twins."""
    static: NDArray[np.int64]
    """The best static action for all of them."""
    selection: Selection
    """What policies are chosen on."""


def prepare(twins: Sequence[FittedTwin], judged_on: Sequence[FittedTwin], args: Args) -> Prepared:
    """Add synthetic scenarios to the twins, and measure what is allowed.

    Args:
        twins: The twins to train on.
        judged_on: Validation twins; without any, the training twins decide.
        args: The settings of the training.

    Raises:
        TrainingError: If there is no twin, or two are of one scenario.
    """
    if not twins:
        raise TrainingError("There is no twin to train on.", next_step="Run `stallward fit`.")
    names = [twin.scenario.name for twin in twins]
    if len(set(names)) < len(names):
        raise TrainingError(
            f"Two twins are of the same scenario: {', '.join(sorted(names))}.",
            next_step="Name one twin of each.",
        )
    all_twins = (
        *twins,
        *make_synthetic_scenarios(twins, args.composing, args.settings, seed=args.seed),
    )
    constraints, static_settings = make_constraints(
        all_twins, args.settings, args.slack, seed=args.seed
    )
    static = static_settings.best(constraints)
    compared = Arm.of_partition(args.settings.partition)
    constraints = allow_as_much(
        constraints, compared, all_twins, args.settings, seed=_ALLOWANCE_SEED + args.seed
    )
    selection = make_selection(
        twins,
        judged_on,
        args.settings,
        slack=args.slack,
        episodes=args.evaluation_episodes,
        seed=args.seed,
        as_much_as=compared,
    )
    return Prepared(twins=all_twins, constraints=constraints, static=static, selection=selection)
