"""What paired blocks on many nodes showed together. Pure.

The blocks of a node share its machine, its load and its neighbours, so the unit of the estimate is
the node: the mean of its pairs' log-ratios is one value, whatever the number of its pairs, and the
interval is Student's t over the nodes. That holds if nodes differ in their effect, in their noise
or in how many pairs they kept (Ibragimov and Müller, Journal of Business & Economic Statistics
28(4), 2010). The randomisation test needs no such model: within every pair the labels were drawn.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import ArrayLike

from stallward.evaluation.errors import MeasureError
from stallward.evaluation.experiments.analysis import LABELLINGS
from stallward.evaluation.measures.bootstrap import Array
from stallward.evaluation.measures.intervals import mean_sequence, randomisation_p, student_975
from stallward.evaluation.results.interval import UNKNOWN, Interval

_SAME: Final = 1e-9
"""Log-ratios that differ by less are equal but for rounding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesDiffer:
    """Whether the effect is the same on all nodes."""

    p_value: float
    """Of the test that it is (Alexander and Govern, Journal of Educational Statistics 19(2),
    1994), which lets nodes differ in their noise."""
    spread: float
    """The standard deviation of the logarithm of the nodes' true ratios, as estimated."""
    another: Interval
    """Where the true ratio of a further node like these is in 95 of 100 cases."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PooledRatio:
    """One measure of a treatment over that of the baseline, from many nodes."""

    ratio: Interval
    """The geometric mean over nodes, with the 95 % interval of that of all nodes like these."""
    always: Interval
    """The same of these nodes, with an interval that holds at every look."""
    p_value: float | None
    """Of the two-sided randomisation test within the nodes; ``None`` for fewer than 2 pairs."""
    nodes: int
    """How many nodes have a pair."""
    pairs: int
    """How many pairs they have together."""
    nodes_differ: NodesDiffer | None
    """``None`` if fewer than two nodes have two pairs that vary."""


def pooled_ratio(
    log_ratios: Sequence[ArrayLike],
    *,
    rounds: int | None = None,
    alpha: float = 0.05,
    labellings: int = LABELLINGS,
    seed: int = 1,
) -> PooledRatio:
    """Compare one measure of two arms over many nodes.

    Args:
        log_ratios: For each node the logarithms of treatment over baseline of its pairs, in their
            order.
        rounds: How many of the first pairs every node that still runs has; ``None`` if none runs.
            Only these count for the interval that always holds.
        alpha: The chance that this interval leaves out the true ratio.
        labellings: How many labellings of the pairs are drawn, where there are more than that.
        seed: Seeds their drawing.

    Raises:
        MeasureError: If no node has a pair.
    """
    arrays = [np.asarray(one, dtype=np.float64) for one in log_ratios]
    nodes = [one for one in arrays if one.size]
    if not nodes:
        raise MeasureError(
            "No node has a pair with a value of both arms.",
            next_step="Let the experiment run longer.",
        )
    means = np.array([one.mean() for one in nodes])
    # The mean over nodes of the means over their pairs is the sum of these parts.
    parts = np.concatenate([one / (one.size * len(nodes)) for one in nodes])
    return PooledRatio(
        ratio=mean_interval(means),
        always=_always(nodes, rounds, alpha),
        p_value=randomisation_p(parts, labellings=labellings, seed=seed),
        nodes=len(nodes),
        pairs=sum(one.size for one in nodes),
        nodes_differ=_nodes_differ(nodes),
    )


def mean_interval(log_ratios: Array) -> Interval:
    """The geometric mean of ratios, with the 95 % interval of Student's t.

    Args:
        log_ratios: Their logarithms, independent of each other.
    """
    mean, count = float(log_ratios.mean()), log_ratios.size
    if count < 2:
        return Interval(value=float(np.exp(mean)), low=None, high=None)
    return _interval(mean, float(log_ratios.std(ddof=1)) / np.sqrt(count), count - 1)


def _interval(mean: float, error: float, degrees: int) -> Interval:
    reach = student_975(degrees) * error
    low, value, high = (float(np.exp(mean + sign * min(reach, 50.0))) for sign in (-1, 0, 1))
    return Interval(value=value, low=low, high=high)


def _always(nodes: list[Array], rounds: int | None, alpha: float) -> Interval:
    """The interval that holds at every look, of the mean over these nodes.

    The k-th pairs of all nodes together are one value, and these values come one after the other.
    """
    most = max(one.size for one in nodes)
    whole = most if rounds is None else min(rounds, most)
    values = np.array([np.mean([one[k] for one in nodes if one.size > k]) for k in range(whole)])
    if not values.size:
        return UNKNOWN
    low, high = (float(bounds[-1]) for bounds in mean_sequence(values, alpha=alpha))
    return Interval(
        value=float(np.exp(values.mean())),
        low=float(np.exp(low)) if np.isfinite(low) else None,
        high=float(np.exp(high)) if np.isfinite(high) else None,
    )


def _nodes_differ(nodes: list[Array]) -> NodesDiffer | None:
    """Compare the nodes of which the noise is known: at least two pairs that vary."""
    known = [one for one in nodes if one.size > 1 and np.ptp(one) > _SAME]
    if len(known) < 2:
        return None
    means = np.array([one.mean() for one in known])
    noise = np.mean([one.var(ddof=1) / one.size for one in known])
    between = float(means.var(ddof=1))
    spread = float(np.sqrt(max(between - noise, 0.0)))
    error = float(np.sqrt(spread**2 + between / len(known)))
    return NodesDiffer(
        p_value=same_mean_p(known),
        spread=spread,
        another=_interval(float(means.mean()), error, len(known) - 1),
    )


def same_mean_p(samples: Sequence[Array]) -> float:
    """The p-value of Alexander and Govern's test that samples have the same mean.

    Their Student's t about the common mean are made normal, and squared and added up.

    Args:
        samples: At least two, each of at least two values that vary.
    """
    means = np.array([one.mean() for one in samples])
    variances = np.array([one.var(ddof=1) / one.size for one in samples])
    degrees = np.array([one.size - 1.0 for one in samples])
    t = (means - np.average(means, weights=1.0 / variances)) / np.sqrt(variances)
    a = degrees - 0.5
    b = 48.0 * a**2
    c = np.sqrt(a * np.log1p(t**2 / degrees))
    normal = (
        c
        + (c**3 + 3.0 * c) / b
        - (4.0 * c**7 + 33.0 * c**5 + 240.0 * c**3 + 855.0 * c)
        / (10.0 * b**2 + 8.0 * b * c**4 + 1000.0 * b)
    )
    return _chi_square_above(float(normal @ normal), len(samples) - 1)


def _chi_square_above(value: float, degrees: int) -> float:
    """The chance that a chi-square variable is above ``value``."""
    half = value / 2.0
    if half == 0.0:
        return 1.0
    odd = degrees % 2
    powers = (k + odd / 2.0 for k in range(degrees // 2))
    terms = (math.exp(a * math.log(half) - half - math.lgamma(a + 1.0)) for a in powers)
    return sum(terms, math.erfc(math.sqrt(half)) if odd else 0.0)


def unevenly_lost_p(only_baseline: int, only_treatment: int) -> float:
    """The chance that arms that lose blocks alike lose them as unevenly as here.

    Which block of a pair came first was drawn, so if the arm does not matter, each pair that lost
    one block is as likely to have lost either (McNemar's exact test). Nodes that lose more blocks
    than others, or several in a row, do not change that.

    Args:
        only_baseline: How many pairs lost the block of the baseline and not the other.
        only_treatment: The reverse.
    """
    lost = only_baseline + only_treatment
    as_few = sum(math.comb(lost, k) for k in range(min(only_baseline, only_treatment) + 1))
    return min(1.0, 2 * as_few / (1 << lost))
