"""How a report may open: with a small table and what it means, before all figures."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """The first thing that a reader sees of a comparison."""

    headline: str
    """What the figures mean, in one sentence."""
    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    """Cells of a row, one for each of ``headers``; the first is the name of a condition."""
    target: str
    """The target that the table speaks of."""
    notes: tuple[str, ...] = ()
    """Further sentences, one a line."""
