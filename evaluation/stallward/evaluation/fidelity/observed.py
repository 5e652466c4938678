"""What an arm did on the node, or on the twin: its blocks and what they come to. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from stallward.evaluation.fidelity.signals import Signals
from stallward.evaluation.measures.block_measures import Array, BlockMeasures
from stallward.evaluation.measures.bootstrap import pooled_quantiles
from stallward.evaluation.measures.estimates import known_groups

QUANTILES: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """An arm's blocks, on the node or on the twin."""

    blocks: tuple[BlockMeasures, ...]
    own_units_per_s: Array | None
    """Each group's rate with the node (or the twin) to itself; ``None`` if not measured."""
    signals: tuple[Signals, ...] = ()
    """Of each block."""

    @property
    def latency_ms(self) -> dict[str, float]:
        """Quantiles of the pooled requests."""
        return quantiles_ms([block.latency_ms for block in self.blocks])

    @property
    def work(self) -> Array:
        """``(1,)``: background work, the mean of the groups' shares of their own rates.

        Without own rates ``(G,)``: the groups' units/s.
        """
        rate = np.concatenate([block.units for block in self.blocks]).mean(axis=0)
        return self._relative(np.asarray(rate, dtype=np.float64))

    def work_of(self, windows: Array) -> float:
        """Background work in some seconds, rows of units ``(W, G)``; NaN without own rates."""
        if self.own_units_per_s is None or not len(windows):
            return float("nan")
        return float(self._relative(windows.mean(axis=0))[0])

    def parts(self) -> list[tuple[dict[str, float], Array]]:
        """Latencies and work of the first two blocks, or of the halves of the only one."""
        if len(self.blocks) >= 2:
            return [
                (part.latency_ms, part.work)
                for part in (replace(self, blocks=(block,)) for block in self.blocks[:2])
            ]
        only = self.blocks[0]
        late = only.scheduled_s >= only.duration_s / 2
        half = only.windows // 2
        return [
            (quantiles_ms([only.latency_ms[mine]]), self._relative(units.mean(axis=0)))
            for mine, units in ((~late, only.units[:half]), (late, only.units[half:]))
        ]

    def _relative(self, rate: Array) -> Array:
        own = self.own_units_per_s
        if own is None or own.shape != rate.shape:
            return rate
        known = known_groups(rate, own)
        return np.array([(rate[known] / own[known]).mean() if known.any() else np.nan])


def quantiles_ms(pools: Sequence[Array]) -> dict[str, float]:
    """:data:`QUANTILES` of all latencies together; NaN without any."""
    values = pooled_quantiles(pools, list(QUANTILES.values()))
    return {name: float(value) for name, value in zip(QUANTILES, values, strict=True)}
