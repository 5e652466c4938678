"""What each thread has by itself, told from what a controller gave it. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from stallward.agent.threads import ThreadRef, ThreadSample

SETTLED_S: Final = 2.0
"""A thread of which nothing was wanted for so long has its own values again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnValues:
    """The values that a thread has by itself."""

    nice: int
    cpus: tuple[int, ...]
    changed_s: float
    """When anything was last wanted of the thread; minus infinity if nothing ever was."""


def remember_own(
    known: Mapping[ThreadRef, OwnValues],
    threads: Collection[ThreadSample],
    wanted: Collection[ThreadRef],
    time_s: float,
) -> dict[ThreadRef, OwnValues]:
    """The values of each thread in the sample by itself.

    A thread that nothing is wanted of has its own values. What a thread has while something is
    wanted of it, and shortly afterwards, is not its own: it keeps what was known of it.

    Args:
        known: The result for the last sample.
        threads: The threads now.
        wanted: The threads of which anything is wanted since the last sample.
        time_s: The time of the sample.
    """
    own = {}
    for thread in threads:
        before = known.get(thread.ref)
        changed_s = float("-inf") if before is None else before.changed_s
        if thread.ref in wanted:
            changed_s = time_s
        if before is None or time_s - changed_s >= SETTLED_S:
            own[thread.ref] = OwnValues(
                nice=thread.nice,
                cpus=thread.cpus,
                changed_s=changed_s,
            )
        else:
            own[thread.ref] = OwnValues(
                nice=before.nice,
                cpus=before.cpus,
                changed_s=changed_s,
            )
    return own
