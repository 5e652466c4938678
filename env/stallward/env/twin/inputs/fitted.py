"""Fitted twins: a scenario with a weighted set of parameter draws, as a JSON file."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np
from numpy.typing import NDArray

from stallward.agent.errors import SchemaError
from stallward.agent.schema.file_kinds import next_step_of
from stallward.agent.schema.json_file import read_json_file
from stallward.agent.schema.read import read
from stallward.env.errors import TwinError
from stallward.env.twin.inputs.exogenous import Exogenous, scenario_from_json, scenario_to_json
from stallward.env.twin.inputs.parameters import TwinParameters, as_mapping, from_mapping

TWIN_SCHEMA: Final = 1
_AGAIN: Final = "Fit it again with `stallward fit`."


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedTwin:
    """The result of a fit for one scenario."""

    scenario: Exogenous
    """The exogenous description."""
    draws: tuple[TwinParameters, ...]
    """Parameters that explain the recordings. A fit puts the likeliest first."""
    weights: tuple[float, ...]
    """The weight of each draw; they sum to 1."""
    others: tuple[tuple[TwinParameters, ...], ...] = ()
    """For each further application its parameters in each draw, of which only those that describe
    an application count."""
    provenance: Mapping[str, Any] = field(default_factory=dict)
    """The recordings, the method of the fit, and its error."""

    def __post_init__(self) -> None:
        """Check that there is one weight for each draw, and the parameters of each application.

        Raises:
            TwinError: If there are none, their numbers differ, or the weights are no weights.
        """
        usable = self.draws and len(self.draws) == len(self.weights)
        usable = usable and all(weight >= 0.0 for weight in self.weights)
        if not usable or not abs(sum(self.weights) - 1.0) <= 1e-6:  # which NaN is not
            raise TwinError(
                f"The twin of {self.scenario.name} has {len(self.draws)} draws and weights "
                f"that do not belong to them.",
                next_step="Fit the twin again with `stallward fit`.",
            )
        applications = (len(self.draws),) * len(self.scenario.others)
        if tuple(map(len, self.others)) != applications:
            raise TwinError(
                f"The twin of {self.scenario.name} has {len(applications)} further applications "
                f"and parameters of {len(self.others)}, or not as many as draws.",
            )

    def check_one_application(self) -> None:
        """Refuse a twin of several applications, where only one can be dealt with.

        Raises:
            TwinError: If there are several.
        """
        if self.others:
            raise TwinError(
                f"The twin of {self.scenario.name} has several applications, and here there can "
                "be only one.",
                next_step="Take a twin of one; `stallward compare --twin` takes this one.",
            )

    @property
    def saw_its_scenario(self) -> bool:
        """Whether the parameters were fitted to recordings of this scenario, or of others only."""
        return bool(self.provenance.get("recordings"))

    def choose_by(self, numbers: NDArray[np.float64]) -> NDArray[np.int64]:
        """Choose draws by weight with given uniform numbers in [0, 1); return their indices."""
        edges = np.cumsum(self.weights)
        return np.searchsorted(edges[:-1] / edges[-1], numbers, side="right").astype(np.int64)

    def choose(self, rng: np.random.Generator, count: int) -> NDArray[np.int64]:
        """Choose ``count`` draws by weight at random; return their indices."""
        return rng.choice(len(self.draws), size=count, p=np.array(self.weights))


def twin_to_json(twin: FittedTwin) -> dict[str, Any]:
    """A fitted twin in plain JSON types, as its file has it."""
    return {
        "schema": TWIN_SCHEMA,
        "scenario": scenario_to_json(twin.scenario),
        "draws": [
            {"weight": weight, **as_mapping(draw)}
            for weight, draw in zip(twin.weights, twin.draws, strict=True)
        ],
        **({"others": _others_to_json(twin)} if twin.others else {}),
        "provenance": dict(twin.provenance),
    }


def _others_to_json(twin: FittedTwin) -> list[list[dict[str, float]]]:
    return [list(map(as_mapping, own)) for own in twin.others]


def save_fitted(path: Path, twin: FittedTwin) -> None:
    """Write a fitted twin as a whole, or nothing.

    Raises:
        TwinError: If it cannot be written.
    """
    data = twin_to_json(twin)
    building = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        building.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
        building.replace(path)
    except OSError as error:
        raise TwinError(f"The twin {path} could not be written: {error}.") from error
    finally:
        with contextlib.suppress(OSError):
            building.unlink()


def load_fitted(path: Path) -> FittedTwin:
    """Read a fitted twin.

    Raises:
        TwinError: If it is missing, not a twin, or of another schema version.
    """
    try:
        data = read_json_file(path)
    except (OSError, ValueError) as error:
        raise TwinError(
            f"The twin {path} cannot be read: {error}.", next_step=next_step_of(error, _AGAIN)
        ) from error
    return twin_from_json(data, str(path))


def twin_from_json(data: object, named: str) -> FittedTwin:
    """A fitted twin from plain JSON types (:func:`twin_to_json`).

    Args:
        data: The content of its file.
        named: What errors call it.

    Raises:
        TwinError: If it is not a twin, or of another schema version.
    """
    if not isinstance(data, Mapping) or data.get("schema") != TWIN_SCHEMA:
        raise TwinError(f"{named} is not a fitted twin of schema {TWIN_SCHEMA}.", next_step=_AGAIN)
    known = {f.name for f in fields(_TwinTable)}
    try:
        table = read(_TwinTable, {key: value for key, value in data.items() if key in known})
        return FittedTwin(
            scenario=scenario_from_json(table.scenario),
            draws=tuple(map(_parameters, table.draws)),
            weights=tuple(draw["weight"] for draw in table.draws),
            others=tuple(tuple(map(from_mapping, own)) for own in table.others),
            provenance=table.provenance,
        )
    except SchemaError as error:
        raise TwinError(f"{named} does not fit this version: {error}", next_step=_AGAIN) from error
    except TwinError as error:
        raise TwinError(f"{named}: {error.cause}", next_step=error.next_step) from error


def _check_weight(draw: Mapping[str, float]) -> None:
    if "weight" not in draw:
        raise SchemaError("has no weight.")


@dataclass(frozen=True, slots=True, kw_only=True)
class _TwinTable:
    """The file of a fitted twin; a draw has its weight and the parameters by name."""

    scenario: Mapping[str, object]
    draws: tuple[Annotated[Mapping[str, float], _check_weight], ...]
    provenance: Mapping[str, object]
    others: tuple[tuple[Mapping[str, float], ...], ...] = ()


def _parameters(draw: Mapping[str, float]) -> TwinParameters:
    return from_mapping({name: value for name, value in draw.items() if name != "weight"})
