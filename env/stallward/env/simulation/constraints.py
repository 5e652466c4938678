"""What a policy may cost the application: what comparisons hold against it, measured on the twin.

Three shares: windows that miss the target, by how much the mean latency is longer than with ample
memory, and requests slower than 1.15 times the p99 with ample memory. Prices in training and the
scores that choose between policies or thresholds are all about what exceeds them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from stallward.agent.desired import ACTION_SIZES
from stallward.env.objective import SUFFERED, TAIL, Array
from stallward.env.simulation.simulation import Simulation, SimulationSettings
from stallward.env.twin.inputs.fitted import FittedTwin
from stallward.env.twin.physics.latency import pooled_quantiles

BURN_IN_STEPS: Final = 25
"""Decisions before anything is measured."""
_NODES: Final = 128
_PLENTY: Final = 20.0
"""So many times its memory is ample for any zone."""
_AMPLE_STEPS: Final = 200
_NO_ACTION: Final = np.zeros(len(ACTION_SIZES), dtype=np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ample:
    """The application with memory for everybody, one entry a twin."""

    usual_ms: Array
    """Mean latency."""
    p99_ms: Array
    windows: Array
    """Share of windows that miss the target all the same."""

    def only(self, which: slice) -> Ample:
        """That of some of the twins."""
        return Ample(
            usual_ms=self.usual_ms[which],
            p99_ms=self.p99_ms[which],
            windows=self.windows[which],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraints:
    """What is allowed on some twins.

    Args:
        ample: What it is measured against.
        allowed: Each of ``SUFFERED``, ``(len(SUFFERED), len(twins))``.
    """

    ample: Ample
    allowed: Array

    def only(self, which: slice) -> Constraints:
        """Those of some of the twins."""
        return Constraints(ample=self.ample.only(which), allowed=self.allowed[:, which])

    def one(self, index: int) -> Constraints:
        """Those of one of the twins."""
        return self.only(slice(index, index + 1))

    def simulate(
        self,
        twins: Sequence[FittedTwin],
        batch: int,
        settings: SimulationSettings,
        *,
        seed: int,
    ) -> Simulation:
        """``batch`` nodes without end, whose requests are held against these."""
        return simulate(twins, batch, settings, self.ample, seed=seed)

    def as_json(self, names: Sequence[str]) -> dict[str, dict[str, float]]:
        """By the twins' names."""
        return {
            name: dict(zip(SUFFERED, self.allowed[:, k].tolist(), strict=True))
            for k, name in enumerate(names)
        }


def measure_ample(
    twins: Sequence[FittedTwin], settings: SimulationSettings, *, seed: int
) -> Ample:
    """The application beside a background that leaves it all the memory it wants."""
    each = [_ample(twin, settings, seed) for twin in twins]
    return Ample(
        usual_ms=np.concatenate([one.usual_ms for one in each]),
        p99_ms=np.concatenate([one.p99_ms for one in each]),
        windows=np.concatenate([one.windows for one in each]),
    )


def _ample(twin: FittedTwin, settings: SimulationSettings, seed: int) -> Ample:
    simulation = Simulation([twin], _NODES, replace(settings, episode_s=1e6), seed=seed)
    simulation.reset(np.ones(_NODES, dtype=bool))
    simulation.twin.nodes.zone_pages = _PLENTY * simulation.twin.nodes.zone_pages
    idle = np.tile(_NO_ACTION, (_NODES, 1))
    for _ in range(BURN_IN_STEPS):
        simulation.step(idle)
    before = simulation.twin.pooled
    steps = [simulation.step(idle) for _ in range(_AMPLE_STEPS)]
    answered = (simulation.twin.pooled - before).sum(axis=1, keepdims=True)
    usual_ms = float(simulation.terms.usual_ms[0])
    excess = float(np.mean([step.excess.mean() for step in steps]))
    return Ample(
        usual_ms=np.array([usual_ms * (1.0 + excess)]),
        p99_ms=pooled_quantiles(answered, (0.99,))[0, :1],
        windows=np.array([np.mean([step.window_violated.mean() for step in steps])]),
    )


def simulate(
    twins: Sequence[FittedTwin],
    batch: int,
    settings: SimulationSettings,
    ample: Ample,
    *,
    seed: int,
    draws: int | None = None,
) -> Simulation:
    """``batch`` nodes without end, whose requests are held against ample memory.

    Args:
        twins: Where they are drawn from.
        batch: How many.
        settings: Budgets and nuisance.
        ample: Of the same twins.
        seed: Of the draws.
        draws: How many are different, see
        :class:`~stallward.env.simulation.simulation.Simulation`.
    """
    endless = replace(settings, episode_s=1e6)
    simulation = Simulation(twins, batch, endless, seed=seed, draws=draws)
    set_standards(simulation, ample)
    simulation.reset(np.ones(batch, dtype=bool))
    return simulation


def set_standards(simulation: Simulation, ample: Ample) -> None:
    """Hold the requests of a simulation of the same twins against ample memory."""
    simulation.terms.usual_ms[:] = ample.usual_ms
    simulation.terms.slow_ms[:] = TAIL * ample.p99_ms
