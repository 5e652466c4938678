"""Grows random forests (scikit-learn) for ever; a unit is one tree.

The data is made from a seed and stays in memory. A forest keeps its trees, so it grows, and is
dropped when it has enough of them.

Run: ``python -m stallward.env.workloads.jobs.forest_loop --rows 50000 --trees 40 --report PATH``
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
from sklearn.ensemble import ExtraTreesRegressor

from stallward.env.workloads.command_line import run_program
from stallward.env.workloads.report import work

_FEATURES: Final = 30


class Grower:
    """Grows one forest after the other on the same data.

    Args:
        rows: How many rows the data has.
        trees: How many trees a forest has in the end.
        seed: The seed of the data and of the trees.
    """

    def __init__(self, *, rows: int, trees: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self._features = rng.standard_normal((rows, _FEATURES), dtype=np.float32)
        self._target = self._features[:, 0] * self._features[:, 1] + rng.standard_normal(rows)
        self._most_trees = trees
        self._seed = seed
        self._forest = self._empty()

    def _empty(self) -> ExtraTreesRegressor:
        return ExtraTreesRegressor(
            n_estimators=0, max_features=4, warm_start=True, random_state=self._seed, n_jobs=1
        )

    @property
    def trees(self) -> int:
        """How many trees the forest has."""
        return int(self._forest.n_estimators)

    def step(self) -> None:
        """Grow one tree, of a new forest if this one has enough."""
        if self.trees >= self._most_trees:
            self._seed += 1
            self._forest = self._empty()
        self._forest.n_estimators += 1
        self._forest.fit(self._features, self._target)


def main(*, report: Path, rows: int = 50_000, trees: int = 40, seed: int = 1) -> None:
    """Grow trees until killed."""
    work(report, lambda: Grower(rows=rows, trees=trees, seed=seed).step)


if __name__ == "__main__":
    run_program(__doc__, main)
