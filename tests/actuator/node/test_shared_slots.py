"""Pods that share a slot: they are paused and limited together, and come and go one by one."""

from __future__ import annotations

import errno
import json
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pod_tree import PodNode, fault_of
from test_pod_places import BOUND_AGAIN_TICKS, EVERYTHING, TICK_S, Fixed, own

from stallward.actuator.errors import KernelFileError
from stallward.actuator.guard.budgets import Budgets
from stallward.actuator.ipc.shared_memory import SLOT_BYTES, PauseMemory, kept_since
from stallward.actuator.kernel.cgroups import Cgroup
from stallward.actuator.kernel.files import FileWriter
from stallward.actuator.levers.lever_set import LeverSet
from stallward.agent.desired import MIB, SlotDesire
from stallward.agent.registry import make_controller
from stallward.agent.sample import GroupSample

Make = Callable[..., PodNode]
HELD = {"cgroup.freeze", "memory.high"}


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    nodes: list[PodNode] = []

    def made(**options: Any) -> PodNode:
        nodes.append(PodNode(tmp_path / str(len(nodes)), group_by="label:job", **options))
        return nodes[-1]

    yield made
    for node in nodes:
        node.close()


def sizes(usage_mib: int, swap_mib: int = 0, *, file_mib: int | None = None) -> dict[str, str]:
    """The files of a pod that holds so much, all of it in the page cache by default."""
    file = usage_mib if file_mib is None else file_mib
    return {
        "memory.current": f"{usage_mib * MIB}\n",
        "memory.swap.current": f"{swap_mib * MIB}\n",
        "memory.stat": f"anon {(usage_mib - file) * MIB}\nfile {file * MIB}\n",
    }


def slot(node: PodNode, index: int = 0) -> GroupSample:
    return node.node._last.slots[index]


def limits_mib(node: PodNode, *pods: str) -> list[float]:
    texts = [node.read(pod, "memory.high") for pod in pods]
    return [int(text) / MIB if text.isdigit() else 0.0 for text in texts]


def test_a_slot_is_one_entry_with_the_sums_of_its_pods(make: Make) -> None:
    node = make()
    node.tick()
    assert not slot(node).bound
    assert "pods: none for b0, b1" in node.node.missing()
    first, second = node.pod(1, **sizes(100)), node.pod(2, **sizes(40, 5))
    node.tell_all(0, [first, second])
    node.tick_until(lambda: slot(node).bound)
    assert slot(node).name == "pods:b0"
    assert slot(node).memory_usage_bytes == 140 * MIB
    assert slot(node).swap_bytes == 5 * MIB
    assert "pods: none for b1" in node.node.missing()
    assert not slot(node, 1).bound


def test_all_pods_are_paused_and_a_new_one_with_them(make: Make) -> None:
    node = make(controller=Fixed())
    pods = [node.pod(number) for number in (1, 2, 3)]
    node.tell_all(0, pods)
    node.tick_until(lambda: all(node.changed(pod).keys() >= HELD for pod in pods))
    assert {node.read(pod, "cpu.weight") for pod in pods} == {"1"}
    late = node.pod(4)
    node.tell_all(0, [*pods, late])
    node.tick()
    assert node.read(late, "cgroup.freeze") == "1", "at the tick at which it is known"
    assert all(node.read(pod, "cgroup.freeze") == "1" for pod in pods)
    assert node.node._last.slot_states[0].paused


def test_the_waits_for_memory_are_asked_for_once_a_tick_also_where_pods_come(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, asked, totals = make(), 0, [0] * 8

    def memory_waits(_levers: LeverSet) -> tuple[int, ...]:
        nonlocal asked
        asked += 1
        return tuple(totals)

    monkeypatch.setattr(LeverSet, "memory_waits", memory_waits)
    totals[2:] = [7] * 6  # of pods that had the places before
    node.tell_all(0, [node.pod(number) for number in (1, 2, 3)])
    node.tick()
    assert slot(node).bound
    assert asked == 1
    assert node.node._last.slot_states[0].memory_waits == 0, "those before were of others"
    totals[2:] = [9] * 6
    node.tick()
    assert asked == 2
    assert node.node._last.slot_states[0].memory_waits == 3 * 2


def test_a_pod_that_leaves_is_released_and_leaves_the_others_as_they_are(make: Make) -> None:
    node = make(controller=Fixed())
    pods = [node.pod(number) for number in (1, 2, 3)]
    node.tell_all(0, pods)
    node.tick_until(lambda: all(node.changed(pod).keys() >= HELD for pod in pods))
    node.tell_all(0, pods[1:])
    node.tick()
    assert node.read(pods[0], "cgroup.freeze") == "0"
    assert node.read(pods[1], "cgroup.freeze") == "1"
    node.tick_until(lambda: not node.held_below(pods[0]))
    assert node.changed(pods[0]) == {}
    assert all(node.changed(pod).keys() >= HELD for pod in pods[1:])
    assert slot(node).bound


def test_a_pod_that_vanishes_while_it_is_held_leaves_nothing_and_is_no_fault(make: Make) -> None:
    node = make(controller=Fixed())
    pods = [node.pod(number) for number in (1, 2, 3)]
    node.tell_all(0, pods)
    node.tick_until(lambda: all(node.changed(pod).keys() >= HELD for pod in pods))
    node.remove(pods[1])
    for _ in range(3):  # the group is gone before anybody has said so
        assert fault_of(node.tick()) is None
    node.tell_all(0, [pods[0], pods[2]])
    node.tick_until(lambda: not node.held_below(pods[1]))
    assert not [name for name in node.node.levers.held() if "pod00000002" in name]
    assert node.node._last.slot_states[0].paused
    assert fault_of(node.tick()) is None


def test_the_last_pod_that_leaves_empties_the_slot_and_the_next_starts_released(
    make: Make,
) -> None:
    controller = Fixed()
    node = make(controller=controller)
    old = node.pod(1)
    node.tell_all(0, [old])
    node.tick_until(lambda: node.changed(old))
    node.tell_all(0, [])
    node.tick_until(lambda: not node.held_below("kubepods"))
    node.tick()
    assert not slot(node).bound
    assert controller.seen[-1].slot_states[0].paused_share == 0.0
    new = node.pod(2)
    node.tell_all(0, [new])
    node.tick()
    assert not node.changed(new).keys() & HELD, "nothing is known of it yet"
    node.tick_until(lambda: node.changed(new).keys() >= HELD)


def test_a_limit_is_divided_by_what_the_pods_hold(make: Make) -> None:
    fixed = Fixed(SlotDesire(paused=True, limit_bytes=160 * MIB))
    node = make(controller=fixed, floor_bytes=4 * MIB)
    pods = [node.pod(1, **sizes(20, 20)), node.pod(2, **sizes(70)), node.pod(3, **sizes(62))]
    node.tell_all(0, pods)
    node.tick_until(lambda: limits_mib(node, *pods) == [40, 60, 60])
    node.tick()
    assert node.node._last.slot_states[0].limit_bytes == 160 * MIB
    late = node.pod(4, **sizes(50))
    node.tell_all(0, [pods[0], pods[1], late])
    node.tick_until(lambda: limits_mib(node, pods[0], pods[1], late) == [40, 70, 50])
    assert node.node._last.slot_states[0].limit_bytes is not None


def test_no_pod_is_limited_below_what_cannot_be_reclaimed(make: Make) -> None:
    fixed = Fixed(SlotDesire(paused=True, limit_bytes=64 * MIB))
    node = make(controller=fixed, floor_bytes=4 * MIB)
    (node.root.parent / "proc/meminfo").write_text(
        "MemTotal: 1024000 kB\nMemAvailable: 512000 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n"
    )
    anonymous = node.pod(1, **sizes(100, file_mib=20))
    files = node.pod(2, **sizes(70))
    node.tell_all(0, [anonymous, files])
    node.tick_until(lambda: 0.0 not in limits_mib(node, anonymous, files))
    high = limits_mib(node, anonymous, files)
    assert high[0] == 80, "without swap only its 20 MiB of files can go"
    assert high[1] < 70


def test_what_another_program_changes_in_one_pod_is_left_alone_there_only(make: Make) -> None:
    fixed = Fixed()
    node = make(controller=fixed)
    pods = [node.pod(number) for number in (1, 2)]
    node.tell_all(0, pods)
    node.tick_until(lambda: all(node.changed(pod).keys() >= HELD for pod in pods))
    (node.root / pods[0] / "cgroup.freeze").write_text("0\n")
    node.tick_until(lambda: node.node.levers.foreign_total)
    for paused in (False, True, True):  # a pause that is asked for anew must not fight, either
        fixed.slot = replace(EVERYTHING, paused=paused)
        for _ in range(5):
            node.tick()
    assert node.read(pods[0], "cgroup.freeze") == "0"
    assert node.read(pods[1], "cgroup.freeze") == "1"
    assert node.node._last.slot_states[0].paused


def test_a_pod_that_another_program_froze_does_not_make_a_slot_count_as_paused(
    make: Make,
) -> None:
    node = make(controller=Fixed(SlotDesire()))
    frozen, running = node.pod(1, **{"cgroup.freeze": "1\n"}), node.pod(2)
    node.tell_all(0, [frozen, running])
    node.tick_until(lambda: slot(node).bound)
    for _ in range(10):
        node.tick()
    assert not node.node._last.slot_states[0].paused
    node.tell_all(0, [frozen])
    node.tick_until(lambda: node.node._last.slot_states[0].paused)
    assert node.read(frozen, "cgroup.freeze") == "1", "it is not ours to thaw"


def test_a_pod_that_changes_its_slot_is_let_go_before(make: Make) -> None:
    node = make(controller=Fixed())
    moved, stays = node.pod(1), node.pod(2)
    node.tell_all(0, [moved, stays])
    node.tick_until(lambda: node.changed(moved).keys() >= HELD)
    node.tell_all(0, [stays])
    node.tell_all(1, [moved])
    node.tick()
    assert node.read(moved, "cgroup.freeze") == "0"
    node.tick_until(lambda: slot(node, 1).bound)
    node.tick_until(lambda: node.changed(moved).keys() >= HELD)
    node.tell_all(1, [])
    node.tick_until(lambda: not node.held_below(moved))
    assert node.changed(moved) == {}, "its own values were known all the time"


def test_a_pod_that_cannot_be_used_is_refused_and_the_others_are_not(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = make(controller=Fixed())
    good = node.pod(1)
    node.tell_all(0, [node.make("app/pod1"), good, "../elsewhere"])
    node.tick_until(lambda: node.changed(good).keys() >= HELD)
    said = "\n".join(node.node.missing())
    assert "cannot be in b0: app/pod1 and app overlap" in said
    assert "'../elsewhere' is not a cgroup name" in said
    late = node.pod(2)
    with monkeypatch.context() as broken:  # e.g. a file that the kernel refuses to read

        def refuse(_slot: int, group: Cgroup) -> None:
            raise KernelFileError(group.name, "no")

        broken.setattr(node.node.sampler, "join", refuse)
        node.tell_all(0, [good, late])
        for _ in range(3):
            assert fault_of(node.tick()) is None
        assert node.changed(late) == {}
    node.tick_until(lambda: node.changed(late).keys() >= HELD)


def test_the_journal_has_each_pod_before_it_is_changed(make: Make) -> None:
    node = make(controller=Fixed())  # PodNode asserts that entries are there before a change
    pods = [node.pod(number) for number in (1, 2, 3)]
    node.tell_all(0, pods)
    node.tick_until(lambda: all(node.changed(pod).keys() >= HELD for pod in pods))
    for pod in pods:
        names = {Path(e.path).name for e in node.held_below(pod) if e in node.touched}
        assert names >= HELD


def test_the_bounds_of_a_configuration_that_is_read_again_apply_to_pods(make: Make) -> None:
    pods = make()
    config = pods.node._config
    lifted = config.guard.lift_budgets
    guard = replace(config.guard, hard_limit_margin_bytes=256 * MIB, lift_budgets=not lifted)
    assert pods.node._places is not None
    shared = pods.node._places.slots
    assert (shared._margin_bytes, shared._paced) == (16 * MIB, not lifted)
    pods.node.reconfigure(replace(config, guard=guard))
    assert (shared._margin_bytes, shared._paced) == (256 * MIB, lifted)


def test_a_dry_run_says_what_each_pod_would_get(make: Make) -> None:
    node = make(controller=Fixed())
    node.node.levers._dry_run = True
    pods = [node.pod(number) for number in (1, 2)]
    node.tell_all(0, pods)
    levers: set[str] = set()

    def all_said() -> bool:
        levers.update(result.lever for result in getattr(node, "results", ()))
        return levers >= {f"pause:{pod.rpartition('/')[2]}" for pod in pods}

    node.tick_until(all_said)
    assert [node.changed(pod) for pod in pods] == [{}, {}]


def test_the_pauses_of_a_slot_bind_every_pod_in_it(make: Make) -> None:
    controller = Fixed(SlotDesire(paused=True))
    budgets = Budgets(max_pause_s=0.2, min_run_s=0.1)
    node = make(controller=controller, budgets=budgets)
    first = node.pod(1)
    node.tell_all(0, [first])
    node.tick_until(lambda: node.read(first, "cgroup.freeze") == "1")
    late = node.pod(2)
    node.tell_all(0, [first, late])
    node.tick_until(lambda: node.read(late, "cgroup.freeze") == "1")
    node.tick_until(lambda: node.read(first, "cgroup.freeze") == "0")
    assert node.read(late, "cgroup.freeze") == "0", "a pod is never paused longer than its slot"


def noted(node: PodNode) -> set[str]:
    """The pods of which the journal has entries."""
    paths = (getattr(entry, "path", node.root) for entry in node.held_below("kubepods"))
    return {str(path.parent.relative_to(node.root)) for path in paths}


def churn(node: PodNode, draw: random.Random, pods: list[list[str]], number: int) -> None:
    """Roll one pod of a slot, or let one come or go, as kubelet and API may tell it."""
    index = draw.randrange(len(pods))
    here = pods[index]
    new = [node.pod(number)] if len(here) < 4 or draw.random() < 0.4 else []
    old = [draw.choice(here)] if here and (not new or draw.random() < 0.7) else []
    gone_first = draw.random() < 0.5
    if gone_first:
        for pod in old:
            node.remove(pod)
    if draw.random() < 0.5:  # both are there for a while
        node.tell_all(index, [*here, *new])
        for _ in range(draw.randrange(3)):
            node.tick()
    pods[index] = [pod for pod in here if pod not in old] + new
    draw.shuffle(pods[index])
    node.tell_all(index, pods[index])
    for _ in range(draw.randrange(3)):
        node.tick()
    if not gone_first:
        for pod in old:
            node.remove(pod)


@pytest.mark.parametrize("rollouts", [15, pytest.param(300, marks=pytest.mark.slow)])
def test_rollouts_of_pods_that_share_slots_leave_nothing_held(make: Make, rollouts: int) -> None:
    draw = random.Random(11)
    node = make(controller=make_controller("storm:hold=0.5"), slots=3, tick_s=TICK_S)
    pods: list[list[str]] = [[], [], []]

    def bound() -> bool:
        readers = [node.node.sampler.pods(index) for index in range(3)]
        now = [{pod.name for pod in reader.pods} for reader in readers if reader is not None]
        return now == [set(one) for one in pods]

    files = threads = 0
    for number in range(1, rollouts + 1):
        churn(node, draw, pods, number)
        if number % 10 == 0 or draw.random() < 0.5:  # otherwise the next one comes in between
            node.tick_until(bound, ticks=BOUND_AGAIN_TICKS)
        if number % 10 == 0:
            node.tick_until(lambda: noted(node) <= {pod for one in pods for pod in one})
            assert len(node.node.levers.targets) <= 49, "places are used again"
        assert node.last is None or fault_of(node.last) is None, "no rollout is a fault"
        if number == 10:
            files, threads = own("fd"), own("task")
    node.tick_until(bound, ticks=BOUND_AGAIN_TICKS)
    left = [pod for one in pods for pod in one]
    for index in range(3):
        node.tell_all(index, [])
    node.tick_until(lambda: not node.held_below("kubepods"))
    assert [node.changed(pod) for pod in left] == [{}] * len(left), json.dumps(left)
    assert own("fd") <= files + 40
    node.tick_until(lambda: own("task") <= threads + 15)


def test_a_pause_that_a_lever_could_not_end_is_still_counted(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = make(controller=make_controller("static:pause=all"))
    pods = [node.pod(number) for number in (1, 2)]
    node.tell_all(0, pods)
    memory = bytearray(2 * SLOT_BYTES)
    node.node.remember_pauses(PauseMemory(memory, 2), 0.0, after_restart=False)
    node.tick_until(lambda: kept_since(memoryview(memory), 2)[0] > 0.0)
    since_s = kept_since(memoryview(memory), 2)[0]
    stuck = node.root / pods[1] / "cgroup.freeze"
    write = FileWriter.write

    def fail(writer: FileWriter, value: str) -> None:
        if writer.path == stuck:
            raise KernelFileError(stuck, "cannot write", number=errno.EMFILE)
        write(writer, value)

    with monkeypatch.context() as patch:
        patch.setattr(FileWriter, "write", fail)
        node.node.release(time.monotonic())
        assert [node.read(pod, "cgroup.freeze") for pod in pods] == ["0", "1"]
        assert kept_since(memoryview(memory), 2)[0] == since_s, "the guardian must end it"
    node.node.release(time.monotonic())
    assert kept_since(memoryview(memory), 2)[0] == 0.0
