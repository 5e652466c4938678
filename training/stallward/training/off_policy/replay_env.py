"""``stallward/Replay-v0``: steps through what a randomised controller did on a real node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import gymnasium
import numpy as np
from numpy.typing import NDArray

from stallward.env.gym.twin_env import spaces
from stallward.env.recording.recording import load_recording
from stallward.env.twin.inputs.find import find_twin_of
from stallward.env.twin.inputs.fitted import load_fitted
from stallward.training.errors import DatasetError
from stallward.training.off_policy.dataset import LoggedRun, read_logged
from stallward.training.off_policy.gate import PRICE

_LEAST_STEPS: Final = 2
_GAP_S: Final = 0.25
"""A longer time between two ticks is a gap: they are 0.1 s apart."""


def load_runs(recordings: Sequence[str | Path], price: float = PRICE) -> tuple[LoggedRun, ...]:
    """Read recordings of randomised controllers, each cut where ticks were left out.

    Args:
        recordings: Their folders.
        price: The price in the rewards, see :data:`PRICE`.

    Raises:
        RecordingError: If one cannot be read.
        DatasetError: If there is none, one holds no propensities or no two ticks in a row, or they
            have different action tables.
    """
    runs = []
    for folder in recordings:
        recording = load_recording(Path(folder))
        twin = load_fitted(find_twin_of(recording.run.scenario, recording.run.scenario))
        logged = read_logged(recording, twin.scenario, price)
        parts = _without_gaps(logged.run, np.array([one.time_s for one in logged.samples]))
        if not parts:
            raise DatasetError(f"{folder} has no two usable ticks in a row.")
        runs += parts
    if not runs:
        raise DatasetError(
            "No recording is given.", next_step="Name folders of recordings of the arm excite."
        )
    if len({run.table.name for run in runs}) > 1:
        raise DatasetError("The recordings have actions of different tables.")
    return tuple(runs)


def _without_gaps(run: LoggedRun, time_s: NDArray[np.float64]) -> list[LoggedRun]:
    """The parts of a run between ticks that were left out, because something else decided.

    Args:
        run: The run.
        time_s: The time of each of its ticks.
    """
    ends = np.flatnonzero(np.diff(time_s) > _GAP_S) + 1
    bounds = [0, *ends.tolist(), len(time_s)]
    spans = [slice(a, b) for a, b in pairwise(bounds) if b - a >= _LEAST_STEPS]
    names = [run.name] if len(spans) == 1 else [f"{run.name}/{k}" for k in range(len(spans))]
    return [
        replace(
            run,
            name=name,
            observations=run.observations[span],
            actions=run.actions[span],
            propensity=run.propensity[span],
            reward=run.reward[span],
        )
        for name, span in zip(names, spans, strict=True)
    ]


class ReplayEnv(gymnasium.Env[NDArray[np.float32], NDArray[np.int64]]):
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
        render_mode: Nothing is rendered.

    Raises:
        RecordingError: If a recording cannot be read.
        DatasetError: If one holds no propensities.
    """

    # Not a ClassVar: Gymnasium declares it on the instance.
    metadata: dict[str, Any] = {"render_modes": [], "render_fps": 10}  # noqa: RUF012

    def __init__(
        self,
        recordings: Sequence[str | Path],
        price: float = PRICE,
        render_mode: str | None = None,
    ) -> None:
        self._runs = load_runs(recordings, price)
        self.observation_space, self.action_space = spaces(self._runs[0].table)
        self.render_mode = render_mode
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
        return self._run.observations[0].copy(), {"recording": self._run.name}

    def step(
        self, action: NDArray[np.int64]
    ) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Go on to the next tick of the recording, whatever the action is."""
        run, tick = self._run, self._tick
        logged = run.actions[tick]
        info = {
            "logged_action": logged.copy(),
            "propensity": float(run.propensity[tick]),
            "agrees": bool(np.array_equal(np.asarray(action), logged)),
        }
        self._tick += 1
        last = self._tick == len(run.actions) - 1
        reward = float(run.reward[tick])
        return run.observations[self._tick].copy(), reward, False, last, info
