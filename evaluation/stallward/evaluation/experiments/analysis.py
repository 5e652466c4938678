"""What an experiment of paired blocks showed. Pure.

Both arms run once in each pair, in an order that was drawn. So what changes slowly on the node
(load, time of day) hits both alike, and if the arms were the same, swapping their labels in any
pair would change nothing: that is what the randomisation test does.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np

from stallward.evaluation.errors import MeasureError
from stallward.evaluation.measures.bootstrap import RESAMPLES, Array, block_counts
from stallward.evaluation.measures.intervals import Scale, interval, mean_sequence, randomisation_p
from stallward.evaluation.results.interval import Interval

_Name = TypeVar("_Name", bound=Hashable)
LABELLINGS: Final = 9999
"""How many labellings are tried where there are more than that."""
LEAST_LOOKS: Final = 5
"""After fewer pairs a confidence sequence at 5 % is infinite, however large the effect."""
LEAST_FIXED: Final = 6
"""With fewer pairs no randomisation p-value is 0.05 or less, and a report never calls an effect
significant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedRatio:
    """One measure of the treatment over that of the baseline, from paired blocks."""

    ratio: Interval
    """The geometric mean over pairs, with its 95 % interval if the number of pairs was fixed
    before."""
    always: Interval
    """The same with an interval that holds at every look, and so if the experiment stopped because
    of what it showed."""
    p_value: float | None
    """Of the two-sided randomisation test; ``None`` for fewer than 2 pairs."""
    pairs: int
    """How many pairs count."""
    left_out_pairs: int
    """Pairs without a positive value of both arms."""


def paired_ratio(
    baseline: Array, treatment: Array, *, alpha: float = 0.05, seed: int = 1
) -> PairedRatio:
    """Compare one measure of both arms.

    Args:
        baseline: The measure in the baseline's block of each pair, shape ``(pairs,)``; NaN where
            the block was lost.
        treatment: The same of the other arm.
        alpha: The chance that the interval that always holds leaves out the true ratio.
        seed: Seeds the resampling.

    Raises:
        MeasureError: If no pair counts, or the shapes differ.
    """
    if baseline.shape != treatment.shape:
        raise MeasureError(
            f"{baseline.size} blocks of one arm cannot be paired with {treatment.size} of another."
        )
    usable = np.isfinite(baseline) & np.isfinite(treatment) & (baseline > 0) & (treatment > 0)
    if not usable.any():
        raise MeasureError(
            "No pair has a value of both arms.", next_step="Let the experiment run longer."
        )
    differences = np.log(treatment[usable]) - np.log(baseline[usable])
    pairs, mean = differences.size, float(differences.mean())
    counts = block_counts(pairs, RESAMPLES, np.random.default_rng(seed))
    draws = np.exp(counts @ differences / pairs)
    low, high = (float(bounds[-1]) for bounds in mean_sequence(differences, alpha=alpha))
    return PairedRatio(
        ratio=interval(float(np.exp(mean)), draws, blocks=pairs, scale=Scale.LOG),
        always=Interval(
            value=float(np.exp(mean)),
            low=float(np.exp(low)) if np.isfinite(low) else None,
            high=float(np.exp(high)) if np.isfinite(high) else None,
        ),
        p_value=randomisation_p(differences / pairs, labellings=LABELLINGS, seed=seed),
        pairs=pairs,
        left_out_pairs=int((~usable).sum()),
    )


def lost_blocks_p(kept: tuple[int, int], planned: int) -> float:
    """The chance that arms that lose blocks alike lose them as unevenly as here.

    If it is small, what loses blocks depends on the arm, and the blocks that are left are not
    comparable (a *sample-ratio mismatch*).

    Args:
        kept: How many blocks of each arm count.
        planned: How many of each arm were planned.
    """
    # Fisher's exact test: the tables with the same sums that are at most as likely as this one.
    together = sum(kept)
    likely = [
        math.comb(planned, one) * math.comb(planned, together - one) for one in range(together + 1)
    ]
    return sum(one for one in likely if one <= likely[kept[0]]) / sum(likely)


def holm(p_values: Mapping[_Name, float], *, alpha: float = 0.05) -> dict[_Name, bool]:
    """Which of several comparisons are significant together (Holm, 1979).

    Args:
        p_values: Name of a comparison -> its p-value.
        alpha: The chance of any false alarm.
    """
    significant = dict.fromkeys(p_values, False)
    for rank, name in enumerate(sorted(p_values, key=lambda name: p_values[name])):
        if p_values[name] > alpha / (len(p_values) - rank):
            break
        significant[name] = True
    return significant
