"""``stallward/Twin-v0``: one simulated node as a Gymnasium environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from stallward.agent.action_table import ActionTable
from stallward.agent.observation.encoder import BASIC
from stallward.env.gym.renderer import RENDER_MODES, Renderer
from stallward.env.gym.spaces import Actions, find_features, spaces, to_choices
from stallward.env.gym.twin_nodes import INFOS, TwinSource, make_simulation, missed_by, scene_of
from stallward.env.simulation.simulation import SimulationSettings


class TwinEnv(gymnasium.Env[NDArray[np.float32], Actions]):
    """One node of the twin. A step is one decision, which holds for two ticks of 0.1 s.

    Infos hold ``progress`` (the background's share of full speed), ``violated`` (severity of the
    last second), ``window_violated`` (1 if the last window of at least a second and 20 requests
    missed the target) and ``switches`` (how many levers moved). Of several applications each of
    these figures is that of the one that suffers most, and ``window_violated_NAME`` is that of one.

    Args:
        twins: Fitted twins, their names or paths, or what their files hold; all shipped ones by
            default.
        recording: Instead of twins: the folder of a recording, or several of one scenario, from
            which a twin is made (:mod:`stallward.env.twin.estimate.from_recordings`).
        settings: How episodes are made and rewarded, or the fields of it that differ from their
            defaults, in plain JSON types.
        continuous: Whether actions are numbers from -1 to 1
            (:func:`stallward.env.gym.spaces.to_choices`).
        features: What is shown of an observation, one of ``FEATURE_SETS`` in
            :mod:`stallward.agent.observation.encoder`.
        render_mode: ``ansi`` for text, ``rgb_array`` for a picture.

    Raises:
        TwinError: If there is no twin, or both twins and a recording, or a setting is unknown.
        RecordingError: If no twin can be made from the recording.
        UsageError: If there is no such render mode, or no such features.
    """

    # Not a ClassVar: Gymnasium declares it on the instance.
    metadata: dict[str, Any] = {  # noqa: RUF012
        "render_modes": RENDER_MODES,
        "render_fps": 5,
    }

    def __init__(
        self,
        twins: Sequence[TwinSource] | None = None,
        settings: SimulationSettings | Mapping[str, Any] | None = None,
        *,
        recording: str | Path | Sequence[str | Path] | None = None,
        continuous: bool = False,
        features: str = BASIC.name,
        render_mode: str | None = None,
    ) -> None:
        self._simulation = make_simulation(1, twins=twins, recording=recording, settings=settings)
        self._continuous, self._features = continuous, find_features(features)
        self.observation_space, self.action_space = spaces(
            self._simulation.table, self._features, continuous=continuous
        )
        self.render_mode = render_mode
        self._renderer = Renderer(render_mode)

    @property
    def table(self) -> ActionTable:
        """The table that actions choose from."""
        return self._simulation.table

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Begin an episode on a node drawn from the fitted twins."""
        super().reset(seed=seed, options=options)
        if seed is not None:
            self._simulation.seed(seed)
        self._simulation.reset(np.ones(1, dtype=bool))
        if self._renderer.active:
            scene = scene_of(self._simulation, 0)
            self._renderer.begin(0, scene, self._simulation.frames()[0])
        return self._simulation.observation[0, : self._features.size].copy(), {}

    def step(
        self, action: Actions
    ) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Hold ``action`` for one decision."""
        choices = to_choices(action, self._simulation.table, continuous=self._continuous)
        result = self._simulation.step(choices[None])
        info = {name: float(getattr(result, field)[0]) for name, field in INFOS.items()}
        info |= missed_by(self._simulation, 0)
        observation = np.array(result.observation[0, : self._features.size])
        if self._renderer.active:
            self._renderer.step(0, self._simulation.frames()[0])
        return observation, float(result.reward[0]), False, bool(result.done[0]), info

    def render(self) -> str | NDArray[np.uint8] | None:
        """The node as it is now, as text or as a picture, ``(400, 640, 3)``."""
        return self._renderer.render()
