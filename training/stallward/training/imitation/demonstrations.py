"""What a teacher taught, and the file that keeps it for a training that goes on later."""

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

LESSONS_FILE: Final = "lessons.npz"
_RECIPE: Final = "recipe"
Observations = NDArray[np.float32]
Actions = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Demonstrations:
    """What was taught.

    Attributes:
        observations: ``(N, OBSERVATION_SIZE)``.
        actions: What should be done, ``(N, len(ACTION_SIZES))``.
        prices: At which the teacher kept what is allowed, ``(len(COSTS), len(twins))``.
        progress: Of the background under the teacher, ``(len(twins),)``.
        suffered: Of the application, ``(len(SUFFERED), len(twins))``.
    """

    observations: Observations
    actions: Actions
    prices: Array
    progress: Array
    suffered: Array

    def figures(self, names: Sequence[str]) -> dict[str, dict[str, float]]:
        """Progress, and what was suffered, by the twins' names."""
        each = np.concatenate([self.progress[None], self.suffered])
        return {
            name: dict(zip(("progress", *SUFFERED), each[:, k].tolist(), strict=True))
            for k, name in enumerate(names)
        }

    @classmethod
    def of_all(cls, parts: Sequence[Demonstrations]) -> Demonstrations:
        """Those of several twins, one after the other."""
        return cls(
            observations=np.concatenate([one.observations for one in parts]),
            actions=np.concatenate([one.actions for one in parts]),
            prices=np.concatenate([one.prices for one in parts], axis=1),
            progress=np.concatenate([one.progress for one in parts]),
            suffered=np.concatenate([one.suffered for one in parts], axis=1),
        )

    def save(self, file: Path, recipe: str) -> None:
        """Write ``file``, whole or not at all; ``recipe`` says what the lessons follow from."""
        file.parent.mkdir(parents=True, exist_ok=True)
        building = file.with_name(f".{file.name}.{os.getpid()}.partial.npz")
        arrays: dict[str, Any] = {_RECIPE: np.array(recipe), **asdict(self)}
        np.savez(building, **arrays)
        building.replace(file)

    @classmethod
    def load(cls, file: Path, recipe: str) -> Demonstrations | None:
        """What :meth:`save` wrote; ``None`` where there is nothing of the same recipe."""
        try:
            with file.open("rb") as stream, np.load(stream, allow_pickle=False) as data:
                if data[_RECIPE].item() != recipe:
                    return None
                return cls(**{field.name: data[field.name] for field in fields(cls)})
        except (OSError, KeyError, ValueError, zipfile.BadZipFile):
            return None

    def and_also(self, more: Demonstrations) -> Demonstrations:
        """These and others; prices and figures are those of the others."""
        return replace(
            more,
            observations=np.concatenate([self.observations, more.observations]),
            actions=np.concatenate([self.actions, more.actions]),
        )
