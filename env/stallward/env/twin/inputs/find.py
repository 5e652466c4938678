"""Fitted twins, found by name or file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from stallward.env.twin.inputs.fitted import FittedTwin, load_fitted
from stallward.models.registry import find_twin, twin_names


def find_twin_of(scenario: str, named: str) -> Path:
    """The file of a fitted twin: a path, a name, or ``default`` for the scenario's own."""
    if Path(named).is_file():
        return Path(named)
    from stallward.models.registry import find_twin  # noqa: PLC0415

    return Path(find_twin(scenario if named == "default" else named))


def load_twins(names: Sequence[str | Path] | None = None) -> tuple[FittedTwin, ...]:
    """Fitted twins by name or path; all shipped ones by default.

    Raises:
        TwinError: If one cannot be read.
        RegistryError: If one is not there.
    """
    chosen = twin_names() if names is None else names
    return tuple(load_fitted(find_twin(name)) for name in chosen)
