"""Domain to wire and back is exact; every wire field has a domain field."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stallward.actuator.client.status import STATUS, STORED_POLICY
from stallward.actuator.errors import ExperimentError
from stallward.actuator.experiments.wire import EXPERIMENT
from stallward.actuator.guard.changes import GuardChange, GuardRule, Unit, Wish
from stallward.actuator.guard.problem import Expected, Flaw, Problem
from stallward.actuator.record import reasons as reason
from stallward.actuator.record.advice.wire import ADVICE
from stallward.actuator.record.lever_result import LeverResult
from stallward.actuator.record.reasons import Fault, FaultKind, Reasons
from stallward.actuator.record.reasons_text import reason_notes
from stallward.actuator.record.tick_record import (
    Circumstances,
    Mode,
    NamedDecision,
    TickRecord,
    TickTimings,
)
from stallward.actuator.record.wire import (
    DECISION,
    DESIRED_STATE,
    FAULT,
    MODE,
    REASONS,
    SAMPLE,
    TICK_RECORD,
)
from stallward.agent import desired
from stallward.agent.controller import Decision
from stallward.agent.desired import DesiredState, ProcessRef, SlotDesire, Tuning
from stallward.agent.file_pages import FilePages
from stallward.agent.latency_histogram import LatencyHistogram
from stallward.agent.sample import (
    GroupSample,
    LatencySample,
    LeverState,
    NodeSample,
    ProcessSample,
    PsiTotals,
    Sample,
    SlotState,
    WorkFault,
    WorkSample,
    WorkSource,
)
from stallward.agent.testing import make_sample
from stallward.agent.threads import ThreadDesire, ThreadRef, ThreadSample
from stallward.proto.codec import Codec, make_message
from stallward.proto.v1 import stallward_pb2 as pb

u64 = st.integers(0, 2**64 - 1)
maybe_u64 = st.none() | u64
pid = st.integers(1, 2**31 - 1)
number = st.floats(allow_nan=False)
maybe_number = st.none() | number
text = st.text(max_size=8)


def _fields(cls: type, **known: st.SearchStrategy[object]) -> dict[str, st.SearchStrategy[object]]:
    names = cls.__dataclass_fields__  # type: ignore[attr-defined]
    return {name: known.get(name, maybe_u64) for name in names}


psi = st.builds(PsiTotals, **_fields(PsiTotals))
groups = st.builds(
    GroupSample,
    **_fields(
        GroupSample,
        name=text,
        psi=psi,
        frozen=st.none() | st.booleans(),
        turn_read_s=maybe_number,
    ),
)
nodes = st.builds(NodeSample, **_fields(NodeSample, psi=psi))
histograms = st.dictionaries(st.integers(0, 2**32 - 1), u64, max_size=4).map(LatencyHistogram.of)
latencies = st.builds(
    LatencySample,
    window_s=number,
    completed=st.integers(0, 2**32 - 1),
    completed_total=u64,
    mean_ms=maybe_number,
    p95_ms=maybe_number,
    max_ms=maybe_number,
    last_completion_age_s=maybe_number,
    new_requests=st.none() | histograms,
)
processes = st.builds(
    ProcessSample,
    pid=pid,
    start_time_ticks=u64,
    slot=st.integers(-1, 3),
    oom_score=st.integers(-1000, 2000),
    stopped=st.booleans(),
    rss_bytes=maybe_u64,
    pss_bytes=maybe_u64,
    run_delay_us=maybe_u64,
    page_cache_misses=maybe_u64,
    read_s=maybe_number,
)
levers = st.builds(LeverState, lever=text, value=text, held_for_s=number, foreign=st.booleans())
states = st.builds(
    SlotState,
    paused=st.booleans(),
    paused_for_s=number,
    since_thaw_s=number,
    paused_share=number,
    limit_bytes=maybe_u64,
    reference_bytes=maybe_u64,
)
works = st.builds(
    WorkSample,
    slot=st.integers(0, 3),
    source=st.sampled_from(WorkSource),
    unit=text,
    units=number,
    known_s=number,
    read_s=maybe_number,
    fault=st.sampled_from(WorkFault),
)
nices = st.integers(-20, 19)
cpu_lists = st.lists(st.integers(0, 2**32 - 1), max_size=3).map(tuple)
threads = st.builds(
    ThreadSample,
    pid=pid,
    tid=pid,
    start_time_ticks=u64,
    state=st.sampled_from("RSDT"),
    cpu=st.integers(0, 8191),
    run_us=u64,
    wait_us=u64,
    voluntary_switches=u64,
    involuntary_switches=u64,
    nice=nices,
    slice_us=st.none() | st.integers(0, 2**32 - 1),
    cpus=cpu_lists,
)
thread_desires = st.builds(
    ThreadDesire,
    thread=st.builds(ThreadRef, tid=pid, start_time_ticks=u64),
    slice_us=st.none() | st.integers(0, 2**32 - 1),
    nice=st.none() | nices,
    cpus=cpu_lists,
)
samples = st.builds(
    Sample,
    sequence=u64,
    time_s=number,
    node=nodes,
    zone=groups,
    protected=groups,
    slots=st.lists(groups, max_size=2).map(tuple),
    slot_states=st.lists(states, max_size=2).map(tuple),
    latency=st.none() | latencies,
    processes=st.none() | st.lists(processes, max_size=2).map(tuple),
    profile=text,
    levers=st.lists(levers, max_size=2).map(tuple),
    work=st.lists(works, max_size=2).map(tuple),
    protected_threads=st.none() | st.lists(threads, max_size=2).map(tuple),
)
u32 = st.none() | st.integers(0, 2**32 - 1)
tunings = st.builds(
    Tuning,
    name=text,
    swappiness=u32,
    protected_swappiness=u32,
    dirty_background_ratio=maybe_number,
    dirty_ratio=maybe_number,
    overcommit_memory=u32,
)
references = st.builds(ProcessRef, pid=pid, start_time_ticks=u64)
slot_desires = st.builds(
    SlotDesire,
    paused=st.booleans(),
    limit_bytes=maybe_u64,
    hard_limit_bytes=maybe_u64,
    swap_max_bytes=maybe_u64,
    reclaim_to_bytes=maybe_u64,
    cpu_weight=u32,
    cpu_max_cores=maybe_number,
    io_weight=u32,
    io_max_bytes_per_s=maybe_u64,
    nice=st.none() | st.integers(-20, 19),
    cpus=st.lists(st.integers(0, 2**32 - 1), max_size=3).map(tuple),
    page_advice=st.none() | st.sampled_from(["cold", "pageout", "willneed"]),
    terminated=st.booleans(),
)
desires = st.builds(
    DesiredState,
    slots=st.lists(slot_desires, max_size=4).map(tuple),
    tuning=tunings,
    stopped=st.lists(references, max_size=2).map(tuple),
    terminate=st.none() | references,
    protect_from_oom=st.booleans(),
    protected_low_bytes=maybe_u64,
    protected_willneed=st.booleans(),
    kill_at_once=st.booleans(),
    file_pages=st.none()
    | st.builds(
        FilePages,
        action=st.sampled_from(["flush", "clear"]),
        victim=st.sampled_from(["largest-file", "protected"]),
        scope=st.sampled_from(["first", "all"]),
        grab_pages=st.integers(0, 2**32 - 1),
        writeback=st.booleans(),
    ),
    protected_threads=st.lists(thread_desires, max_size=2).map(tuple),
)
decisions = st.builds(
    NamedDecision,
    controller=text,
    decision=st.builds(
        Decision,
        desired=desires,
        reason=text,
        action=st.none() | st.lists(st.integers(0, 9), min_size=1, max_size=9).map(tuple),
        propensity=maybe_number,
        score=maybe_number,
    ),
    leased=st.booleans(),
)
slot = st.none() | st.integers(0, 2**32 - 1)
count = st.integers(0, 2**32 - 1)
problems = st.builds(
    Problem,
    flaw=st.sampled_from(Flaw),
    field=text,
    value=text,
    expected=st.sampled_from(Expected),
    low=maybe_number,
    high=maybe_number,
    slot=slot,
)
causes = st.one_of(
    st.builds(reason.TimeStoodStill),
    st.builds(reason.SampleTooOld, age_s=number, limit_s=number),
    st.builds(reason.WrongSlots, slots=count, states=count, expected=count),
    st.builds(reason.TimeNotFinite, time_s=number),
    st.builds(reason.TotalWentBack, signal=text),
    st.builds(reason.NoSample, ticks=count),
    st.builds(reason.NotObservable, error=text),
    st.builds(reason.SignalLost, signal=text),
    st.builds(reason.FeatureNotFinite, feature=text),
    st.builds(reason.ControllerRaised, error=text),
    st.builds(reason.DecisionUnfit, problem=problems),
    st.builds(reason.DecisionLate, took_s=number, limit_s=number),
    st.builds(reason.OutsideTraining, score=maybe_number, limit=number),
    st.builds(reason.Waiting, good_ticks=count, needed_ticks=count),
    st.builds(reason.NoDetails, kind=st.sampled_from(FaultKind)),
)
faults = st.none() | st.builds(Fault, controller=text, cause=causes)
changes = st.builds(
    GuardChange,
    rule=st.sampled_from(GuardRule),
    wish=st.sampled_from(Wish),
    slot=slot,
    group=text,
    pid=st.none() | pid,
    protected_pid=st.none() | pid,
    tid=st.none() | pid,
    lever=text,
    found=maybe_number,
    bound=maybe_number,
    unit=st.sampled_from(Unit),
)
reasons = st.builds(
    Reasons,
    fault=faults,
    default_fault=faults,
    watched_fault=faults,
    changes=st.lists(changes, max_size=3).map(tuple),
    changes_left_out=count,
)
float32s = st.floats(width=32, allow_nan=False).map(lambda value: float(np.float32(value)))
records = st.builds(
    TickRecord,
    sequence=u64,
    time_s=number,
    wall_time_s=number,
    sample=samples,
    observation=st.lists(float32s, max_size=5).map(tuple),
    decision=decisions,
    granted=desires,
    reasons=reasons,
    applied=st.lists(
        st.builds(
            LeverResult, lever=text, value=text, ok=st.booleans(), error=text, took_ms=number
        ),
        max_size=2,
    ).map(tuple),
    timings=st.builds(TickTimings, **dict.fromkeys(TickTimings.__dataclass_fields__, number)),
    mode=st.sampled_from(Mode),
    shadow=st.none() | decisions,
    fallback=st.booleans(),
    circumstances=st.builds(
        Circumstances,
        sample_age_s=number,
        horizon_s=maybe_number,
        blind_ticks=st.integers(0, 2**32 - 1),
    ),
)

relaxed = settings(
    deadline=None,
    max_examples=min(60, settings().max_examples),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@relaxed
@given(records)
def test_a_tick_record_survives_the_wire(record: TickRecord) -> None:
    data = TICK_RECORD.to_wire(record).SerializeToString()
    assert TICK_RECORD.from_wire(pb.TickRecord.FromString(data)) == record


@relaxed
@given(reasons)
def test_any_reasons_can_be_put_into_words(drawn: Reasons) -> None:
    notes = reason_notes(drawn)
    faults = (drawn.fault, drawn.default_fault, drawn.watched_fault)
    expected = len(drawn.changes) + sum(fault is not None for fault in faults)
    assert len(notes) == expected + bool(drawn.changes_left_out)


@relaxed
@given(desires)
def test_a_desired_state_survives_the_wire(state: desired.DesiredState) -> None:
    data = DESIRED_STATE.to_wire(state).SerializeToString()
    assert DESIRED_STATE.from_wire(pb.DesiredState.FromString(data)) == state


@relaxed
@given(decisions)
def test_a_decision_survives_the_wire(decision: NamedDecision) -> None:
    data = DECISION.to_wire(decision).SerializeToString()
    assert DECISION.from_wire(pb.Decision.FromString(data)) == decision


@pytest.mark.parametrize("mode", Mode)
def test_modes_survive_the_wire(mode: Mode) -> None:
    assert MODE.get(MODE.to_wire(mode)) is mode


def test_an_unspecified_mode_is_no_mode() -> None:
    assert MODE.get(pb.MODE_UNSPECIFIED) is None


def test_a_desired_state_without_tuning_is_untuned() -> None:
    assert DESIRED_STATE.from_wire(pb.DesiredState()) == desired.RELEASED


def test_a_negative_limit_does_not_fit_the_wire() -> None:
    state = desired.DesiredState(slots=(desired.SlotDesire(limit_bytes=-1),))
    with pytest.raises(ValueError, match=r"-1|range"):
        DESIRED_STATE.to_wire(state)


def _full(wire: type[Message]) -> Any:
    """A message with a value in each field, in the messages in it, too; of a oneof, the last."""
    message: Any = wire()
    for field in wire.DESCRIPTOR.fields:
        value: Any = {field.CPPTYPE_STRING: "x", field.CPPTYPE_BOOL: True}.get(field.cpp_type, 1)
        if field.enum_type is not None:
            value = field.enum_type.values[-1].number
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            getattr(message, field.name)["key"] = 1
        elif field.message_type is not None:
            descriptor: Any = field.message_type
            inner = _full(GetMessageClass(descriptor))
            if field.is_repeated:
                getattr(message, field.name).append(inner)
            else:
                getattr(message, field.name).CopyFrom(inner)
        elif field.is_repeated:
            getattr(message, field.name).append(value)
        else:
            setattr(message, field.name, value)
    return message


@pytest.mark.parametrize(
    ("codec", "wire", "not_read"),
    [
        (TICK_RECORD, pb.TickRecord, ()),
        (ADVICE, pb.Advice, ()),
        (EXPERIMENT, pb.Experiment, ()),
        (STATUS, pb.StatusResponse, ("calm",)),
        (STORED_POLICY, pb.StoredPolicy, ()),
    ],
)
def test_every_field_of_a_message_is_read_and_written(
    codec: Codec[Any, Any], wire: type[Message], not_read: tuple[str, ...]
) -> None:
    message = _full(wire)
    if wire is pb.Experiment:
        message.plan.block_s = 60.0  # it is bounded
    again = codec.to_wire(codec.from_wire(message))
    for name in not_read:
        message.ClearField(name)
    assert again == message


def test_every_cause_of_a_fault_is_read() -> None:
    for field in pb.Fault.DESCRIPTOR.oneofs_by_name["cause"].fields:
        message = pb.Fault()
        getattr(message, field.name).SetInParent()
        assert type(FAULT.from_wire(message).cause).__name__.lower() == field.name.replace("_", "")


FIRST: Any = 1
UNKNOWN: Any = 77
"""Numbers of enumerations, for which the stubs ask for members."""


@pytest.mark.parametrize(
    ("message", "complaint"),
    [
        (pb.Experiment(plan={"pairs": 1, "block_s": 60}), "there is no progress 0"),
        (pb.Experiment(progress=UNKNOWN), "pairs is 0, outside 1"),
        (pb.Experiment(plan={"pairs": 1, "block_s": 60, "primary": 77}), "primary is 77"),
        (
            pb.Experiment(plan={"pairs": 1, "block_s": 60}, progress=FIRST, blocks=[{}]),
            "there is no arm 0",
        ),
        (
            pb.Experiment(
                plan={"pairs": 1, "block_s": 60}, progress=FIRST, blocks=[{"arm": 1, "loss": 77}]
            ),
            "there is no loss of a block 77",
        ),
    ],
)
def test_an_experiment_of_another_version_is_refused(
    message: pb.Experiment, complaint: str
) -> None:
    with pytest.raises(ExperimentError, match=complaint):
        EXPERIMENT.from_wire(message)


def test_values_of_a_later_version_are_read_as_the_nearest_that_is_known() -> None:
    work = SAMPLE.from_wire(pb.Sample(work=[{"source": 77, "fault": 77}, {}])).work
    assert [(one.source, one.fault) for one in work] == [
        (WorkSource.CPU, WorkFault.UNREADABLE),
        (WorkSource.CPU, WorkFault.NONE),
    ]
    assert TICK_RECORD.from_wire(pb.TickRecord(mode=UNKNOWN)).mode is Mode.OFF
    (change,) = REASONS.from_wire(pb.Reasons(changes=[{"rule": 77, "unit": 77}])).changes
    assert (change.rule, change.unit) == (GuardRule.OTHER, Unit.NONE)


@pytest.mark.parametrize(
    ("number", "fitting"),
    [(2**64 - 1, 2**64 - 1), (2**64, 2**64 - 1), (10**400, 2**64 - 1), (-1, 0), (1.5, 1)],
    ids=["fits", "one too many", "huge", "negative", "a fraction"],
)
def test_a_number_that_does_not_fit_a_message_becomes_the_nearest_that_does(
    number: float, fitting: int
) -> None:
    message = make_message(pb.LatencySample, {"completed_total": number, "p95_ms": 2.5})
    assert (message.completed_total, message.p95_ms) == (fitting, 2.5)


@pytest.mark.parametrize(
    ("number", "fitting"),
    [(math.inf, 2**64 - 1), (-math.inf, 0), (math.nan, 0), (-(10**400), 0)],
    ids=["inf", "-inf", "nan", "huge"],
)
def test_neither_do_numbers_without_a_value_or_an_end(number: float, fitting: int) -> None:
    parts = {"slots": ({"limit_bytes": 7}, {"limit_bytes": number})}
    message = make_message(pb.DesiredState, parts)
    assert message.slots[0].limit_bytes == 7
    assert message.slots[1].limit_bytes == fitting


def test_a_real_number_beyond_all_bounds_becomes_the_greatest() -> None:
    message = make_message(pb.LatencySample, {"p95_ms": 10**400, "mean_ms": -(10**400)})
    assert (message.p95_ms, message.mean_ms) == (sys.float_info.max, -sys.float_info.max)


def test_a_damaged_histogram_is_read_as_far_as_it_has_pairs() -> None:
    message = pb.Sample()
    message.latency.new_requests.buckets.extend([7, 5, 9])
    message.latency.new_requests.counts.extend([1, 2])
    latency = SAMPLE.from_wire(message).latency
    assert latency is not None
    assert latency.new_requests == LatencyHistogram(buckets=(5, 7), counts=(2, 1))


def test_a_text_that_is_no_unicode_is_sent_without_what_is_none() -> None:
    message = make_message(pb.LatencySourceStatus, {"source": "lines", "fault": "/a\udcff b"})
    assert message.fault == "/a? b"


@settings(max_examples=50)
@given(st.integers(-(2**70), 2**70), st.sampled_from(["sequence", "completed_total", "rss_bytes"]))
def test_a_record_with_any_number_can_be_made(count: int, where: str) -> None:
    made = make_sample()
    if where == "sequence":
        made = replace(made, sequence=count)
    elif where == "completed_total":
        made = replace(made, latency=LatencySample(window_s=1.0, completed_total=count))
    else:
        made = replace(made, slots=(replace(made.slots[0], memory_usage_bytes=count),))
    record = TickRecord(
        sequence=1, time_s=0.0, wall_time_s=0.0, sample=made, observation=(),
        decision=NamedDecision(
            controller="x", decision=Decision(desired=DesiredState(), reason="")
        ),
        granted=DesiredState(), timings=TickTimings(), mode=Mode.OFF,
    )  # fmt: skip
    wire = TICK_RECORD.to_wire(record)
    if 0 <= count < 2**64:
        assert TICK_RECORD.from_wire(wire).sample == made
    else:
        limit = 0 if count < 0 else 2**64 - 1
        values = (
            wire.sample.sequence,
            wire.sample.latency.completed_total,
            wire.sample.slots[0].memory_usage_bytes,
        )
        assert limit in values
