"""The observation and the action table as Markdown, for the reference pages."""

from __future__ import annotations

from typing import Final

from stallward.agent.action_table import LEVELS, SET_POINTS
from stallward.agent.desired import LIMIT_RATIOS, PROFILES, SLOTS, Tuning
from stallward.agent.observation.encoder import BASIC, HISTORY_S, OBSERVATION_SIZE, PHASES
from stallward.agent.observation.feature_table import (
    NODE_FEATURES,
    PHASE_FEATURES,
    SLOT_FEATURES,
    Feature,
)
from stallward.agent.set_points import KEPT, SHARING_TUNINGS, Kept, SlotShare

SHARE_MEANINGS: Final = {
    SlotShare.AUTO: "what `partition` decides: a part, or turns with the whole if it thrashes",
    SlotShare.WAIT: "nothing: paused as far as the guard allows, and squeezed to its floor",
    SlotShare.WHOLE: "all that it wants, or nothing while that does not fit",
    SlotShare.PART: "an equal part, although it may thrash",
    SlotShare.LESS: "half of an equal part",
    SlotShare.MORE: "twice an equal part",
}


def _rows(features: tuple[Feature, ...], prefix: str) -> list[str]:
    return [f"| `{prefix}{f.name}`{'*' if f.remembered else ''} | {f.meaning} |" for f in features]


def _settings(profile: Tuning) -> str:
    names = (
        "swappiness",
        "protected_swappiness",
        "dirty_background_ratio",
        "dirty_ratio",
        "overcommit_memory",
    )
    changed = [f"{n} {getattr(profile, n)}" for n in names if getattr(profile, n) is not None]
    return ", ".join(changed) or "the node's own values"


def _tuning_row(index: int, tuning: Tuning | None) -> str:
    if tuning is None:
        return f"| {index} | auto | keep-anon or flush, as `partition` decides |"
    return f"| {index} | {tuning.name} | {_settings(tuning)} |"


def _kept_row(index: int, kept: Kept) -> str:
    lent = "as `partition` finds out" if kept.lent_share is None else _percent(kept.lent_share)
    return f"| {index} | {kept.name} | {lent} | {_percent(kept.reserve_share)} |"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def observation_page() -> str:
    """The page docs/reference/observation.md, made from the tables that the code uses."""
    averages = " and ".join(f"{tau_s:g} s" for tau_s in HISTORY_S)
    head = "| feature | meaning |\n| --- | --- |"
    ratios = ", ".join(f"{i}: {r:g}" for i, r in enumerate(LIMIT_RATIOS))
    profiles = "\n".join(f"| {i} | {p.name} | {_settings(p)} |" for i, p in enumerate(PROFILES))
    return "\n".join(
        [
            "# Observation and action",
            "",
            "Generated from `stallward.agent`; a test fails when this page is stale.",
            "",
            f"An observation has {OBSERVATION_SIZE} numbers (float32, finite): the features of the"
            f" node, those of {SLOTS}",
            f"background slots, then moving averages ({averages}) of the features with a star,",
            "then the phases of the slots. A feature that is absent is 0.",
            "",
            f"A policy reads the first {BASIC.size} numbers (`{BASIC.name}`), or all"
            f" (`{PHASES.name}`). Its file says which, and",
            "`stallward train --features` chooses.",
            "",
            "## Node",
            "",
            head,
            *_rows(NODE_FEATURES, ""),
            "",
            f"## Each of the {SLOTS} slots (`slot0_` to `slot{SLOTS - 1}_`)",
            "",
            head,
            *_rows(SLOT_FEATURES, "slotN_"),
            "",
            "Its phases, at the end of an observation",
            "([what a phase is](../explanation/working-set.md#when-a-phase-ends)):",
            "",
            head,
            *_rows(PHASE_FEATURES, "slotN_"),
            "",
            "## Action",
            "",
            "A policy chooses from one of two action tables, which its file names.",
            "",
            "### Limit levels",
            "",
            f"The table `{LEVELS.name}`, MultiDiscrete `{list(LEVELS.sizes)}`:",
            "for each slot *paused* (0 or 1) and *limit level*, then the tuning profile.",
            "",
            "A limit level is a share of what the group used when unlimited:",
            f"{ratios}.",
            "Level 0 means no limit, and no limit is below the group's floor.",
            "",
            "| profile | name | settings |",
            "| --- | --- | --- |",
            profiles,
            "",
            "### Set-points",
            "",
            f"The table `{SET_POINTS.name}`, MultiDiscrete `{list(SET_POINTS.sizes)}`:",
            "for each slot its *share*, then how much is *kept* for the application, then the",
            "tuning. The controller `partition` divides memory within them at every tick. Where",
            "all are 0, it decides everything itself.",
            "",
            "| share | name | meaning |",
            "| --- | --- | --- |",
            *(f"| {s} | {s.name.lower()} | {SHARE_MEANINGS[s]} |" for s in SlotShare),
            "",
            "| kept | name | lent of its idle memory | kept in addition, of the zone |",
            "| --- | --- | --- | --- |",
            *(_kept_row(i, kept) for i, kept in enumerate(KEPT)),
            "",
            "| tuning | name | settings |",
            "| --- | --- | --- |",
            *(_tuning_row(i, tuning) for i, tuning in enumerate(SHARING_TUNINGS)),
            "",
        ]
    )
