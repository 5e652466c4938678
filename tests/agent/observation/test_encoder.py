"""The observation of a node: its values, and that it is always finite."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from stallward.agent.desired import MIB, SLOTS
from stallward.agent.observation.encoder import (
    BASIC,
    FEATURE_SETS,
    OBSERVATION_NAMES,
    OBSERVATION_SIZE,
    PHASES,
    ObservationEncoder,
    schema,
    schema_hash,
)
from stallward.agent.observation.feature_table import PHASE_FEATURES
from stallward.agent.observation.raw import NODE, SLOT, RawFrame, to_raw
from stallward.agent.sample import GroupSample, NodeSample, PsiTotals, Sample, SlotState
from stallward.agent.testing import make_sample


def value(observation: NDArray[np.float32], name: str) -> float:
    return float(observation[OBSERVATION_NAMES.index(name)])


def test_names_are_unique_and_fill_the_observation() -> None:
    assert len(set(OBSERVATION_NAMES)) == OBSERVATION_SIZE


def test_rates_come_from_totals_and_time() -> None:
    encoder = ObservationEncoder(slo_ms=20.0)
    encoder.encode(to_raw(make_sample(0)))
    observation = encoder.encode(to_raw(make_sample(1, some_us=25_000)))
    assert value(observation, "zone_psi_memory_some_share") == pytest.approx(0.25, rel=1e-3)
    assert value(observation, "latency_p95_ratio") == pytest.approx(np.log2(2.0) / 4, rel=1e-5)
    assert value(observation, "slot0_usage_ratio") == pytest.approx(200 / 600, rel=1e-5)
    assert value(observation, "slot0_cpu_share") == pytest.approx(0.5, rel=1e-3)
    assert value(observation, "slot2_present") == 0.0


def test_the_first_sample_has_no_rates() -> None:
    observation = ObservationEncoder().encode(to_raw(make_sample(5, some_us=10**9)))
    assert value(observation, "zone_psi_memory_some_share") == 0.0


def test_a_counter_that_goes_back_gives_no_rate() -> None:
    encoder = ObservationEncoder()
    encoder.encode(to_raw(make_sample(0, some_us=10**9)))
    observation = encoder.encode(to_raw(make_sample(1, some_us=5)))
    assert value(observation, "zone_psi_memory_some_share") == 0.0


def test_after_a_reset_nothing_is_remembered() -> None:
    encoder, another = ObservationEncoder(), ObservationEncoder()
    frames = [to_raw(make_sample(i, some_us=50_000 * i, full_us=9_000 * i)) for i in range(4)]
    for frame in frames[:3]:
        last = encoder.encode(frame)
    assert value(last, "zone_psi_memory_some_share") == pytest.approx(0.5, rel=1e-3)
    encoder.reset()
    for frame in frames[2:]:
        np.testing.assert_array_equal(encoder.encode(frame), another.encode(frame))


def test_the_moving_averages_follow_their_time_constants() -> None:
    encoder = ObservationEncoder()
    for i in range(11):
        observation = encoder.encode(to_raw(make_sample(i, full_us=100_000 * i)))
    expected = 1.0 - np.exp(-1.0)  # ten ticks of 0.1 s of full stall, seen with 1 s
    assert value(observation, "zone_psi_memory_full_share_1s") == pytest.approx(expected, rel=1e-3)


def test_a_slot_that_returns_has_no_rates_at_first() -> None:
    encoder = ObservationEncoder()
    frames = [to_raw(make_sample(i, slot_some_us=50_000 * i)) for i in range(4)]
    encoder.encode(frames[0])
    frames[1].slots[0] = RawFrame.empty().slots[0]
    gone = encoder.encode(frames[1])
    assert value(gone, "slot0_present") == value(gone, "slot0_usage_ratio") == 0.0
    back = encoder.encode(frames[2])
    assert value(back, "slot0_usage_ratio") > 0.0
    assert value(back, "slot0_psi_memory_some_share") == 0.0
    assert value(encoder.encode(frames[3]), "slot0_psi_memory_some_share") == pytest.approx(0.5)


counters = st.none() | st.integers(0, 2**62)


@given(
    usage=counters,
    limit=counters,
    some=counters,
    reference=counters,
    slot_limit=counters,
    gap=st.floats(-5, 1e6),
)
def test_the_observation_is_finite_even_when_values_are_missing_or_absurd(
    usage: int | None,
    limit: int | None,
    some: int | None,
    reference: int | None,
    slot_limit: int | None,
    gap: float,
) -> None:
    group = GroupSample(
        name="g",
        psi=PsiTotals(memory_some_us=some),
        memory_usage_bytes=usage,
        memory_limit_bytes=limit,
    )
    state = SlotState(limit_bytes=slot_limit, reference_bytes=reference)
    sample = Sample(
        sequence=0,
        time_s=10.0,
        node=NodeSample(memory_total_bytes=8 * MIB),
        zone=group,
        protected=group,
        slots=(group,),
        slot_states=(state,),
    )
    encoder = ObservationEncoder()
    encoder.encode(to_raw(make_sample(0)))
    encoder.encode(to_raw(sample))
    assert np.isfinite(encoder.encode(to_raw(replace(sample, time_s=10.0 + gap)))).all()


def test_an_observation_begins_with_what_older_policies_read() -> None:
    assert OBSERVATION_NAMES[: BASIC.size] == BASIC.names
    assert FEATURE_SETS == {"basic": BASIC, "phases": PHASES}
    assert PHASES.size == BASIC.size + len(PHASE_FEATURES) * SLOTS
    assert not [name for name in BASIC.names if "phase" in name]
    assert schema(features=PHASES)["names"] == list(PHASES.names)
    assert schema_hash() == schema_hash(features=BASIC) != schema_hash(features=PHASES)


def test_the_phases_of_a_slot_end_an_observation() -> None:
    """It grows to 90 MiB, keeps that size for 6 s, doubles, and is gone after 12 s."""
    encoder = ObservationEncoder()
    seen = []
    for tick in range(130):
        mib = min(9 * tick, 90) if tick < 70 else 180
        raw = to_raw(make_sample(tick))
        raw.node[NODE["time_s"]] = 0.1 * tick
        raw.node[NODE["zone_limit_bytes"]] = 600 * MIB
        raw.slots[0][SLOT["usage_bytes"]] = 0.7 * mib * MIB
        raw.slots[0][SLOT["swap_bytes"]] = 0.3 * mib * MIB
        if tick >= 120:
            raw.slots[0] = RawFrame.empty().slots[0]
        observation = encoder.encode(raw)
        names = ("in_phase", "phase_ratio", "since_phase_change")
        seen.append(tuple(value(observation, f"slot0_{name}") for name in names))
    assert seen[15] == (0.0, 0.0, 2.0), "it has just grown"
    assert seen[60] == pytest.approx((1.0, 90 / 600, 2.0))
    ended = next(tick for tick in range(60, 130) if not seen[tick][0])
    assert 70 < ended <= 74
    assert seen[ended] == (0.0, 0.0, 0.0)
    assert seen[110] == pytest.approx(
        (1.0, 180 / 600, math.log2(1 + 0.1 * (110 - ended)) / 4), rel=1e-5
    )
    assert seen[125] == (0.0, 0.0, 0.0), "there is no group"
    encoder.reset()
    assert value(encoder.encode(to_raw(make_sample(0))), "slot0_since_phase_change") == 2.0


def test_a_slot_whose_memory_cannot_be_read_keeps_its_phase() -> None:
    encoder = ObservationEncoder()
    for tick in range(40):
        raw = to_raw(make_sample(tick))
        raw.node[NODE["time_s"]] = 0.1 * tick
        raw.slots[0][SLOT["usage_bytes"]] = math.nan if tick > 30 else 90.0 * MIB
        observation = encoder.encode(raw)
    assert value(observation, "slot0_in_phase") == 1.0


def test_the_schema_hash_is_stable_within_a_version() -> None:
    assert schema_hash() == schema_hash()
    assert len(schema_hash()) == 64
