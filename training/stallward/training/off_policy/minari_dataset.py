"""Recordings as a Minari dataset, for libraries that learn from logged data (``minari``)."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from stallward.env.gym.twin_env import spaces
from stallward.training.errors import DatasetError
from stallward.training.off_policy.dataset import LoggedRun
from stallward.training.off_policy.gate import PRICE
from stallward.training.off_policy.replay_env import load_runs


def write_dataset(recordings: Sequence[str | Path], name: str, price: float = PRICE) -> Any:
    """Write recordings of randomised controllers as a Minari dataset.

    An episode is a recording, or a part of one without a gap, and is truncated at its end. Infos
    hold ``propensity``, the probability with which the logged action was drawn, which off-policy
    methods need: that of step ``t`` is at ``t + 1``, as Minari keeps infos, and 1 comes first.

    Args:
        recordings: Folders of recordings of the arm ``excite``.
        name: The dataset's id, such as ``stallward/detector-anon/excite-v0``.
        price: The price of a second that misses the target by far.

    Returns:
        The ``minari.MinariDataset``, which Minari keeps in its folder (``MINARI_DATASETS_PATH``).

    Raises:
        DatasetError: If Minari is missing or refuses the name, or a recording has no propensities.
    """
    try:
        import minari  # noqa: PLC0415 - only this needs it
        from minari.data_collector import EpisodeBuffer  # noqa: PLC0415
    except ImportError as error:
        raise DatasetError(
            "Minari is not installed.", next_step="pip install 'minari[hdf5]'"
        ) from error
    runs = load_runs(recordings, price)
    observation_space, action_space = spaces(runs[0].table)
    buffers = [EpisodeBuffer(id=number, **_episode(run)) for number, run in enumerate(runs)]
    try:
        with warnings.catch_warnings():
            # Minari warns of everything that is not given: a link, an address, an environment.
            warnings.simplefilter("ignore", UserWarning)
            return minari.create_dataset_from_buffers(
                name,
                buffers,
                algorithm_name="stallward excite",
                author="stallward",
                observation_space=observation_space,
                action_space=action_space,
                description=f"{len(runs)} runs of a randomised controller, stallward "
                f"{version('stallward')}; actions of the table {runs[0].table.name!r}.",
                requirements=[],
            )
    except ValueError as error:  # a name of another form, or one that is taken
        raise DatasetError(f"Minari refuses {name!r}: {error}.") from error


def _episode(run: LoggedRun) -> dict[str, Any]:
    """One run as Minari wants it: one observation more than actions."""
    steps = len(run.actions) - 1
    return {
        "observations": list(run.observations),
        "actions": list(run.actions[:steps]),
        "rewards": [float(reward) for reward in run.reward[:steps]],
        "terminations": [False] * steps,
        "truncations": [*([False] * (steps - 1)), True],
        # Minari keeps the info of the reset first, and then that of each step.
        "infos": {"propensity": [1.0, *(float(p) for p in run.propensity[:steps])]},
    }
