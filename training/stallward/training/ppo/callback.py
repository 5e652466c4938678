"""The callback of PPO: it updates prices, records feature ranges, and watches the time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Protocol, cast

import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.policies import ActorCriticPolicy
from torch import nn

from stallward.env.gym.vec_env import TwinVec
from stallward.env.objective import SUFFERED, Array, scored
from stallward.env.simulation.constraints import Constraints
from stallward.env.simulation.simulation import SimulationSettings
from stallward.training.lagrangian import exponential_average, updated_prices
from stallward.training.network.actor import SlotOutputs, SlotPolicy, actor_arrays
from stallward.training.network.arrays import TrainedPolicy
from stallward.training.ppo.args import Args
from stallward.training.progress import Report
from stallward.training.selection.rollout import Act, Arm

# ---------- The best actor of a training, judged on the way

# ---------- The actor at the start of a training, and its actions without exploration.
# A policy about set-points begins as ``partition``: nearly always, every head chooses *auto*. So it
# begins at the baseline that it is compared with, and whatever it does otherwise, it has found to be
# better. Nothing needs to be imitated first.


def prefer_first_choice(policy: ActorCriticPolicy, share: float) -> None:
    """Let every head choose its first option with this probability, whatever is observed.

    Args:
        policy: The policy; the biases of its output layer are set.
        share: The probability, the rest is spread evenly.
    """
    outputs = policy.action_net
    assert isinstance(outputs, SlotOutputs)
    table = outputs.table
    for layer, sizes in ((outputs.slot, table.slot_sizes), (outputs.node, table.node_sizes)):
        _set_biases(layer, sizes, share)


def _set_biases(layer: nn.Linear, sizes: tuple[int, ...], share: float) -> None:
    with torch.no_grad():
        layer.bias.zero_()
        first = 0
        for size in sizes:
            layer.bias[first] = math.log(share * (size - 1) / (1.0 - share))
            first += size


def deterministic_actions(
    model: BaseAlgorithm, observations: NDArray[np.float32]
) -> NDArray[np.int64]:
    """The actor's likeliest actions, without exploration."""
    actions, _ = model.predict(pad_for_critic(model, observations), deterministic=True)
    return np.asarray(actions, dtype=np.int64)


def pad_for_critic(model: BaseAlgorithm, observations: NDArray[np.float32]) -> NDArray[np.float32]:
    """Leave out what the actor does not read, and append zeros for what only the critic reads."""
    space, policy = model.observation_space, model.policy
    assert isinstance(policy, SlotPolicy)
    assert space is not None
    assert space.shape is not None
    padded = np.zeros((len(observations), *space.shape), dtype=np.float32)
    count = policy.features.size
    padded[:, :count] = observations[:, :count]
    return padded


def is_actor_parameter(name: str) -> bool:
    """Whether a parameter of the policy belongs to the actor."""
    return name.startswith(("mlp_extractor.policy_net", "action_net"))


# ---------- Policies on twins, as arms that are compared with rules and settings


def arm_of_policy(policy: TrainedPolicy) -> Arm:
    """A trained policy, which needs no memory of its own."""
    return Arm(
        make=lambda _nodes: policy.act,
        action_table=policy.table.name,
        ticks_per_action=policy.ticks_per_action,
        partition=policy.partition,
    )


def arm_of_actor(act: Act, settings: SimulationSettings) -> Arm:
    """An actor during its training.

    Args:
        act: Its likeliest actions.
        settings: The settings that it is trained with.
    """
    return Arm(
        make=lambda _nodes: act,
        action_table=settings.action_table,
        ticks_per_action=settings.ticks_per_action,
        partition=settings.partition,
    )


_FIRST_SHARE: Final = 0.2
"""Share of the training after which actors are judged."""
_TIMES: Final = 40

Judged = Callable[[int, float], None]
"""Called with the decisions so far and the score of the best actor until then."""


class Schedule(Protocol):
    """When actors are judged, besides the last one."""

    def due(self, decisions: int, done: float) -> bool:
        """Whether the actor after so many decisions is judged.

        Args:
            decisions: Decisions so far.
            done: The share of the training that is done; it may be limited by time.
        """


class OftenAfterAFifth:
    """Forty times, evenly, after the first fifth of the training."""

    def __init__(self) -> None:
        self._next = _FIRST_SHARE

    def due(self, decisions: int, done: float) -> bool:
        """See :class:`Schedule`."""
        if done < self._next:
            return False
        self._next = done + (1.0 - _FIRST_SHARE) / _TIMES
        return True


class BestActor:
    """Keeps the best actor of a training, evaluated without exploration.

    Policies get better and worse as prices rise and fall, so the quality of the last one is
    chance. Besides, the longer a policy is trained, the more it overfits.

    Args:
        evaluate: The score of an actor, on the same fresh nodes each time.
        schedule: When actors are judged; by default forty times.
        judged: Called after each time.
    """

    def __init__(
        self,
        evaluate: Callable[[Act], float],
        schedule: Schedule | None = None,
        judged: Judged = lambda _decisions, _score: None,
    ) -> None:
        self._evaluate, self._judged = evaluate, judged
        self._schedule = schedule or OftenAfterAFifth()
        self.arrays: dict[str, Any] = {}
        self.score = -np.inf
        self.decisions = 0

    def consider_if_due(self, model: BaseAlgorithm, done: float) -> None:
        """Judge the actor of ``model`` if it is time.

        Args:
            model: The model in training.
            done: The share of the training that is done.
        """
        if self._schedule.due(model.num_timesteps, done):
            self.consider(model)

    def consider(self, model: BaseAlgorithm) -> None:
        """Evaluate the actor of ``model``, and keep it if it is the best so far."""
        score = self._evaluate(partial(deterministic_actions, model))
        if score > self.score:
            self.score, self.decisions = score, model.num_timesteps
            self.arrays = actor_arrays(cast(ActorCriticPolicy, model.policy))
        self._judged(model.num_timesteps, self.score)


_RANGE_MARGIN: Final = 0.05
_EVAL_STEPS: Final = 8
"""Decisions without exploration after each rollout."""
_AVERAGE_WEIGHT: Final = 0.1
"""Weight of the latest values in the moving average of progress and what is suffered."""
_CURVE_POINTS: Final = 40
_REWARD_SCALE: Final = 0.1
"""Returns are sums over some hundred decisions; a critic learns values of order one best."""
_LEAST_SPREAD: Final = 0.1
"""The least spread of advantages, relative to the mean over scenarios.

Where next to nothing is at stake, advantages are mostly noise and must not be scaled up.
"""
_FINAL_RATE: Final = 0.1
"""The rate of the prices at the end, relative to the start, so that they stop oscillating."""


class TimeBudget:
    """The time for a training, and how much of it remains."""

    def __init__(self, seconds: float) -> None:
        self._seconds = max(seconds, 1e-9)
        self._began_s = time.monotonic()

    @property
    def remaining(self) -> float:
        """The share that remains, from 1 down to 0; always 1 if time is not limited."""
        return max(1.0 - (time.monotonic() - self._began_s) / self._seconds, 0.0)


class FeatureRanges:
    """The range of every feature in training, with a margin."""

    def __init__(self) -> None:
        self._low: NDArray[np.float32] | None = None
        self._high: NDArray[np.float32] | None = None

    def update(self, observations: NDArray[np.float32]) -> None:
        """Extend the ranges to include more observations."""
        flat = observations.reshape(-1, observations.shape[-1])
        low, high = flat.min(axis=0), flat.max(axis=0)
        self._low = low if self._low is None else np.minimum(self._low, low)
        self._high = high if self._high is None else np.maximum(self._high, high)

    def low(self) -> NDArray[np.float32]:
        """The lower end of every feature's range."""
        assert self._low is not None
        return np.asarray(self._low - _RANGE_MARGIN, dtype=np.float32)

    def high(self) -> NDArray[np.float32]:
        """The upper end of every feature's range."""
        assert self._high is not None
        return np.asarray(self._high + _RANGE_MARGIN, dtype=np.float32)


def reward_scales(prices: Array) -> Array:
    """Factors for the rewards, so that the worst reward is about the same in every scenario.

    Prices differ a thousandfold between scenarios, and one critic has to learn the values of all.

    Args:
        prices: The prices, ``(len(COSTS), scenarios)``.
    """
    return np.asarray(_REWARD_SCALE / (1.0 + prices.sum(axis=0)))


def normalise_advantages(
    advantages: NDArray[np.float32], scenarios: NDArray[np.int64], counts: NDArray[np.bool_]
) -> NDArray[np.float32]:
    """Normalise the advantages within each scenario.

    Where an application suffers much, advantages are a hundred times larger than where only
    background work is at stake; the policy would learn from the former only.

    Args:
        advantages: The advantages, ``(steps, nodes)``.
        scenarios: The scenario of each, the same shape.
        counts: Whether the policy's action was applied, the same shape. Where it was not, the
            result is 0.

    Returns:
        The normalised advantages, the same shape.
    """
    normalised = np.zeros_like(advantages)
    masks = [counts & (scenarios == k) for k in np.unique(scenarios[counts])]
    spreads = [float(advantages[mask].std()) for mask in masks]
    least = max(_LEAST_SPREAD * sum(spreads) / max(len(spreads), 1), 1e-9)
    for mask, spread in zip(masks, spreads, strict=True):
        normalised[mask] = (advantages[mask] - advantages[mask].mean()) / max(spread, least)
    return normalised


class TrainingCallback(BaseCallback):
    """Updates the prices, records the ranges, watches the time, and reports progress.

    Prices follow what the applications suffer without exploration. Exploration makes them suffer
    more than is allowed, and prices that rise because of it would outweigh everything else.

    Args:
        args: The settings of the training.
        constraints: What the applications may suffer.
        eval_vec: As many nodes as in training, on which the policy does not explore.
        budget: The time for the training, which ends when it has run out.
        ranges: The ranges of features, updated with all observations.
        best: Keeps the best actor, and evaluates some on the way.
        report: Called with the progress.
    """

    def __init__(
        self,
        args: Args,
        constraints: Constraints,
        eval_vec: TwinVec,
        budget: TimeBudget,
        ranges: FeatureRanges,
        best: BestActor,
        report: Report,
    ) -> None:
        super().__init__()
        self._best = best
        self._args, self._allowed = args, constraints.allowed
        self._ranges, self._report = ranges, report
        self._budget, self._eval_vec = budget, eval_vec
        eval_vec.reset()
        self._means = np.full((1 + len(SUFFERED), self._allowed.shape[1]), np.nan)
        self._scores: list[float] = []
        self._rollouts = 0
        self._scenarios: list[NDArray[np.int64]] = []
        self._other_controller: list[NDArray[np.bool_]] = []

    @property
    def curve(self) -> list[float]:
        """The score without exploration, in equal steps from the first decision to the last."""
        parts = np.array_split(self._scores, min(_CURVE_POINTS, max(len(self._scores), 1)))
        return [round(float(np.mean(part)), 4) for part in parts if len(part)]

    def _on_step(self) -> bool:
        vec = self._vec()
        self._scenarios.append(vec.scenario)
        self._other_controller.append(vec.rolling_in)
        return self._budget.remaining > 0.0

    def _on_rollout_end(self) -> None:
        model: Any = self.model
        self._ranges.update(model.rollout_buffer.observations[..., : self._vec().features.size])
        advantages = model.rollout_buffer.advantages
        advantages[:] = normalise_advantages(
            advantages, np.array(self._scenarios), ~np.array(self._other_controller)
        )
        vec = self._vec()
        progress, *rows = self._evaluate()
        suffered = np.array(rows)
        scores = scored(progress, suffered, self._allowed)
        self._scores.append(float(np.nanmean(scores)))
        prices, args, done = vec.simulation.terms.prices, self._args, self._done()
        rate = args.price_rate * (1.0 - (1.0 - _FINAL_RATE) * done)
        if self._rollouts > args.critic_rollouts:
            prices[:] = updated_prices(prices, suffered, self._allowed, rate, args.price_range)
        vec.reward_scales[:] = reward_scales(prices)
        for k, twin in enumerate(vec.simulation.twins):
            name = twin.scenario.name
            self.logger.record(f"progress/{name}", float(progress[k]))
            self.logger.record(f"score/{name}", float(scores[k]))
            for cost, value, price in zip(SUFFERED, suffered[:, k], prices[:, k], strict=True):
                self.logger.record(f"{cost}/{name}", float(value))
                self.logger.record(f"price_{cost}/{name}", float(price))

        self._best.consider_if_due(model, done)

    def _on_training_end(self) -> None:
        self._best.consider(self.model)

    def _done(self) -> float:
        done = max(self.num_timesteps / self._args.total_steps, 1.0 - self._budget.remaining)
        return min(done, 1.0)

    def _evaluate(self) -> Array:
        """Run the policy without exploration, and average over the last rollouts.

        Returns:
            Progress, then each of ``SUFFERED``, ``(1 + len(SUFFERED), scenarios)``.
        """
        for _ in range(_EVAL_STEPS):
            self._eval_vec.step(
                deterministic_actions(self.model, self._eval_vec.simulation.observation)
            )
        self._means = exponential_average(
            self._means, self._eval_vec.take_means(), _AVERAGE_WEIGHT
        )
        return self._means

    def _on_rollout_start(self) -> None:
        for name, parameter in self.model.policy.named_parameters():
            # An untrained critic would drive the actor away from where it begins.
            parameter.requires_grad_(
                not is_actor_parameter(name) or self._rollouts >= self._args.critic_rollouts
            )
        self._rollouts += 1
        self._scenarios, self._other_controller = [], []
        score = f", score {self._scores[-1]:.2f}" if self._scores else ""
        self._report(f"{self.num_timesteps:,} decisions{score}", self._done())

    def _vec(self) -> TwinVec:
        env = self.training_env
        assert isinstance(env, TwinVec)
        return env
