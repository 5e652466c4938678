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

from stallward.agent.desired import ACTION_SIZES
from stallward.agent.observation.encoder import OBSERVATION_SIZE
from stallward.env.gym.twin_env import spaces
from stallward.env.objective import SUFFERED
from stallward.env.simulation.simulation import (
    OBSERVATION_BOUND,
    Simulation,
    SimulationSettings,
    StepResult,
)
from stallward.env.simulation.step import COSTS
from stallward.env.twin.inputs.fitted import FittedTwin


@dataclass(frozen=True, slots=True, kw_only=True)
class Others:
    """Who holds the levers of a node before the policy does: nobody, or somebody at random.

    A policy that is trained only where it got to by itself has forgotten how to get out of where
    it never is; beside an application that it does not know, it is there at once.
    """

    share: float = 0.0
    """Chance of an episode that begins so."""
    longest_s: float = 15.0
    """Until the policy takes over, at most."""
    idle_share: float = 0.3
    """Chance that nobody holds them; else every limit is at random, and stays."""


class _EpisodeSums:
    """Sums over the steps of the running episodes, one entry a node.

    Args:
        nodes: How many nodes.
    """

    def __init__(self, nodes: int) -> None:
        self.reward = np.zeros(nodes)
        self.progress = np.zeros(nodes)
        self.violated = np.zeros(nodes)
        self.window_violated = np.zeros(nodes)
        self.moved = np.zeros(nodes)

    def add(self, result: StepResult) -> None:
        """Add what a step did."""
        self.reward += result.reward
        self.progress += result.progress
        self.violated += result.violated
        self.window_violated += result.window_violated
        self.moved += result.moved

    def clear(self, index: NDArray[np.int64]) -> None:
        """Forget the episodes of some nodes."""
        for sums in (
            self.reward, self.progress, self.violated, self.window_violated, self.moved,
        ):  # fmt: skip
            sums[index] = 0.0


class TwinVec(VecEnv):
    """Batched twin environments with same-step autoreset.

    The infos of a finished episode hold ``episode`` (``r`` mean reward of a step times steps,
    ``l``), ``progress``, ``violated`` (severity), ``window_violated`` and
    ``switches_per_s``, means over the episode.

    Attributes:
        told: How many numbers observations have behind those of a node.
        reward_scales: What rewards are multiplied with, one for each twin; a trainer may set them.
        scenario: Which twin each node was of in the last step, whatever it is of now.
        in_others_hands: Whether others held its levers in that step.

    Args:
        twins: Fitted twins to draw episodes from.
        n_envs: Nodes.
        settings: How episodes are made and rewarded.
        others: Who may hold the levers first; what is asked for meanwhile is not done.
        tells_critic: Whether observations end with what no policy can see but helps to say what a
            state is worth (asymmetric actor critic, Pinto et al., 2018): which twin it is, log(1 +
            price) / 4 of its prices, whether others hold the levers.
        seed: Everything random follows from it.
    """

    def __init__(
        self,
        twins: Sequence[FittedTwin],
        n_envs: int,
        settings: SimulationSettings | None = None,
        *,
        others: Others | None = None,
        tells_critic: bool = False,
        seed: int = 0,
    ) -> None:
        self.simulation = Simulation(twins, n_envs, settings or SimulationSettings(), seed=seed)
        self._actions = np.zeros((n_envs, len(ACTION_SIZES)), dtype=np.int64)
        self._others = others or Others()
        self._others_rng = np.random.default_rng(seed)
        self._others_actions = np.zeros_like(self._actions)
        self._others_steps = np.zeros(n_envs, dtype=np.int64)
        self._sums = _EpisodeSums(n_envs)
        self._seen = np.zeros((len(SUFFERED) + 2, len(twins)))
        # Making a thousand dicts at every step costs as much as the twin (garbage collection).
        self._infos: list[dict[str, Any]] = [{} for _ in range(n_envs)]
        self.told = len(twins) + len(COSTS) + 1 if tells_critic else 0
        self.reward_scales = np.ones(len(twins))
        self.scenario = np.zeros(n_envs, dtype=np.int64)
        self.in_others_hands = np.zeros(n_envs, dtype=bool)
        self._finished = np.zeros(0, dtype=np.int64)
        self.render_mode = None
        seen = gymnasium.spaces.Box(
            -OBSERVATION_BOUND, OBSERVATION_BOUND, (OBSERVATION_SIZE + self.told,), np.float32
        )
        super().__init__(n_envs, seen, spaces()[1])

    def reset(self) -> NDArray[np.float32]:
        """Start all episodes, at staggered lengths so that they do not end together."""
        if self._seeds[0] is not None:
            self.simulation.seed(int(self._seeds[0]))
            self._others_rng = np.random.default_rng(int(self._seeds[0]))
        everyone = np.ones(self.num_envs, dtype=bool)
        self.simulation.reset(everyone)
        self.simulation.stagger()
        self._hand_to_others(everyone)
        self._sums.clear(np.arange(self.num_envs))
        self._reset_seeds()
        self._reset_options()
        return self._shown(np.arange(self.num_envs))

    def _shown(self, index: NDArray[np.int64]) -> NDArray[np.float32]:
        """What is seen of the nodes ``index``; with what only the critic is told, if it is."""
        observation = self.simulation.observation[index]
        if not self.told:
            return observation
        which = self.simulation.scenario[index]
        told = np.zeros((len(index), OBSERVATION_SIZE + self.told), dtype=np.float32)
        told[:, :OBSERVATION_SIZE] = observation
        told[np.arange(len(index)), OBSERVATION_SIZE + which] = 1.0
        told[:, -1 - len(COSTS) : -1] = np.log1p(self.simulation.terms.prices[:, which].T) / 4.0
        told[:, -1] = (self.simulation.steps < self._others_steps)[index]
        return told

    def step_async(self, actions: NDArray[np.int64]) -> None:
        """Remember the actions; :meth:`step_wait` does the work."""
        self._actions = np.asarray(actions, dtype=np.int64)

    def step_wait(self) -> VecEnvStepReturn:
        """One decision on every node."""
        others = self.simulation.steps < self._others_steps
        result = self.simulation.step(
            np.where(others[:, None], self._others_actions, self._actions)
        )
        self._sums.add(result)
        observation = self._shown(np.arange(self.num_envs))
        for i in self._finished:
            self._infos[i] = {}
        self._finished = np.flatnonzero(result.done)
        which = self.simulation.scenario
        self.scenario, self.in_others_hands = which.copy(), others
        reward = (result.reward * self.reward_scales[which]).astype(np.float32)
        for row, weight in enumerate((result.progress, *result.suffered, None)):
            self._seen[row] += np.bincount(which, weight, minlength=self._seen.shape[1])
        if len(self._finished):
            self._finish(result.done, observation, self._infos)
        return observation, reward, result.done, list(self._infos)

    def take_means(self) -> NDArray[np.float64]:
        """Progress and what the applications suffered since this was last asked, for each twin.

        Returns:
            Progress, then each of :data:`SUFFERED`, ``(1 + len(SUFFERED), len(twins))``; NaN for a
            twin that no node was in.
        """
        *sums, steps = self._seen
        self._seen = np.zeros_like(self._seen)
        return np.where(steps > 0.0, np.array(sums) / np.maximum(steps, 1.0), np.nan)

    def _finish(
        self,
        done: NDArray[np.bool_],
        observation: NDArray[np.float32],
        infos: list[dict[str, Any]],
    ) -> None:
        index = np.flatnonzero(done)
        steps = self.simulation.steps[index].copy()
        step_s = 0.1 * self.simulation.settings.ticks_per_action
        sums = self._sums
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
        self._hand_to_others(done)
        observation[index] = self._shown(index)

    def _hand_to_others(self, rows: NDArray[np.bool_]) -> None:
        """Draw who holds the levers of new episodes, and until when."""
        others, rng = self._others, self._others_rng
        count = int(rows.sum())
        if others.share <= 0.0 or count == 0:
            return
        step_s = 0.1 * self.simulation.settings.ticks_per_action
        until = rng.uniform(0.0, others.longest_s / step_s, count)
        begins = rng.random(count) < others.share
        self._others_steps[rows] = np.where(begins, until, 0.0).astype(np.int64)
        action = rng.integers(ACTION_SIZES, size=(count, len(ACTION_SIZES)))
        action[:, :-1:2] = 0  # a pause is over before the policy comes
        action[rng.random(count) < others.idle_share] = 0
        self._others_actions[rows] = action

    def close(self) -> None:
        """Nothing is held open."""

    def get_attr(self, attr_name: str, indices: VecEnvIndices = None) -> list[Any]:
        """The same attribute for every node."""
        value = getattr(self, attr_name)
        return [value for _ in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: VecEnvIndices = None) -> None:
        """Set an attribute of the whole batch; single nodes have none."""
        del indices
        setattr(self, attr_name, value)

    def env_method(
        self,
        method_name: str,
        *method_args: Any,
        indices: VecEnvIndices = None,
        **method_kwargs: Any,
    ) -> list[Any]:
        """Call a method of the batch once and report it for every node."""
        value = getattr(self, method_name)(*method_args, **method_kwargs)
        return [value for _ in self._get_indices(indices)]

    def env_is_wrapped(
        self,
        wrapper_class: type[gymnasium.Wrapper[Any, Any, Any, Any]],
        indices: VecEnvIndices = None,
    ) -> list[bool]:
        """No node is wrapped."""
        del wrapper_class
        return [False for _ in self._get_indices(indices)]
