"""The averages of a pressure file, which the kernel updates every two seconds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stallward.actuator.errors import SensorError

_KEYS: Final = (b"avg10=", b"avg60=", b"avg300=")


@dataclass(frozen=True, slots=True)
class PsiAverages:
    """The share of time that was stalled, in percent; all ``None`` for a missing line."""

    avg10_percent: float | None = None
    avg60_percent: float | None = None
    avg300_percent: float | None = None


NO_AVERAGES: Final = PsiAverages()


def parse_psi_averages(content: bytes, path: Path) -> tuple[PsiAverages, PsiAverages]:
    """Parse the averages of ``some`` and of ``full``.

    Raises:
        SensorError: If a line is malformed or cut short.
    """
    *lines, rest = content.split(b"\n")
    if rest or not lines:
        raise SensorError(path, f"cut short: {content[-60:]!r}")
    found: dict[bytes, PsiAverages] = {}
    for line in lines:
        kind, *words = line.split(b" ")
        numbers = [
            _percent(word[len(key) :]) if word.startswith(key) else None
            for key, word in zip(_KEYS, words[:3], strict=False)
        ]
        if kind not in {b"some", b"full"} or kind in found or len(numbers) < 3 or None in numbers:
            raise SensorError(path, f"not a pressure line: {line[:80]!r}")
        found[kind] = PsiAverages(*numbers)
    return found.get(b"some", NO_AVERAGES), found.get(b"full", NO_AVERAGES)


def _percent(text: bytes) -> float | None:
    """A number as the kernel writes it: digits, a point and two digits."""
    whole, point, hundredths = text.partition(b".")
    digits = whole.isdigit() and hundredths.isdigit() and len(text) < 12
    return float(text) if point and digits else None
