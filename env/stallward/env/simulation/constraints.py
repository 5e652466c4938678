"""The constraints: how much the application may suffer under a policy, for each twin.

There are three, as in ``SUFFERED``: the share of windows that miss the target, the excess of the
mean latency over that with ample memory, and the share of requests slower than 1.15 times the p99
with ample memory. The prices in training and the scores that choose between policies or
thresholds all count what exceeds them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.env.objective import SLOW_RATIO, SUFFERED, Array
from stallward.env.simulation.simulation import Simulation, SimulationSettings
from stallward.env.twin.batch import TICK_S
from stallward.env.twin.inputs.fitted import FittedTwin
from stallward.env.twin.physics.latency import pooled_mean_ms, pooled_quantiles
from stallward.env.twin.physics.others import MOST_OTHERS

BURN_IN_S: Final = 5.0
"""The time of a run before the measurement begins."""
_NODES: Final = 128
_AMPLE_RATIO: Final = 20.0
"""The factor on a zone's memory that makes it ample."""
_AMPLE_S: Final = 40.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ample:
    """Figures of the application with ample memory, one entry for each twin."""

    mean_ms: Array
    """Mean latency: the latency baseline of the reward."""
    p99_ms: Array
    windows: Array
    """Share of windows that miss the target even so."""
    others_mean_ms: Array
    """The same of the further applications, ``(MOST_OTHERS, twins)``; NaN where there is none."""
    others_p99_ms: Array

    def only(self, which: slice) -> Ample:
        """Return the figures of some of the twins."""
        return Ample(
            mean_ms=self.mean_ms[which],
            p99_ms=self.p99_ms[which],
            windows=self.windows[which],
            others_mean_ms=self.others_mean_ms[:, which],
            others_p99_ms=self.others_p99_ms[:, which],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraints:
    """The constraints on some twins."""

    ample: Ample
    """The figures that latencies are compared with."""
    allowed: Array
    """The allowance for each of ``SUFFERED``, ``(len(SUFFERED), len(twins))``."""

    def only(self, which: slice) -> Constraints:
        """Return the constraints on some of the twins."""
        return Constraints(ample=self.ample.only(which), allowed=self.allowed[:, which])

    def one(self, index: int) -> Constraints:
        """Return the constraints on one of the twins."""
        return self.only(slice(index, index + 1))

    def simulate(
        self,
        twins: Sequence[FittedTwin],
        batch: int,
        settings: SimulationSettings,
        *,
        seed: int,
    ) -> Simulation:
        """Call :func:`simulate` with the figures that these constraints compare with."""
        return simulate(twins, batch, settings, self.ample, seed=seed)

    def as_json(self, names: Sequence[str]) -> dict[str, dict[str, float]]:
        """The allowances by the names of the twins."""
        return {
            name: dict(zip(SUFFERED, self.allowed[:, k].tolist(), strict=True))
            for k, name in enumerate(names)
        }


def measure_ample(
    twins: Sequence[FittedTwin], settings: SimulationSettings, *, seed: int
) -> Ample:
    """Measure the application beside a background, with memory enough for all."""
    measured = [_ample(twin, settings, seed) for twin in twins]
    return Ample(
        mean_ms=np.concatenate([ample.mean_ms for ample in measured]),
        p99_ms=np.concatenate([ample.p99_ms for ample in measured]),
        windows=np.concatenate([ample.windows for ample in measured]),
        others_mean_ms=np.concatenate([ample.others_mean_ms for ample in measured], axis=1),
        others_p99_ms=np.concatenate([ample.others_p99_ms for ample in measured], axis=1),
    )


def steps_in(seconds: float, settings: SimulationSettings) -> int:
    """How many decisions there are in a time."""
    return round(seconds / (TICK_S * settings.ticks_per_action))


def hold(simulation: Simulation, actions: NDArray[np.int64], steps: int) -> Array:
    """Take the same actions for some decisions.

    Args:
        simulation: The nodes.
        actions: The action of each node.
        steps: How many decisions.

    Returns:
        The means of progress, then of each of ``SUFFERED``, ``(1 + len(SUFFERED), B)``.
    """
    sums = np.zeros((1 + len(SUFFERED), simulation.batch))
    for _ in range(steps):
        result = simulation.step(actions)
        sums += (result.progress, *result.suffered)
    return sums / steps


def _ample(twin: FittedTwin, settings: SimulationSettings, seed: int) -> Ample:
    simulation = Simulation([twin], _NODES, replace(settings, episode_s=1e6), seed=seed)
    simulation.reset(np.ones(_NODES, dtype=bool))
    simulation.twin.nodes.zone_pages = _AMPLE_RATIO * simulation.twin.nodes.zone_pages
    idle = np.zeros((_NODES, len(simulation.table.sizes)), dtype=np.int64)
    for _ in range(steps_in(BURN_IN_S, settings)):
        simulation.step(idle)
    applications = range(1 + len(twin.scenario.others))
    before = [simulation.twin.pooled_of(a) for a in applications]
    steps = [simulation.step(idle) for _ in range(steps_in(_AMPLE_S, settings))]
    answered = [
        (simulation.twin.pooled_of(a) - before[a]).sum(axis=1, keepdims=True) for a in applications
    ]
    baseline_ms = float(simulation.terms.baseline_ms[0])
    mean_ms = baseline_ms * (1.0 + float(np.mean([step.excess.mean() for step in steps])))
    others_ms = np.full((2, MOST_OTHERS, 1), np.nan)
    if twin.scenario.others:  # the excess is that of the worst one
        mean_ms = pooled_mean_ms(answered[0][:, 0])
        for a, own in enumerate(answered[1:]):
            p99_ms = pooled_quantiles(own, (0.99,))[0, 0]
            others_ms[:, a, 0] = pooled_mean_ms(own[:, 0]), p99_ms
    return Ample(
        mean_ms=np.array([mean_ms]),
        p99_ms=pooled_quantiles(answered[0], (0.99,))[0, :1],
        windows=np.array([np.mean([step.window_violated.mean() for step in steps])]),
        others_mean_ms=others_ms[0],
        others_p99_ms=others_ms[1],
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
    """Simulate ``batch`` nodes in endless episodes, and compare their latencies with ``ample``.

    Args:
        twins: The twins that nodes are drawn from.
        batch: How many nodes.
        settings: Budgets and nuisance.
        ample: Figures of the same twins with ample memory.
        seed: Everything random follows from it.
        draws: How many nodes have random numbers of their own; see
            :class:`~stallward.env.simulation.simulation.Simulation`.
    """
    endless = replace(settings, episode_s=1e6)
    simulation = Simulation(twins, batch, endless, seed=seed, draws=draws)
    set_reference_latencies(simulation, ample)
    simulation.reset(np.ones(batch, dtype=bool))
    return simulation


def set_reference_latencies(simulation: Simulation, ample: Ample) -> None:
    """Take the latency baseline and the latency of slow requests from ``ample``.

    Args:
        simulation: The simulation.
        ample: Figures of its twins with ample memory.
    """
    simulation.terms.baseline_ms[:] = ample.mean_ms
    simulation.terms.slow_ms[:] = SLOW_RATIO * ample.p99_ms
    there = np.isfinite(ample.others_mean_ms)
    simulation.terms.others_baseline_ms[there] = ample.others_mean_ms[there]
    simulation.terms.others_slow_ms[there] = SLOW_RATIO * ample.others_p99_ms[there]
