"""What the single and the vector environment of the twin share."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from stallward.agent.errors import SchemaError
from stallward.agent.schema.read import read
from stallward.env.errors import TwinError
from stallward.env.gym.node_view import Scene
from stallward.env.simulation.simulation import Simulation, SimulationSettings
from stallward.env.twin.inputs.find import load_named, load_twins
from stallward.env.twin.inputs.fitted import FittedTwin, twin_from_json

TwinSource = FittedTwin | str | Path | Mapping[str, Any]
"""A fitted twin, its name, its file, or what its file holds."""
INFOS: Final = {
    "progress": "progress",
    "violated": "violated",
    "window_violated": "window_violated",
    "switches": "moved",
}
"""The keys of an info, and the field of a step's result that each is."""


def settings_of(settings: SimulationSettings | Mapping[str, Any] | None) -> SimulationSettings:
    """The settings of an environment.

    Args:
        settings: The settings, or the fields of them that differ from their defaults.

    Raises:
        TwinError: If a setting is unknown.
    """
    if settings is None or isinstance(settings, SimulationSettings):
        return settings or SimulationSettings()
    try:
        return read(SimulationSettings, dict(settings), "settings")
    except SchemaError as error:
        raise TwinError(error.cause, next_step=error.next_step) from error


def make_simulation(
    batch: int,
    *,
    twins: Sequence[TwinSource] | None,
    recording: str | Path | Sequence[str | Path] | None,
    settings: SimulationSettings | Mapping[str, Any] | None,
) -> Simulation:
    """Make the simulation of an environment, with nodes of its own until it is seeded.

    Args:
        batch: How many nodes.
        twins: Fitted twins; ``None`` for all shipped ones.
        recording: The folder of a recording, or several of one scenario, to make the twin from.
        settings: The settings, or the fields of them that differ from their defaults.

    Raises:
        TwinError: If there is no twin, or both twins and a recording, or a setting is unknown.
        RecordingError: If no twin can be made from the recording.
    """
    if recording is not None and twins is not None:
        raise TwinError("Both twins and a recording are given.", next_step="Give one of them.")
    if recording is not None:
        # Recordings need pyarrow, which takes longer to import than the twin.
        from stallward.env.twin.estimate.from_recordings import (  # noqa: PLC0415
            twin_of_recordings,
        )

        folders = [recording] if isinstance(recording, str | Path) else recording
        loaded: tuple[FittedTwin, ...] = (twin_of_recordings(folders),)
    elif twins is None:
        loaded = load_twins()
    else:
        loaded = tuple(map(_load, twins))
    return Simulation(loaded, batch, settings_of(settings), seed=secrets.randbits(32))


def _load(twin: TwinSource) -> FittedTwin:
    if isinstance(twin, FittedTwin):
        return twin
    if isinstance(twin, Mapping):
        return twin_from_json(twin, "A twin that was given")
    return load_named(twin)


def missed_by(simulation: Simulation, index: int) -> dict[str, float]:
    """For each of several applications of a node, 1 if its last window missed its target.

    The keys are ``window_violated_`` and the name of the application; none where there is one.
    """
    scenario = simulation.twins[simulation.scenario[index]].scenario
    if not scenario.others:
        return {}
    names = (scenario.protected_name, *(other.name for other in scenario.others))
    return {
        f"window_violated_{name}": float(own.missed[index])
        for name, own in zip(names, simulation.twin.applications, strict=False)
    }


def scene_of(simulation: Simulation, index: int) -> Scene:
    """The scene of a node: its twin, and the target of the episode, which varies around its own."""
    scenario = simulation.twins[simulation.scenario[index]].scenario
    return Scene(
        title=scenario.name,
        target_ms=float(simulation.twin.nodes.slo_ms[index]),
        slot_names=tuple(slot.name for slot in scenario.slots),
    )
