"""Example results of comparisons, without blocks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields

from stallward.env.recording.run_info import NodeInfo
from stallward.evaluation.results.comparison import (
    ArmFacts,
    ArmResult,
    BackgroundTotals,
    ComparisonResult,
    Method,
    Metrics,
    ProtectedTotals,
    Reference,
    References,
    Table,
)
from stallward.evaluation.results.interval import Interval

NODE = NodeInfo(kind="none", kernel="6.18", cpu_count=2, memory_total_bytes=8 << 30)


def figure(value: float | None, low: float | None = None, high: float | None = None) -> Interval:
    return Interval(value=value, low=low, high=high)


def exactly(value: float | None) -> Interval:
    return Interval(value=value, low=value, high=value)


def metrics(**changed: Interval) -> Metrics:
    """Metrics of 1, with intervals from 0.9 to 1.1, except those that are given."""
    same = {one.name: figure(1.0, 0.9, 1.1) for one in fields(Metrics)}
    return Metrics(**{**same, **changed})


def arm(figures: Metrics | None = None, facts: ArmFacts | None = None) -> ArmResult:
    return ArmResult(
        blocks=2, metrics=figures or metrics(), facts=facts or ArmFacts(controller="none")
    )


def comparison(
    arms: Mapping[str, ArmResult],
    *,
    ample: Metrics | None = None,
    alone_p95_ms: float = 7.8,
    slo_ms: float = 60.0,
) -> ComparisonResult:
    reference = Reference(
        protected=ProtectedTotals(
            p50_ms=5.0, p95_ms=alone_p95_ms, p99_ms=9.0, mean_ms=5.5, requests=10
        ),
        background=BackgroundTotals(units_per_s=3.0, units_per_s_by_group=(3.0, None)),
    )
    return ComparisonResult(
        mode="live",
        scenario="small",
        node=NODE,
        table=Table(
            slo_ms=slo_ms,
            slo_source="scenario",
            resampled="blocks",
            alone=reference,
            ample=reference,
            references=References(alone=metrics(), ample=ample or metrics()),
            arms=arms,
        ),
        method=Method(
            summary="a small scenario",
            rounds=2,
            block_s=60.0,
            burn_in_s=12.0,
            seed=30,
            controller_slo_ms=60.0,
            groups=("a", "b"),
            units=("files", "rows"),
            sandbox_limit_bytes=600 << 20,
            policies={},
            files_sha256={"ppo": "ab12"},
        ),
    )
