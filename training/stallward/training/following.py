"""What goes on beside PPO while it trains: prices follow, ranges are noted, the clock is kept."""

from __future__ import annotations

import time
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.callbacks import BaseCallback

from stallward.env.simulation import SUFFERED
from stallward.env.vec import TwinVec
from stallward.training.constraints import Constraints, moved_prices, smoothed
from stallward.training.progress import Report
from stallward.training.warm_start import is_actor, likeliest

_RANGE_MARGIN: Final = 0.05
_BESIDE_STEPS: Final = 8
"""Decisions without exploring, for each rollout."""
_NEWEST: Final = 0.2
"""Weight of the last of them in what is taken to be suffered."""


class Pace(Protocol):
    """Of the recipe's settings, those that are followed here."""

    @property
    def total_steps(self) -> int:
        """Decisions in all."""

    @property
    def price_range(self) -> tuple[float, float]:
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


class Follow(BaseCallback):
    """Moves the prices, watches the ranges and the clock, reports progress.

    Prices follow what the applications suffer where the policy does not explore: exploring hurts
    them more than is allowed, and prices that rise for it for ever drown everything else.

    Args:
        pace: How fast.
        constraints: What may be suffered.
        beside: As many nodes as the policy is trained on, on which it does not explore.
        clock: Ends the training.
        ranges: Told of all observations.
        report: Told how far it is.
    """

    def __init__(
        self,
        pace: Pace,
        constraints: Constraints,
        beside: TwinVec,
        clock: Clock,
        ranges: Ranges,
        report: Report,
    ) -> None:
        super().__init__()
        self._pace, self._allowed = pace, constraints.allowed
        self._ranges, self._report = ranges, report
        self._clock, self._beside = clock, beside
        beside.reset()
        self._suffered = np.full(self._allowed.shape, np.nan)
        self._rollouts = 0

    def _on_step(self) -> bool:
        return self._clock.left > 0.0

    def _on_rollout_end(self) -> None:
        model: Any = self.model
        self._ranges.see(model.rollout_buffer.observations)
        vec = self._vec()
        suffered = self._suffer()
        prices, pace = vec.simulation.terms.prices, self._pace
        prices[:] = moved_prices(
            prices, suffered, self._allowed, pace.price_rate, pace.price_range
        )
        for k, twin in enumerate(vec.simulation.twins):
            for what, value, price in zip(SUFFERED, suffered[:, k], prices[:, k], strict=True):
                self.logger.record(f"{what}/{twin.scenario.name}", float(value))
                self.logger.record(f"price_{what}/{twin.scenario.name}", float(price))

    def _suffer(self) -> NDArray[np.float64]:
        """What the policy makes of a while without exploring, smoothed over the last rollouts."""
        for _ in range(_BESIDE_STEPS):
            self._beside.step(likeliest(self.model, self._beside.simulation.observation))
        self._suffered = smoothed(self._suffered, self._beside.take_suffered(), _NEWEST)
        return self._suffered

    def _on_rollout_start(self) -> None:
        for name, parameter in self.model.policy.named_parameters():
            # A critic that knows nothing yet would talk the actor out of what it has learned.
            parameter.requires_grad_(
                not is_actor(name) or self._rollouts >= self._pace.critic_rollouts
            )
        self._rollouts += 1
        done = max(self.num_timesteps / self._pace.total_steps, 1.0 - self._clock.left)
        vec = self._vec()
        self._report(
            f"{self.num_timesteps:,} decisions, prices "
            + " ".join(f"{price:.1f}" for price in vec.simulation.terms.prices[0]),
            done,
        )

    def _vec(self) -> TwinVec:
        env = self.training_env
        assert isinstance(env, TwinVec)
        return env
