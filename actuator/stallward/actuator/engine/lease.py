"""The lease of a client on the desired state. Pure: the time is an argument."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from stallward.actuator.errors import GuardError
from stallward.agent.desired import DesiredState

MIN_LEASE_S: Final = 0.1
MAX_LEASE_S: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A client's desired state and the time until which it holds."""

    holder: str
    desired: DesiredState
    until_s: float
    """The end of the lease, by CLOCK_MONOTONIC."""


class Leases:
    """Gives out leases: one client at a time holds one."""

    def __init__(self) -> None:
        self._lease: Lease | None = None

    def current(self, now_s: float) -> Lease | None:
        """Return the lease in force, and forget one that has lapsed."""
        if self._lease is not None and now_s >= self._lease.until_s:
            self._lease = None
        return self._lease

    def remaining_s(self, now_s: float) -> float:
        """Return for how long the lease still holds; 0 without one."""
        lease = self.current(now_s)
        return 0.0 if lease is None else lease.until_s - now_s

    def take(self, holder: str, desired: DesiredState, lease_s: float, now_s: float) -> None:
        """Start or renew a lease for ``lease_s``, from ``MIN_LEASE_S`` to ``MAX_LEASE_S``.

        Raises:
            GuardError: If another client holds it.
        """
        lease = self.current(now_s)
        if lease is not None and lease.holder != holder:
            raise _held_by(lease, now_s)
        self._lease = Lease(holder=holder, desired=desired, until_s=now_s + lease_s)

    def release(self, holder: str, now_s: float) -> None:
        """End the lease, if there is one.

        Raises:
            GuardError: If another client holds it.
        """
        lease = self.current(now_s)
        if lease is not None and lease.holder != holder:
            raise _held_by(lease, now_s)
        self._lease = None


def _held_by(lease: Lease, now_s: float) -> GuardError:
    return GuardError(
        f"{lease.holder!r} holds the lease for another {lease.until_s - now_s:.1f} s.",
        next_step="Wait for it to lapse, or have the holder release it.",
    )
