"""Thresholds of rules: a frozen dataclass, the range of each number, and the file for them.

A rule that can be tuned keeps its numbers in a dataclass whose fields are made with
:func:`tuned`. This one table gives the comments in the file, the checks of its values, and the
unit cube in which a search moves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from stallward.agent.errors import SchemaError, ThresholdError
from stallward.agent.schema.file_kinds import next_step_of
from stallward.agent.schema.read import read
from stallward.agent.schema.toml_file import read_toml_file
from stallward.agent.schema.write import toml_literal

Array = NDArray[np.float64]
T = TypeVar("T")
_SPAN: Final = "span"
_HOW_TO_MAKE: Final = "Make one with `stallward tune`, or copy the shipped one."


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """The meaning and the range of one threshold."""

    meaning: str
    """What it is, with its unit; it stands beside the number in files."""
    low: float
    """The least value that a search tries and a file may have."""
    high: float
    """The greatest value."""
    logarithmic: bool = False
    """Whether a search moves by ratios."""
    whole: bool = False
    """Whether the value is a whole number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _ThresholdsFile:
    """The file of a rule's thresholds."""

    controller: str
    thresholds: Mapping[str, object]
    provenance: Mapping[str, object] = field(default_factory=dict)


def tuned(
    default: float,
    meaning: str,
    low: float,
    high: float,
    *,
    logarithmic: bool = False,
    whole: bool = False,
) -> Any:
    """Make a field of a dataclass of thresholds.

    Args:
        default: The value before any search.
        meaning: See :class:`Span`, as for the arguments that follow.
        low: The least value.
        high: The greatest value.
        logarithmic: Whether a search moves by ratios.
        whole: Whether the value is a whole number.
    """
    span = Span(meaning=meaning, low=low, high=high, logarithmic=logarithmic, whole=whole)
    return field(default=default, metadata={_SPAN: span})


def spans(kind: type[Any]) -> dict[str, Span]:
    """The span of each field of a dataclass of thresholds, in order."""
    return {item.name: item.metadata[_SPAN] for item in fields(kind)}


def as_values(settings: Any) -> dict[str, float]:
    """The value of each threshold by its name."""
    return {name: float(getattr(settings, name)) for name in spans(type(settings))}


def columns(settings: Sequence[Any]) -> dict[str, Array]:
    """The values of each threshold in several settings, by its name, ``(len(settings),)``."""
    kind = type(settings[0])
    return {
        name: np.array([getattr(row, name) for row in settings], dtype=np.float64)
        for name in spans(kind)
    }


def to_unit(settings: Any) -> Array:
    """The thresholds as a point of the unit cube, ``(number of fields,)``."""
    unit = []
    for name, span in spans(type(settings)).items():
        value, low, high = float(getattr(settings, name)), span.low, span.high
        if span.logarithmic:
            value, low, high = np.log(value), np.log(low), np.log(high)
        unit.append((value - low) / (high - low))
    return np.asarray(np.clip(np.array(unit), 0.0, 1.0))


def from_unit(kind: type[T], unit: Array) -> T:
    """The inverse of :func:`to_unit`; each whole number has an equal share of the interval."""
    values: dict[str, float] = {}
    for (name, span), share in zip(spans(kind).items(), np.clip(unit, 0.0, 1.0), strict=True):
        if span.whole:
            count = span.high - span.low + 1
            values[name] = float(min(span.low + np.floor(share * count), span.high))
        elif span.logarithmic:
            values[name] = float(span.low * (span.high / span.low) ** share)
        else:
            values[name] = float(span.low + share * (span.high - span.low))
    return kind(**values)


def make_thresholds(kind: type[T], values: Mapping[str, Any], where: str) -> T:
    """Make thresholds from a mapping; a threshold that it does not name keeps its default.

    Args:
        kind: The dataclass.
        values: The value of each threshold by its name.
        where: The source of the values, for messages.

    Raises:
        ThresholdError: If a name is unknown, or a value is not a number in its range.
    """
    known = spans(kind)
    unknown = sorted(set(values) - set(known))
    if unknown:
        raise ThresholdError(
            f"{where} names {', '.join(map(repr, unknown))}, which is not a threshold.",
            next_step=f"The thresholds are: {', '.join(known)}.",
        )
    for name, value in values.items():
        span = known[name]
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        fits = is_number and span.low * (1 - 1e-9) <= value <= span.high * (1 + 1e-9)
        if not fits or (span.whole and value != int(value)):
            expected = "a whole number" if span.whole else "a number"
            raise ThresholdError(
                f"{where}: {name} is {value!r:.80}, not {expected} from {span.low:g} "
                f"to {span.high:g}.",
                next_step=f"It means: {span.meaning}.",
            )
    return kind(**{name: float(value) for name, value in values.items()})


def read_thresholds(path: Path, kind: type[T], controller: str) -> tuple[T, Mapping[str, Any]]:
    """Read the thresholds in a file, and their provenance.

    Raises:
        ThresholdError: If the file cannot be read, or is for another controller.
    """
    try:
        data = read_toml_file(path)
    except (OSError, ValueError) as error:
        raise ThresholdError(
            f"The thresholds {path} cannot be read: {error}.",
            next_step=next_step_of(error, _HOW_TO_MAKE),
        ) from error
    try:
        file = read(_ThresholdsFile, data)
    except SchemaError as error:
        raise ThresholdError(
            f"{path} is not a file of thresholds: {error}", next_step=_HOW_TO_MAKE
        ) from error
    if file.controller != controller:
        raise ThresholdError(
            f"{path} is for the controller {file.controller!r:.80}, not {controller!r}.",
            next_step=_HOW_TO_MAKE,
        )
    return make_thresholds(kind, file.thresholds, str(path)), file.provenance


def thresholds_text(settings: Any, controller: str, provenance: Mapping[str, Any]) -> str:
    """The text of the file that :func:`read_thresholds` reads.

    Args:
        settings: The thresholds.
        controller: The controller that they are for.
        provenance: Where they come from: strings, numbers and lists of them.
    """
    lines = [f"controller = {toml_literal(controller)}", "", "[thresholds]"]
    for name, span in spans(type(settings)).items():
        value = float(getattr(settings, name))
        text = f"{int(value)}" if span.whole else repr(float(f"{value:.4g}"))
        lines.append(f"# {span.meaning}; {span.low:g} to {span.high:g}")
        lines.append(f"{name} = {text}")
    lines += ["", "[provenance]"]
    lines += [f"{key} = {toml_literal(value)}" for key, value in provenance.items()]
    return "\n".join(lines) + "\n"
