"""Recordings as a Minari dataset, for libraries that learn from logged data (``minari``)."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import gymnasium
import numpy as np

import stallward.env.gym  # noqa: F401 - registers the twin
from stallward.agent.observation.encoder import BASIC
from stallward.env.gym.spaces import spaces, to_continuous
from stallward.env.recording.run_info import load_run
from stallward.env.simulation.simulation import SimulationSettings
from stallward.env.twin.estimate.from_recordings import twin_of_recordings
from stallward.env.twin.inputs.fitted import twin_to_json
from stallward.models.registry import twin_names
from stallward.research.off_policy.gate import PRICE
from stallward.research.off_policy.replay_env import ReplayedRun, load_runs
from stallward.training.errors import DatasetError

_TICK_S: Final = 0.1


def write_dataset(
    recordings: Sequence[str | Path],
    name: str,
    price: float = PRICE,
    *,
    continuous: bool = False,
) -> Any:
    """Write recordings of randomised controllers as a Minari dataset.

    An episode is a recording, or a part of one without a gap, and is truncated at its end. Infos
    hold ``propensity``, the probability with which the logged action was drawn, which off-policy
    methods need: that of step ``t`` is at ``t + 1``, as Minari keeps infos, and 1 comes first.

    The environment that ``recover_environment`` makes is not the node that was recorded but its
    twin, ``stallward/Twin-v0`` with the same actions, price and time between decisions: the place
    to try what was learned. A twin that is not shipped is in the dataset, so that no recording is
    needed for it.

    Args:
        recordings: Folders of recordings of the arm ``excite``.
        name: The dataset's id, such as ``stallward/detector-anon/excite-v0``.
        price: The price of a second that misses the target by far.
        continuous: Whether actions are written as numbers from -1 to 1
            (:func:`stallward.env.gym.spaces.to_continuous`), for libraries that do not know
            ``MultiDiscrete`` actions.

    Returns:
        The ``minari.MinariDataset``, which Minari keeps in its folder (``MINARI_DATASETS_PATH``).

    Raises:
        DatasetError: If Minari is missing or refuses the name, or a recording has no propensities.
        RecordingError: If a recording cannot be read.
    """
    try:
        import minari.data_collector  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise DatasetError(
            "Minari is not installed.", next_step="Run `pip install 'stallward[minari]'`."
        ) from error
    runs = load_runs(recordings, price)
    table = runs[0].logged.table
    observation_space, action_space = spaces(table, continuous=continuous)
    buffers = [
        minari.data_collector.EpisodeBuffer(id=number, **_episode(run, continuous=continuous))
        for number, run in enumerate(runs)
    ]
    try:
        with warnings.catch_warnings():
            # Minari warns of everything that is not given, such as a link and an address.
            warnings.simplefilter("ignore", UserWarning)
            return minari.create_dataset_from_buffers(
                name,
                buffers,
                env=_twin_of(runs, recordings, price, continuous=continuous),
                algorithm_name="stallward excite",
                author="stallward",
                observation_space=observation_space,
                action_space=action_space,
                description=f"{len(runs)} runs of a randomised controller, stallward "
                f"{version('stallward')}; actions of the table {table.name!r}. The environment "
                "is the twin of the node that was recorded.",
                requirements=["stallward[train]"],
            )
    except ValueError as error:  # a name of another form, or one that is taken
        raise DatasetError(f"Minari refuses {name!r}: {error}.") from error


def _twin_of(
    runs: Sequence[ReplayedRun],
    recordings: Sequence[str | Path],
    price: float,
    *,
    continuous: bool,
) -> gymnasium.Env[Any, Any]:
    """The environment in which to try what was learned."""
    scenarios = sorted({run.scenario for run in runs})
    settings = SimulationSettings(ticks_per_action=1, price=price)
    return gymnasium.make(
        "stallward/Twin-v0",
        # Some libraries cut episodes by this number themselves.
        max_episode_steps=round(settings.episode_s / _TICK_S),
        settings={
            "ticks_per_action": settings.ticks_per_action,
            "price": settings.price,
            "action_table": runs[0].logged.table.name,
        },
        continuous=continuous,
        twins=[_portable(name, recordings) for name in scenarios],
    )


def _portable(scenario: str, recordings: Sequence[str | Path]) -> str | dict[str, Any]:
    """The twin of a scenario, as it can be found on any machine.

    Returns:
        Its name if it is shipped, else the twin itself: the recordings may be elsewhere by then.
    """
    if scenario in twin_names():
        return scenario
    own = [one for one in recordings if load_run(Path(one)).scenario == scenario]
    return twin_to_json(twin_of_recordings(own))


def _episode(run: ReplayedRun, *, continuous: bool) -> dict[str, Any]:
    """One run as Minari wants it: one observation more than actions."""
    logged = run.logged
    steps = len(logged.actions) - 1
    actions = to_continuous(logged.actions, logged.table) if continuous else logged.actions
    return {
        "observations": list(logged.observations[:, : BASIC.size]),
        "actions": list(np.asarray(actions)[:steps]),
        "rewards": [float(reward) for reward in logged.reward[:steps]],
        "terminations": [False] * steps,
        "truncations": [*([False] * (steps - 1)), True],
        # Minari keeps the info of the reset first, and then that of each step.
        "infos": {"propensity": [1.0, *(float(p) for p in logged.propensity[:steps])]},
    }
