"""When the application's swapped pages are read back: once there is room for them. Pure."""

from __future__ import annotations

import math
from typing import Final

from stallward.agent.desired import MIB
from stallward.agent.sample import Sample

SWAPPED_BYTES: Final = 4 * MIB
"""With less of the application in swap, nothing is read back."""
SPARE_SHARE: Final = 0.03
"""The share of the zone that stays free when swapped pages are read back."""
READ_AGAIN_S: Final = 5.0
"""The least time between two times of reading back."""
READ_FOR_S: Final = 1.0
"""How long the wish to read back stands, so that it is seen once."""


class ReadingBack:
    """The wish to read back, of one application."""

    def __init__(self) -> None:
        self._since_s = -math.inf

    def wanted(self, sample: Sample, free_bytes: float, zone_bytes: float) -> bool:
        """Whether the application's swapped pages are to be read back now.

        Args:
            sample: The sample.
            free_bytes: The free memory of the zone.
            zone_bytes: The memory of the zone.
        """
        swapped = sample.protected.swap_bytes or 0
        fits = free_bytes > swapped + SPARE_SHARE * zone_bytes
        if swapped <= SWAPPED_BYTES or not fits:
            return False
        if sample.time_s - self._since_s > READ_AGAIN_S:
            self._since_s = sample.time_s
        return sample.time_s - self._since_s < READ_FOR_S
