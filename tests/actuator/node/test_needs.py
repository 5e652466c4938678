"""What a node lacks of what controllers may need, and who refuses to run without it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import pytest

from stallward.actuator.engine.engine import Engine
from stallward.actuator.engine.interface import EngineSettings
from stallward.actuator.guard.budgets import Budgets
from stallward.actuator.node.lacking import lacks_of
from stallward.agent.controller import THREAD_NEEDS, Need, NodeContext
from stallward.agent.errors import ControllerError
from stallward.agent.registry import make_controller
from stallward.agent.sample import UNBOUND, GroupSample, NodeSample, PsiTotals, Sample

ALL = [
    (f"{lever}:{slot}", "")
    for slot in ("a", "b")
    for lever in ("pause", "limit", "cpu_weight", "nice", "cpu_max", "reclaim", "terminate")
] + [
    *((f"{lever}:app", "") for lever in ("swappiness", *THREAD_NEEDS)),
    *((f"vm.{name}", "") for name in ("swappiness", "overcommit_memory", "dirty_bytes")),
]
STALLED = PsiTotals(memory_some_us=0, memory_full_us=0, io_some_us=0, io_full_us=0)
SAMPLE = Sample(
    sequence=0,
    time_s=0.0,
    node=NodeSample(swap_total_bytes=1 << 30),
    zone=GroupSample(name="zone", psi=STALLED),
    protected=GroupSample(name="app", psi=STALLED),
    slots=(GroupSample(name="a", psi=STALLED), GroupSample(name="b", psi=STALLED)),
)


def without(*missing: str) -> list[tuple[str, str]]:
    return [(name, "gone" if name in missing else why) for name, why in ALL]


def lacks(
    levers: list[tuple[str, str]],
    trees: tuple[str, ...] = (),
    *,
    threads_allowed: bool = True,
    sample: Sample = SAMPLE,
    absent: Iterable[str] = (),
    others: Mapping[Need, str] | None = None,
    protected: str = "app",
) -> dict[Need, str]:
    return lacks_of(
        levers,
        slots=("a", "b"),
        applications=[protected] if protected else [],
        threads_allowed=threads_allowed,
        trees=trees,
        sample=sample,
        absent=dict.fromkeys(absent, "absent"),
        others=others or {},
    )


def test_a_node_with_everything_lacks_nothing() -> None:
    assert lacks(ALL) == {}


def test_one_slot_without_a_lever_is_enough_to_lack_it() -> None:
    assert lacks(without("limit:b")) == {Need.LIMIT: "gone"}
    assert lacks(without("pause:a", "pause:b")) == {Need.PAUSE: "gone"}
    assert lacks(without("reclaim:a")) == {Need.RECLAIM: "gone"}
    assert lacks(without("cpu_max:a", "terminate:b")) == {
        Need.CPU_MAX: "gone",
        Need.TERMINATE: "gone",
    }


def test_nice_values_stand_in_for_cpu_weights() -> None:
    assert lacks(without("cpu_weight:a", "cpu_weight:b")) == {}
    assert lacks(without("cpu_weight:a", "nice:a")) == {Need.CPU_WEIGHT: "gone"}


def test_a_process_tree_has_no_limit_while_it_runs() -> None:
    assert "process trees have no memory limit" in lacks(ALL, trees=("b",))[Need.LIMIT]


@pytest.mark.parametrize(("size", "why"), [(0, "no swap is on"), (None, "not known")])
def test_a_node_without_swap_says_so(size: int | None, why: str) -> None:
    node = NodeSample(swap_total_bytes=size)
    found = lacks(ALL, sample=replace(SAMPLE, node=node), absent=("slots[0].swap_bytes",))
    assert set(found) == {Need.SWAP}, "nobody has anything in swap where there is none"
    assert why in found[Need.SWAP]


def test_a_node_without_pressure_files_lacks_every_stall_also_of_what_is_not_there_yet() -> None:
    sample = replace(
        SAMPLE,
        zone=GroupSample(name="zone"),
        protected=GroupSample(name=f"{UNBOUND}app"),
        slots=(GroupSample(name=f"{UNBOUND}a"),),
    )
    names = ("memory_some", "memory_full", "io_some", "io_full")
    found = lacks(ALL, sample=sample, absent=[f"zone.psi.{name}_us" for name in names])
    stalls = {need for need in Need if need.value.endswith("stall")}
    assert set(found) == stalls
    with pytest.raises(ControllerError, match=r"memory_stall \(absent\)"):
        engine("systemd-oomd", found)
    engine("earlyoom", found)


@pytest.mark.parametrize(
    ("absent", "lacked"),
    [
        (("zone.psi.memory_full_us",), {Need.MEMORY_STALL}),
        (("zone.psi.io_some_us",), {Need.IO_STALL}),
        (("zone.psi.io_full_us",), set()),
        (("protected.psi.memory_some_us",), set()),
        (("slots[1].psi.memory_some_us",), {Need.SLOT_STALL}),
        (("slots[0].psi.io_full_us",), {Need.SLOT_IO_STALL}),
        (("zone.inactive_file_bytes",), set()),
        (("zone.file_bytes", "zone.inactive_file_bytes"), {Need.AVAILABLE_MEMORY}),
        (("zone.memory_usage_bytes",), {Need.AVAILABLE_MEMORY}),
        (("protected.refault_file_pages", "protected.refault_anon_pages"), set()),
        (
            (
                "slots[1].refault_file_pages",
                "slots[1].refault_anon_pages",
                "slots[1].major_faults",
            ),
            {Need.REFAULTS},
        ),
        (("slots[0].refault_file_pages", "slots[1].major_faults"), set()),
        (("protected.swap_bytes",), {Need.SWAP_USE}),
        (("latency",), {Need.LATENCY}),
        (("node.psi.memory_some_us", "zone.swap_bytes", "processes"), set()),
    ],
)
def test_a_signal_that_is_absent_is_lacked_by_those_who_need_it(
    absent: tuple[str, ...], lacked: set[Need]
) -> None:
    assert lacks(ALL, absent=absent) == dict.fromkeys(lacked, "absent")


def test_the_stall_of_the_zone_stands_in_for_that_of_the_application_not_of_the_slots() -> None:
    alone = replace(SAMPLE, protected=GroupSample(name="app"))
    assert lacks(ALL, sample=alone, absent=("protected.psi.memory_some_us",)) == {}
    both = ("protected.psi.memory_some_us", "zone.psi.memory_some_us")
    assert set(lacks(ALL, sample=alone, absent=both)) == {
        Need.APPLICATION_STALL,
        Need.MEMORY_STALL,
    }


def test_settings_of_the_node_are_lacked_where_one_cannot_be_written() -> None:
    assert lacks(without("vm.dirty_bytes")) == {Need.NODE_TUNING: "gone"}
    groups = [(name, why) for name, why in ALL if not name.startswith("vm.")]
    assert lacks(groups) == {Need.NODE_TUNING: "no such lever"}


def test_the_swappiness_of_a_group_is_lacked_on_v2_and_by_a_process_tree() -> None:
    v2 = [("protected_swappiness", "only cgroup v1"), *ALL]
    v2.remove(("swappiness:app", ""))
    for protected in ("app", ""):
        assert lacks(v2, protected=protected) == {Need.GROUP_SWAPPINESS: "only cgroup v1"}
    of_a_tree = [one for one in ALL if one != ("swappiness:app", "")]
    assert "no cgroup of its own" in lacks(of_a_tree)[Need.GROUP_SWAPPINESS]
    assert lacks(of_a_tree, protected="") == {}, "it may come with its pod"


def test_what_is_missing_otherwise_is_passed_on() -> None:
    found = lacks(ALL, others={Need.FILE_CACHE: "file_pages: no cachestat"})
    assert found == {Need.FILE_CACHE: "file_pages: no cachestat"}
    with pytest.raises(ControllerError, match=r"file_cache \(file_pages: no cachestat\)"):
        engine("ws-flush", found)
    engine("ws-deactivate", found)


def engine(spec: str, missing: dict[Need, str]) -> Engine:
    context = NodeContext(zone_limit_bytes=1 << 30, slot_names=("a",), lacks=missing)
    return Engine(
        settings=EngineSettings(context=context, budgets=Budgets()),
        configured=make_controller(spec),
        default=make_controller("none"),
    )


def test_threads_need_each_lever_and_the_consent_of_the_configuration() -> None:
    no_slice = lacks(without("thread_slice:app"))
    assert no_slice == {Need.THREAD_SLICE: "gone"}
    for spec in ("bvt", "dasec", "dasec:answers=latency"):
        with pytest.raises(ControllerError, match=r"lacks thread_slice \(gone\)"):
            engine(spec, no_slice)
    engine("dasec:answers=layout+share", no_slice)
    refused = lacks(ALL, threads_allowed=False)
    assert set(refused) == set(THREAD_NEEDS)
    with pytest.raises(ControllerError, match=r"thread_nice \(guard\.allow_protected_threads"):
        engine("dasec:answers=share", refused)
    assert lacks(without("thread_cpus:app"), threads_allowed=False)[Need.THREAD_CPUS] == "gone"


def test_an_engine_refuses_a_controller_that_the_node_cannot_support() -> None:
    missing = {Need.SWAP: "no swap is on"}
    with pytest.raises(ControllerError, match=r"'swap-assign' cannot .* swap \(no swap is on\)"):
        engine("swap-assign", missing)
    engine("partition", missing)


def test_what_is_loaded_later_is_refused_as_well_and_the_rest_goes_on() -> None:
    running = engine("none", {Need.SWAP: "no swap is on"})
    running.install(make_controller("mat"))
    with pytest.raises(ControllerError, match="no swap is on"):
        running.install(make_controller("swap-average"))
    assert running.policy is not None
    assert running.policy.name == "mat"


def test_a_controller_for_other_slots_is_refused_when_it_is_loaded() -> None:
    context = NodeContext(zone_limit_bytes=1 << 30, slot_names=("a", "b"))
    running = Engine(
        settings=EngineSettings(context=context, budgets=Budgets()),
        configured=make_controller("none"),
        default=make_controller("none"),
    )
    with pytest.raises(ControllerError, match="degrees has 1 values, but there are 2 slots"):
        running.install(make_controller("swap-assign:degrees=1"))
