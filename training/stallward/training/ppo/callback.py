"""What goes on beside PPO while it trains: prices follow, the best actor and ranges are kept."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Protocol, cast

import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.policies import ActorCriticPolicy

from stallward.agent.observation.encoder import OBSERVATION_SIZE
from stallward.env.gym.vec_env import TwinVec
from stallward.env.objective import SUFFERED, Array, scored
from stallward.env.simulation.constraints import Constraints
from stallward.training.imitation.behaviour_cloning import is_actor, likeliest
from stallward.training.lagrangian import PriceRange, moved_prices, smoothed
from stallward.training.network.actor import actor_arrays
from stallward.training.progress import Report
from stallward.training.selection.rollout import Act

_RANGE_MARGIN: Final = 0.05
_BESIDE_STEPS: Final = 8
"""Decisions without exploring, for each rollout."""
_NEWEST: Final = 0.1
"""Weight of the last of them in what is taken to be suffered."""
_CURVE_POINTS: Final = 40
_LOOKS_FROM: Final = 0.2
"""Share of the training after which its actors are looked at more closely."""
_LOOKS: Final = 40
_REWARD_SCALE: Final = 0.1
"""Returns are sums over some hundred decisions; a critic learns numbers of order one best."""
_LEAST_SPREAD: Final = 0.1
"""Of that of the mean scenario: where next to nothing is at stake advantages are noise."""
_RATE_LEFT: Final = 0.1
"""Of the rate at which prices move, at the end: till then they circle about where they settle."""


class Pace(Protocol):
    """Of the recipe's settings, those that are followed here."""

    @property
    def total_steps(self) -> int:
        """Decisions in all."""

    @property
    def price_range(self) -> PriceRange:
        """Bounds of every price."""

    @property
    def price_rate(self) -> float:
        """How fast prices follow, per rollout."""

    @property
    def critic_rollouts(self) -> int:
        """Rollouts from which the critic alone learns."""


class Clock:
    """How much of the time for a training is left."""

    def __init__(self, seconds: float) -> None:
        self._seconds = max(seconds, 1e-9)
        self._began_s = time.monotonic()

    @property
    def left(self) -> float:
        """From 1 down to 0; always 1 where time is not limited."""
        return max(1.0 - (time.monotonic() - self._began_s) / self._seconds, 0.0)


class Ranges:
    """The range of every feature seen, with a margin."""

    def __init__(self) -> None:
        self._low: NDArray[np.float32] | None = None
        self._high: NDArray[np.float32] | None = None

    def see(self, observations: NDArray[np.float32]) -> None:
        """Take more of them in."""
        flat = observations.reshape(-1, observations.shape[-1])
        low, high = flat.min(axis=0), flat.max(axis=0)
        self._low = low if self._low is None else np.minimum(self._low, low)
        self._high = high if self._high is None else np.maximum(self._high, high)

    def low(self) -> NDArray[np.float32]:
        """Of every feature."""
        assert self._low is not None
        return np.asarray(self._low - _RANGE_MARGIN, dtype=np.float32)

    def high(self) -> NDArray[np.float32]:
        """Of every feature."""
        assert self._high is not None
        return np.asarray(self._high + _RANGE_MARGIN, dtype=np.float32)


class Best:
    """The actor that did best without exploring, of those that were looked at.

    While prices rise and fall so do policies; the last one is as good as chance has it, and the
    longer they learn the more they know by heart.

    Args:
        judge: How an actor does on the same fresh nodes each time.
    """

    def __init__(self, judge: Callable[[Act], float]) -> None:
        self._judge = judge
        self.arrays: dict[str, NDArray[np.float32]] = {}
        self.score = -np.inf
        self.decisions = 0

    def look(self, model: BaseAlgorithm) -> None:
        """Keep the actor of ``model`` if none was better."""
        score = self._judge(partial(likeliest, model))
        if score > self.score:
            self.score, self.decisions = score, model.num_timesteps
            self.arrays = actor_arrays(cast(ActorCriticPolicy, model.policy))


def reward_scales(prices: Array) -> Array:
    """What rewards are multiplied with so that the worst is about as bad everywhere.

    Prices differ a thousandfold between scenarios; what one critic learns must not.

    Args:
        prices: ``(len(COSTS), scenarios)``.
    """
    return np.asarray(_REWARD_SCALE / (1.0 + prices.sum(axis=0)))


def evened(
    advantages: NDArray[np.float32], scenarios: NDArray[np.int64], counts: NDArray[np.bool_]
) -> NDArray[np.float32]:
    """Advantages of about the same size in every scenario.

    Where an application suffers much they are a hundred times those of where work is all that is
    at stake, and the policy would learn of nothing but the former.

    Args:
        advantages: ``(steps, nodes)``.
        scenarios: Of which each is, the same shape.
        counts: Whether the policy's action was done, the same shape; others become 0.
    """
    found = np.zeros_like(advantages)
    each = [counts & (scenarios == k) for k in np.unique(scenarios[counts])]
    spreads = [float(advantages[mine].std()) for mine in each]
    least = max(_LEAST_SPREAD * sum(spreads) / max(len(spreads), 1), 1e-9)
    for mine, spread in zip(each, spreads, strict=True):
        found[mine] = (advantages[mine] - advantages[mine].mean()) / max(spread, least)
    return found


class TrainingCallback(BaseCallback):
    """Moves the prices, watches the ranges and the clock, reports progress.

    Prices follow what the applications suffer where the policy does not explore: exploring hurts
    them more than is allowed, and prices that rise for it for ever drown everything else.

    Args:
        pace: How fast.
        constraints: What may be suffered.
        beside: As many nodes as the policy is trained on, on which it does not explore.
        clock: Ends the training.
        ranges: Told of all observations.
        best: Shown actors now and then.
        report: Told how far it is.
    """

    def __init__(
        self,
        pace: Pace,
        constraints: Constraints,
        beside: TwinVec,
        clock: Clock,
        ranges: Ranges,
        best: Best,
        report: Report,
    ) -> None:
        super().__init__()
        self._best, self._next_look = best, _LOOKS_FROM
        self._pace, self._allowed = pace, constraints.allowed
        self._ranges, self._report = ranges, report
        self._clock, self._beside = clock, beside
        beside.reset()
        self._means = np.full((1 + len(SUFFERED), self._allowed.shape[1]), np.nan)
        self._scores: list[float] = []
        self._rollouts = 0
        self._scenarios: list[NDArray[np.int64]] = []
        self._in_others: list[NDArray[np.bool_]] = []

    @property
    def curve(self) -> list[float]:
        """The score without exploring, from the first decision to the last in equal steps."""
        parts = np.array_split(self._scores, min(_CURVE_POINTS, max(len(self._scores), 1)))
        return [round(float(np.mean(part)), 4) for part in parts if len(part)]

    def _on_step(self) -> bool:
        vec = self._vec()
        self._scenarios.append(vec.scenario)
        self._in_others.append(vec.in_others_hands)
        return self._clock.left > 0.0

    def _on_rollout_end(self) -> None:
        model: Any = self.model
        self._ranges.see(model.rollout_buffer.observations[..., :OBSERVATION_SIZE])
        advantages = model.rollout_buffer.advantages
        advantages[:] = evened(advantages, np.array(self._scenarios), ~np.array(self._in_others))
        vec = self._vec()
        progress, *each = self._look()
        suffered = np.array(each)
        scores = scored(progress, suffered, self._allowed)
        self._scores.append(float(np.nanmean(scores)))
        prices, pace, done = vec.simulation.terms.prices, self._pace, self._done()
        rate = pace.price_rate * (1.0 - (1.0 - _RATE_LEFT) * done)
        if self._rollouts > pace.critic_rollouts:
            prices[:] = moved_prices(prices, suffered, self._allowed, rate, pace.price_range)
        vec.reward_scales[:] = reward_scales(prices)
        for k, twin in enumerate(vec.simulation.twins):
            name = twin.scenario.name
            self.logger.record(f"progress/{name}", float(progress[k]))
            self.logger.record(f"score/{name}", float(scores[k]))
            for what, value, price in zip(SUFFERED, suffered[:, k], prices[:, k], strict=True):
                self.logger.record(f"{what}/{name}", float(value))
                self.logger.record(f"price_{what}/{name}", float(price))

        if done >= self._next_look:
            self._best.look(model)
            self._next_look = done + (1.0 - _LOOKS_FROM) / _LOOKS

    def _on_training_end(self) -> None:
        self._best.look(self.model)

    def _done(self) -> float:
        done = max(self.num_timesteps / self._pace.total_steps, 1.0 - self._clock.left)
        return min(done, 1.0)

    def _look(self) -> Array:
        """What the policy makes of a while without exploring, smoothed over the last rollouts."""
        for _ in range(_BESIDE_STEPS):
            self._beside.step(likeliest(self.model, self._beside.simulation.observation))
        self._means = smoothed(self._means, self._beside.take_means(), _NEWEST)
        return self._means

    def _on_rollout_start(self) -> None:
        for name, parameter in self.model.policy.named_parameters():
            # A critic that knows nothing yet would talk the actor out of what it has learned.
            parameter.requires_grad_(
                not is_actor(name) or self._rollouts >= self._pace.critic_rollouts
            )
        self._rollouts += 1
        self._scenarios, self._in_others = [], []
        score = f", score {self._scores[-1]:.2f}" if self._scores else ""
        self._report(f"{self.num_timesteps:,} decisions{score}", self._done())

    def _vec(self) -> TwinVec:
        env = self.training_env
        assert isinstance(env, TwinVec)
        return env
