"""Confidence sequences: intervals that hold at every look, so that an experiment may stop early.

An ordinary 95 % interval that is looked at after every pair of blocks leaves out the true value
sooner or later far more often than in 5 of 100 experiments. A confidence sequence does so in at
most 5 of 100, however often one looks and whenever one stops (Ville's inequality).

This one is of the mean of a normal quantity whose spread is unknown: the values of the mean that a
Bayesian t-test does not reject. Under the test's prior the standardised effect is normal, and the
spread has the right Haar prior, with which the Bayes factor is a martingale whatever the spread is
(Pérez-Ortiz, Lardy, de Heide and Grünwald, Annals of Statistics 52(4), 2024).
"""

from __future__ import annotations

import numpy as np

from stallward.actuator.sequential import PRIOR_EFFECT, critical_t
from stallward.evaluation.measures.bootstrap import Array


def mean_sequence(values: Array, *, alpha: float = 0.05) -> tuple[Array, Array]:
    """The interval of the mean after each value.

    Args:
        values: Independent values of one normal distribution, in the order in which they came;
            shape ``(..., n)`` for several experiments at once.
        alpha: The chance that any of the intervals leaves out the mean.

    Returns:
        The lower and the upper bounds, each of the shape of ``values``; infinite as long as too
        few values came.
    """
    count = np.arange(1, values.shape[-1] + 1, dtype=np.float64)
    critical = np.array([critical_t(n, alpha) for n in range(1, values.shape[-1] + 1)])
    mean = np.cumsum(values, axis=-1) / count
    squares = np.cumsum(np.square(values), axis=-1) - count * np.square(mean)
    with np.errstate(divide="ignore", invalid="ignore"):
        error = np.sqrt(np.maximum(squares, 0.0) / (count - 1.0) / count)
        reach = np.where(count > 1.0, critical * error, np.inf)
    reach = np.where(np.isnan(reach), np.inf, reach)
    return mean - reach, mean + reach


def evidence(t: Array, count: Array) -> Array:
    """The Bayes factor of a t statistic: the evidence that the mean is not the one assumed.

    Args:
        t: The t statistic: the mean less the one assumed, over its standard error.
        count: How many values it comes from, at least 2.
    """
    spread = 1.0 + count * PRIOR_EFFECT**2
    grown = (1.0 + np.square(t) / (count - 1.0)) / (1.0 + np.square(t) / ((count - 1.0) * spread))
    return np.asarray(grown ** (count / 2.0) / np.sqrt(spread))
