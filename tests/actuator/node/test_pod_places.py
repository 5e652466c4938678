"""Pods come and go: a slot follows them, and nothing of one that is gone is left."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pod_tree import PodNode, fault_of

from stallward.actuator.errors import KernelFileError
from stallward.actuator.guard.budgets import Budgets
from stallward.actuator.guard.changes import GuardRule
from stallward.actuator.guard.slot_tracker import PauseHistory, SlotTracker
from stallward.actuator.kernel.cgroups import Cgroup
from stallward.actuator.latency.config import PrometheusLatency
from stallward.actuator.node.pod_places import histories_of_pods
from stallward.actuator.targets.messages import PauseBudget
from stallward.agent.controller import Decision, NodeContext
from stallward.agent.desired import MIB, DesiredState, SlotDesire
from stallward.agent.registry import make_controller
from stallward.agent.sample import Sample

EVERYTHING = SlotDesire(paused=True, limit_bytes=150 * MIB, cpu_weight=1)


class Fixed:
    """A controller that always wants the same of every slot."""

    name = "fixed"
    needs_processes = False

    def __init__(self, slot: SlotDesire = EVERYTHING) -> None:
        self.slot = slot
        self.seen: list[Sample] = []

    def reset(self, context: NodeContext) -> None:
        pass

    def decide(self, sample: Sample, observation: Any) -> Decision:
        self.seen.append(sample)
        # A slot of which nothing is known yet must run first: no limit would be granted.
        slots = tuple(
            replace(self.slot, paused=self.slot.paused and state.reference_bytes is not None)
            for state in sample.slot_states
        )
        return Decision(desired=DesiredState(slots=slots, protected_low_bytes=64 * MIB))


Make = Callable[..., PodNode]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    nodes: list[PodNode] = []

    def made(**options: Any) -> PodNode:
        nodes.append(PodNode(tmp_path / str(len(nodes)), **options))
        return nodes[-1]

    yield made
    for node in nodes:
        node.close()


def test_a_node_starts_without_its_pods_and_says_so(make: Make) -> None:
    node = make(controller=Fixed(), protected_is_pod=True)
    outcome = node.tick()
    assert outcome.granted.slots == (SlotDesire(), SlotDesire())
    assert fault_of(outcome) is None
    assert node.results == ()
    assert "pods: none for protected, b0, b1" in node.node.missing()
    assert "pods: none is known yet" in node.node.missing()
    assert set(node.node.passing_faults()) >= {"pods: none is known yet"}, "it shows at once"
    assert not [line for line in node.node.missing() if "stallward-unbound" in line]
    assert not node.node.anything_held()


def test_a_pod_that_is_not_there_is_no_problem(make: Make) -> None:
    node = make(protected_is_pod=True)
    node.tell(0, node.pod(1))
    node.tick()
    assert "pods: none for protected, b1" in node.node.missing()
    assert node.node.problems() == ()


def test_the_latencies_of_a_pod_that_is_not_there_are_no_problem(make: Make) -> None:
    """A pod may be of other nodes, or there only now and then."""
    node = make(protected_is_pod=True, latency=PrometheusLatency(port=9100, metric="t_seconds"))
    node.tell(0, node.pod(1))
    node.tick()
    assert node.node.problems() == ()
    node.tell(-1, node.pod(2))
    node.tick()
    assert node.node.problems() == ("latency: cannot be read (has not reported yet)",)


def test_a_slot_gets_its_pod_and_a_new_one_starts_released(make: Make) -> None:
    node = make(controller=Fixed())
    old = node.pod(1)
    node.tell(0, old)
    node.tick_until(lambda: node.changed(old).keys() >= {"cgroup.freeze", "memory.high"})
    assert node.touched
    new = node.pod(2)
    node.tell(0, new)
    node.tick()
    assert node.changed(new) == {}, "the new pod waits until the old one is let go"
    node.tick_until(lambda: node.changed(new).keys() >= {"cgroup.freeze", "memory.high"})
    assert node.changed(old) == {}, "the old pod lives on, and has its own settings back"
    assert node.held_below(old) == []


def test_a_pod_that_ends_while_it_is_paused_and_limited_leaves_nothing(make: Make) -> None:
    node = make(controller=Fixed())
    gone = node.pod(1)
    node.tell(0, gone)
    node.tick_until(lambda: node.changed(gone).keys() >= {"cgroup.freeze", "memory.high"})
    node.remove(gone)
    node.tick()  # the group is gone before anybody has said so
    node.tell(0, None)
    node.tick_until(lambda: not node.held_below("kubepods"))
    assert not [e for e in node.touched if "kubepods" in str(e)]
    assert not [name for name in node.node.levers.held() if "pod" in name]
    assert fault_of(node.tick()) is None


def test_no_pod_gets_a_slot_whose_levers_still_hold_something(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = make(controller=Fixed())
    old, new = node.pod(1), node.pod(2)
    node.tell(0, old)
    node.tick_until(lambda: node.changed(old))
    with monkeypatch.context() as slow:  # as while the kernel reclaims under the old limit
        slow.setattr(node.node.levers, "settled", lambda _place: False)
        node.tell(0, new)
        for _ in range(20):
            node.tick()
        assert node.changed(new) == {}
        assert node.held_below(old), "it could still have to be undone"
    node.tick_until(lambda: node.changed(new))
    assert node.held_below(old) == []


def test_an_empty_slot_is_nothing_to_policies_and_the_next_pod_starts_anew(make: Make) -> None:
    controller = Fixed()
    node = make(controller=controller)
    first = node.pod(1, **{"memory.events": "oom_kill 7\n"})
    node.tell(0, first)
    node.tick_until(lambda: "memory.high" in node.changed(first))
    assert controller.seen[-1].slots[0].oom_kills == 7
    node.tell(0, node.pod(2, **{"memory.events": "oom_kill 90\n"}))
    node.tick_until(lambda: controller.seen[-1].slots[0].oom_kills == 90)
    between = [s.slots[0] for s in controller.seen if s.slots[0].oom_kills not in {7, 90}]
    assert between, "no two samples that follow each other have different pods"
    assert all(not group.bound and group.memory_usage_bytes is None for group in between)
    assert node.engine.memory.limits[0].kills.kills == 90
    assert node.engine.memory.limits[0].kills.killed_s < 0.0, "no limit has killed anything"


def test_nothing_is_held_while_the_application_is_not_there(make: Make) -> None:
    node = make(controller=Fixed(), protected_is_pod=True)
    batch, app = node.pod(1), node.pod(2)
    node.tell(0, batch)
    for _ in range(5):
        assert node.tick().granted == DesiredState(slots=(SlotDesire(),) * 2)
    assert node.changed(batch) == {}
    node.tell(-1, app)
    node.tick_until(lambda: "memory.low" in node.changed(app) and node.changed(batch))
    node.remove(app)
    node.tell(-1, None)
    node.tick_until(lambda: not node.changed(batch))
    assert node.held_below(app) == []
    assert fault_of(node.tick()) is None, "a rollout is no fault"
    new = node.pod(3)
    node.tell(-1, new)
    node.tick_until(lambda: "memory.low" in node.changed(new) and node.changed(batch))
    assert fault_of(node.tick()) is None


def test_the_stall_of_the_new_application_is_watched(make: Make) -> None:
    node = make(protected_is_pod=True)
    watch = node.node.stall_watch()
    assert watch.missing == "no PSI file"
    stalls = "some avg10=0.00 avg60=0.00 avg300=0.00 total={}\n"
    for number in (1, 2):
        pod = node.pod(number)
        node.tell(-1, pod)
        node.tick_until(lambda: not node.node.missing()[-1].startswith("pods: none for prot"))
        for _ in range(3):
            node.tick()
        watch.has_stalled()
        (node.root / pod / "memory.pressure").write_text(stalls.format(number * 100_000))
        assert watch.has_stalled()
    watch.close()


def test_several_applications_that_are_pods_come_and_go_each_by_itself(make: Make) -> None:
    controller = Fixed()
    node = make(controller=controller, applications=("cache", "web"))
    assert "pods: none for cache, web, b0, b1" in node.node.missing()
    cache, web = node.pod(1), node.pod(2)
    node.tell(-1, cache)
    node.tell(-2, web)
    node.tick_until(lambda: node.changed(cache) and node.changed(web))
    first, second = controller.seen[-1].applications
    assert (first.name, first.group.name) == ("cache", cache)
    assert (second.name, second.group.name) == ("web", web)
    lows = [int(node.read(pod, "memory.low")) for pod in (cache, web)]
    assert all(lows), "each has a part of what is guaranteed"
    assert sum(lows) <= 64 * MIB
    node.tell(-1, None)
    node.tick_until(lambda: not node.changed(cache))
    assert node.changed(web), "the other keeps its own"
    third = node.pod(3)
    node.tell(-1, third)
    node.tick_until(lambda: "memory.low" in node.changed(third))
    assert fault_of(node.tick()) is None, "a rollout is no fault"
    node.node.levers.restore()
    assert not node.changed(web)
    assert not node.changed(third)


def test_a_pod_that_comes_back_has_not_forgotten_its_pauses(make: Make) -> None:
    controller = Fixed()
    node = make(controller=controller)
    pod = node.pod(1)
    node.tell(0, pod)
    node.tick_until(lambda: node.changed(pod))
    node.tick_until(lambda: controller.seen[-1].slot_states[0].paused_share > 0.0)
    share = controller.seen[-1].slot_states[0].paused_share
    node.tell(0, None)
    node.tick_until(lambda: not node.held_below(pod))
    node.tick()
    assert controller.seen[-1].slot_states[0].paused_share == 0.0
    node.tell(1, pod)  # another slot, the same pod
    node.tick_until(lambda: controller.seen[-1].slots[1].bound)
    assert controller.seen[-1].slot_states[1].paused_share >= share
    node.tell(0, node.pod(2))
    node.tick_until(lambda: controller.seen[-1].slots[0].bound)
    assert controller.seen[-1].slot_states[0].paused_share < share


def test_a_pod_that_changes_its_slot_has_no_two_sets_of_levers(make: Make) -> None:
    node = make(controller=Fixed())
    pod = node.pod(1)
    node.tell(0, pod)
    node.tick_until(lambda: node.changed(pod).keys() >= {"cgroup.freeze", "memory.high"})
    slots = (node.report.slots[1], node.report.slots[0])
    node.report = replace(node.report, slots=slots)
    node.tell(0, None)  # one report: it has the other slot, and this one no more
    node.tick()
    assert node.node._last.slots[1].bound is False, "it waits until the old levers hold nothing"
    node.tick_until(lambda: node.node._last.slots[1].bound)
    node.tick_until(lambda: node.changed(pod).keys() >= {"cgroup.freeze", "memory.high"})
    node.tell(1, None)
    node.tick_until(lambda: not node.held_below(pod))
    assert node.changed(pod) == {}


@pytest.fixture
def ticks_take_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have pauses counted by the times of ticks alone, which a hang of the host does not change."""
    update = SlotTracker.update

    def update_at_once(tracker: SlotTracker, time_s: float, facts: Any, _: float) -> None:
        update(tracker, time_s, facts)

    monkeypatch.setattr(SlotTracker, "update", update_at_once)


@pytest.mark.usefixtures("ticks_take_no_time")
@pytest.mark.parametrize("lift_budgets", [False, True])
def test_a_slot_has_the_pause_budget_of_the_pod_that_has_it(
    make: Make, *, lift_budgets: bool
) -> None:
    """Whoever decides, and whatever the configuration lifts."""
    node = make(
        controller=Fixed(SlotDesire(paused=True)), budgets=Budgets(lift_budgets=lift_budgets)
    )
    impatient = PauseBudget(longest_s=0.5, shortest_run_s=0.4)
    patient, quick = node.pod(1), node.pod(2)
    node.tell(0, patient)
    node.tell(1, quick, impatient)
    node.tick_until(lambda: node.changed(patient) and node.changed(quick))
    began_s = time.monotonic()
    paused = {patient: 0, quick: 0}
    for tick in range(1, 31):  # three seconds, a tick each 0.1 s
        node.tick(began_s + tick * 0.1)
        for group in paused:
            paused[group] += node.read(group, "cgroup.freeze") == "1"
    assert paused[patient] == 30
    assert 9 <= paused[quick] <= 16, "at most 0.3 s in 0.7 s, before the next tick is late"
    node.tell(1, quick, PauseBudget(longest_s=0.0, shortest_run_s=0.5))  # it starts again
    node.tick(began_s + 3.1)
    assert node.read(quick, "cgroup.freeze") == "0"
    for tick in range(32, 60):
        node.tick(began_s + tick * 0.1)
        assert node.read(quick, "cgroup.freeze") == "0"
    assert node.last is not None
    (change,) = node.last.reasons.changes
    assert (change.rule, change.slot, change.bound) == (GuardRule.POD_PAUSE, 1, 0.0)


@pytest.mark.usefixtures("ticks_take_no_time")
def test_a_slot_is_paused_no_longer_than_its_work_tolerates(make: Make) -> None:
    node = make(controller=Fixed(SlotDesire(paused=True)), max_pause_s=0.5)
    own, tighter = node.pod(1), node.pod(2)
    node.tell(0, own)
    node.tell(1, tighter, PauseBudget(longest_s=0.0, shortest_run_s=0.0))
    node.tick_until(lambda: node.changed(own))
    began_s, runs, longest = time.monotonic(), 0, 0
    for tick in range(1, 31):
        node.tick(began_s + tick * 0.1)
        assert node.read(tighter, "cgroup.freeze") == "0", "its pod tolerates none"
        runs = runs + 1 if node.read(own, "cgroup.freeze") == "1" else 0
        longest = max(longest, runs)
    assert 0 < longest <= 4, "0.5 s, with the next tick as late as it may be"


def test_after_a_restart_no_pod_has_fewer_pauses_than_it_had(make: Make) -> None:
    config = make(slots=3).config
    little = PauseHistory(thawed_s=3.0, pauses=((1.0, 3.0),))
    much = PauseHistory(thawed_s=30.0, pauses=((1.0, 9.0), (20.0, 30.0)))
    assert histories_of_pods(config, (little, much, little)) == (much,) * 3
    now = PauseHistory(since_s=31.0)
    assert histories_of_pods(config, (much, now, little)) == (now,) * 3
    assert histories_of_pods(config, (little, None, little)) == (None,) * 3
    first, *others = config.background
    mixed = replace(config, background=(replace(first, pod=None, group="b0"), *others))
    assert histories_of_pods(mixed, (None, little, much)) == (None, much, much)
    plain = replace(mixed, background=mixed.background[:1])
    assert histories_of_pods(plain, (little,)) == (little,)


def test_a_pod_with_a_process_of_the_daemon_gets_no_slot(make: Make) -> None:
    node = make(controller=Fixed())
    own = node.pod(1, **{"cgroup.procs": f"{os.getpid()}\n"})
    node.tell(0, own)
    for _ in range(5):
        node.tick()
    assert node.changed(own) == {}
    assert any("which is protected" in fault for fault in node.node.passing_faults())


def test_a_group_that_overlaps_another_one_or_leaves_the_zone_is_no_slot(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = make(controller=Fixed())
    node.tell(0, node.make("app/pod1"))  # below the group that is protected
    node.tell(1, "../elsewhere")
    for _ in range(3):
        assert fault_of(node.tick()) is None
    said = "\n".join(node.node.missing())
    assert "app/pod1 and app overlap" in said
    assert "'../elsewhere' is not a cgroup name" in said
    assert node.changed("app/pod1") == {}
    pod = node.pod(1)
    with monkeypatch.context() as broken:  # e.g. a file that the kernel refuses to read
        broken.setattr(node.node.sampler, "rebind", refuse)
        node.tell(0, pod)
        assert fault_of(node.tick()) is None
    node.tick_until(lambda: node.changed(pod))


def refuse(slot: int, group: Cgroup) -> None:
    if group.name.startswith("kubepods"):
        raise KernelFileError(group.name, "no")


def test_a_setting_that_somebody_else_has_changed_does_not_keep_a_slot_from_the_next_pod(
    make: Make,
) -> None:
    node = make(controller=Fixed())
    old, new = node.pod(1), node.pod(2)
    node.tell(0, old)
    node.tick_until(lambda: node.changed(old).keys() >= {"cgroup.freeze", "memory.high"})
    (node.root / old / "memory.high").write_text("12345678\n")
    (node.root / old / "cgroup.freeze").write_text("0\n")
    node.tell(0, new)
    node.tick_until(lambda: node.changed(new))
    assert node.read(old, "memory.high") == "12345678", "the foreign value stays"
    assert node.held_below(old) == []


def own(what: str) -> int:
    return sum(1 for _ in Path("/proc/self", what).iterdir())


def roll(node: PodNode, draw: random.Random, slot: int, old: str | None, number: int) -> str:
    """Replace the pod of a slot, in one of the orders in which kubelet and API may tell it."""
    new = node.pod(number)
    order = draw.randrange(4)
    if old is not None and order == 0:
        node.remove(old)
    if order in {1, 2}:
        node.tell(slot, None)
    for _ in range(draw.randrange(3)):
        node.tick()
    node.tell(slot, new)
    if old is not None and order == 2:
        node.remove(old)
    for _ in range(draw.randrange(3)):
        node.tick()
    if old is not None and order in {1, 3}:
        node.remove(old)
    return new


TICK_S = 0.1
BOUND_AGAIN_TICKS = 20
"""So many ticks after the last word about them, 2 s, slots have their pods."""


@pytest.mark.parametrize("rollouts", [15, pytest.param(1000, marks=pytest.mark.slow)])
def test_rollouts_leave_nothing_held_and_every_slot_bound(make: Make, rollouts: int) -> None:
    draw = random.Random(7)
    node = make(controller=make_controller("storm:hold=0.5"), slots=3, tick_s=TICK_S)
    pods: list[str | None] = [None] * 3

    def bound() -> bool:
        sample = node.node._last
        return [group.name for group in sample.slots] == pods

    files = threads = 0
    for number in range(1, rollouts + 1):
        slot = draw.randrange(3)
        pods[slot] = roll(node, draw, slot, pods[slot], number)
        for index, pod in enumerate(pods):
            if pod is None:
                pods[index] = roll(node, draw, index, None, rollouts + 1 + index)
        if number % 10 == 0 or draw.random() < 0.5:  # otherwise the next one comes in between
            node.tick_until(bound, ticks=BOUND_AGAIN_TICKS)
        if number % 10 == 0:
            names = {str(e.path) for e in node.journal if hasattr(e, "path")}
            assert not [name for name in names if not Path(name).exists()], "of pods that are gone"
        if number == 10:
            files, threads = own("fd"), own("task")
    node.tick_until(bound, ticks=BOUND_AGAIN_TICKS)
    left = [pod for pod in pods if pod is not None]
    for slot in range(3):
        node.tell(slot, None)
    node.tick_until(lambda: not node.held_below("kubepods"))
    assert [node.changed(pod) for pod in left] == [{}, {}, {}]
    assert own("fd") <= files + 10
    node.tick_until(lambda: own("task") <= threads + 5)
