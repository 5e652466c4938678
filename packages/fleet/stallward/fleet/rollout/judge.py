"""Whether a wave is worse than what decided before. Pure.

The unit is the node. What counts of a node is how much it changed: the share of looks at which the
target was kept since the policy decides, less the same share before. The mean change of the wave's
nodes is compared with that of the nodes that were not switched, over the same time: what happens
to the whole fleet (a busier hour, a new release of the application) is no fault of the policy. The
spread of changes between nodes says how far two such means differ by chance. When no node is left
to compare with, the change itself is judged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeGuard

from stallward.fleet.rollout.contrast import LEAST_LOOKS, Contrast, Tally, contrast
from stallward.fleet.rollout.plan import WaveRules

CHECKS: Final = 4
"""How often a wave is judged while it is watched, the last time at the end."""
_MEASURES: Final = 2


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
    alpha = rules.alpha / (CHECKS * _MEASURES)
    groups = seen.wave, seen.others, seen.before
    attainment = contrast(*groups, "met", "looks", good=1.0, alpha=alpha)
    interventions = contrast(*groups, "intervened", "ticks", good=-1.0, alpha=alpha)
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
