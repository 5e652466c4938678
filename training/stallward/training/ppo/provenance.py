"""The provenance of a policy, which is written into its file."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import version
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from stallward.env.objective import SUFFERED
from stallward.env.twin.inputs.exogenous import scenario_to_json
from stallward.env.twin.inputs.fitted import FittedTwin
from stallward.training.ppo.args import Args
from stallward.training.synthetic_scenarios import is_synthetic

_TWIN_FACTS: Final = ("recordings", "recordings_sha256", "arms", "kernel", "seed")
"""The keys of a twin's provenance that a policy repeats; the rest is in the twin's own file."""


def recipe_sha256(twins: Sequence[FittedTwin], args: Args) -> str:
    """A hash of everything that determines a policy, except the seed."""
    settings = {k: v for k, v in asdict(args).items() if k not in ("seed", "seeds")}
    descriptions = [
        [scenario_to_json(t.scenario), [asdict(d) for d in t.draws], t.weights] for t in twins
    ]
    return hashlib.sha256(json.dumps([settings, descriptions]).encode()).hexdigest()


def provenance_of(
    twins: Sequence[FittedTwin], args: Args, seed: int, steps: int, prices: NDArray[np.float64]
) -> dict[str, Any]:
    """The provenance of one seed's policy: recipe, twins, prices and versions.

    Args:
        twins: All twins that it was trained on, recorded and synthetic.
        args: The settings of the recipe.
        seed: The seed of this policy.
        steps: The number of decisions that it was trained on.
        prices: The prices at the end, ``(len(SUFFERED), len(twins))``.
    """
    recorded = [twin for twin in twins if not is_synthetic(twin)]
    return {
        "algorithm": "PPO (stable-baselines3)",
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
        "versions": {
            "python": platform.python_version(),
            **{
                name: version(name)
                for name in ("stallward", "stable-baselines3", "torch", "numpy")
            },
        },
    }
