"""``dasec`` and ``bvt``: what they want of threads, period by period."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from thread_examples import ref, thread

from stallward.agent.controller import (
    THREAD_NEEDS,
    Controller,
    Need,
    NodeContext,
    check_node,
    needs_threads,
)
from stallward.agent.errors import ControllerError
from stallward.agent.observation.encoder import OBSERVATION_SIZE
from stallward.agent.registry import make_controller
from stallward.agent.sample import Sample
from stallward.agent.testing import CONTEXT, make_sample
from stallward.agent.threads import ThreadDesire, ThreadSample, total_weight

NOTHING = np.zeros(OBSERVATION_SIZE, dtype=np.float32)
Now = dict[int, dict[str, object]]


def sample(number: int, threads: Now | None) -> Sample:
    listed: tuple[ThreadSample, ...] | None = None
    if threads is not None:
        listed = tuple(thread(tid, **values) for tid, values in threads.items())
    return replace(make_sample(number), protected_threads=listed)


def wanted(controller: Controller, *ticks: Now | None) -> dict[int, ThreadDesire]:
    """What is wanted after some ticks of a tenth of a second."""
    controller.reset(CONTEXT)
    desires: tuple[ThreadDesire, ...] = ()
    for number, threads in enumerate(ticks):
        decision = controller.decide(sample(number, threads), NOTHING)
        desires = decision.desired.protected_threads
    return {desire.thread.tid: desire for desire in desires}


START: Now = {1: {}, 2: {}, 3: {}}
DELAYED: Now = {
    1: {"state": "R", "run_us": 500, "wait_us": 40_000},
    2: {"run_us": 9_000},
    3: {"run_us": 9_000},
}
LACKING: Now = {
    1: {"state": "R", "run_us": 50_000, "wait_us": 50_000, "involuntary_switches": 10},
    2: {"run_us": 9_000},
    3: {"run_us": 9_000},
}
ON_ONE_CORE: Now = {
    1: {"state": "R", "run_us": 500, "wait_us": 40_000},
    2: {"state": "R", "run_us": 400, "wait_us": 38_000},
    3: {},
}


def test_a_delayed_thread_gets_a_short_timeslice_for_one_period() -> None:
    dasec = make_controller("dasec")
    assert wanted(dasec, START, DELAYED) == {1: ThreadDesire(thread=ref(1), slice_us=100)}
    at_rest: Now = {**DELAYED, 1: {"run_us": 500, "wait_us": 40_000}}
    assert wanted(dasec, START, DELAYED, at_rest) == {}
    held = make_controller("dasec:hold_periods=2,slice_us=300")
    assert wanted(held, START, DELAYED, at_rest)[1].slice_us == 300
    assert wanted(held, START, DELAYED, at_rest, at_rest) == {}


def test_a_thread_that_lacks_share_gets_weight_from_the_others() -> None:
    desires = wanted(make_controller("dasec"), START, LACKING)
    nices = {tid: desire.nice for tid, desire in desires.items()}
    assert nices == {1: -1, 2: 1, 3: 1}
    assert total_weight(n for n in nices.values() if n is not None) <= total_weight([0, 0, 0])


def test_another_application_pays_nothing_and_has_a_critical_path_of_its_own() -> None:
    """Of two protected applications both lack share; only one has a thread that can give."""
    other = {"application": 1, "state": "R", "run_us": 60_000, "wait_us": 40_000, "cpu": 1}
    now: Now = {
        **LACKING, 3: {**other, "involuntary_switches": 10}, 4: {"run_us": 1_000}
    }  # fmt: skip
    start: Now = {1: {}, 2: {}, 3: {"application": 1, "cpu": 1}, 4: {}}
    desires = wanted(make_controller("dasec:answers=share"), start, now)
    assert {tid: desire.nice for tid, desire in desires.items()} == {1: -1, 2: 1, 4: 1}
    late = {**now, 3: {**other, "run_us": 500, "wait_us": 1_500}}
    desires = wanted(make_controller("dasec:answers=latency"), start, late)
    assert desires.keys() == {3}, "1 has used up its timeslice, and wanted to run for far longer"


def test_applications_are_laid_out_together() -> None:
    two = {**ON_ONE_CORE, 2: {**ON_ONE_CORE[2], "application": 1}}
    desires = wanted(make_controller("dasec"), {**START, 2: {"application": 1}}, two)
    assert {tid: desire.cpus for tid, desire in desires.items()} == {1: (), 2: (1,)}


def test_threads_that_sleep_pay_nothing() -> None:
    alone: Now = {**LACKING, 2: {}, 3: {}}
    assert wanted(make_controller("dasec"), START, alone) == {}


def test_delayed_threads_on_one_core_are_parted() -> None:
    desires = wanted(make_controller("dasec"), START, ON_ONE_CORE)
    assert {tid: desire.cpus for tid, desire in desires.items()} == {1: (), 2: (1,)}


@pytest.mark.parametrize(
    ("answer", "now", "given"),
    [
        ("latency", DELAYED, {"slice_us"}),
        ("latency", ON_ONE_CORE, {"slice_us"}),
        ("latency", LACKING, set()),
        ("layout", ON_ONE_CORE, {"cpus"}),
        ("layout", LACKING, set()),
        ("share", LACKING, {"nice"}),
        ("share", ON_ONE_CORE, set()),
        ("latency+share", LACKING, {"nice"}),
    ],
)
def test_each_answer_is_given_alone(answer: str, now: Now, given: set[str]) -> None:
    desires = wanted(make_controller(f"dasec:answers={answer}"), START, now).values()
    found = {
        field
        for desire in desires
        for field in ("slice_us", "nice", "cpus")
        if getattr(desire, field) not in {None, ()}
    }
    assert found == given


def test_a_period_ends_with_its_tick_though_the_one_before_was_late() -> None:
    dasec = make_controller("dasec")
    dasec.reset(CONTEXT)
    reasons = []
    at_rest: Now = {**DELAYED, 1: {"run_us": 500}}
    ticks: tuple[tuple[float, Now], ...] = ((0.0, START), (0.108, DELAYED), (0.2001, at_rest))
    for number, (time_s, threads) in enumerate(ticks):
        late = replace(sample(number, threads), time_s=time_s)
        reasons.append(dasec.decide(late, NOTHING).reason)
    assert "1 delayed" in reasons[1]
    assert "0 delayed" in reasons[2], "the third tick is 92 ms after the second"


def test_within_a_period_the_decision_stays() -> None:
    dasec = make_controller("dasec:period_s=0.2")
    assert wanted(dasec, START, DELAYED) == {}
    assert wanted(dasec, START, START, DELAYED)[1].slice_us == 100
    assert wanted(dasec, START, START, DELAYED, START)[1].slice_us == 100


@pytest.mark.parametrize(
    ("spec", "needs"),
    [
        ("dasec", {*THREAD_NEEDS, Need.THREAD_TIMES}),
        ("dasec:answers=latency", {Need.THREAD_SLICE, Need.THREAD_TIMES}),
        ("dasec:answers=layout", {Need.THREAD_CPUS, Need.THREAD_TIMES}),
        ("dasec:answers=share", {Need.THREAD_NICE, Need.THREAD_TIMES}),
        ("bvt", {Need.THREAD_SLICE, Need.THREAD_TIMES}),
    ],
)
def test_each_answer_needs_its_lever_and_the_times_of_threads(spec: str, needs: set[Need]) -> None:
    controller = make_controller(spec)
    for need in Need:
        context = replace(CONTEXT, lacks={need: "because"})
        if need in needs:
            with pytest.raises(ControllerError, match=rf"lacks {need} \(because\)"):
                check_node(controller, context)
        else:
            check_node(controller, context)


@pytest.mark.parametrize("spec", ["dasec", "bvt"])
def test_without_threads_in_the_sample_nothing_is_wanted(spec: str) -> None:
    controller = make_controller(spec)
    assert needs_threads(controller)
    assert wanted(controller, START, DELAYED, None) == {}
    decision = controller.decide(sample(4, None), NOTHING)
    assert decision.reason == "the application's threads are not known"


def test_the_memory_is_shared_beside_it() -> None:
    alone, both = make_controller("partition"), make_controller("dasec:memory=partition")
    for controller in (alone, both):
        controller.reset(CONTEXT)
    for number, threads in enumerate((START, DELAYED)):
        now = sample(number, threads)
        memory = alone.decide(now, NOTHING).desired
        desired = both.decide(now, NOTHING).desired
        assert replace(desired, protected_threads=()) == memory
    assert desired.protected_threads == (ThreadDesire(thread=ref(1), slice_us=100),)


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("dasec:answers=speed", "'speed' is none of latency, layout, share"),
        ("dasec:memory=latd", "no controller that runs beside this one"),
        ("dasec:slice_us=50", "outside 100 to 100000"),
        ("bvt:slice_us=x", "is not a number"),
    ],
)
def test_a_wrong_argument_is_refused(spec: str, says: str) -> None:
    with pytest.raises(ControllerError, match=says):
        make_controller(spec)


def test_bvt_warps_every_thread() -> None:
    desires = wanted(make_controller("bvt"), START, DELAYED)
    assert desires == {tid: ThreadDesire(thread=ref(tid), slice_us=100) for tid in (1, 2, 3)}


def test_bvt_unwarps_a_thread_that_ran_warped_for_its_limit() -> None:
    def running(run_ms: int, slept: int = 0) -> Now:
        return {1: {"state": "R", "run_us": run_ms * 1000, "voluntary_switches": slept}}

    bvt = make_controller("bvt:limit_ms=50,unwarp_ms=100")
    assert 1 in wanted(bvt, running(0), running(50))
    assert wanted(bvt, running(0), running(51)) == {}, "beyond the warp time limit"
    assert 1 in wanted(bvt, running(0), running(60, slept=1)), "it slept in between"
    assert wanted(bvt, running(0), running(51), running(60)) != {}, "the unwarp time is over"
    longer = make_controller("bvt:limit_ms=50,unwarp_ms=150")
    assert wanted(longer, running(0), running(51), running(60)) == {}


def test_reset_forgets_the_threads() -> None:
    dasec = make_controller("dasec:hold_periods=9")
    wanted(dasec, START, DELAYED)
    dasec.reset(NodeContext(zone_limit_bytes=0, slot_names=()))
    assert dasec.decide(sample(9, START), NOTHING).desired.protected_threads == ()
