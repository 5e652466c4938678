"""Finds fitted twins by name or file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

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


def load_twins(names: Sequence[str | Path] | None = None) -> tuple[FittedTwin, ...]:
    """Load fitted twins by name or path; all shipped ones by default.

    Raises:
        TwinError: If one cannot be read.
        RegistryError: If there is no twin of a name.
    """
    chosen = twin_names() if names is None else names
    return tuple(load_fitted(find_twin(name)) for name in chosen)
