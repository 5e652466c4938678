"""Finds fitted twins by name or file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from stallward.env.scenario.file import load_scenario, shipped_files
from stallward.env.scenario.scenario import Scenario
from stallward.env.twin.inputs.compose import compose
from stallward.env.twin.inputs.fitted import FittedTwin, load_fitted
from stallward.models.registry import find_twin, twin_names


def find_twin_of(scenario: str, named: str) -> Path:
    """Return the file of a fitted twin.

    Args:
        scenario: The name of a scenario.
        named: The path of a file, the name of a twin, or ``default`` for that of the scenario.
    """
    if Path(named).is_file():
        return Path(named)
    return Path(find_twin(scenario if named == "default" else named))


def load_twin_of(scenario: Scenario, named: str) -> FittedTwin:
    """Load the twin of a scenario.

    Args:
        scenario: The scenario.
        named: As :func:`find_twin_of` takes it. The ``default`` of a scenario with several
            applications is composed (:mod:`stallward.env.twin.inputs.compose`).

    Raises:
        TwinError: If it cannot be read, or not be composed.
        RegistryError: If there is no such twin.
    """
    if scenario.others and named == "default":
        return compose(scenario)
    return load_fitted(find_twin_of(scenario.name, named))


def load_named(name: str | Path) -> FittedTwin:
    """Load a twin by its name or file, or by the name of a scenario with several applications.

    Raises:
        TwinError: If it cannot be read, or not be composed.
        RegistryError: If there is no such twin.
    """
    if str(name) not in twin_names() and str(name) in shipped_files():
        scenario = load_scenario(name, several=True)
        if scenario.others:
            return compose(scenario)
    return load_fitted(find_twin(name))


def load_twins(names: Sequence[str | Path] | None = None) -> tuple[FittedTwin, ...]:
    """Load fitted twins by name or path; all shipped ones by default.

    Raises:
        TwinError: If one cannot be read.
        RegistryError: If there is no twin of a name.
    """
    chosen = twin_names() if names is None else names
    return tuple(load_fitted(find_twin(name)) for name in chosen)
