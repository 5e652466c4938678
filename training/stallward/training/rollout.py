"""Evaluation on the twin: policies and settings side by side, with lower confidence bounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from stallward.agent.desired import ACTION_SIZES, LIMIT_RATIOS, PROFILES, SLOTS
from stallward.env.simulation import NO_NUISANCE, Simulation, SimulationSettings
from stallward.env.twin.fitted import FittedTwin

Act = Callable[[NDArray[np.float32]], NDArray[np.int64]]
"""Observations ``(N, OBSERVATION_SIZE)`` to actions ``(N, len(ACTION_SIZES))``."""
_Z95: Final = 1.645
_BURN_IN_STEPS: Final = 25
_PENALTY: Final = 2.0
"""Full background speed is worth half of all windows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a policy did on the twin, means over episodes."""

    score: float
    """Background progress less a penalty for violated windows beyond the allowed share."""
    score_low: float
    """One-sided 95 % lower confidence bound of it, over episodes (each its own draw)."""
    progress: float
    violated: float
    window_violated: float
    switches_per_s: float

    def as_json(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)


def evaluate(
    act: Act,
    twins: Sequence[FittedTwin],
    settings: SimulationSettings,
    *,
    allowed: NDArray[np.float64],
    episodes: int,
    seed: int,
    seconds: float = 40.0,
    watch: Callable[[NDArray[np.float32]], None] | None = None,
) -> Outcome:
    """Run ``act`` on ``episodes`` nodes drawn from ``twins`` for ``seconds`` after a burn-in.

    Args:
        act: The policy.
        twins: Where nodes are drawn from.
        settings: Budgets and nuisance.
        allowed: Share of windows over the target that costs nothing, ``(len(twins),)``.
        episodes: Nodes.
        seed: The same seed draws the same nodes for every policy.
        seconds: How long each runs.
        watch: Called with every batch of observations.
    """
    simulation = Simulation(twins, episodes, replace(settings, episode_s=1e6), seed=seed)
    simulation.reset(np.ones(episodes, dtype=bool))
    observation = simulation.observation
    total = rollout_steps(seconds, settings)
    steps = total - _BURN_IN_STEPS
    sums = np.zeros((4, episodes))
    for k in range(total):
        result = simulation.step(act(observation))
        observation = result.observation
        if watch is not None:
            watch(observation)
        if k >= _BURN_IN_STEPS:
            sums += (result.progress, result.violated, result.window_violated, result.moved)
    progress, violated, windows, moved = sums / steps
    scores = constrained_score(progress, windows, allowed[simulation.scenario])
    spread = float(scores.std(ddof=1) / np.sqrt(episodes)) if episodes > 1 else 0.0
    return Outcome(
        score=float(scores.mean()),
        score_low=float(scores.mean()) - _Z95 * spread,
        progress=float(progress.mean()),
        violated=float(violated.mean()),
        window_violated=float(windows.mean()),
        switches_per_s=float(moved.mean() / (0.1 * settings.ticks_per_action)),
    )


def rollout_steps(seconds: float, settings: SimulationSettings) -> int:
    """Decisions that :func:`evaluate` spends on a node, its burn-in included."""
    return _BURN_IN_STEPS + round(seconds * 10.0 / settings.ticks_per_action)


def constrained_score(
    progress: NDArray[np.float64], windows: NDArray[np.float64], allowed: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Progress less a penalty for violated windows beyond the allowed share."""
    return np.asarray(progress - _PENALTY * np.maximum(windows - allowed, 0.0))


def alone_violation(
    twins: Sequence[FittedTwin], settings: SimulationSettings, seed: int
) -> NDArray[np.float64]:
    """Share of violated windows with no background at all: what no policy can go below.

    Returns:
        ``(len(twins),)``.
    """
    return np.array([_alone_violation(twin, settings, seed) for twin in twins])


def _alone_violation(twin: FittedTwin, settings: SimulationSettings, seed: int) -> float:
    nodes = 32
    simulation = Simulation([twin], nodes, replace(settings, nuisance=NO_NUISANCE), seed=seed)
    simulation.reset(np.ones(nodes, dtype=bool))
    simulation.twin.nodes.present = 0.0
    idle = np.zeros((nodes, len(ACTION_SIZES)), dtype=np.int64)
    return float(np.mean([simulation.step(idle).window_violated.mean() for _ in range(100)]))


def best_static(
    twins: Sequence[FittedTwin],
    settings: SimulationSettings,
    *,
    allowed: NDArray[np.float64],
    seed: int,
    candidates: int = 64,
) -> NDArray[np.int64]:
    """The best static setting on the twin: the tuned rule that a policy must beat.

    Uniform limits first, then random ones per slot, all on the same nodes.
    """
    rng = np.random.default_rng(seed)
    uniform = [
        _static_action((level,) * SLOTS, profile, paused=paused)
        for level in range(len(LIMIT_RATIOS))
        for profile in range(len(PROFILES))
        for paused in (False, True)
    ]
    mixed = [
        _static_action(
            tuple(int(v) for v in rng.integers(len(LIMIT_RATIOS), size=SLOTS)),
            int(rng.integers(len(PROFILES))),
            paused=False,
        )
        for _ in range(max(candidates - len(uniform), 0))
    ]
    actions = np.array(uniform + mixed, dtype=np.int64)
    nodes = 12
    simulation = Simulation(
        twins, len(actions) * nodes, replace(settings, episode_s=1e6), seed=seed
    )
    simulation.reset(np.ones(simulation.batch, dtype=bool))
    tiled = np.repeat(actions, nodes, axis=0)
    sums = np.zeros((2, simulation.batch))
    for k in range(125):
        result = simulation.step(tiled)
        if k >= _BURN_IN_STEPS:
            sums += np.stack([result.progress, result.window_violated]) / (125 - _BURN_IN_STEPS)
    progress, windows = sums
    scores = constrained_score(progress, windows, allowed[simulation.scenario])
    best: NDArray[np.int64] = actions[int(scores.reshape(-1, nodes).mean(axis=1).argmax())]
    return best


def constant(action: NDArray[np.int64]) -> Act:
    """A policy that always does the same."""
    return lambda observations: np.tile(action, (len(observations), 1))


def _static_action(levels: tuple[int, ...], profile: int, *, paused: bool) -> list[int]:
    action = []
    for level in levels:
        action += [int(paused), level]
    return [*action, profile]
