"""Charges the pool of compressed swap to a sandbox's zone.

On a machine the pool takes memory away from everything that runs there. To a group the kernel
charges only the pool of zswap, and only with cgroup v2; so a zone would get memory for nothing.
Therefore its limit is lowered by as much as the pool has grown, and raised again as it shrinks.
"""

from __future__ import annotations

import contextlib
from threading import Lock
from typing import Final

from stallward.actuator.errors import KernelFileError
from stallward.actuator.kernel.cgroups import Cgroup
from stallward.env.errors import SandboxError
from stallward.env.sandbox.compressed_swap import Pool
from stallward.env.sandbox.watch.periodic import PeriodicWatch
from stallward.env.sandbox.zone_memory import limit_memory
from stallward.env.scenario.scenario import CompressedSwap

_PERIOD_S: Final = 0.1
_STEP_BYTES: Final = 1 << 20
"""Smaller changes are not written: each lowering reclaims."""


def is_charged_by_kernel(swap: CompressedSwap, zone: Cgroup) -> bool:
    """Whether the kernel itself charges the pool to the groups whose pages it holds."""
    return swap.kind == "zswap" and zone.hierarchy.kind == "v2"


def charged_limit_bytes(limit_bytes: int, growth_bytes: int, most_bytes: int) -> int:
    """The limit that leaves a zone what the pool does not take.

    Args:
        limit_bytes: The limit of zone and pool together.
        growth_bytes: How much more the pool takes than before the sandbox.
        most_bytes: The most that is charged. The limit is never lower by more, which could kill
            the application.
    """
    return limit_bytes - min(max(growth_bytes, 0), most_bytes)


class PoolCharge(PeriodicWatch):
    """Keeps the limit of a zone and the pool within one limit; a context manager.

    Args:
        zone: The zone.
        pool: Reads the memory of the pool. What it is now is not the sandbox's.
        most_bytes: The most that is charged.
    """

    def __init__(self, zone: Cgroup, pool: Pool, most_bytes: int) -> None:
        super().__init__("pool-charge", _PERIOD_S)
        self._zone = zone
        self._pool = pool
        self._most_bytes = most_bytes
        self._before_bytes = pool()
        self._lock = Lock()
        self._limit_bytes: int | None = None
        self._set_bytes = 0

    def set_limit(self, limit_bytes: int) -> None:
        """Set the limit of zone and pool together.

        Raises:
            SandboxError: If the kernel refuses, or does not say what the pool takes.
        """
        with self._lock:
            self._limit_bytes = limit_bytes
            self._set(self._wanted_bytes(limit_bytes))

    def _wanted_bytes(self, limit_bytes: int) -> int:
        growth_bytes = self._pool() - self._before_bytes
        return charged_limit_bytes(limit_bytes, growth_bytes, self._most_bytes)

    def _set(self, wanted_bytes: int) -> None:
        limit_memory(self._zone, wanted_bytes, swap=True)
        self._set_bytes = wanted_bytes

    def _look(self) -> None:
        # v1 refuses a limit that cannot be reached by reclaiming. The next look tries again.
        with self._lock, contextlib.suppress(SandboxError, KernelFileError):
            if self._limit_bytes is not None:
                wanted_bytes = self._wanted_bytes(self._limit_bytes)
                if abs(wanted_bytes - self._set_bytes) >= _STEP_BYTES:
                    self._set(wanted_bytes)
