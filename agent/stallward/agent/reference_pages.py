"""The observation and the action table as Markdown, for the reference pages."""

from __future__ import annotations

from stallward.agent.desired import ACTION_SIZES, LIMIT_RATIOS, PROFILES, SLOTS, Tuning
from stallward.agent.observation.encoder import HISTORY_S, OBSERVATION_SIZE
from stallward.agent.observation.feature_table import NODE_FEATURES, SLOT_FEATURES, Feature


def _rows(features: tuple[Feature, ...], prefix: str) -> list[str]:
    return [
        f"| `{prefix}{f.name}` | {f.meaning} | {'yes' if f.remembered else ''} |" for f in features
    ]


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


def observation_page() -> str:
    """The page docs/reference/observation.md, made from the tables that the code uses."""
    averages = " and ".join(f"{tau_s:g} s" for tau_s in HISTORY_S)
    head = "| feature | meaning | remembered |\n| --- | --- | --- |"
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
            f"background slots, then moving averages ({averages}) of the features marked as"
            " remembered. A",
            "feature that is absent is 0.",
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
            "## Action",
            "",
            f"MultiDiscrete `{list(ACTION_SIZES)}`:",
            "for each slot *paused* (0 or 1) and *limit level*, then the tuning profile.",
            "",
            "A limit level is a share of what the group used when unlimited:",
            f"{ratios}.",
            "Level 0 is no limit, and no limit is below the group's floor.",
            "",
            "| profile | name | settings |",
            "| --- | --- | --- |",
            profiles,
            "",
        ]
    )
