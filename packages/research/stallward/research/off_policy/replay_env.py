"""``stallward/Replay-v0``: steps through what a randomised controller did on a real node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import gymnasium
import numpy as np
from numpy.typing import NDArray

from stallward.agent.observation.encoder import BASIC
from stallward.agent.observation.raw import RawFrame
from stallward.env.gym.node_view import Scene
from stallward.env.gym.renderer import RENDER_MODES, Renderer
from stallward.env.gym.spaces import Actions, find_features, spaces, to_choices, to_continuous
from stallward.env.recording.recording import Recording, load_recording
from stallward.env.twin.estimate.exogenous import estimate_exogenous
from stallward.env.twin.inputs.exogenous import Exogenous
from stallward.env.twin.inputs.find import load_twins
from stallward.models.registry import twin_names
from stallward.research.off_policy.dataset import LoggedRecording, LoggedRun, read_logged
from stallward.research.off_policy.gate import PRICE
from stallward.training.errors import DatasetError

_LEAST_STEPS: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedRun:
    """An episode: a recorded run, or a part of one without a gap."""

    logged: LoggedRun
    """Observations, actions, propensities and rewards."""
    frames: tuple[RawFrame, ...]
    """The raw frame of each tick."""
    scenario: str
    """The name of the scenario that was recorded."""
    scene: Scene
    """What is shown of it beside the frames."""


def load_runs(recordings: Sequence[str | Path], price: float = PRICE) -> tuple[ReplayedRun, ...]:
    """Read recordings of randomised controllers, each cut where ticks were left out.

    Progress is relative to the full speeds of the shipped twin of the scenario or, without one, to
    the highest speeds in the given recordings of it.

    Args:
        recordings: Their folders.
        price: The price in the rewards, see :data:`PRICE`.

    Raises:
        RecordingError: If one cannot be read.
        DatasetError: If there is none, one holds no propensities or no two ticks in a row, or they
            have different action tables.
    """
    loaded = [load_recording(Path(folder)) for folder in recordings]
    names = {recording.run.scenario for recording in loaded}
    described = {name: _described(name, loaded) for name in names}
    runs = []
    for recording in loaded:
        logged = read_logged(recording, described[recording.run.scenario], price)
        parts = _without_gaps(recording, logged)
        if not parts:
            raise DatasetError(f"{recording.path} has no two usable ticks in a row.")
        runs += parts
    if not runs:
        raise DatasetError(
            "No recording is given.", next_step="Name folders of recordings of the arm excite."
        )
    if len({run.logged.table.name for run in runs}) > 1:
        raise DatasetError("The recordings have actions of different tables.")
    return tuple(runs)


def _described(scenario: str, recordings: Sequence[Recording]) -> Exogenous:
    """The description of a scenario, with the full speed of each program."""
    if scenario in twin_names():
        return load_twins([scenario])[0].scenario
    return estimate_exogenous(scenario, [r for r in recordings if r.run.scenario == scenario])


def _without_gaps(recording: Recording, logged: LoggedRecording) -> list[ReplayedRun]:
    """The parts of a run between ticks that were left out, because something else decided."""
    run = logged.run
    bounds = [0, *(np.flatnonzero(run.last) + 1).tolist()]
    spans = [slice(a, b) for a, b in pairwise(bounds) if b - a >= _LEAST_STEPS]
    names = [run.name] if len(spans) == 1 else [f"{run.name}/{k}" for k in range(len(spans))]
    return [
        ReplayedRun(
            logged=replace(
                run,
                name=name,
                observations=run.observations[span],
                actions=run.actions[span],
                propensity=run.propensity[span],
                reward=run.reward[span],
                last=run.last[span],
            ),
            frames=logged.frames[span],
            scenario=recording.run.scenario,
            scene=Scene(
                title=name,
                target_ms=logged.context.slo_ms,
                slot_names=logged.context.slot_names,
            ),
        )
        for name, span in zip(names, spans, strict=True)
    ]


class ReplayEnv(gymnasium.Env[NDArray[np.float32], Actions]):
    """A recorded run, tick by tick.

    The action that is passed to ``step`` changes nothing: what comes next is what came next in the
    recording, under the action that was taken there. So this **cannot answer what another action
    would have done**, and returns of episodes say nothing about the agent that steps through them.
    For that there is the twin (``stallward/Twin-v0``), and the estimators of ``stallward ope``,
    which weigh each reward by how likely the agent's actions were in the recording.

    What it is for: looking at a policy's decisions beside real observations, and feeding libraries
    that learn from logged data through this interface.

    Infos of a step hold ``logged_action`` (what was done), ``propensity`` (the probability with
    which it was drawn) and ``agrees`` (whether the passed action is the same).

    Args:
        recordings: Folders of recordings of the arm ``excite``; an episode is one of them, or a
            part of one without a gap.
        price: The price of a second that misses the target by far, in units of full background
            speed.
        continuous: Whether actions are numbers from -1 to 1
            (:func:`stallward.env.gym.spaces.to_choices`).
        features: What is shown of an observation, one of ``FEATURE_SETS`` in
            :mod:`stallward.agent.observation.encoder`.
        render_mode: ``ansi`` for text, ``rgb_array`` for a picture.

    Raises:
        RecordingError: If a recording cannot be read.
        DatasetError: If one holds no propensities.
        UsageError: If there is no such render mode, or no such features.
    """

    # Not a ClassVar: Gymnasium declares it on the instance.
    metadata: dict[str, Any] = {  # noqa: RUF012
        "render_modes": RENDER_MODES,
        "render_fps": 10,
    }

    def __init__(
        self,
        recordings: Sequence[str | Path],
        price: float = PRICE,
        *,
        continuous: bool = False,
        features: str = BASIC.name,
        render_mode: str | None = None,
    ) -> None:
        self._runs = load_runs(recordings, price)
        self._table = self._runs[0].logged.table
        self._continuous, self._features = continuous, find_features(features)
        self.observation_space, self.action_space = spaces(
            self._table, self._features, continuous=continuous
        )
        self.render_mode = render_mode
        self._renderer = Renderer(render_mode)
        self._run, self._tick = self._runs[0], 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Begin with the first tick of a recording that is drawn.

        Args:
            seed: Seeds the drawing.
            options: ``{"recording": i}`` chooses an episode by its index.

        Raises:
            DatasetError: If there is no such recording.
        """
        super().reset(seed=seed, options=options)
        index = (options or {}).get("recording")
        if index is None:
            index = int(self.np_random.integers(len(self._runs)))
        if index not in range(len(self._runs)):
            raise DatasetError(
                f"There is no recording {index!r}.", next_step=f"There are {len(self._runs)}."
            )
        self._run, self._tick = self._runs[index], 0
        self._renderer.begin(0, self._run.scene, self._run.frames[0])
        logged = self._run.logged
        return self._observation(), {"recording": logged.name}

    def step(
        self, action: Actions
    ) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Go on to the next tick of the recording, whatever the action is."""
        run, tick = self._run.logged, self._tick
        taken = run.actions[tick]
        chosen = to_choices(action, self._table, continuous=self._continuous)
        info = {
            "logged_action": to_continuous(taken, self._table)
            if self._continuous
            else taken.copy(),
            "propensity": float(run.propensity[tick]),
            "agrees": bool(np.array_equal(chosen, taken)),
        }
        self._tick += 1
        self._renderer.step(0, self._run.frames[self._tick])
        last = self._tick == len(run.actions) - 1
        reward = float(run.reward[tick])
        return self._observation(), reward, False, last, info

    def _observation(self) -> NDArray[np.float32]:
        """What is shown of the observation of this tick, a copy."""
        return self._run.logged.observations[self._tick, : self._features.size].copy()

    def render(self) -> str | NDArray[np.uint8] | None:
        """The node at this tick, as text or as a picture, ``(400, 640, 3)``."""
        return self._renderer.render()
