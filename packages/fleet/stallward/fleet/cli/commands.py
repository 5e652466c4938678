"""The commands that ``stallward`` finds by the entry points of this package."""

from __future__ import annotations

from stallward.actuator.cli.lazy import lazy_app

FLEET = lazy_app(
    "stallward.fleet.cli.table:fleet",
    "Print a line for each of many nodes.",
    "stallward ctl fleet --nodes nodes.toml --problems",
)
ROLLOUT = lazy_app(
    "stallward.fleet.cli.rollout:rollout",
    "Give a policy to many nodes, wave by wave.",
    "stallward ctl rollout build/policy.onnx --nodes nodes.toml",
)
RECALL = lazy_app(
    "stallward.fleet.cli.rollout:recall",
    "Put all nodes of a rollout back on what decided before.",
    "stallward ctl recall --state rollout-0123456789ab.jsonl --nodes nodes.toml",
)
