"""Every feature of a frame is compared with its meaning, computed by hand from two frames."""

from __future__ import annotations

from math import inf, log1p, log2, nan

import pytest

from stallward.agent.observation.feature_table import FRAME_NAMES, NODE_FEATURES, SLOT_FEATURES
from stallward.agent.observation.features import FrameFeatures
from stallward.agent.observation.raw import NODE, NODE_COLUMNS, SLOT, SLOT_COLUMNS, RawFrame

LIMIT, REFERENCE, SLO_MS, ELAPSED_S = 600.0, 400.0, 20.0, 0.5
NODE_LEVELS = {
    "zone_limit_bytes": LIMIT,
    "zone_usage_bytes": 550.0,
    "zone_file_bytes": 90.0,
    "zone_dirty_bytes": 12.0,
    "swap_used_ratio": 0.25,
    "protected_usage_bytes": 210.0,
    "protected_file_bytes": 80.0,
    "protected_anon_bytes": 120.0,
    "protected_swap_bytes": 12.0,
    "protected_working_set_bytes": 90.0,
    "latency_completed": 7.0,
    "latency_mean_ms": 15.0,
    "latency_p95_ms": 35.0,
    "latency_max_ms": 70.0,
    "latency_age_s": 0.5,
    "profile_index": 1.0,
}
SLOT_LEVELS = {
    "present": 1.0,
    "usage_bytes": 240.0,
    "anon_bytes": 200.0,
    "file_bytes": 40.0,
    "swap_bytes": 100.0,
    "paused": 1.0,
    "paused_for_s": 2.0,
    "since_thaw_s": 30.0,
    "paused_share": 0.3,
    "limit_bytes": 240.0,
    "reference_bytes": REFERENCE,
}
NODE_GROWTH = {
    "zone_psi_memory_some_us": 200_000,
    "zone_psi_memory_full_us": 100_000,
    "zone_psi_io_some_us": 50_000,
    "zone_psi_cpu_some_us": 900_000,
    "swap_in_pages": 300,
    "swap_out_pages": 400,
    "protected_psi_memory_some_us": 25_000,
    "protected_psi_memory_full_us": 5_000,
    "protected_psi_io_some_us": 10_000,
    "protected_refault_pages": 60,
    "protected_major_faults": 20,
}
SLOT_GROWTH = {
    "psi_memory_some_us": 150_000,
    "psi_io_some_us": 75_000,
    "refault_pages": 500,
    "cpu_usage_us": 650_000,
}
NODE_EXPECTED = {
    "zone_psi_memory_some_share": 0.4,
    "zone_psi_memory_full_share": 0.2,
    "zone_psi_io_some_share": 0.1,
    "zone_psi_cpu_some_share": 1.0,  # at most
    "zone_usage_ratio": 550 / LIMIT,
    "zone_file_ratio": 90 / LIMIT,
    "zone_dirty_ratio": 10 * 12 / LIMIT,
    "swap_used_ratio": 0.25,
    "swap_in_rate": log1p(600) / 10,
    "swap_out_rate": log1p(800) / 10,
    "protected_psi_memory_some_share": 0.05,
    "protected_psi_memory_full_share": 0.01,
    "protected_psi_io_some_share": 0.02,
    "protected_usage_ratio": 210 / LIMIT,
    "protected_file_ratio": 80 / LIMIT,
    "protected_anon_ratio": 120 / LIMIT,
    "protected_swap_ratio": 10 * 12 / LIMIT,
    "demand_ratio": (210 + 12) / LIMIT,
    "room_ratio": (LIMIT - 210 - 12) / (240 + 100),
    "protected_refault_rate": log1p(120) / 10,
    "protected_fault_rate": log1p(40) / 10,
    "latency_known": 1.0,
    "latency_mean_ratio": log2(1 + 15 / SLO_MS) / 4,
    "latency_p95_ratio": log2(1 + 35 / SLO_MS) / 4,
    "latency_max_ratio": log2(1 + 70 / SLO_MS) / 4,
    "latency_age": log2(1.5) / 4,
    "target_scale": log2(1 + SLO_MS) / 8,
    "request_scale": log2(1 + 7) / 10,
    "latency_mean_over_usual": 0.0,  # not known yet
    "latency_p95_over_usual": 0.0,
    "profile_default": 0.0,
    "profile_flush": 1.0,
    "profile_keep-cache": 0.0,
    "profile_keep-anon": 0.0,
}
SLOT_EXPECTED = {
    "present": 1.0,
    "psi_memory_some_share": 0.3,
    "psi_io_some_share": 0.15,
    "usage_ratio": 240 / LIMIT,
    "file_ratio": 40 / LIMIT,
    "swap_ratio": log2(1 + 100 / LIMIT),
    "refault_rate": log1p(1000) / 10,
    "cpu_share": 1.3,
    "paused": 1.0,
    "paused_for": 0.4,
    "since_thaw": 2.0,  # at most
    "paused_share": 0.3,
    "limit_ratio": 240 / REFERENCE,
    "reference_ratio": REFERENCE / LIMIT,
}


def frame(time_s: float, share: float) -> RawFrame:
    """A frame with one slot in which ``share`` of the growth has happened."""
    raw = RawFrame.empty()
    raw.node[:] = [
        NODE_LEVELS.get(name, 1000 + share * NODE_GROWTH.get(name, 0)) for name in NODE_COLUMNS
    ]
    raw.node[NODE["time_s"]] = time_s
    raw.slots[2][:] = [
        SLOT_LEVELS.get(name, 2000 + share * SLOT_GROWTH.get(name, 0)) for name in SLOT_COLUMNS
    ]
    return raw


def features_of(before: RawFrame, now: RawFrame) -> dict[str, float]:
    computing = FrameFeatures(SLO_MS)
    assert computing.compute(before)[2] is None
    features, _, elapsed_s = computing.compute(now)
    assert elapsed_s == pytest.approx(ELAPSED_S)
    return dict(zip(FRAME_NAMES, features, strict=True))


def test_every_feature_means_what_its_definition_says() -> None:
    features = features_of(frame(10.0, 0.0), frame(10.0 + ELAPSED_S, 1.0))
    assert len(NODE_EXPECTED) == len(NODE_FEATURES)
    assert len(SLOT_EXPECTED) == len(SLOT_FEATURES)
    expected = {**NODE_EXPECTED, **{f"slot2_{n}": v for n, v in SLOT_EXPECTED.items()}}
    assert features == pytest.approx(dict.fromkeys(FRAME_NAMES, 0.0) | expected)


def test_latencies_are_compared_with_the_latency_baseline() -> None:
    computing = FrameFeatures(SLO_MS)
    for k in range(20):
        computing.compute(frame(10.0 + ELAPSED_S * k, 0.0))
    slow = frame(20.0, 0.0)
    slow.node[NODE["latency_mean_ms"]], slow.node[NODE["latency_p95_ms"]] = 45.0, 135.0
    features = dict(zip(FRAME_NAMES, computing.compute(slow)[0], strict=True))
    assert features["latency_mean_over_usual"] == pytest.approx(log2(3) / 4, rel=0.01)
    assert features["latency_p95_over_usual"] == pytest.approx(log2(9) / 4, rel=0.01)
    slow.node[NODE["latency_mean_ms"]], slow.node[NODE["time_s"]] = 9.0, 20.5
    features = dict(zip(FRAME_NAMES, computing.compute(slow)[0], strict=True))
    assert features["latency_mean_over_usual"] == 0.0


def computed(computing: FrameFeatures, raw: RawFrame) -> dict[str, float]:
    return dict(zip(FRAME_NAMES, computing.compute(raw)[0], strict=True))


def held(time_s: float, usage: float, swap: float = nan, working_set: float = nan) -> RawFrame:
    """A frame whose application holds ``usage`` and has ``swap`` in swap."""
    raw = frame(time_s, 0.0)
    raw.node[NODE["protected_usage_bytes"]] = usage
    raw.node[NODE["protected_swap_bytes"]] = swap
    raw.node[NODE["protected_working_set_bytes"]] = working_set
    return raw


def test_the_demand_falls_slowly_and_stays_while_nothing_is_known() -> None:
    computing = FrameFeatures(SLO_MS)
    ratios = [
        computed(computing, held(0.0, 300.0, 60.0))["demand_ratio"],
        computed(computing, held(60.0, 100.0, 10.0))["demand_ratio"],
        computed(computing, held(120.0, nan, nan, working_set=500.0))["demand_ratio"],
        computed(computing, held(126.0, nan, 20.0))["demand_ratio"],
        computed(computing, held(126.0, 10.0, nan, working_set=480.0))["demand_ratio"],
        computed(computing, held(2000.0, 10.0))["demand_ratio"],
    ]
    expected = [360.0, 324.0, 324.0, 324.0 * 0.99, 480.0, 10.0]
    assert ratios == pytest.approx([value / LIMIT for value in expected])


def test_the_demand_begins_with_what_was_measured_before_also_after_a_reset() -> None:
    computing = FrameFeatures(SLO_MS, demand_bytes=450.0)
    assert computed(computing, held(0.0, 100.0))["demand_ratio"] == 450.0 / LIMIT
    assert computed(computing, held(1.0, 500.0))["demand_ratio"] == 500.0 / LIMIT
    computing.reset()
    assert computed(computing, held(2.0, 100.0))["demand_ratio"] == 450.0 / LIMIT


@pytest.mark.parametrize(
    ("demand", "present", "usage", "swap", "expected"),
    [
        (200.0, 1.0, 300.0, 500.0, 0.5),
        (200.0, 1.0, 300.0, nan, 400 / 300),
        (200.0, 1.0, 100.0, 50.0, 2.0),  # at most
        (700.0, 1.0, 100.0, 50.0, 0.0),
        (200.0, 1.0, nan, nan, 2.0),
        (200.0, 0.0, nan, nan, 2.0),
        (700.0, 0.0, nan, nan, 2.0),
    ],
)
def test_the_room_is_compared_with_what_the_slots_hold(
    demand: float, present: float, usage: float, swap: float, expected: float
) -> None:
    raw = held(0.0, demand)
    raw.slots[2][SLOT["present"]] = present
    raw.slots[2][SLOT["usage_bytes"]], raw.slots[2][SLOT["swap_bytes"]] = usage, swap
    assert computed(FrameFeatures(SLO_MS), raw)["room_ratio"] == pytest.approx(expected)


def test_pages_in_swap_that_cannot_be_read_are_none() -> None:
    """Recordings of older versions have neither them nor anonymous pages."""
    raw = held(0.0, 210.0)
    raw.node[NODE["protected_anon_bytes"]] = nan
    features = computed(FrameFeatures(SLO_MS), raw)
    assert features["protected_swap_ratio"] == features["protected_anon_ratio"] == 0.0
    assert features["demand_ratio"] == 210 / LIMIT


@pytest.mark.parametrize(
    ("limit", "reference", "expected"),
    [(nan, REFERENCE, 1.0), (nan, nan, 1.0), (240.0, nan, 0.0), (800.0, REFERENCE, 1.0)],
)
def test_without_a_limit_the_limit_ratio_is_one(
    limit: float, reference: float, expected: float
) -> None:
    now = frame(10.0 + ELAPSED_S, 1.0)
    now.slots[2][SLOT["limit_bytes"]] = limit
    now.slots[2][SLOT["reference_bytes"]] = reference
    assert features_of(frame(10.0, 0.0), now)["slot2_limit_ratio"] == expected


@pytest.mark.parametrize(("value", "expected"), [(nan, 0.0), (inf, 8.0), (-inf, 0.0)])
def test_a_value_that_is_not_finite_becomes_a_finite_feature(
    value: float, expected: float
) -> None:
    now = frame(10.0 + ELAPSED_S, 1.0)
    now.node[NODE["swap_used_ratio"]] = value
    features = features_of(frame(10.0, 0.0), now)
    assert features["swap_used_ratio"] == expected
    assert features["zone_usage_ratio"] == pytest.approx(550 / LIMIT)
