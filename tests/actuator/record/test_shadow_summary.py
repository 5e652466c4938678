"""How often a policy in shadow mode would have decided otherwise, and when."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from stallward.actuator.cli.shadow import shadow_lines, shadow_rows
from stallward.actuator.record.frames import FRAMES_NAME, FrameWriter
from stallward.actuator.record.reading import read_records
from stallward.actuator.record.reasons import ControllerRaised, Fault, Reasons
from stallward.actuator.record.shadow_summary import ShadowSummary, ShadowTally
from stallward.actuator.record.tick_record import Mode, NamedDecision, TickRecord
from stallward.actuator.record.wire import TICK_RECORD
from stallward.agent.controller import Decision
from stallward.agent.desired import FLUSH, MIB, DesiredState, SlotDesire
from stallward.agent.errors import UsageError
from stallward.agent.sample import GroupSample, LatencySample, NodeSample, Sample, SlotState

NOTHING = DesiredState()
PAUSED = DesiredState(slots=(SlotDesire(paused=True),))


def limited(mib: int) -> DesiredState:
    return DesiredState(slots=(SlotDesire(limit_bytes=mib * MIB),))


def tick(
    number: int,
    decided: DesiredState,
    wanted: DesiredState | None,
    *,
    p95_ms: float = 10.0,
    failed: bool = False,
) -> TickRecord:
    sample = Sample(
        sequence=number,
        time_s=0.1 * number,
        node=NodeSample(),
        zone=GroupSample(name="zone"),
        protected=GroupSample(name="app"),
        slots=(GroupSample(name="hog"),),
        slot_states=(SlotState(),),
        latency=LatencySample(completed=5, p95_ms=p95_ms),
    )
    fault = Fault(controller="onnx", cause=ControllerRaised(error="boom"))
    return TickRecord(
        sequence=number,
        time_s=0.1 * number,
        wall_time_s=1e9 + 0.1 * number,
        sample=sample,
        observation=(),
        decision=NamedDecision(controller="rule", decision=Decision(desired=decided)),
        granted=decided,
        mode=Mode.SHADOW,
        shadow=None
        if wanted is None
        else NamedDecision(controller="onnx", decision=Decision(desired=wanted)),
        reasons=Reasons(watched_fault=fault if failed else None),
    )


def summarised(records: Iterator[TickRecord] | list[TickRecord]) -> ShadowSummary:
    tally = ShadowTally()
    for record in records:
        tally.take(record)
    summary = tally.summary()
    assert summary is not None
    return summary


def test_shares_are_of_the_time_and_of_what_differs() -> None:
    wishes = (
        [(NOTHING, NOTHING)] * 41 + [(NOTHING, PAUSED)] * 20 + [(limited(100), limited(200))] * 40
    )
    summary = summarised([tick(k, *wish) for k, wish in enumerate(wishes)])
    assert summary.seconds == pytest.approx(10.0)
    assert summary.differs_share == pytest.approx(0.6)
    assert summary.pauses_differ_share == pytest.approx(0.2)
    assert summary.limits_differ_share == pytest.approx(0.4)
    assert summary.tuning_differs_share == 0.0
    assert summary.shadow[0].paused_share == pytest.approx(0.2)
    assert summary.decides[0].mean_limit_bytes == pytest.approx(100 * MIB)
    assert summary.shadow[0].mean_limit_bytes == pytest.approx(200 * MIB)
    assert [span.length_s for span in summary.spans] == [pytest.approx(6.0)]


@pytest.mark.parametrize(
    ("decided", "wanted", "differs"),
    [
        (limited(100), limited(109), False),
        (limited(100), limited(111), True),
        (limited(100), NOTHING, True),
        (NOTHING, DesiredState(slots=(SlotDesire(),)), False),
        (NOTHING, DesiredState(tuning=FLUSH), True),
    ],
)
def test_small_differences_are_none(
    decided: DesiredState, wanted: DesiredState, differs: bool
) -> None:
    summary = summarised([tick(k, decided, wanted) for k in range(10)])
    assert summary.differs_share == (1.0 if differs else 0.0)


def test_the_longest_times_are_named_with_their_worst_latency() -> None:
    records: list[TickRecord] = []
    for length in (4, 30, 8, 2, 5, 12, 1):
        start = len(records)
        records += [tick(start + k, NOTHING, PAUSED, p95_ms=float(length)) for k in range(length)]
        records.append(tick(len(records), NOTHING, NOTHING))
    spans = summarised(records).spans
    assert [span.worst_p95_ms for span in spans] == [30.0, 12.0, 8.0, 5.0, 4.0]
    assert [span.length_s for span in spans] == sorted(
        (span.length_s for span in spans), reverse=True
    )


def test_ticks_without_a_shadow_and_gaps_are_passed_over() -> None:
    off = [tick(k, NOTHING, None) for k in range(10)]
    shadow = [tick(k, NOTHING, PAUSED) for k in range(10, 20)]
    later = [tick(k, NOTHING, PAUSED) for k in range(1000, 1010)]
    summary = summarised([*off, *shadow, *later])
    assert summary.seconds == pytest.approx(1.9)
    assert len(summary.spans) == 2
    tally = ShadowTally()
    for record in off:
        tally.take(record)
    assert tally.summary() is None


@pytest.mark.parametrize("wanted", [NOTHING, PAUSED, None])
@pytest.mark.parametrize("after", [1, 100_000])
def test_a_gap_is_no_part_of_a_time_in_which_they_differed(
    after: int, wanted: DesiredState | None
) -> None:
    differing = [tick(k, NOTHING, PAUSED) for k in range(1000, 1011)]
    later = [tick(after + k, NOTHING, wanted) for k in range(6)]  # after a reboot, or much later
    lengths_s = [span.length_s for span in summarised([*differing, *later]).spans]
    expected_s = [1.0, 0.5] if wanted is PAUSED else [1.0]
    assert lengths_s == [pytest.approx(length_s) for length_s in expected_s]


def test_times_in_which_they_differed_add_up_to_the_share() -> None:
    wishes = [PAUSED if k % 10 in (3, 4, 5) else NOTHING for k in range(40)]
    summary = summarised([tick(k, NOTHING, wanted) for k, wanted in enumerate(wishes)])
    whole_s = summary.differs_share * summary.seconds
    assert sum(span.length_s for span in summary.spans) == pytest.approx(whole_s)


def test_ticks_at_which_the_policy_failed_are_counted_apart() -> None:
    good = [tick(k, NOTHING, NOTHING) for k in range(11)]
    bad = [tick(k, NOTHING, None, failed=True) for k in range(11, 16)]
    summary = summarised([*good, *bad])
    assert summary.failed_share == pytest.approx(5 / 15)
    assert any("no usable decision in 33.3 %" in line for line in shadow_lines(summary))


def test_a_record_on_the_disk_is_read_and_said(tmp_path: Path) -> None:
    writer = FrameWriter(tmp_path / FRAMES_NAME)
    for k in range(101):
        record = tick(k, limited(100), PAUSED if k > 50 else limited(100), p95_ms=42.0)
        writer.append(TICK_RECORD.to_wire(record).SerializeToString())
    writer.close()
    summary = summarised(list(read_records(tmp_path)))
    assert ("hog: paused", "0.0 %", "50.0 %") in shadow_rows(summary, ("hog",))
    text = "\n".join(shadow_lines(summary))
    assert "wanted something else in 50.0 % of the time" in text
    assert "5.0 s, p95 up to 42 ms" in text
    with pytest.raises(UsageError, match="There is no"):
        read_records(tmp_path / "nowhere")
