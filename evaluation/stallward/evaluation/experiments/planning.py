"""How many pairs of blocks an experiment needs on a node, from a recording of it. Pure.

The recording is cut into blocks as the experiment would, and neighbouring blocks are paired. Both
ran the same controller, so what differs between them is what an effect has to stand out from.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.actuator.experiments.plan import PrimaryMeasure
from stallward.env.recording.recording import Recording
from stallward.evaluation.errors import MeasureError
from stallward.evaluation.experiments.analysis import LEAST_FIXED, LEAST_LOOKS
from stallward.evaluation.measures.block_measures import (
    WINDOW_S,
    BlockMeasures,
    BlockSeries,
    Progress,
    reduce,
    series_of,
)
from stallward.evaluation.measures.bootstrap import Array
from stallward.evaluation.measures.intervals import (
    POWER,
    every_labelling,
    mean_sequence,
    rounds_for,
)

LEAST_PAIRS: Final = 4
"""From fewer pairs the spread is not estimated."""
LEAST_BURN_IN_S: Final = 10.0
MIXING_TIMES: Final = 1.5
"""The burn-in in mixing times: an integrated autocorrelation time is twice the time constant of
forgetting, and after three time constants a twentieth of the state before is left."""
_MOST_ENUMERATED: Final = 13
"""With more pairs a report draws labellings, and the power is nearly that of the t-test."""
_EXPERIMENTS: Final = 2000
_MOST_PAIRS: Final = 1000


def series_of_experiment(recording: Recording) -> BlockSeries:
    """The series of a recording, with the work by which an experiment on its node would judge.

    Groups that count their work in different units have no sum, so processor time counts then.
    """
    series = series_of(recording)
    groups = range(len(series.progress))
    if len(groups) < 2 or len(set(recording.run.slot_units)) == 1:
        return series
    return replace(series, progress=tuple(_processor_time(recording, k) for k in groups))


def _processor_time(recording: Recording, slot: int) -> Progress:
    """The processor time of a group; where the counter began again, it has not grown."""
    counted_us = recording.tick(f"slot{slot}_cpu_usage_us")
    known = np.isfinite(counted_us)
    grown_us = np.diff(counted_us[known], prepend=counted_us[known][:1]).clip(0.0)
    return Progress(time_s=recording.tick("time_s")[known], units=1e-6 * np.cumsum(grown_us))


def value_of(measure: PrimaryMeasure, block: BlockMeasures) -> float:
    """The value of a measure in a block, as an experiment would find it; NaN if it is unknown."""
    match measure:
        case PrimaryMeasure.WORK:
            return float(block.units.sum()) / block.windows if block.units.size else math.nan
        case PrimaryMeasure.BLOCK_P95:
            return _quantile(block.latency_ms, 0.95)
        case PrimaryMeasure.BLOCK_P99:
            return _quantile(block.latency_ms, 0.99)
    p95s_ms = np.array([_quantile(one, 0.95) for one in block.latency_windows() if one.size])
    if measure is PrimaryMeasure.WORST:
        return _quantile(p95s_ms, 0.95)
    logs = np.log(np.maximum(p95s_ms, 1e-3))
    return float(np.exp(np.mean(logs))) if logs.size else math.nan


def _quantile(values: Array, q: float) -> float:
    return float(np.quantile(values, q)) if values.size else math.nan


@dataclass(frozen=True, slots=True, kw_only=True)
class PairSpread:
    """How much paired blocks differ although they ran the same controller."""

    measure: PrimaryMeasure
    spread: float
    """Standard deviation over pairs of the logarithm of the ratio of both blocks."""
    pairs: int
    """How many pairs it comes from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairPlan:
    """How many pairs show an effect with a chance of :data:`~...power.POWER`."""

    effect: float
    """The effect: 0.1 is 10 % more, -0.1 is 10 % less."""
    fixed_pairs: int | None
    """Pairs if their number is fixed before; ``None`` if a thousand are too few."""
    sequential_pairs: int | None
    """The most pairs to allow if the experiment stops as soon as the effect is certain."""
    typical_pairs: int | None
    """Pairs after which half of such experiments have stopped."""


def blocks_of(
    series: BlockSeries, *, block_s: float, burn_in_s: float
) -> tuple[BlockMeasures, ...]:
    """Cut a recording into blocks, each after its burn-in."""
    length_s = burn_in_s + block_s
    count = int((series.end_s - series.start_s) / length_s + 1e-9)
    starts = [series.start_s + k * length_s + burn_in_s for k in range(count)]
    return tuple(reduce(replace(series, start_s=at, end_s=at + block_s)) for at in starts)


def pair_spread(blocks: tuple[BlockMeasures, ...], measure: PrimaryMeasure) -> PairSpread:
    """The spread between neighbouring blocks.

    Raises:
        MeasureError: If there are fewer than :data:`LEAST_PAIRS` pairs with known values, or the
            measure is work and the recordings are of different groups.
    """
    # A recording from a time in which the background was idle has no group.
    if measure is PrimaryMeasure.WORK and len({block.units.shape[1] for block in blocks}) > 1:
        raise MeasureError(
            "The recordings have different numbers of background groups.",
            next_step="Plan by recordings of one configuration.",
        )
    values = np.array([value_of(measure, block) for block in blocks])
    pairs = values[: values.size // 2 * 2].reshape(-1, 2)
    pairs = pairs[(np.isfinite(pairs) & (pairs > 0.0)).all(axis=1)]
    if len(pairs) < LEAST_PAIRS:
        raise MeasureError(
            f"{len(pairs)} pairs of blocks with a known {measure} are too few to plan by.",
            next_step=f"Record {2 * LEAST_PAIRS} blocks or more, or plan shorter ones.",
        )
    differences = np.diff(np.log(pairs), axis=1)
    return PairSpread(
        measure=measure, spread=float(np.sqrt(np.mean(np.square(differences)))), pairs=len(pairs)
    )


def plan_pairs(spread: float, effect: float, *, alpha: float = 0.05, seed: int = 1) -> PairPlan:
    """How many pairs show an effect.

    Args:
        spread: Standard deviation over pairs of the logarithm of the ratio.
        effect: The effect, above -1 and not 0.
        alpha: The chance of a false alarm.
        seed: Seeds the simulated experiments.
    """
    if spread == 0.0:
        return PairPlan(
            effect=effect,
            fixed_pairs=LEAST_FIXED,
            sequential_pairs=LEAST_LOOKS,
            typical_pairs=LEAST_LOOKS,
        )
    shift = abs(math.log1p(effect))
    fixed = _fixed_pairs(shift, spread, alpha=alpha, seed=seed)
    if fixed is None:
        return PairPlan(effect=effect, fixed_pairs=None, sequential_pairs=None, typical_pairs=None)
    # A sequence needs less than three times as many pairs as a test at a number fixed before.
    looks = min(4 * fixed + 20, _MOST_PAIRS)
    rng = np.random.default_rng(seed)
    low, _ = mean_sequence(rng.normal(shift, spread, size=(_EXPERIMENTS, looks)), alpha=alpha)
    found = np.maximum.accumulate(low > 0.0, axis=1).mean(axis=0)
    return PairPlan(
        effect=effect,
        fixed_pairs=fixed,
        sequential_pairs=_first(found >= POWER),
        typical_pairs=_first(found >= 0.5),
    )


def _fixed_pairs(shift: float, spread: float, *, alpha: float, seed: int) -> int | None:
    """The fewest pairs of which a report calls the effect significant often enough."""
    by_t = rounds_for(math.expm1(shift), spread)
    if by_t is None:
        return None
    pairs = max(by_t, LEAST_FIXED)
    while pairs <= _MOST_ENUMERATED and _power(pairs, shift, spread, alpha, seed) < POWER:
        pairs += 1
    return pairs


def _power(pairs: int, shift: float, spread: float, alpha: float, seed: int) -> float:
    """The chance that the randomisation test over every labelling shows the effect."""
    differences = np.random.default_rng(seed).normal(shift, spread, size=(_EXPERIMENTS, pairs))
    signs = every_labelling(pairs).T
    shown = 0
    for some in np.split(differences, _EXPERIMENTS // 100):  # all sums need much memory
        least = np.abs(some.sum(axis=1, keepdims=True)) * (1.0 - 1e-9)
        shown += int((2.0 * np.mean(some @ signs >= least, axis=1) <= alpha).sum())
    return shown / _EXPERIMENTS


def _first(reached: NDArray[np.bool]) -> int | None:
    return int(np.argmax(reached)) + 1 if reached.any() else None


def mixing_time_s(values: Array, step_s: float) -> float:
    """The integrated autocorrelation time of a series, in seconds.

    It sums the autocorrelations up to the first lag that is as long as five times the sum so far
    (Sokal's window), and counts unknown values as the mean.

    Args:
        values: The series, one value for each step.
        step_s: The time between two values.
    """
    known = values[np.isfinite(values)]
    if known.size < 3 or np.ptp(known) == 0.0:
        return step_s
    centred = np.where(np.isfinite(values), values - known.mean(), 0.0)
    size = centred.size
    transformed = np.fft.rfft(centred, 2 * size)
    correlation = np.fft.irfft(transformed * np.conj(transformed))[:size]
    times = 1.0 + 2.0 * np.cumsum(correlation[1:] / correlation[0])
    lags = np.arange(1, size)
    window = np.flatnonzero(lags >= 5.0 * times)
    return float(max(times[window[0]] if window.size else times[-1], 1.0)) * step_s


def burn_in_for(mixing_s: float) -> float:
    """The burn-in for a mixing time, in whole seconds."""
    return float(math.ceil(max(MIXING_TIMES * mixing_s, LEAST_BURN_IN_S)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentNeeds:
    """What an experiment on a node needs to show an effect."""

    measure: PrimaryMeasure
    block_s: float
    burn_in_s: float
    mixing_s: float
    """The mixing time of the application's p95."""
    spread: PairSpread
    pairs: PairPlan

    def length_s(self, pairs: int) -> float:
        """How long a number of pairs takes."""
        return 2.0 * pairs * (self.block_s + self.burn_in_s)


def plan_experiment(
    series: Sequence[BlockSeries],
    measure: PrimaryMeasure,
    effect: float,
    *,
    block_s: float = 60.0,
    burn_in_s: float | None = None,
) -> ExperimentNeeds:
    """Say what an experiment needs, from recordings of the node it is to run on.

    Args:
        series: The recordings, each under one controller.
        measure: The primary measure.
        effect: The effect to show: 0.1 is 10 % more, -0.1 is 10 % less.
        block_s: The measured length of a block.
        burn_in_s: The burn-in before each block; ``None`` takes it from the mixing time.

    Raises:
        MeasureError: If the recordings are too short, or the effect is none.
    """
    if not -1.0 < effect < math.inf or effect == 0.0:
        raise MeasureError(
            f"An effect of {effect:g} cannot be shown.",
            next_step="Give a share: 0.1 is 10 % more, -0.1 is 10 % less.",
        )
    whole = [reduce(one) for one in series]
    mixing_s = max((_p95_mixing_s(one) for one in whole), default=WINDOW_S)
    burn_in_s = burn_in_for(mixing_s) if burn_in_s is None else burn_in_s
    blocks = [
        block
        for one in series
        for block in _even(blocks_of(one, block_s=block_s, burn_in_s=burn_in_s))
    ]
    spread = pair_spread(tuple(blocks), measure)
    return ExperimentNeeds(
        measure=measure,
        block_s=block_s,
        burn_in_s=burn_in_s,
        mixing_s=mixing_s,
        spread=spread,
        pairs=plan_pairs(spread.spread, effect),
    )


def _even(blocks: tuple[BlockMeasures, ...]) -> tuple[BlockMeasures, ...]:
    """An even number of blocks: a pair must not reach into the next recording."""
    return blocks[: len(blocks) // 2 * 2]


def _p95_mixing_s(block: BlockMeasures) -> float:
    windows = block.latency_windows()
    p95s = [_quantile(one, 0.95) for one in windows]
    return mixing_time_s(np.log(np.array(p95s)), WINDOW_S)
