"""What all trainings on the same twins have in common: more twins, and what is allowed on them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from stallward.env.objective import SUFFERED
from stallward.env.simulation.constraints import Constraints
from stallward.env.twin.inputs.exogenous import scenario_to_json
from stallward.env.twin.inputs.fitted import FittedTwin
from stallward.training.errors import TrainingError
from stallward.training.parallel.versions import versions_here
from stallward.training.ppo.args import Args
from stallward.training.ppo.start import Start
from stallward.training.selection.rollout import Arm, allow_as_much
from stallward.training.selection.selection import Selection, make_constraints, make_selection
from stallward.training.synthetic_scenarios import is_synthetic, make_synthetic_scenarios

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


# ---------- The provenance of a policy, which is written into its file

_TWIN_FACTS: Final = ("recordings", "recordings_sha256", "arms", "kernel", "seed")
"""The keys of a twin's provenance that a policy repeats; the rest is in the twin's own file."""


def recipe_sha256(twins: Sequence[FittedTwin], args: Args, start: Start | None = None) -> str:
    """A hash of everything that determines a policy, except the seed."""
    settings = {k: v for k, v in asdict(args).items() if k not in ("seed", "seeds")}
    descriptions = [
        [scenario_to_json(t.scenario), [asdict(d) for d in t.draws], t.weights] for t in twins
    ]
    began = [] if start is None else [start.sha256]
    return hashlib.sha256(json.dumps([settings, descriptions, *began]).encode()).hexdigest()


def provenance_of(
    twins: Sequence[FittedTwin],
    args: Args,
    seed: int,
    steps: int,
    prices: NDArray[np.float64],
    start: Start | None = None,
) -> dict[str, Any]:
    """The provenance of one seed's policy: recipe, twins, prices and versions.

    Args:
        twins: All twins that it was trained on, recorded and synthetic.
        args: The settings of the recipe.
        seed: The seed of this policy.
        steps: The number of decisions that it was trained on.
        prices: The prices at the end, ``(len(SUFFERED), len(twins))``.
        start: The policy with which it began.
    """
    recorded = [twin for twin in twins if not is_synthetic(twin)]
    return {
        "algorithm": "PPO (stable-baselines3)",
        **({} if start is None else {"start": start.facts()}),
        "seed": seed,
        "steps": steps,
        "prices": {
            twin.scenario.name: dict(zip(SUFFERED, prices[:, k].tolist(), strict=True))
            for k, twin in enumerate(twins)
        },
        "args": {**asdict(args), "settings": asdict(args.settings)},
        "twins": {
            t.scenario.name: {k: v for k, v in t.provenance.items() if k in _TWIN_FACTS}
            for t in recorded
        },
        "composed": {
            t.scenario.name: {**t.provenance, "zone_mib": t.scenario.zone_bytes >> 20}
            for t in twins
            if is_synthetic(t)
        },
        "groups": {t.scenario.name: len(t.scenario.slots) for t in twins},
        "versions": versions_here(),
    }
