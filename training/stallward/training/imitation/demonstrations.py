"""Demonstrations of a teacher, and the file that keeps them for a resumed training."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from stallward.env.objective import SUFFERED, Array

DEMONSTRATIONS_FILE: Final = "lessons.npz"
_RECIPE: Final = "recipe"
Observations = NDArray[np.float32]
Actions = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Demonstrations:
    """Observations with the teacher's actions, and how the teacher did."""

    observations: Observations
    """The observations, ``(N, OBSERVATION_SIZE)``."""
    actions: Actions
    """The teacher's action for each observation, ``(N, len(ACTION_SIZES))``."""
    prices: Array
    """The prices at which the teacher's nodes suffer what is allowed, ``(len(COSTS),
    len(twins))``."""
    progress: Array
    """Mean background progress on these nodes, ``(len(twins),)``."""
    suffered: Array
    """What the application suffered there, ``(len(SUFFERED), len(twins))``."""

    def figures(self, names: Sequence[str]) -> dict[str, dict[str, float]]:
        """Progress and what was suffered, by the name of each twin."""
        values = np.concatenate([self.progress[None], self.suffered])
        return {
            name: dict(zip(("progress", *SUFFERED), values[:, k].tolist(), strict=True))
            for k, name in enumerate(names)
        }

    @classmethod
    def concatenate(cls, parts: Sequence[Demonstrations]) -> Demonstrations:
        """Join the demonstrations of several twins, in order."""
        return cls(
            observations=np.concatenate([part.observations for part in parts]),
            actions=np.concatenate([part.actions for part in parts]),
            prices=np.concatenate([part.prices for part in parts], axis=1),
            progress=np.concatenate([part.progress for part in parts]),
            suffered=np.concatenate([part.suffered for part in parts], axis=1),
        )

    def save(self, file: Path, recipe: str) -> None:
        """Write ``file`` atomically; ``recipe`` identifies the settings that they were made by."""
        file.parent.mkdir(parents=True, exist_ok=True)
        building = file.with_name(f".{file.name}.{os.getpid()}.partial.npz")
        arrays: dict[str, Any] = {_RECIPE: np.array(recipe), **asdict(self)}
        np.savez(building, **arrays)
        building.replace(file)

    @classmethod
    def load(cls, file: Path, recipe: str) -> Demonstrations | None:
        """Read what :meth:`save` wrote; ``None`` if there is none of the same recipe."""
        try:
            with file.open("rb") as stream, np.load(stream, allow_pickle=False) as data:
                if data[_RECIPE].item() != recipe:
                    return None
                return cls(**{field.name: data[field.name] for field in fields(cls)})
        except (OSError, KeyError, ValueError, zipfile.BadZipFile):
            return None

    def aggregate(self, newer: Demonstrations) -> Demonstrations:
        """Add newer demonstrations; prices, progress and what was suffered are the newer ones."""
        return replace(
            newer,
            observations=np.concatenate([self.observations, newer.observations]),
            actions=np.concatenate([self.actions, newer.actions]),
        )
