"""The counts of what came to a latency source, and what the first bad input looked like.

Standard library only: the processes that gather latencies must stay small.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from stallward.agent.printable import printable

# ---------- The step in which a source gives latencies, and whether a target can be told by it. Pure
# Standard library only.

_STEPS_MS: Final = (1000.0, 100.0, 10.0, 1.0, 0.1)
"""Logs write powers of ten of a second, the coarsest first."""
_ROUNDING_MS: Final = 3e-4
"""How far off the difference of two Unix times in seconds is: a float has no more digits."""
FEW: Final = 20
"""With fewer latencies nothing is said of their step."""
LEAST_STEPS: Final = 10
"""A target of fewer steps of its source cannot be told from a miss."""


class Resolution:
    """Finds the largest power of ten of which all latencies are whole multiples."""

    def __init__(self) -> None:
        self._candidate = 0
        self._seen = 0

    def take(self, latencies_ms: Iterable[float]) -> None:
        """Take more latencies. What is not finite or above zero says nothing."""
        for value in latencies_ms:
            if not (math.isfinite(value) and value > 0.0):
                continue
            self._seen += 1
            while self._candidate < len(_STEPS_MS):
                step_ms = _STEPS_MS[self._candidate]
                steps = round(value / step_ms)
                if steps and abs(value - steps * step_ms) < _ROUNDING_MS:
                    break
                self._candidate += 1

    @property
    def step_ms(self) -> float:
        """The step; 0 if there is none, or too few latencies have come."""
        known = self._seen >= FEW and self._candidate < len(_STEPS_MS)
        return _STEPS_MS[self._candidate] if known else 0.0


def too_coarse(step_ms: float, slo_ms: float) -> tuple[str, str]:
    """Why a source cannot tell whether a target is met, and what to do; empty if it can.

    Args:
        step_ms: The step of its latencies; 0 if it has none.
        slo_ms: The target.
    """
    if slo_ms >= LEAST_STEPS * step_ms:
        return "", ""
    return (
        f"its latencies come in steps of {step_ms:g} ms, and the target of {slo_ms:g} ms is fewer "
        f"than {LEAST_STEPS} of them",
        "Use a source with finer times (docs/reference/latency.md), or a larger slo_ms.",
    )


MOST: Final = (1 << 63) - 1
"""Where a count stops: input from outside may make it grow without bound."""
REJECTED: Final = (
    "malformed",
    "failed",
    "ignored_names",
    "ignored_types",
    "ignored_tags",
    "refused",
    "lost",
)
"""The counts of what gave no latency, as they are named everywhere."""
COUNTS: Final = ("accepted", *REJECTED)
SHOWN_CHARACTERS: Final = 100
"""At most this much of a bad input is shown."""
_QUOTED: Final = re.compile(r"\"[^\"]*\"?|'[^']*'?")
_DIGIT: Final = re.compile(r"\d")
_WORD: Final = re.compile(r"(?<![0-9a-zA-Zµμ])[^\W\d_]+|(?<=[0-9])[^\W\d_]{5,}")


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyCounts:
    """What became of the input of a latency source since its reader was started."""

    accepted: int = 0
    """Requests whose latency counted."""
    malformed: int = 0
    """Lines, datagrams or series that could not be understood."""
    failed: int = 0
    """Requests that were not answered."""
    ignored_names: int = 0
    """Timings that have another name than the configured one."""
    ignored_types: int = 0
    """Lines of the configured name that are no timings."""
    ignored_tags: int = 0
    """Timings of the configured name that lack a configured tag."""
    refused: int = 0
    """Datagrams of users who may not send any."""
    lost: int = 0
    """Requests or datagrams that were dropped because they were not read in time. Of lines it is
    the number of times that some of the file was missed."""
    first_malformed: str = ""
    """What the first malformed input looked like, without what may be personal in it."""
    names: tuple[str, ...] = ()
    """The most frequent other names of timings."""
    step_ms: float = 0.0
    """All latencies are whole multiples of it; 0 if there is no such step, or it is not known."""

    @property
    def rejected(self) -> tuple[tuple[str, int], ...]:
        """The counts of what gave no latency, each with its name."""
        return tuple((name, getattr(self, name)) for name in REJECTED)


class Tally:
    """Counts what becomes of the input of one source."""

    def __init__(self) -> None:
        self.accepted = 0.0
        """May be a fraction: sample rates and histograms stand for parts of requests."""
        self.malformed = 0
        self.failed = 0
        self.ignored_names = 0
        self.ignored_types = 0
        self.ignored_tags = 0
        self.refused = 0
        self.lost = 0
        self.first_malformed = ""
        self.names: tuple[str, ...] = ()
        self.resolution = Resolution()
        """Sources whose latencies are written as text say here what they were."""

    def note_malformed(
        self, content: bytes, *, why: str = "", show: Callable[[str], str] | None = None
    ) -> None:
        """Count one malformed input, and keep what the first one looked like.

        Args:
            content: The input.
            why: What is wrong with it, if that is not plain to see.
            show: Makes the text that may be shown; :func:`masked` by default.
        """
        self.malformed += 1
        if not self.first_malformed:
            text = content[: 4 * SHOWN_CHARACTERS].decode("utf-8", "replace")
            shown = (show or masked)(text) or "(nothing that may be shown)"
            self.first_malformed = f"{why}: {shown}" if why else shown

    def counts(self) -> LatencyCounts:
        """Return the present counts."""
        numbers = {name: min(round(getattr(self, name)), MOST) for name in COUNTS}
        return LatencyCounts(
            **numbers,
            first_malformed=self.first_malformed,
            names=self.names,
            step_ms=self.resolution.step_ms,
        )


def masked(text: str) -> str:
    """Return the shape of a text, to show what is wrong with it without telling what it says.

    Quoted parts are left out, digits become ``0`` and letters ``x``. Letters right behind a digit
    stay if they are few: they may be the unit that is not understood.
    """
    cut = text.strip()[:SHOWN_CHARACTERS]
    without_quoted = _QUOTED.sub('"..."', cut)
    shape = _WORD.sub(lambda word: "x" * len(word[0]), without_quoted)
    return printable(_DIGIT.sub("0", shape))


def without_digits(text: str) -> str:
    """Return a text whose words are not secret, with ``0`` for each digit."""
    return printable(_DIGIT.sub("0", text.strip()[:SHOWN_CHARACTERS]))
