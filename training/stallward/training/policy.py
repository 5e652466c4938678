"""A trained policy as plain arrays: what training saves and export reads.

An actor is ``magnify -> normalise -> tanh(linear) -> tanh(linear) -> linear``; the logits of all
heads of the action table lie side by side. A policy is the mean of the logits of its *members*,
one or more actors: trainings differ most where they know least, and there their mean errs less
than they do (deep ensembles: Lakshminarayanan et al., 2017).
"""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from stallward.agent.desired import ACTION_SIZES
from stallward.agent.observation import OBSERVATION_SIZE, schema_hash
from stallward.training.errors import TrainingError
from stallward.training.magnify import magnified

Weights = NDArray[np.float32]
POLICY_FILE: Final = "policy.npz"
SEEDS_FOLDER: Final = "seeds"
"""Of a run: one folder for each seed that is trained."""
TRAINING_FILE: Final = "training.json"
CLIP: Final = 10.0
"""Normalised observations are clipped to this."""
_SHARED: Final = ("fine", "low", "high")
MEMBERS: Final = ("mean", "scale", "w0", "b0", "w1", "b1", "w2", "b2")
"""Arrays that every member has of its own: their first axis is that of the members."""
_ARRAYS: Final = (*_SHARED, *MEMBERS)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedPolicy:
    """Weights and what is known of their training; ``M`` members.

    Attributes:
        fine: How much small values of each feature are magnified, ``(OBSERVATION_SIZE,)``; see
            :func:`stallward.training.magnify.magnified`.
        mean, scale: Normalisation of what is magnified, ``(M, OBSERVATION_SIZE)``.
        low, high: Range of each feature seen in training.
        w0, b0, w1, b1, w2, b2: Layers; ``w`` has shape ``(M, outputs, inputs)``.
        ticks_per_action: How long a decision holds.
        provenance: Recordings, twins, seeds, steps, versions, results.
    """

    fine: Weights
    mean: Weights
    scale: Weights
    low: Weights
    high: Weights
    w0: Weights
    b0: Weights
    w1: Weights
    b1: Weights
    w2: Weights
    b2: Weights
    ticks_per_action: int
    provenance: Mapping[str, Any]

    def __post_init__(self) -> None:
        """Check shapes and finiteness.

        Raises:
            TrainingError: If an array does not fit the observation or action table.
        """
        members, hidden0, hidden1 = len(self.b0), self.b0.shape[-1], self.b1.shape[-1]
        expected = {
            **dict.fromkeys(_SHARED, (OBSERVATION_SIZE,)),
            **dict.fromkeys(("mean", "scale"), (members, OBSERVATION_SIZE)),
            "w0": (members, hidden0, OBSERVATION_SIZE),
            "b0": (members, hidden0),
            "w1": (members, hidden1, hidden0),
            "b1": (members, hidden1),
            "w2": (members, sum(ACTION_SIZES), hidden1),
            "b2": (members, sum(ACTION_SIZES)),
        }
        for name, shape in expected.items():
            array = getattr(self, name)
            if array.shape != shape or not np.isfinite(array).all():
                raise TrainingError(
                    f"The policy's {name} has shape {array.shape} instead of {shape}, or is not "
                    "finite.",
                    next_step="Train again with `stallward train`.",
                )
        if (self.fine < 0.0).any():
            raise TrainingError(
                "The policy magnifies a feature by less than 0, which nothing can be.",
                next_step="Train again with `stallward train`.",
            )

    def logits(self, observations: NDArray[np.float32]) -> NDArray[np.float32]:
        """Logits of a batch ``(N, OBSERVATION_SIZE)``, shape ``(N, sum(ACTION_SIZES))``."""
        seen = magnified(observations, self.fine)
        x = np.clip((seen - self.mean[:, None]) / self.scale[:, None], -CLIP, CLIP)
        x = np.tanh(x @ self.w0.swapaxes(1, 2) + self.b0[:, None])
        x = np.tanh(x @ self.w1.swapaxes(1, 2) + self.b1[:, None])
        x = x @ self.w2.swapaxes(1, 2) + self.b2[:, None]
        return np.asarray(x.mean(axis=0), dtype=np.float32)

    def act(self, observations: NDArray[np.float32]) -> NDArray[np.int64]:
        """The likeliest action of each observation, ``(N, len(ACTION_SIZES))``."""
        return best_actions(self.logits(observations))


def ensemble(policies: Sequence[TrainedPolicy]) -> TrainedPolicy:
    """All of several policies as one.

    What is known of all their trainings alike is known of it; the rest is under ``members``.

    Raises:
        TrainingError: If they do not see alike, or decide at another pace.
    """
    first = policies[0]
    for other in policies:
        if not np.array_equal(other.fine, first.fine) or (
            other.ticks_per_action != first.ticks_per_action
        ):
            raise TrainingError("Policies that magnify or decide otherwise are no ensemble.")
    facts = [policy.provenance for policy in policies]
    shared = {
        key: value
        for key, value in facts[0].items()
        if all(key in other and other[key] == value for other in facts)
    }
    own = [{key: value for key, value in one.items() if key not in shared} for one in facts]
    return TrainedPolicy(
        fine=first.fine,
        low=np.min([policy.low for policy in policies], axis=0),
        high=np.max([policy.high for policy in policies], axis=0),
        **{name: np.concatenate([getattr(p, name) for p in policies]) for name in MEMBERS},
        ticks_per_action=first.ticks_per_action,
        provenance={**shared, "members": own},
    )


def best_actions(logits: NDArray[np.float32]) -> NDArray[np.int64]:
    """Argmax of each head."""
    heads = np.split(logits, np.cumsum(ACTION_SIZES)[:-1], axis=1)
    return np.stack([head.argmax(axis=1) for head in heads], axis=1).astype(np.int64)


def save_policy(folder: Path, policy: TrainedPolicy) -> None:
    """Write a policy's arrays and provenance into ``folder``, each file whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    building = folder / f".{POLICY_FILE}.{os.getpid()}.partial.npz"
    np.savez(building, **{name: getattr(policy, name) for name in _ARRAYS})
    building.replace(folder / POLICY_FILE)
    text = {
        "schema_hash": schema_hash(),
        "ticks_per_action": policy.ticks_per_action,
        "provenance": dict(policy.provenance),
    }
    note = folder / f".{TRAINING_FILE}.{os.getpid()}.partial"
    note.write_text(json.dumps(text, indent=1, default=str) + "\n", encoding="utf-8")
    note.replace(folder / TRAINING_FILE)


def load_policy_arrays(folder: Path) -> TrainedPolicy:
    """Read what :func:`save_policy` wrote.

    Raises:
        TrainingError: If it is missing, broken or of another observation schema.
    """
    try:
        notes = json.loads((folder / TRAINING_FILE).read_text(encoding="utf-8"))
        with np.load(folder / POLICY_FILE, allow_pickle=False) as data:
            arrays = {name: data[name] for name in _ARRAYS}
        found = notes["schema_hash"]
        ticks, provenance = int(notes["ticks_per_action"]), notes["provenance"]
    except (OSError, KeyError, ValueError, TypeError, zipfile.BadZipFile) as error:
        raise TrainingError(
            f"{folder} does not hold a trained policy: {error}.",
            next_step="Give the folder that `stallward train --out` wrote.",
        ) from error
    if found != schema_hash():
        raise TrainingError(
            f"The policy in {folder} was trained for another observation schema.",
            next_step="Train again with `stallward train`.",
        )
    return TrainedPolicy(**arrays, ticks_per_action=ticks, provenance=provenance)
