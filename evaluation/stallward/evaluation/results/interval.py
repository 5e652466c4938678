"""An estimate with its 95 % interval."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """An estimate and its 95 % interval; ``None`` for what is unknown."""

    value: float | None
    low: float | None
    high: float | None

    def excludes(self, value: float) -> bool:
        """Whether a value certainly is not the true one."""
        return (self.low is not None and self.low > value) or (
            self.high is not None and self.high < value
        )


UNKNOWN: Final = Interval(value=None, low=None, high=None)
