"""Whether a wave is worse than what decided before. Pure.

The unit is the node. What counts of a node is how much it changed: the share of looks at which the
target was kept since the policy decides, less the same share before. The mean change of the wave's
nodes is compared with that of the nodes that were not switched, over the same time: what happens
to the whole fleet (a busier hour, a new release of the application) is no fault of the policy. The
spread of changes between nodes says how far two such means differ by chance. When no node is left
to compare with, the change itself is judged.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeGuard

from stallward.actuator.policies.rollout.plan import WaveRules

LEAST_LOOKS: Final = 6
"""A node with fewer looks before or since says nothing."""
CHECKS: Final = 4
"""How often a wave is judged while it is watched, the last time at the end."""
_MEASURES: Final = 2
_LEAST_FREEDOM: Final = 4
"""With fewer degrees of freedom the spread between nodes is not known well enough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """What the looks at one node saw."""

    looks: int = 0
    """Looks at which requests had been answered."""
    met: int = 0
    """... of which the target was kept."""
    ticks: int = 0
    """Looks at which there was a new tick."""
    intervened: int = 0
    """... of which the guard granted less than was wanted."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What was found out about a wave."""

    bad: tuple[str, ...]
    """Why it is bad; empty if it is not."""
    attainment: Contrast | None = None
    """Of the share of looks at which the target was kept; ``None`` if too little is known."""
    interventions: Contrast | None = None
    """Of the share of looks at which the guard intervened."""
    failed: int = 0
    """Nodes on which the policy failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """The tallies of a wave and of the nodes that were not switched."""

    wave: Mapping[str, Tally]
    others: Mapping[str, Tally]
    before: Mapping[str, Tally]
    """Of all of them, from before the wave."""
    failed: Mapping[str, str]
    """Why the policy fails on nodes of the wave."""


def judge(seen: Watched, rules: WaveRules, *, last: bool) -> Verdict:
    """Judge a wave by what was seen so far.

    Args:
        seen: What was seen.
        rules: When a wave is bad.
        last: Whether the wave was watched for the whole time.
    """
    attainment = _contrast(seen, rules, "met", "looks", good=1.0)
    interventions = _contrast(seen, rules, "intervened", "ticks", good=-1.0)
    bad = []
    failed = dict(seen.failed)
    for name, tally in seen.wave.items():
        if tally.ticks >= LEAST_LOOKS and 2 * tally.fallen > tally.ticks:
            failed.setdefault(name, "the default controller decides in place of the policy")
    if len(failed) > rules.failed_share * len(seen.wave):
        name, why = next(iter(failed.items()))
        bad.append(f"the policy fails on {len(failed)} of {len(seen.wave)} nodes ({name}: {why})")
    if _certainly(attainment, rules.margin):
        bad.append(
            f"the target was kept at {attainment.since:.0%} of the looks, before at "
            f"{attainment.before:.0%}{_beside(attainment)}"
        )
    if _certainly(interventions, rules.guard_margin):
        bad.append(
            f"the guard intervened at {interventions.since:.0%} of the looks, before at "
            f"{interventions.before:.0%}{_beside(interventions)}"
        )
    known = 0 if attainment is None else attainment.nodes
    if last and rules.need_requests and 2 * known < len(seen.wave):
        bad.append(
            f"whether the target is kept is known of {known} of its {len(seen.wave)} nodes only"
        )
    return Verdict(
        bad=tuple(bad), attainment=attainment, interventions=interventions, failed=len(failed)
    )


def verdict_text(verdict: Verdict) -> str:
    """A verdict in words; of a good wave also how much worse it could be without being noticed."""
    if verdict.bad:
        return f"bad: {'; '.join(verdict.bad)}"
    seen = verdict.attainment
    if seen is None:
        return "good as far as is known: too few looks say whether the target is kept"
    return (
        f"good: the target was kept at {seen.since:.0%} of the looks, before at {seen.before:.0%}"
        f"{_beside(seen)}; up to {100.0 * seen.reach:.0f} points may be chance"
    )


def _certainly(contrast: Contrast | None, margin: float) -> TypeGuard[Contrast]:
    """Whether a measure certainly got worse by more than a margin."""
    return contrast is not None and contrast.worse - contrast.reach > margin


def _beside(contrast: Contrast) -> str:
    if contrast.others_change is None:
        return ""
    change = 100.0 * contrast.others_change
    return f", while it changed by {change:+.0f} points on {contrast.others} others"


def _contrast(
    seen: Watched, rules: WaveRules, hits: str, looks: str, *, good: float
) -> Contrast | None:
    """Compare the changes; ``good`` is 1 if more hits are better, and -1 otherwise."""

    def changes(group: Mapping[str, Tally]) -> list[tuple[float, float, float]]:
        """The share before, the change, and the least variance of it, of each node."""
        found = []
        for name, since in group.items():
            before = seen.before.get(name, Tally())
            m, n = getattr(before, looks), getattr(since, looks)
            if min(m, n) < LEAST_LOOKS:
                continue
            h, k = getattr(before, hits), getattr(since, hits)
            p = (h + k + 1) / (m + n + 2)
            found.append((h / m, k / n - h / m, p * (1 - p) * (1 / m + 1 / n)))
        return found

    wave, others = changes(seen.wave), changes(seen.others)
    if not wave:
        return None
    ours, theirs = [one[1] for one in wave], [one[1] for one in others]
    least = statistics.fmean(one[2] for one in wave + others)
    others_change = statistics.fmean(theirs) if theirs else None
    change = statistics.fmean(ours)
    before = statistics.fmean(one[0] for one in wave)
    return Contrast(
        before=before,
        since=before + change,
        others_change=others_change,
        nodes=len(ours),
        others=len(theirs),
        worse=-good * (change - (others_change or 0.0)),
        reach=_reach(ours, theirs, least, rules.alpha / (CHECKS * _MEASURES)),
    )


def _reach(ours: Sequence[float], theirs: Sequence[float], least: float, alpha: float) -> float:
    """How far the difference of two means may be from zero by chance, to one side.

    Args:
        ours: The changes of the wave's nodes.
        theirs: Those of the others.
        least: The least variance of a change: that of independent looks.
        alpha: The chance that it is further away.
    """
    both = [group for group in (ours, theirs) if group]
    means = [statistics.fmean(group) for group in both]
    squares = [(one - mean) ** 2 for group, mean in zip(both, means, strict=True) for one in group]
    freedom = sum(len(group) - 1 for group in both)
    if freedom >= _LEAST_FREEDOM:
        variance, factor = max(math.fsum(squares) / freedom, least), t_quantile(alpha, freedom)
    else:
        variance, factor = least, -statistics.NormalDist().inv_cdf(alpha)
    return factor * math.sqrt(variance * math.fsum(1.0 / len(group) for group in both))


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
