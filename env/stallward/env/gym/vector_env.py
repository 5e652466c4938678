"""``stallward/Twin-v0`` for many nodes at once, as a Gymnasium ``VectorEnv``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from stallward.agent.action_table import ActionTable
from stallward.agent.observation.encoder import BASIC
from stallward.env.gym.renderer import RENDER_MODES, Renderer
from stallward.env.gym.spaces import Actions, find_features, spaces, to_choices
from stallward.env.gym.twin_nodes import INFOS, TwinSource, make_simulation, scene_of
from stallward.env.simulation.simulation import SimulationSettings


class TwinVectorEnv(VectorEnv[NDArray[np.float32], Actions, NDArray[np.float64]]):
    """A batch of twin nodes in one process; an episode that ends is begun again in the same step.

    Arguments, errors and infos are those of :class:`stallward.env.gym.twin_env.TwinEnv`. Infos
    have one entry for each node, with Gymnasium's masks (``_progress``). Where an episode has
    ended, ``final_obs`` has its last observation and ``final_info`` its last infos.

    Args:
        num_envs: How many nodes, ``B``.
    """

    # Not a ClassVar: Gymnasium declares it on the instance.
    metadata: dict[str, Any] = {  # noqa: RUF012
        "render_modes": RENDER_MODES,
        "render_fps": 5,
        "autoreset_mode": AutoresetMode.SAME_STEP,
    }

    def __init__(
        self,
        num_envs: int = 1,
        twins: Sequence[TwinSource] | None = None,
        settings: SimulationSettings | Mapping[str, Any] | None = None,
        *,
        recording: str | Path | Sequence[str | Path] | None = None,
        continuous: bool = False,
        features: str = BASIC.name,
        render_mode: str | None = None,
    ) -> None:
        self._simulation = make_simulation(
            num_envs, twins=twins, recording=recording, settings=settings
        )
        self._continuous, self._features = continuous, find_features(features)
        self.num_envs = num_envs
        self.render_mode = render_mode
        self._renderer = Renderer(render_mode)
        self.single_observation_space, self.single_action_space = spaces(
            self._simulation.table, self._features, continuous=continuous
        )
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

    @property
    def table(self) -> ActionTable:
        """The table that actions choose from."""
        return self._simulation.table

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Begin an episode on every node.

        Args:
            seed: Everything random follows from it: nodes have streams of their own.
            options: ``{"reset_mask": mask}`` begins one on some nodes only, ``(B,)`` booleans.

        Returns:
            The first observations, ``(B, features)``, and no infos.
        """
        super().reset(seed=seed, options=options)
        if seed is not None:
            self._simulation.seed(seed)
        everyone = np.ones(self.num_envs, dtype=bool)
        rows = np.asarray((options or {}).get("reset_mask", everyone), dtype=bool)
        self._simulation.reset(rows)
        self._show(rows)
        return self._observation(), {}

    def step(  # type: ignore[override]  # the flags are booleans, as in Gymnasium's own ones
        self, actions: Actions
    ) -> tuple[
        NDArray[np.float32],
        NDArray[np.float64],
        NDArray[np.bool_],
        NDArray[np.bool_],
        dict[str, Any],
    ]:
        """Hold one action on every node for one decision.

        Args:
            actions: The actions, ``(B, len(table.sizes))``.

        Returns:
            Observations, rewards, terminated (never), truncated, and infos.
        """
        choices = to_choices(actions, self._simulation.table, continuous=self._continuous)
        result = self._simulation.step(choices)
        values = {
            name: np.array(getattr(result, field), dtype=np.float64)
            for name, field in INFOS.items()
        }
        observation, done = self._observation(), np.array(result.done)
        # As in Gymnasium's own vector environments: where an episode has ended, what holds is the
        # reset of the next one, which has no infos.
        infos = _masked(values, ~done)
        if done.any():
            final = np.full(self.num_envs, None, dtype=object)
            for index in np.flatnonzero(done):
                final[index] = observation[index].copy()
            infos |= {"final_obs": final, "_final_obs": done.copy()}
            infos |= {"final_info": _masked(values, done), "_final_info": done.copy()}
            self._simulation.reset(done)
            observation[done] = self._observation()[done]
        self._show(done)
        reward = np.array(result.reward, dtype=np.float64)
        return observation, reward, np.zeros(self.num_envs, dtype=bool), done, infos

    def _observation(self) -> NDArray[np.float32]:
        """What is shown of the present observations, a copy."""
        return self._simulation.observation[:, : self._features.size].copy()

    def render(self) -> tuple[Any, ...] | None:
        """Each node as it is now, as text or as a picture, ``(400, 640, 3)``."""
        if not self._renderer.active:
            return None
        return tuple(self._renderer.render(index) for index in range(self.num_envs))

    def _show(self, begun: NDArray[np.bool_]) -> None:
        """Tell the renderer what the nodes are like now, and on which an episode has begun."""
        if not self._renderer.active:
            return
        for index, frame in enumerate(self._simulation.frames()):
            if begun[index]:
                self._renderer.begin(index, scene_of(self._simulation, index), frame)
            else:
                self._renderer.step(index, frame)


def _masked(values: dict[str, NDArray[np.float64]], mask: NDArray[np.bool_]) -> dict[str, Any]:
    """Infos that hold on some nodes, with Gymnasium's masks of which."""
    infos: dict[str, Any] = {}
    for name, value in values.items():
        infos[name], infos[f"_{name}"] = np.where(mask, value, 0.0), mask.copy()
    return infos
