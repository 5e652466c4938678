"""The blocks of an arm on the node or on the twin, and their figures. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.evaluation.measures.block_measures import Array, BlockMeasures
from stallward.evaluation.measures.bootstrap import pooled_quantiles
from stallward.evaluation.measures.estimates import known_groups
from stallward.research.fidelity.signals import Signals

QUANTILES: Final = (0.5, 0.95, 0.99)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantilesMs:
    """Quantiles of latency in milliseconds; NaN if there was no request."""

    p50: float
    p95: float
    p99: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Half:
    """Latency and work of one half of the observations of an arm."""

    latency_ms: QuantilesMs
    work: Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """An arm's blocks, on the node or on the twin."""

    blocks: tuple[BlockMeasures, ...]
    own_units_per_s: Array | None
    """The rate of each group when the background has the node (or the twin) to itself; ``None`` if
    that was not measured."""
    signals: tuple[Signals, ...] = ()
    """The signals of each block."""

    @property
    def latency_ms(self) -> QuantilesMs:
        """Quantiles of the requests of all blocks together."""
        return quantiles_ms([block.latency_ms for block in self.blocks])

    @property
    def work(self) -> Array:
        """Background work, ``(1,)``: the mean over groups of rate over own rate.

        Without own rates: the units per second of each group, ``(G,)``.
        """
        rate = np.concatenate([block.units for block in self.blocks]).mean(axis=0)
        return self._relative(np.asarray(rate, dtype=np.float64))

    def work_of(self, windows: Array) -> float:
        """Background work in some windows, given as units ``(W, G)``; NaN without own rates."""
        if self.own_units_per_s is None or not len(windows):
            return float("nan")
        return float(self._relative(windows.mean(axis=0))[0])

    def halves(self) -> tuple[Half, Half]:
        """Latency and work of the first two blocks, or of the two halves of a single block."""
        if len(self.blocks) >= 2:
            one, two = (replace(self, blocks=(block,)) for block in self.blocks[:2])
            return (
                Half(latency_ms=one.latency_ms, work=one.work),
                Half(latency_ms=two.latency_ms, work=two.work),
            )
        only = self.blocks[0]
        late = only.scheduled_s >= only.duration_s / 2
        middle = only.windows // 2

        def half(requests: NDArray[np.bool_], units: Array) -> Half:
            return Half(
                latency_ms=quantiles_ms([only.latency_ms[requests]]),
                work=self._relative(units.mean(axis=0)),
            )

        return half(~late, only.units[:middle]), half(late, only.units[middle:])

    def _relative(self, rate: Array) -> Array:
        own = self.own_units_per_s
        if own is None or own.shape != rate.shape:
            return rate
        known = known_groups(rate, own)
        return np.array([(rate[known] / own[known]).mean() if known.any() else np.nan])


def quantiles_ms(pools: Sequence[Array]) -> QuantilesMs:
    """The quantiles of all latencies of the pools together."""
    p50, p95, p99 = (float(value) for value in pooled_quantiles(pools, QUANTILES))
    return QuantilesMs(p50=p50, p95=p95, p99=p99)
