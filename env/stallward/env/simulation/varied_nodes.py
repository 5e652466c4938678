"""Nodes that differ from their scenario: rates, zones, targets, missing slots, idle pages."""

from __future__ import annotations

import numpy as np

from stallward.agent.desired import SLOTS
from stallward.env.simulation.nuisance import Array, Nuisance
from stallward.env.twin.physics.pages import COLD, FILE
from stallward.env.twin.simd.layout import Columns


def vary_nodes(nodes: Columns, numbers: Array, nuisance: Nuisance, max_bytes: Array) -> None:
    """Apply the nuisance to the descriptions of new nodes.

    Args:
        nodes: The nodes, before the application is loaded.
        numbers: Random numbers in [0, 1), at least ``(4 + 2 * SLOTS, n)``.
        nuisance: What varies.
        max_bytes: The most that the program of each slot of each scenario holds, ``(scenarios,
            SLOTS)``.
    """
    nodes["rate_per_s"] *= between(nuisance.rate_ratio, numbers[0])
    nodes["zone_pages"] *= between(nuisance.zone_ratio, numbers[1])
    present = nodes["has_program"]
    keep = present * (nuisance.slot_missing_share <= numbers[2 : 2 + SLOTS].T)
    any_left = keep.sum(axis=1, keepdims=True) > 0
    nodes["has_program"] = np.where(any_left, keep, present)
    nodes["has_group"] = nodes["has_program"]
    chance = numbers[2 + SLOTS : 2 + 2 * SLOTS].T
    known = np.maximum(nuisance.used_before - chance, 0.0) / max(nuisance.used_before, 1e-9)
    largest = max_bytes[nodes["scenario"].astype(np.int64)]
    nodes["kept_bytes"] = nodes["has_program"] * known * largest
    idle = np.maximum(2.0 * numbers[2 + 2 * SLOTS] - 1.0, 0.0)
    _let_file_pages_be_idle(nodes, nuisance.idle_file_share * idle)
    low, high = nuisance.target_ratio
    nodes["slo_ms"] *= low * (high / low) ** numbers[3 + 2 * SLOTS]


def between(bounds: tuple[float, float], numbers: Array) -> Array:
    """Spread random numbers in [0, 1) evenly over a range."""
    low, high = bounds
    return low + (high - low) * numbers


def _let_file_pages_be_idle(nodes: Columns, share: Array) -> None:
    """Move a share of the application's file pages to its cold pool, as if it had read them once.

    Args:
        nodes: New nodes.
        share: The share on each node, ``(n,)``.
    """
    moved = share * nodes["wanted"][:, 0, FILE]
    nodes["wanted"][:, 0, FILE] -= moved
    nodes["request_touches"][:, FILE] *= 1.0 - share
    nodes["wanted"][:, 0, COLD] += moved
    nodes["resident"][:, 0, COLD] += moved
    nodes["cold_seen"] += moved
