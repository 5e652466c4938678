"""The labels of metrics for the reasons of a tick; each label has only a few values."""

from __future__ import annotations

from typing import Final

from stallward.proto.v1 import stallward_pb2 as pb

OTHER: Final = "other"
_FAULTS: Final = {
    pb.FAULT_KIND_STALE: "stale_sample",
    pb.FAULT_KIND_INVALID: "invalid_sample",
    pb.FAULT_KIND_LOST: "signal_lost",
    pb.FAULT_KIND_OBSERVATION: "observation_not_finite",
    pb.FAULT_KIND_RAISED: "controller_failed",
    pb.FAULT_KIND_UNUSABLE: "decision_unusable",
    pb.FAULT_KIND_NOT_FINITE: "decision_not_finite",
    pb.FAULT_KIND_LATE: "decision_late",
    pb.FAULT_KIND_OUT_OF_RANGE: "outside_the_training_range",
    pb.FAULT_KIND_WAITING: "waiting",
}
_BY_WISH: Final = {
    pb.WISH_STOP: "stop",
    pb.WISH_TERMINATE: "terminate",
    pb.WISH_MEMORY: "limit_unknown",
    pb.WISH_HOLD: "no_pressure",
    pb.WISH_CPU_MAX: "minimum",
    pb.WISH_IO_MAX: "minimum",
    pb.WISH_NICE: "minimum",
    pb.WISH_PROTECTED_LOW: "guarantee",
    pb.WISH_THREADS: "threads",
}
"""Wishes that have one label for all rules."""
_LIMIT: Final = {
    pb.GUARD_RULE_NO_TIME: "limit_unknown",
    pb.GUARD_RULE_FLOOR: "limit_floor",
    pb.GUARD_RULE_ONE_LEVEL: "limit_step",
    pb.GUARD_RULE_LOWEST_WORKABLE: "limit_workable",
}
_BY_RULE: Final = {
    pb.WISH_PAUSE: {
        pb.GUARD_RULE_MAX_PAUSE: "max_pause",
        pb.GUARD_RULE_PAUSE_SHARE: "pause_share",
        pb.GUARD_RULE_POD_PAUSE: "pod_pause",
        pb.GUARD_RULE_MIN_RUN: "min_run",
    },
    pb.WISH_LIMIT: {**_LIMIT, pb.GUARD_RULE_DEMAND_UNKNOWN: "limit_unknown"},
    pb.WISH_HARD_LIMIT: {
        **_LIMIT,
        pb.GUARD_RULE_ABOVE_USAGE: "hard_limit",
        pb.GUARD_RULE_ABOVE_LIMIT: "hard_limit",
        pb.GUARD_RULE_HARD_ALONE: "hard_limit",
    },
    pb.WISH_RECLAIM: {
        pb.GUARD_RULE_FLOOR: "reclaim_step",
        pb.GUARD_RULE_LOWEST_WORKABLE: "limit_workable",
        pb.GUARD_RULE_ONE_LEVEL: "reclaim_step",
    },
    pb.WISH_CPUS: {pb.GUARD_RULE_CPUS_OFFLINE: "cpus"},
}
"""Wishes whose label depends on the rule."""


def fallback_reason(record: pb.TickRecord) -> str:
    """The label of the reason why the default controller decided."""
    return _FAULTS.get(record.reasons.fault.kind, OTHER)


def guard_rule(change: pb.GuardChange) -> str | None:
    """The label of a change that the guard made; ``None`` if it is not counted."""
    label = _BY_WISH.get(change.wish)
    return label or _BY_RULE.get(change.wish, {}).get(change.rule)


def lever_kind(lever: str) -> str:
    """The kind of a lever without its subject: ``pause`` for ``pause:hog0``."""
    return lever.partition(":")[0] or OTHER
