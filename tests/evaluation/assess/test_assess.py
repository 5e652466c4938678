"""Which seconds missed the target and why, and whether it would help."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from stallward.actuator.latency.window import LatencyWindow
from stallward.actuator.record.frames import FRAMES_NAME, FrameWriter
from stallward.env.recording.recording import Requests, Units, write_recording
from stallward.env.recording.run_info import load_run
from stallward.evaluation.assess.assessment import (
    Assessment,
    Cause,
    ReasonKind,
    Verdict,
    assess,
    causes_of,
)
from stallward.evaluation.assess.readings import Seconds, readings_of_ticks, seconds_of
from stallward.evaluation.assess.recordings import readings_of_recordings
from stallward.evaluation.cli import MISTAKE, main
from stallward.evaluation.errors import MeasureError
from stallward.proto.v1 import stallward_pb2 as pb

MIB = 1 << 20
RECORDINGS = Path(__file__).parents[3] / "recordings"
TARGET_MS = 50.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """What happens in one second."""

    p95_ms: float | None = 20.3
    stall: float = 0.0
    refaults: int = 0
    disk: float = 0.0
    cpu: float = 0.0
    requests: int = 10
    held_mib: int = 300
    least_mib: int | None = None
    swap_mib: int = 1024
    from_swap: int = 0
    """Pages that the slot reads back from swap, and its stall for each of them."""
    page_us: float = 40.0
    controller: str = "partition"
    paused: bool = False
    limit_mib: int | None = None
    acts: bool = False
    step_ms: float | None = None
    """The step of the source of latencies, if it is a coarse one."""


CALM = Moment()
BAD = Moment(p95_ms=120.7, stall=0.3, paused=True)


def ticks_of(moments: Sequence[Moment]) -> list[pb.TickRecord]:
    """A tick at the end of each second, with a latency that no other second has."""
    made, total = [], pb.Sample()
    luck = random.Random(1)
    for number, now in enumerate(moments):
        tick = pb.TickRecord(sequence=number, time_s=100.0 + number, slo_ms=TARGET_MS)
        group, slot = total.protected, total.slots[0] if total.slots else total.slots.add()
        group.psi.memory_some_us += round(1e6 * now.stall)
        group.psi.io_some_us += round(1e6 * now.disk)
        group.psi.cpu_some_us += round(1e6 * now.cpu)
        group.refault_file_pages += now.refaults
        group.refault_anon_pages += 0
        total.latency.completed_total += now.requests
        slot.name, slot.memory_usage_bytes = "edge/batch", now.held_mib * MIB
        slot.refault_anon_pages += now.from_swap
        slot.refault_file_pages += 0
        slot.psi.memory_some_us += round(now.from_swap * now.page_us)
        total.node.swap_total_bytes = now.swap_mib * MIB
        tick.sample.CopyFrom(total)
        if now.p95_ms is not None:
            shown_ms = [now.p95_ms, now.p95_ms + luck.random()]
            if now.step_ms is not None:
                shown_ms = [now.step_ms * round(one_ms / now.step_ms) for one_ms in shown_ms]
            tick.sample.latency.p95_ms, tick.sample.latency.max_ms = shown_ms
        state = tick.sample.slot_states.add(paused=now.acts)
        if now.least_mib is not None:
            state.least_limit_bytes = now.least_mib * MIB
        tick.decision.controller = now.controller
        wish = tick.granted.slots.add(paused=now.paused)
        if now.limit_mib is not None:
            wish.limit_bytes = now.limit_mib * MIB
        made.append(tick)
    return made


def assessed(moments: Sequence[Moment]) -> Assessment:
    return assess([readings_of_ticks(ticks_of(moments), "here")])


def day(
    bad: Moment = BAD, *, calm: Moment = CALM, every: int = 6, length: int = 720
) -> list[Moment]:
    """Minutes of calm in which every few seconds one is bad."""
    return [bad if number % every == 5 else calm for number in range(length)]


def write(folder: Path, ticks: Sequence[pb.TickRecord]) -> None:
    writer = FrameWriter(folder / FRAMES_NAME)
    for tick in ticks:
        writer.append(tick.SerializeToString())
    writer.close()


def kinds(found: Assessment) -> set[ReasonKind]:
    return {reason.kind for reason in found.reasons}


def seconds(**signals: Sequence[float]) -> Seconds:
    count = len(signals["p95_ms"])
    none, slots = np.zeros(count), np.zeros((count, 1))
    given = {
        "target_ms": np.full(count, TARGET_MS),
        **dict.fromkeys(("stall", "refaults_per_s", "disk", "cpu", "requests_per_s"), none),
        **{name: np.array(values, dtype=np.float64) for name, values in signals.items()},
    }
    return Seconds(
        asked=none > 0.0, paused=slots > 0.0, taken_bytes=slots, held_bytes=slots,
        least_bytes=slots, page_us=slots, own_p95_ms=slots[:, :0], own_target_ms=slots[:, :0],
        **given,
    )  # fmt: skip


MET = [20.0] * 100
SIGNS = [
    pytest.param({"stall": 0.05}, {Cause.MEMORY}, id="waits for memory"),
    pytest.param({"refaults_per_s": 150.0}, {Cause.MEMORY}, id="reads pages back"),
    pytest.param({"disk": 0.2}, {Cause.DISK}, id="waits for the disk"),
    pytest.param(
        {"disk": 0.2, "stall": 0.2}, {Cause.MEMORY}, id="a wait for memory is not the disk's"
    ),
    pytest.param({"cpu": 0.2}, {Cause.CPU}, id="waits for processors"),
    pytest.param({"requests_per_s": 50.0}, {Cause.LOAD}, id="more requests"),
    pytest.param({"stall": 0.05, "cpu": 0.2}, {Cause.MEMORY, Cause.CPU}, id="two causes"),
    pytest.param({"stall": 0.005, "refaults_per_s": 50.0}, {Cause.UNKNOWN}, id="below the floors"),
]


@pytest.mark.parametrize(("signals", "expected"), SIGNS)
def test_a_missed_second_shows_the_signs_that_are_above_what_is_usual(
    signals: dict[str, float], expected: set[Cause]
) -> None:
    names = ("stall", "refaults_per_s", "disk", "cpu", "requests_per_s")
    usual = {"requests_per_s": 10.0}
    columns = {
        name: [usual.get(name, 0.0)] * 100 + [signals.get(name, usual.get(name, 0.0))]
        for name in names
    }
    signs = causes_of(seconds(p95_ms=[*MET, 90.0], **columns))
    assert {cause for cause, mask in signs.items() if mask[-1]} == expected


def test_what_is_usual_where_the_target_is_met_is_no_sign() -> None:
    stalls = seconds(p95_ms=[*MET, 90.0, 90.0], stall=[0.2] * 100 + [0.15, 0.4])
    memory = causes_of(stalls)[Cause.MEMORY]
    assert memory[-2:].tolist() == [False, True]


def test_without_seconds_that_met_the_target_the_floor_decides_and_no_load_is_high() -> None:
    found = causes_of(seconds(p95_ms=[90.0] * 2, stall=[0.005, 0.02], requests_per_s=[1.0, 99.0]))
    assert found[Cause.MEMORY].tolist() == [False, True]
    assert not found[Cause.LOAD].any()


def test_a_slow_request_is_traced_to_the_stall_before_it() -> None:
    stalled = replace(CALM, p95_ms=None, stall=0.9, requests=0)
    answered = replace(CALM, p95_ms=2900.0, requests=30)
    found = assessed(([CALM] * 20 + [stalled] * 2 + [answered]) * 30)
    by_cause = {one.cause: one for one in found.causes}
    assert found.missed_s == 30
    assert by_cause[Cause.MEMORY].missed_s == 30, "it began two seconds before"
    assert by_cause[Cause.LOAD].missed_s == 0, "its 30 requests arrived in three seconds"


def test_it_likely_helps_where_missed_seconds_wait_for_memory_and_something_is_held_back() -> None:
    found = assessed(day())
    memory = found.causes[0]
    assert (found.verdict, found.reasons) == (Verdict.HELPS_LIKELY, ())
    assert (found.missed_s, memory.missed_s) == (120, 120)
    assert memory.of_met == 0.0
    advice = found.advice
    assert advice is not None
    assert (advice.controllers, advice.held_missed_s, advice.held_s) == (("partition",), 120, 120)
    assert advice.slots[0].paused == pytest.approx(120 / 719)
    assert advice.slots[0].name == "batch"


def test_a_limit_counts_by_what_it_would_take() -> None:
    loose = replace(BAD, paused=False, limit_mib=400)
    tight = replace(BAD, paused=False, limit_mib=200)
    assert ReasonKind.RARELY_HELD in kinds(assessed(day(loose)))
    advice = assessed(day(tight)).advice
    assert advice is not None
    (slot,) = advice.slots
    assert (slot.limited_of_missed, slot.taken_bytes) == (1.0, 100 * MIB)


def all_of(moments: list[Moment], **changes: object) -> list[Moment]:
    return [replace(one, **changes) for one in moments]  # type: ignore[arg-type]


ANSWERS: list[tuple[str, str, Callable[[], list[Moment]]]] = [
    ("300 s with requests", "too early to say", lambda: day(length=301)),
    ("No request latency", "too early to say", lambda: all_of(day(), p95_ms=None)),
    ("100 % of the time", "too early to say", lambda: day(replace(BAD, acts=True))),
    ("None of 719 s", "no", lambda: day(CALM)),
    ("in 0 % of the missed", "no", lambda: day(replace(BAD, stall=0.0, cpu=0.4))),
    ("holds 4 MiB", "no", lambda: all_of(day(), held_mib=4)),
    ("below 100 ms, ten steps", "no", lambda: all_of(day(), step_ms=10.0)),
    ("take 10 of 300 MiB", "perhaps", lambda: all_of(day(), swap_mib=0, least_mib=290)),
    ("costs 400 us", "perhaps", lambda: all_of(day(), from_swap=500, page_us=400.0)),
    ("at least 0 points", "perhaps", lambda: all_of(day(), stall=0.3)),
    ("in 0 % of the missed", "perhaps", lambda: day(replace(BAD, paused=False))),
]


@pytest.mark.parametrize(("reason", "answer", "moments"), ANSWERS)
def test_each_reason_alone_gives_its_answer_on_one_screen(
    reason: str,
    answer: str,
    moments: Callable[[], list[Moment]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write(tmp_path, ticks_of(moments()))
    assert main(["assess", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 25
    assert max(map(len, lines)) <= 100
    at = lines.index(f"Would it help here? {answer}")
    reasons = " ".join(line.strip() for line in lines[at + 1 :] if line.startswith("  "))
    assert reason in reasons
    assert sum(line.startswith("  - ") for line in lines) == 1


def test_a_sign_that_is_as_frequent_where_the_target_is_met_explains_nothing() -> None:
    found = assessed([BAD] * 600 + [replace(CALM, stall=0.3)] * 50)  # too few to be usual
    memory = found.causes[0]
    assert (memory.of_missed.value, memory.of_met) == (1.0, 1.0)
    assert [one.kind for one in found.reasons] == [ReasonKind.AS_USUAL]


@pytest.mark.parametrize("histogram", [False, True])
def test_steps_are_coarse_and_the_buckets_of_a_histogram_are_not(*, histogram: bool) -> None:
    bounds = np.array([0.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0])
    rng, ticks = np.random.default_rng(1), ticks_of(day())
    for tick in ticks:
        window, median_ms = LatencyWindow(), tick.sample.latency.p95_ms / 2.0
        latencies_ms = rng.lognormal(np.log(median_ms), 0.4, 100).clip(1.0, 900.0)
        if histogram:
            counts, _ = np.histogram(latencies_ms, bounds)
            spans = np.stack((bounds[:-1], bounds[1:], counts), axis=1)[counts > 0]
            window.add_spans(1.0, spans, float(latencies_ms.sum()))
        else:
            window.add_points(1.0, (10.0 * np.ceil(latencies_ms / 10.0)).tolist())
        sample = window.sample(1.0)
        assert sample.p95_ms is not None
        assert sample.max_ms is not None
        tick.sample.latency.p95_ms, tick.sample.latency.max_ms = sample.p95_ms, sample.max_ms
    found = assess([readings_of_ticks(ticks, "here")])
    assert kinds(found) == (set() if histogram else {ReasonKind.COARSE})


def test_two_reasons_give_the_worse_answer_and_it_stands_first() -> None:
    found = assessed(all_of(day(), swap_mib=0, least_mib=290, held_mib=4))
    assert found.verdict is Verdict.NO
    assert [one.kind for one in found.reasons] == [ReasonKind.NOTHING_HELD, ReasonKind.NO_SWAP]


def test_a_stretch_in_which_the_daemon_acted_is_left_out_as_a_whole() -> None:
    ticks = ticks_of(
        [*day(length=700), *[replace(CALM, acts=number == 5) for number in range(30)]]
    )
    for number, tick in enumerate(ticks[700:]):
        tick.sequence = number  # the daemon was started again, and may act now
    found = assess([readings_of_ticks(ticks, "here")])
    assert (found.recorded_s, found.acted_s, found.judged_s) == (728, 29, 699)
    assert found.verdict is Verdict.HELPS_LIKELY, "four seconds in a hundred are no matter"


def test_a_controller_that_was_followed_is_not_among_those_that_were_asked() -> None:
    followed = [replace(CALM, controller="rule", acts=number == 5) for number in range(30)]
    found = assessed([*day(length=700), *followed])
    assert (found.acted_s, found.advice and found.advice.controllers) == (29, ("partition",))


def test_ticks_under_an_earlier_target_are_left_out() -> None:
    ticks = ticks_of(day())
    for tick in ticks[:100]:
        tick.slo_ms = 5.0
    assert assess([readings_of_ticks(ticks, "here")]).recorded_s == 619


def test_ticks_of_an_earlier_slot_are_left_out_even_if_there_were_as_many() -> None:
    ticks = ticks_of(day())
    for tick in ticks[:100]:
        tick.sample.slots[0].name = "edge/indexer"
    assert assess([readings_of_ticks(ticks, "here")]).recorded_s == 619


def test_a_slot_of_pods_stays_the_same_when_its_pods_come_and_go() -> None:
    pods = (
        "kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod1.slice",
        "stallward-unbound/batch",
        "kubepods/burstable/pod2",
        "pods:batch",
    )
    ticks = ticks_of(day())
    for number, tick in enumerate(ticks):
        tick.sample.slots[0].name = pods[number // 100 % 4]
    assert assess([readings_of_ticks(ticks, "here")]).recorded_s == 719


def test_a_policy_in_advice_mode_is_asked_where_the_controller_is_none() -> None:
    ticks = ticks_of(all_of(day(), controller="none", paused=False))
    for tick in ticks:
        tick.mode, tick.shadow.controller = pb.MODE_ADVICE, "november"
        tick.shadow.desired.slots.add(paused=True)
    advice = assess([readings_of_ticks(ticks, "here")]).advice
    assert advice is not None
    assert (advice.controllers, advice.held_missed_s) == (("november",), 120)


def test_the_wait_for_processors_is_spread_between_its_reads() -> None:
    ticks = ticks_of([replace(CALM, cpu=0.4)] * 30)
    for number, tick in enumerate(ticks):
        read = ticks[number - number % 5].sample
        tick.sample.protected.psi.cpu_some_us = read.protected.psi.cpu_some_us
        tick.sample.protected.turn_read_s = number - number % 5
    cpu = seconds_of(readings_of_ticks(ticks, "here")).cpu
    assert cpu[1:25] == pytest.approx(0.4)


def test_two_recordings_without_control_are_assessed_together(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    places = [str(RECORDINGS / f"detector-phases-none-s{seed}") for seed in (1, 2)]
    page = tmp_path / "page.html"
    assert main(["assess", *places, "--json", "--out", str(page)]) == 0
    found = json.loads(capsys.readouterr().out)
    causes = {one["cause"]: one["of_missed"]["value"] for one in found["causes"]}
    assert (found["verdict"], found["missed_s"]) == ("too-early", 60)
    assert causes["memory"] > 0.9
    assert "The p95 of each second" in page.read_text()


def test_what_a_daemon_did_is_not_taken_for_no_control(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["assess", str(RECORDINGS / "detector-anon-partition-s1"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["kind"] for one in found["reasons"]] == ["acted"]


@pytest.mark.parametrize(
    ("content", "said"),
    [(None, "There is no"), (b"PAR1 and more", "frames"), (b"", "has no ticks")],
    ids=["missing", "foreign", "empty"],
)
def test_a_bad_file_is_said_in_one_sentence(
    content: bytes | None, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / FRAMES_NAME
    if content:
        file.write_bytes(content)
    elif content is not None:
        FrameWriter(file).close()
    assert main(["assess", str(file)]) == MISTAKE
    assert said in capsys.readouterr().err


def test_without_a_place_the_configuration_says_where(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "stallward.toml"
    text = '[protected]\ngroup = "app"\n[[background]]\nname = "nightly"\ngroup = "edge/batch"\n'
    config.write_text(text)
    assert main(["assess", "--config", str(config)]) == MISTAKE
    assert "has no [record]" in capsys.readouterr().err
    config.write_text(f'{text}[record]\ndir = "{tmp_path}"\n')
    write(tmp_path, ticks_of(day()))
    assert main(["assess", "--config", str(config)]) == 0
    assert "nightly" in capsys.readouterr().out


TARGETS_MS = {"db": 10.0, "web": 200.0}


def of_two(ticks: list[pb.TickRecord]) -> list[pb.TickRecord]:
    """The same ticks of two applications: a missed second is the web server's, each third both's.

    The database also misses once where the web server has no requests.
    """
    bad = 0
    for number, tick in enumerate(ticks):
        missed = tick.sample.latency.p95_ms > TARGET_MS
        bad += missed
        own_ms = {"db": 4.0 + 8.0 * (missed and bad % 3 == 0), "web": 300.0 if missed else 80.0}
        if number == 8:
            own_ms = {"db": 11.0}
        far = max(own_ms[name] / TARGETS_MS[name] for name in own_ms)
        tick.sample.latency.p95_ms = TARGET_MS * far
        for name, slo_ms in TARGETS_MS.items():
            one = tick.sample.applications.add(name=name, slo_ms=slo_ms)
            one.group.name = f"edge/{name}"
            if name in own_ms:
                one.latency.window_s, one.latency.p95_ms = 1.0, own_ms[name]
    return ticks


def test_of_several_applications_it_says_who_missed_and_how_often_all_met() -> None:
    found = assess([readings_of_ticks(of_two(ticks_of(day())), "here")])
    worst, other = found.applications
    assert (worst.name, worst.target_ms, worst.judged_s, worst.missed_s) == (
        "web",
        200.0,
        718,
        120,
    )
    assert (other.name, other.target_ms, other.judged_s, other.missed_s) == ("db", 10.0, 719, 41)
    assert (found.judged_s, found.missed_s) == (719, 121), "seconds in which any missed"
    assert found.verdict is Verdict.HELPS_LIKELY


def test_the_screen_names_the_application_that_missed_most(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, of_two(ticks_of(day())))
    page = tmp_path / "page.html"
    assert main(["assess", str(tmp_path), "--out", str(page)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "recorded: 719 s, 719 with requests"
    assert lines[1].startswith("all met their targets: 598 s; not all: 121 s, 16.8 %")
    assert lines[1].endswith("; web missed most")
    rows = [line.split() for line in lines[4:6]]
    assert rows == [
        ["web", "200", "718", "120", "16.7", "%"],
        ["db", "10", "719", "41", "5.7", "%"],
    ]
    assert len(lines) <= 25
    assert max(map(len, lines)) <= 100
    assert "web missed most" in page.read_text()


def test_one_application_is_not_listed() -> None:
    assert assessed(day()).applications == ()


def test_seconds_under_another_target_of_one_application_are_left_out() -> None:
    ticks = of_two(ticks_of(day()))
    for tick in ticks[:100]:
        tick.sample.applications[1].slo_ms = 40.0
    assert assess([readings_of_ticks(ticks, "here")]).recorded_s == 619


def test_a_recording_of_several_gives_the_same_figures_as_its_ticks(tmp_path: Path) -> None:
    ticks = of_two(ticks_of(day()))
    run = replace(
        load_run(RECORDINGS / "detector-phases-none-s1"),
        start_s=100.0, end_s=1000.0, burn_in_s=0.0, slo_ms=TARGET_MS, slot_names=("batch",),
        slot_floors_bytes=(), slot_units=(), other_applications=("web",),
    )  # fmt: skip
    none = Requests.empty()
    write_recording(
        tmp_path / "two", run=run, ticks=ticks, requests=none, others={"web": none},
        units=Units.empty(),
    )  # fmt: skip
    found = assess(readings_of_recordings(tmp_path))
    of_ticks = assess([readings_of_ticks(ticks, "here")])
    assert found.applications == of_ticks.applications
    assert (found.judged_s, found.missed_s) == (of_ticks.judged_s, of_ticks.missed_s)
    both = [*readings_of_recordings(tmp_path), readings_of_ticks(ticks_of(day()), "here")]
    with pytest.raises(MeasureError, match="different protected applications"):
        assess(both)
