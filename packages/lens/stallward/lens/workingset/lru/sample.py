"""Faults under LRU from samples of pages (SHARDS, Waldspurger and others, FAST 2015). Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

GROUPS: Final = 16
"""Sampled pages are in so many groups."""


class Epoch(NamedTuple):
    """What was counted while a share of the pages was looked at."""

    rate: float
    """The share."""
    counts: NDArray[np.int64]
    """Group, distance among sampled pages -> touches."""


def estimate(
    epochs: Sequence[Epoch], pages: int
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """Faults but first touches among all pages, from samples, for rising sizes of memory.

    Args:
        epochs: What was counted; the shares fall.
        pages: How many pages there are.

    Returns:
        Sizes of memory in pages, the faults, and their standard errors: by how the groups differ,
        and because a distance is itself a count of sampled pages, so that the curve is uncertain
        sideways, too.
    """
    rate = epochs[-1].rate
    longest = max(np.max(np.flatnonzero(e.counts.any(axis=0)), initial=0) / e.rate for e in epochs)
    steps = int(np.ceil(longest * rate)) + 1
    # The page itself is in the sample for certain; those between with the rate.
    sizes = np.ceil(1.0 + np.arange(steps) / rate).astype(np.int64)
    groups = np.sum([_longer(epoch, sizes) for epoch in epochs], axis=0)
    total = groups.sum(axis=0)
    spread = groups - groups.mean(axis=0)
    of_counts = np.sqrt(GROUPS / (GROUPS - 1) * np.sum(spread**2, axis=0))
    places = np.arange(steps)
    sideways = np.ceil(np.sqrt((places + 1) * (1.0 - rate))).astype(np.int64)
    closer = total[np.maximum(places - sideways, 0)]
    further = total[np.minimum(places + sideways, steps - 1)]
    errors = np.hypot(of_counts, (closer - further) / 2.0)
    below = sizes < pages
    return (
        np.append(sizes[below], pages),
        np.append(total[below], 0.0),
        np.append(errors[below], 0.0),
    )


def _longer(epoch: Epoch, sizes: NDArray[np.int64]) -> NDArray[np.float64]:
    """Group, size of memory -> touches of all pages with a distance beyond it."""
    counts = epoch.counts[:, 1:]
    longer = counts.sum(axis=1)[:, None] - np.cumsum(counts, axis=1)
    longer = np.concatenate([longer, np.zeros((counts.shape[0], 1), dtype=np.int64)], axis=1)
    places = np.floor((sizes - 1) * epoch.rate + 1e-9).astype(np.int64)
    return np.asarray(longer[:, np.minimum(places, counts.shape[1])] / epoch.rate)
