"""How much a measure changed on nodes beside others, and how much of that may be chance. Pure.

Neighbouring looks at a node share their luck, so they say less than as many independent ones. How
much they share follows from how seldom one look differs from the one before, over all nodes and
times at which nothing had been switched. A series of yes and no that remembers only its last value
(a Markov chain), with the correlation r between neighbours, has means that vary (1 + r) / (1 - r)
times as much as those of independent looks, if it is long.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

LEAST_LOOKS: Final = 6
"""A node with fewer looks before or since says nothing."""
_LEAST_FREEDOM: Final = 4
"""With fewer degrees of freedom the spread between nodes is not known well enough."""

_SUPPOSED: Final = 2.0, 4.0
"""Looks that changed, and how many of independent ones would have: a correlation of 0.5."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """What the looks at one node saw."""

    looks: int = 0
    """Looks at which requests had been answered."""
    met: int = 0
    """... of which the target was kept."""
    met_changes: int | None = None
    """Looks that differ in that from the look before; ``None`` if an older version looked."""
    ticks: int = 0
    """Looks at which there was a new tick."""
    intervened: int = 0
    """... of which the guard granted less than was wanted."""
    intervened_changes: int | None = None
    """Ticks that differ in that from the tick before; ``None`` if an older version looked."""
    fallen: int = 0
    """... of which the default controller decided in place of a policy or rule that failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast:
    """How one measure changed on the wave's nodes and on the others; shares of looks."""

    before: float
    """The mean over the wave's nodes before they were switched."""
    since: float
    others_change: float | None
    """How much it changed on the nodes that were not switched; ``None`` if there are none."""
    nodes: int
    others: int
    worse: float
    """By how much it got worse that is not so on the others."""
    reach: float
    """How much of that may be chance."""


def contrast(
    wave_tallies: Mapping[str, Tally],
    other_tallies: Mapping[str, Tally],
    before_tallies: Mapping[str, Tally],
    hits: str,
    looks: str,
    *,
    good: float,
    alpha: float,
) -> Contrast | None:
    """Compare how one measure changed; ``None`` if too little is known of every node of the wave.

    Args:
        wave_tallies: Of the nodes that were switched, since then.
        other_tallies: Of nodes that were not, over the same time.
        before_tallies: Of all of them, from before.
        hits: The field of a tally that is compared, as a share of ``looks``.
        looks: The field with how many looks there were.
        good: 1 if more hits are better, and -1 otherwise.
        alpha: The chance that what is said to be by chance is more than that.
    """

    def changes(group: Mapping[str, Tally]) -> list[_Change]:
        """The nodes of which enough is known."""
        both = [
            _Change(
                before=_Looks.of(before_tallies.get(name, Tally()), hits, looks),
                since=_Looks.of(since, hits, looks),
            )
            for name, since in group.items()
        ]
        return [one for one in both if min(one.before.looks, one.since.looks) >= LEAST_LOOKS]

    wave, others = changes(wave_tallies), changes(other_tallies)
    if not wave:
        return None
    unswitched = [one.before for one in wave + others] + [one.since for one in others]
    reach = _reach(wave, others, _variance_factor(unswitched), alpha)
    others_change = statistics.fmean(one.change for one in others) if others else None
    change = statistics.fmean(one.change for one in wave)
    before = statistics.fmean(one.before.share for one in wave)
    return Contrast(
        before=before,
        since=before + change,
        others_change=others_change,
        nodes=len(wave),
        others=len(others),
        worse=-good * (change - (others_change or 0.0)),
        reach=reach,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Looks:
    """One measure at some looks at one node."""

    looks: int
    hits: int
    changes: int | None
    """Looks that differ from the one before; ``None`` if nobody counted."""

    @classmethod
    def of(cls, tally: Tally, hits: str, looks: str) -> _Looks:
        return cls(
            looks=getattr(tally, looks),
            hits=getattr(tally, hits),
            changes=getattr(tally, f"{hits}_changes"),
        )

    @property
    def share(self) -> float:
        return self.hits / self.looks

    def variance(self, factor: float) -> float:
        """The variance of the share, ``factor`` times that of independent looks.

        They are as many independent looks as that makes them, with one more hit and one more miss,
        as Agresti and Caffo have it (The American Statistician 54, 2000): so shares of 0 and 1
        have a variance, too.
        """
        independent = self.looks / factor
        p = (self.share * independent + 1.0) / (independent + 2.0)
        return p * (1.0 - p) / (independent + 2.0)

    @property
    def expected_changes(self) -> float:
        """How many there would be on average if the same hits came in random order."""
        return 2.0 * self.hits * (self.looks - self.hits) / self.looks


@dataclass(frozen=True, slots=True, kw_only=True)
class _Change:
    """One measure on one node before and since."""

    before: _Looks
    since: _Looks

    @property
    def change(self) -> float:
        return self.since.share - self.before.share

    def least_variance(self, factor: float) -> float:
        """The variance of the change that follows from the looks alone."""
        return self.before.variance(factor) + self.since.variance(factor)


def _variance_factor(parts: Sequence[_Looks]) -> float:
    """How many times as much means vary as those of independent looks; at least 1.

    A few looks do not say much about it: as many changes as :data:`_SUPPOSED` says are added.
    """
    counted = [one for one in parts if one.changes is not None]
    if not counted:
        return 1.0
    supposed_seen, supposed_expected = _SUPPOSED
    seen = supposed_seen + sum(one.changes or 0 for one in counted)
    expected = supposed_expected + sum(one.expected_changes for one in counted)
    correlation = max(1.0 - seen / expected, 0.0)
    return (1.0 + correlation) / (1.0 - correlation)


def _reach(
    ours: Sequence[_Change], theirs: Sequence[_Change], factor: float, alpha: float
) -> float:
    """How far the difference of two means may be from zero by chance, to one side.

    It follows from the looks at each node, and from the spread between nodes where that is known
    and more.

    Args:
        ours: What changed on the wave's nodes.
        theirs: On the others.
        factor: How many times as much means of looks vary as those of independent ones.
        alpha: The chance that it is further away.
    """
    every = [*ours, *theirs]
    least = statistics.fmean(one.least_variance(factor) for one in every)
    looks = sum(one.before.looks + one.since.looks for one in ours) / factor
    known = max(round(looks) - 2 * len(ours), _LEAST_FREEDOM)
    deviation = t_quantile(alpha, known) * math.sqrt(least)
    both = [[one.change for one in group] for group in (ours, theirs) if group]
    means = [statistics.fmean(group) for group in both]
    squares = [(one - mean) ** 2 for group, mean in zip(both, means, strict=True) for one in group]
    freedom = len(every) - len(both)
    if freedom >= _LEAST_FREEDOM:
        spread = math.sqrt(math.fsum(squares) / freedom)
        deviation = max(deviation, t_quantile(alpha, freedom) * spread)
    return deviation * math.sqrt(math.fsum(1.0 / len(group) for group in both))


def t_quantile(alpha: float, freedom: int) -> float:
    """The value that Student's t exceeds with the chance ``alpha``.

    By the expansion 26.7.5 of Abramowitz and Stegun, right to 1 % from 4 degrees of freedom on.
    """
    x = -statistics.NormalDist().inv_cdf(alpha)
    terms: tuple[float, ...] = (
        (x**3 + x) / 4,
        (5 * x**5 + 16 * x**3 + 3 * x) / 96,
        (3 * x**7 + 19 * x**5 + 17 * x**3 - 15 * x) / 384,
        (79 * x**9 + 776 * x**7 + 1482 * x**5 - 1920 * x**3 - 945 * x) / 92160,
    )
    return x + sum(term / float(freedom) ** power for power, term in enumerate(terms, start=1))
