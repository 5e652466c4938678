"""``stallward/Twin-v0``: one simulated node as a Gymnasium environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import gymnasium
import numpy as np
from numpy.typing import NDArray

from stallward.agent.action_table import LEVELS, ActionTable
from stallward.agent.errors import SchemaError
from stallward.agent.observation.encoder import OBSERVATION_SIZE
from stallward.agent.schema.read import read
from stallward.env.errors import TwinError
from stallward.env.simulation.simulation import OBSERVATION_BOUND, Simulation, SimulationSettings
from stallward.env.twin.inputs.find import load_twins
from stallward.env.twin.inputs.fitted import FittedTwin, load_fitted
from stallward.models.registry import find_twin


def spaces(
    table: ActionTable = LEVELS,
) -> tuple[gymnasium.Space[NDArray[np.float32]], gymnasium.Space[NDArray[np.int64]]]:
    """The observation space of ``agent.observation``, and the action space of a table."""
    box: Any = gymnasium.spaces.Box(
        low=-OBSERVATION_BOUND,
        high=OBSERVATION_BOUND,
        shape=(OBSERVATION_SIZE,),
        dtype=np.float32,
    )
    return box, gymnasium.spaces.MultiDiscrete(np.array(table.sizes, dtype=np.int64))


INFOS: Final = {
    "progress": "progress",
    "violated": "violated",
    "window_violated": "window_violated",
    "switches": "moved",
}
"""The keys of an info, and the field of a step's result that each is."""


def make_simulation(
    twins: Sequence[FittedTwin | str | Path] | None,
    batch: int,
    settings: SimulationSettings | Mapping[str, Any] | None,
) -> Simulation:
    """Make the simulation of an environment.

    Args:
        twins: Fitted twins, their names or paths; ``None`` for all shipped ones.
        batch: How many nodes.
        settings: The settings, or the fields of them that differ from their defaults.

    Raises:
        TwinError: If there is no twin, or a setting is unknown.
    """
    if isinstance(settings, Mapping):
        try:
            settings = read(SimulationSettings, dict(settings), "settings")
        except SchemaError as error:
            raise TwinError(error.cause, next_step=error.next_step) from error
    if twins is None:
        loaded = load_twins()
    else:
        loaded = tuple(
            t if isinstance(t, FittedTwin) else load_fitted(find_twin(t)) for t in twins
        )
    return Simulation(loaded, batch, settings or SimulationSettings(), seed=0)


class TwinEnv(gymnasium.Env[NDArray[np.float32], NDArray[np.int64]]):
    """One node of the twin. A step is one decision, which holds for two ticks of 0.1 s.

    Infos hold ``progress`` (the background's share of full speed), ``violated`` (severity of the
    last second), ``window_violated`` (1 if the last window of at least a second and 20 requests
    missed the target) and ``switches`` (how many levers moved).

    Args:
        twins: Fitted twins, their names or paths; all shipped ones by default.
        settings: How episodes are made and rewarded, or the fields of it that differ from their
            defaults, in plain JSON types.
        render_mode: Nothing is rendered.
    """

    # Not a ClassVar: Gymnasium declares it on the instance.
    metadata: dict[str, Any] = {"render_modes": [], "render_fps": 5}  # noqa: RUF012

    def __init__(
        self,
        twins: Sequence[FittedTwin | str | Path] | None = None,
        settings: SimulationSettings | Mapping[str, Any] | None = None,
        render_mode: str | None = None,
    ) -> None:
        self._simulation = make_simulation(twins, 1, settings)
        self.observation_space, self.action_space = spaces(self._simulation.table)
        self.render_mode = render_mode

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Begin an episode on a node drawn from the fitted twins."""
        super().reset(seed=seed, options=options)
        if seed is not None:
            self._simulation.seed(seed)
        self._simulation.reset(np.ones(1, dtype=bool))
        return self._simulation.observation[0].copy(), {}

    def step(
        self, action: NDArray[np.int64]
    ) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Hold ``action`` for one decision."""
        result = self._simulation.step(np.asarray(action, dtype=np.int64)[None])
        info = {name: float(getattr(result, field)[0]) for name, field in INFOS.items()}
        observation = np.array(result.observation[0])
        return observation, float(result.reward[0]), False, bool(result.done[0]), info
