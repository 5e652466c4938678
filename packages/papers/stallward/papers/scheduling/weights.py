"""Moving CPU share between an application's own threads while its total stays. Pure.

Source: as for :mod:`stallward.papers.scheduling.critical_path`: "keep total timeslice of the app
fixed and allocate more time share to the threads/processes on app's critical path". A thread's
weight can only be set by its nice value, in steps of a quarter. So the total never rises, and
falls by less than the step of one thread. Only threads that had something to do give anything: the
weight of a thread that sleeps takes no time from anyone, and would be no fair price.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from stallward.agent.threads import (
    BEST_NICE,
    MOST_STEPS,
    WORST_NICE,
    ThreadRef,
    nice_weight,
    total_weight,
)


def shift_share(
    own: Mapping[ThreadRef, int],
    now: Mapping[ThreadRef, int],
    lacking: Iterable[ThreadRef],
    donors: Collection[ThreadRef],
) -> dict[ThreadRef, int]:
    """Give each lacking thread one step more weight, taken from the donors.

    Args:
        own: The nice value that each thread has by itself.
        now: The nice values of the last period, for the same threads.
        lacking: The threads that lack share, the neediest first.
        donors: The threads that may give, those that miss it least first.

    Returns:
        The nice values for the next period. The sum of their weights is at most that of ``own``.
    """
    nices = dict(now)
    limit = total_weight(own.values())
    for thread in lacking:
        wanted = nices[thread] - 1
        if wanted < max(own[thread] - MOST_STEPS, BEST_NICE):
            continue
        tried = _paid({**nices, thread: wanted}, own, donors, limit, thread)
        if tried is not None:
            nices = tried
    return nices


def _paid(
    nices: dict[ThreadRef, int],
    own: Mapping[ThreadRef, int],
    donors: Collection[ThreadRef],
    limit: int,
    gaining: ThreadRef,
) -> dict[ThreadRef, int] | None:
    """Take weight from donors until the total is within the limit; ``None`` if it cannot be."""
    while total_weight(nices.values()) > limit:
        givers = [
            thread
            for thread in donors
            if thread != gaining and nices[thread] < min(own[thread] + MOST_STEPS, WORST_NICE)
        ]
        if not givers:
            return None
        least_taken = min(givers, key=lambda thread: nices[thread] - own[thread])
        nices[least_taken] += 1
    return nices


def give_back_share(
    own: Mapping[ThreadRef, int],
    now: Mapping[ThreadRef, int],
    keep: Collection[ThreadRef] = (),
) -> dict[ThreadRef, int]:
    """Bring the nice values one step nearer to the threads' own, but not those of ``keep``.

    Threads that gained give first; the donors get back as much as the total allows. Where a donor
    has ended, those that it gave to go back further, those of ``keep``, too: the total has shrunk.
    """
    nices = dict(now)
    for thread, nice in now.items():
        if nice < own[thread] and thread not in keep:
            nices[thread] = nice + 1
    limit = total_weight(own.values())
    while total_weight(nices.values()) > limit:
        most_gained = min(nices, key=lambda thread: (nices[thread] - own[thread], thread))
        nices[most_gained] += 1
    for thread in sorted(nices, key=lambda one: (own[one] - nices[one], one)):
        while nices[thread] > own[thread]:
            gain = nice_weight(nices[thread] - 1) - nice_weight(nices[thread])
            if total_weight(nices.values()) + gain > limit:
                break
            nices[thread] -= 1
    return nices
