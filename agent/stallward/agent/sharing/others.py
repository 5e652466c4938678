"""The memory of the zone that belongs neither to the application nor to the background. Pure.

On a whole machine that is what the system's services, other people's programs and the kernel hold.
It is also where compressed swap keeps what was swapped out, on zram and, with cgroup v1, in zswap:
the kernel charges that to no group (Documentation/admin-guide/blockdev/zram and mm/zswap). A zone
with a limit of its own contains no memory but that of its groups, as a rule.
"""

from __future__ import annotations

from typing import Final

from stallward.agent.observation.available import available_bytes
from stallward.agent.observation.average import moved
from stallward.agent.sample import GroupSample, Sample

LEAST_BYTES: Final = 1 << 20
"""Less is not believed: the kernel counts by CPU and adds up now and then, a twin rounds to bytes."""
FORGET_S: Final = 10.0
"""The time constant with which less memory of others is believed; more of it is at once."""


def others_bytes(sample: Sample, zone_limit_bytes: int) -> int | None:
    """What others hold of the zone and the kernel cannot simply drop.

    Args:
        sample: The sample.
        zone_limit_bytes: The zone's limit, where the sample does not have it.

    Returns:
        Bytes, 0 for less than :data:`LEAST_BYTES`; ``None`` where the sample does not tell.
    """
    available = available_bytes(sample, zone_limit_bytes)
    groups = [group for group in (sample.protected, *sample.slots) if group.bound]
    if available is None or any(group.memory_usage_bytes is None for group in groups):
        return None
    held = (sample.zone.memory_limit_bytes or zone_limit_bytes) - available
    others = held - sum(_kept_bytes(group) for group in groups)
    return others if others >= LEAST_BYTES else 0


def _kept_bytes(group: GroupSample) -> int:
    """What a group holds without its page cache."""
    return max((group.memory_usage_bytes or 0) - (group.file_bytes or 0), 0)


class Others:
    """The memory of others; it rises at once and falls slowly, since samples are not of one moment."""

    def __init__(self) -> None:
        self.bytes = 0.0

    def update(self, sample: Sample, zone_limit_bytes: int, elapsed_s: float) -> float:
        """Take one more sample; where it does not tell, the memory of others stays as it was.

        Args:
            sample: The sample.
            zone_limit_bytes: The zone's limit, where the sample does not have it.
            elapsed_s: The time since the sample before.

        Returns:
            Bytes.
        """
        now = others_bytes(sample, zone_limit_bytes)
        if now is not None:
            risen = now > self.bytes
            self.bytes = now if risen else moved(self.bytes, now, elapsed_s, FORGET_S)
        return self.bytes
