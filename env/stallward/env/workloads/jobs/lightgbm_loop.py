"""Trains gradient boosted trees (LightGBM) for ever; a unit is one tree.

The data is made from a seed and stays in memory. After a number of trees a new model begins, so a
tree takes about as much time late as early.

Run: ``python -m stallward.env.workloads.jobs.lightgbm_loop --rows 400000 --report PATH``
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import lightgbm
import numpy as np

from stallward.env.workloads.command_line import run_program
from stallward.env.workloads.report import work

_FEATURES: Final = 40
TREES_OF_A_MODEL: Final = 50
_PARAMETERS: Final[dict[str, Any]] = {
    "objective": "regression",
    "num_leaves": 127,
    "max_bin": 255,
    "num_threads": 1,
    "force_col_wise": True,
    "verbosity": -1,
}


def make_data(rows: int, seed: int) -> Any:
    """Make a data set in which the target depends on some of the features."""
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((rows, _FEATURES), dtype=np.float32)
    target = features[:, 0] * features[:, 1] + np.abs(features[:, 2]) + features[:, 3]
    return lightgbm.Dataset(features, label=target, params=_PARAMETERS, free_raw_data=False)


class Trainer:
    """Trains one model after the other on the same data.

    Args:
        rows: How many rows the data has.
        seed: The seed of the data.
    """

    def __init__(self, *, rows: int, seed: int) -> None:
        self._data = make_data(rows, seed)
        self._booster: Any = None

    @property
    def trees(self) -> int:
        """How many trees the model has."""
        return 0 if self._booster is None else int(self._booster.current_iteration())

    def step(self) -> None:
        """Grow one tree."""
        if self._booster is None or self.trees >= TREES_OF_A_MODEL:
            self._booster = lightgbm.Booster(params=_PARAMETERS, train_set=self._data)
        self._booster.update()


def main(*, report: Path, rows: int = 400_000, seed: int = 1) -> None:
    """Grow trees until killed."""
    work(report, lambda: Trainer(rows=rows, seed=seed).step)


if __name__ == "__main__":
    run_program(__doc__, main)
