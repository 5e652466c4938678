"""The randomisation test of paired blocks. Pure.

If the arms were the same, swapping their labels in any pair would change nothing but the sign of
what the pair adds. The p-value is therefore the share of labellings that show as much as the one
that was drawn. The numbers are those of ``scipy.stats.permutation_test`` with the same seed; scipy
is not on nodes, where reports are made, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from stallward.evaluation.measures.bootstrap import Array

_AT_ONCE: Final = 500
"""How many labellings are tried together: thousands of pairs for each would take much memory."""


def randomisation_p(parts: Array, *, labellings: int, seed: int) -> float | None:
    """The two-sided p-value of a sum over pairs; ``None`` for fewer than 2 pairs.

    Args:
        parts: What each pair adds to the sum.
        labellings: How many labellings are drawn, where there are more than that.
        seed: Seeds their drawing.
    """
    pairs = parts.size
    if pairs < 2:
        return None
    every = 1 << pairs <= labellings
    batches = _every_labelling(pairs) if every else _drawn_labellings(pairs, labellings, seed)
    shown = float(parts.sum())
    rounding = 100.0 * np.finfo(np.float64).eps * abs(shown)
    below = above = 0
    for signs in batches:
        sums = (signs * parts).sum(axis=1)
        below += int((sums <= shown + rounding).sum())
        above += int((sums >= shown - rounding).sum())
    if every:
        return min(1.0, 2.0 * min(below, above) / (1 << pairs))
    # The labelling that was run is one of those that could have been drawn.
    return min(1.0, 2.0 * (min(below, above) + 1) / (labellings + 1))


def _every_labelling(pairs: int) -> Iterator[Array]:
    swapped = np.arange(1 << pairs)[:, None] >> np.arange(pairs) & 1
    yield np.asarray(1.0 - 2.0 * swapped, dtype=np.float64)


def _drawn_labellings(pairs: int, labellings: int, seed: int) -> Iterator[Array]:
    rng = np.random.default_rng(seed)
    for begin in range(0, labellings, _AT_ONCE):
        both = np.tile((1.0, -1.0), (min(_AT_ONCE, labellings - begin), pairs, 1))
        yield np.asarray(rng.permuted(both, axis=-1)[:, :, 0], dtype=np.float64)
