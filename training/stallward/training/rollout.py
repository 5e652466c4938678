"""Evaluation on the twin: policies and settings side by side, with lower confidence bounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from stallward.agent.desired import ACTION_SIZES, LIMIT_RATIOS, PROFILES, SLOTS
from stallward.env.simulation import Simulation, SimulationSettings
from stallward.env.twin.fitted import FittedTwin

Act = Callable[[NDArray[np.float32]], NDArray[np.int64]]
"""Observations ``(N, OBSERVATION_SIZE)`` to actions ``(N, len(ACTION_SIZES))``."""
_Z95: Final = 1.645
_BURN_IN_STEPS: Final = 25
_PENALTY: Final = 10.0
"""A window in a hundred over the target beyond those allowed costs a tenth of full speed."""
_STATIC_S: Final = 30.0
_PLENTY: Final = 20.0
"""So many times its memory is ample for any zone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a policy did on the twin, means over episodes."""

    score: float
    """Background progress less a penalty for violated windows beyond the allowed share, the mean
    over scenarios."""
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
    score, spread = constrained_score(progress, windows, simulation.scenario, allowed)
    return Outcome(
        score=score,
        score_low=score - _Z95 * spread,
        progress=float(progress.mean()),
        violated=float(violated.mean()),
        window_violated=float(windows.mean()),
        switches_per_s=float(moved.mean() / (0.1 * settings.ticks_per_action)),
    )


def rollout_steps(seconds: float, settings: SimulationSettings) -> int:
    """Decisions that :func:`evaluate` spends on a node, its burn-in included."""
    return _BURN_IN_STEPS + round(seconds * 10.0 / settings.ticks_per_action)


def constrained_score(
    progress: NDArray[np.float64],
    windows: NDArray[np.float64],
    scenario: NDArray[np.int64],
    allowed: NDArray[np.float64],
) -> tuple[float, float]:
    """Progress less a penalty for violated windows beyond the allowed share.

    What is allowed is a share over all episodes of a scenario: held against each episode, bad
    luck in one would cost what good luck in another does not give back.

    Args:
        progress: Of each episode.
        windows: Share of them over the target.
        scenario: Which it was, an index into ``allowed``.
        allowed: Share for each scenario.

    Returns:
        The mean over the scenarios that there are, and its standard error.
    """
    scores, variances = [], []
    for index in np.unique(scenario):
        mine = scenario == index
        beyond = float(windows[mine].mean() - allowed[index])
        scores.append(float(progress[mine].mean()) - _PENALTY * max(beyond, 0.0))
        parts = progress[mine] - (_PENALTY if beyond > 0.0 else 0.0) * windows[mine]
        count = int(mine.sum())
        variances.append(float(parts.var(ddof=1)) / count if count > 1 else 0.0)
    return float(np.mean(scores)), float(np.sqrt(np.sum(variances)) / len(scores))


def allowed_violation(
    twins: Sequence[FittedTwin],
    settings: SimulationSettings,
    *,
    statics: Statics,
    seed: int,
    beyond: float,
) -> NDArray[np.float64]:
    """Share of windows that may miss the target: what is missed with ample memory, and a little.

    On nodes that are smaller or busier than their scenario, no setting may reach that. What none
    of ``statics`` avoids is no policy's fault: a price that rises for ever would only teach it to
    hold everything back.

    Args:
        twins: Where nodes are drawn from.
        settings: Of the simulation.
        statics: Of the same twins and settings.
        seed: Of the draws.
        beyond: The little.

    Returns:
        ``(len(twins),)``.
    """
    ample = ample_violation(twins, settings, seed)
    return np.maximum(ample, statics.least_violation) + beyond


def ample_violation(
    twins: Sequence[FittedTwin], settings: SimulationSettings, seed: int
) -> NDArray[np.float64]:
    """Share of violated windows with memory for everybody: what a policy is measured against.

    Returns:
        ``(len(twins),)``.
    """
    return np.array([_ample_violation(twin, settings, seed) for twin in twins])


def _ample_violation(twin: FittedTwin, settings: SimulationSettings, seed: int) -> float:
    nodes = 128
    simulation = Simulation([twin], nodes, replace(settings, episode_s=1e6), seed=seed)
    simulation.reset(np.ones(nodes, dtype=bool))
    simulation.twin.nodes.zone_pages = _PLENTY * simulation.twin.nodes.zone_pages
    idle = np.zeros((nodes, len(ACTION_SIZES)), dtype=np.int64)
    for _ in range(_BURN_IN_STEPS):
        simulation.step(idle)
    return float(np.mean([simulation.step(idle).window_violated.mean() for _ in range(100)]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Statics:
    """What settings that never change come to on twins."""

    actions: NDArray[np.int64]
    """``(settings, len(ACTION_SIZES))``."""
    progress: NDArray[np.float64]
    """Of the background, ``(settings, len(twins))``."""
    windows: NDArray[np.float64]
    """Share of them over the target, same shape."""

    @property
    def least_violation(self) -> NDArray[np.float64]:
        """Share of violated windows that no setting goes below, ``(len(twins),)``."""
        return np.asarray(self.windows.min(axis=0))

    def best(self, allowed: NDArray[np.float64]) -> NDArray[np.int64]:
        """The action with the best score over all twins, ``allowed`` being free of charge."""
        beyond = np.maximum(self.windows - allowed, 0.0)
        scores = (self.progress - _PENALTY * beyond).mean(axis=1)
        return np.asarray(self.actions[int(scores.argmax())])


def screen_static(
    twins: Sequence[FittedTwin],
    settings: SimulationSettings,
    *,
    seed: int,
    candidates: int = 64,
) -> Statics:
    """Run settings that never change: uniform limits first, then random ones for each slot.

    All of them meet the same nodes.
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
    found = [_run_statics(actions, twin, settings, seed) for twin in twins]
    progress, windows = np.moveaxis(np.array(found), 0, -1)
    return Statics(actions=actions, progress=progress, windows=windows)


def _run_statics(
    actions: NDArray[np.int64], twin: FittedTwin, settings: SimulationSettings, seed: int
) -> NDArray[np.float64]:
    """Progress and share of violated windows of each action, ``(2, len(actions))``."""
    nodes = 16
    tiled = np.repeat(actions, nodes, axis=0)
    endless = replace(settings, episode_s=1e6)
    simulation = Simulation([twin], len(tiled), endless, seed=seed, draws=nodes)
    simulation.reset(np.ones(len(tiled), dtype=bool))
    total = rollout_steps(_STATIC_S, settings)
    sums = np.zeros((2, len(tiled)))
    for k in range(total):
        result = simulation.step(tiled)
        if k >= _BURN_IN_STEPS:
            sums += (result.progress, result.window_violated)
    means = sums / (total - _BURN_IN_STEPS)
    return np.asarray(means.reshape(2, len(actions), nodes).mean(axis=2))


def constant(action: NDArray[np.int64]) -> Act:
    """A policy that always does the same."""
    return lambda observations: np.tile(action, (len(observations), 1))


def _static_action(levels: tuple[int, ...], profile: int, *, paused: bool) -> list[int]:
    action = []
    for level in levels:
        action += [int(paused), level]
    return [*action, profile]
