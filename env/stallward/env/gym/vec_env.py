"""The twin as a stable-baselines3 ``VecEnv``: thousands of nodes in one process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.vec_env import VecEnv
from stable_baselines3.common.vec_env.base_vec_env import VecEnvIndices, VecEnvStepReturn

from stallward.agent.action_table import LEVELS
from stallward.agent.observation.encoder import BASIC, FeatureSet
from stallward.env.gym.spaces import spaces
from stallward.env.objective import SUFFERED
from stallward.env.simulation.simulation import (
    OBSERVATION_BOUND,
    Simulation,
    SimulationSettings,
    StepResult,
)
from stallward.env.simulation.step_buffers import COSTS
from stallward.env.twin.inputs.fitted import FittedTwin


@dataclass(frozen=True, slots=True, kw_only=True)
class RollIn:
    """How episodes may begin: with random or idle levers before the policy takes over.

    A policy that trains only on states it reaches by itself does not learn to leave other states,
    and an application it does not know puts it into one at once.
    """

    share: float = 0.0
    """Chance that an episode begins with a roll-in."""
    longest_s: float = 15.0
    """The longest roll-in."""
    idle_share: float = 0.3
    """Chance that the levers are idle during the roll-in; else every limit is random and stays."""


class _EpisodeSums:
    """Sums over the steps of the running episodes, one entry for each node.

    Args:
        nodes: How many nodes.
    """

    def __init__(self, nodes: int) -> None:
        self.steps = np.zeros(nodes, dtype=np.int64)
        self.reward = np.zeros(nodes)
        self.progress = np.zeros(nodes)
        self.violated = np.zeros(nodes)
        self.window_violated = np.zeros(nodes)
        self.moved = np.zeros(nodes)

    def add(self, result: StepResult) -> None:
        """Add the results of a step."""
        self.steps += 1
        self.reward += result.reward
        self.progress += result.progress
        self.violated += result.violated
        self.window_violated += result.window_violated
        self.moved += result.moved

    def clear(self, index: NDArray[np.int64]) -> None:
        """Set the sums of some nodes to 0."""
        for sums in vars(self).values():
            sums[index] = 0


class TwinVec(VecEnv):
    """Batched twin environments with same-step autoreset.

    The infos of a finished episode hold ``episode`` (``r``: sum of rewards, ``l``: steps), the
    means of ``progress``, ``violated`` (severity) and ``window_violated`` over its steps,
    ``switches_per_s``, and the index of its ``scenario``.

    Attributes:
        features: What the policies read of an observation; the rest is left out.
        critic_only: How many numbers at the end of an observation only the critic may see.
        reward_scales: A factor on the rewards for each twin; a trainer may set them.
        scenario: The index of each node's twin in the last step; it may have been reset since.
        rolling_in: Whether each node was in a roll-in in that step.

    Args:
        twins: Fitted twins to draw episodes from.
        n_envs: How many nodes.
        settings: How episodes are made and rewarded.
        roll_in: How episodes may begin. Actions have no effect during a roll-in.
        features: What the policies read of an observation.
        asymmetric: Whether observations end with inputs for the critic only, which help to value
            a state but which no policy can know on a node (asymmetric actor critic, Pinto et al.,
            2018): the twin (one-hot), log(1 + price) / 4 of its prices, and whether the node is
            in a roll-in.
        seed: Everything random follows from it.
    """

    def __init__(
        self,
        twins: Sequence[FittedTwin],
        n_envs: int,
        settings: SimulationSettings | None = None,
        *,
        roll_in: RollIn | None = None,
        features: FeatureSet = BASIC,
        asymmetric: bool = False,
        seed: int = 0,
    ) -> None:
        self.features = features
        self.simulation = Simulation(twins, n_envs, settings or SimulationSettings(), seed=seed)
        self._actions = np.zeros((n_envs, len(self.simulation.table.sizes)), dtype=np.int64)
        self._roll_in = roll_in or RollIn()
        self._roll_in_rng = np.random.default_rng(seed)
        self._roll_in_actions = np.zeros_like(self._actions)
        self._roll_in_steps = np.zeros(n_envs, dtype=np.int64)
        self._sums = _EpisodeSums(n_envs)
        self._twin_sums = np.zeros((len(SUFFERED) + 2, len(twins)))
        # Making a thousand dicts at every step costs as much as the twin (garbage collection).
        self._infos: list[dict[str, Any]] = [{} for _ in range(n_envs)]
        self.critic_only = len(twins) + len(COSTS) + 1 if asymmetric else 0
        self.reward_scales = np.ones(len(twins))
        self.scenario = np.zeros(n_envs, dtype=np.int64)
        self.rolling_in = np.zeros(n_envs, dtype=bool)
        self._finished = np.zeros(0, dtype=np.int64)
        self.render_mode = None
        space = gymnasium.spaces.Box(
            -OBSERVATION_BOUND,
            OBSERVATION_BOUND,
            (features.size + self.critic_only,),
            np.float32,
        )
        super().__init__(n_envs, space, spaces(self.simulation.table)[1])

    def reset(self) -> NDArray[np.float32]:
        """Start all episodes, at staggered lengths so that they do not end together."""
        if self._seeds[0] is not None:
            self.simulation.seed(int(self._seeds[0]))
            self._roll_in_rng = np.random.default_rng(int(self._seeds[0]))
        everyone = np.ones(self.num_envs, dtype=bool)
        self.simulation.reset(everyone)
        self.simulation.stagger()
        self._draw_roll_ins(everyone)
        self._sums.clear(np.arange(self.num_envs))
        self._reset_seeds()
        self._reset_options()
        return self._observe(np.arange(self.num_envs))

    def _observe(self, index: NDArray[np.int64]) -> NDArray[np.float32]:
        """The observations of the nodes ``index``, with the critic's inputs if asymmetric."""
        count = self.features.size
        observation = self.simulation.observation[index, :count]
        if not self.critic_only:
            return observation
        which = self.simulation.scenario[index]
        both = np.zeros((len(index), count + self.critic_only), dtype=np.float32)
        both[:, :count] = observation
        both[np.arange(len(index)), count + which] = 1.0
        both[:, -1 - len(COSTS) : -1] = np.log1p(self.simulation.terms.prices[:, which].T) / 4.0
        both[:, -1] = (self.simulation.steps < self._roll_in_steps)[index]
        return both

    def step_async(self, actions: NDArray[np.int64]) -> None:
        """Remember the actions; :meth:`step_wait` does the work."""
        self._actions = np.asarray(actions, dtype=np.int64)

    def step_wait(self) -> VecEnvStepReturn:
        """Hold the actions for one decision on every node."""
        rolling_in = self.simulation.steps < self._roll_in_steps
        result = self.simulation.step(
            np.where(rolling_in[:, None], self._roll_in_actions, self._actions)
        )
        self._sums.add(result)
        observation = self._observe(np.arange(self.num_envs))
        for i in self._finished:
            self._infos[i] = {}
        self._finished = np.flatnonzero(result.done)
        which = self.simulation.scenario
        self.scenario, self.rolling_in = which.copy(), rolling_in
        reward = (result.reward * self.reward_scales[which]).astype(np.float32)
        for row, weight in enumerate((result.progress, *result.suffered, None)):
            self._twin_sums[row] += np.bincount(which, weight, minlength=self._twin_sums.shape[1])
        if len(self._finished):
            self._finish(result.done, observation, self._infos)
        return observation, reward, result.done, list(self._infos)

    def take_means(self) -> NDArray[np.float64]:
        """Return mean progress and suffering for each twin since the last call.

        Returns:
            Progress, then each of :data:`SUFFERED`, ``(1 + len(SUFFERED), len(twins))``; NaN for a
            twin without a step.
        """
        *sums, steps = self._twin_sums
        self._twin_sums = np.zeros_like(self._twin_sums)
        return np.where(steps > 0.0, np.array(sums) / np.maximum(steps, 1.0), np.nan)

    def _finish(
        self,
        done: NDArray[np.bool_],
        observation: NDArray[np.float32],
        infos: list[dict[str, Any]],
    ) -> None:
        index = np.flatnonzero(done)
        step_s = 0.1 * self.simulation.settings.ticks_per_action
        sums, steps = self._sums, self._sums.steps[index]
        for k, i in enumerate(index):
            infos[i] = {
                "terminal_observation": observation[i].copy(),
                "TimeLimit.truncated": True,
                "episode": {"r": float(sums.reward[i]), "l": int(steps[k]), "t": 0.0},
                "progress": float(sums.progress[i] / steps[k]),
                "violated": float(sums.violated[i] / steps[k]),
                "window_violated": float(sums.window_violated[i] / steps[k]),
                "switches_per_s": float(sums.moved[i] / steps[k] / step_s),
                "scenario": int(self.simulation.scenario[i]),
            }
        sums.clear(index)
        self.simulation.reset(done)
        self._draw_roll_ins(done)
        observation[index] = self._observe(index)

    def _draw_roll_ins(self, rows: NDArray[np.bool_]) -> None:
        """Draw for new episodes whether they begin with a roll-in, its length and action."""
        settings, rng = self._roll_in, self._roll_in_rng
        count = int(rows.sum())
        if settings.share <= 0.0 or count == 0:
            return
        step_s = 0.1 * self.simulation.settings.ticks_per_action
        until = rng.uniform(0.0, settings.longest_s / step_s, count)
        begins = rng.random(count) < settings.share
        self._roll_in_steps[rows] = np.where(begins, until, 0.0).astype(np.int64)
        table = self.simulation.table
        action = rng.integers(table.sizes, size=(count, len(table.sizes)))
        if table is LEVELS:
            action[:, :-1:2] = 0  # no pauses: the guard ends them before the policy takes over
        action[rng.random(count) < settings.idle_share] = 0
        self._roll_in_actions[rows] = action

    def close(self) -> None:
        """Do nothing: no resource is held."""

    def get_attr(self, attr_name: str, indices: VecEnvIndices = None) -> list[Any]:
        """Return the batch's attribute once for every node."""
        value = getattr(self, attr_name)
        return [value for _ in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: VecEnvIndices = None) -> None:
        """Set an attribute of the whole batch; single nodes have no attributes."""
        del indices
        setattr(self, attr_name, value)

    def env_method(
        self,
        method_name: str,
        *method_args: Any,
        indices: VecEnvIndices = None,
        **method_kwargs: Any,
    ) -> list[Any]:
        """Call a method of the batch once and return its result for every node."""
        value = getattr(self, method_name)(*method_args, **method_kwargs)
        return [value for _ in self._get_indices(indices)]

    def env_is_wrapped(
        self,
        wrapper_class: type[gymnasium.Wrapper[Any, Any, Any, Any]],
        indices: VecEnvIndices = None,
    ) -> list[bool]:
        """Return false for every node: none is wrapped."""
        del wrapper_class
        return [False for _ in self._get_indices(indices)]
