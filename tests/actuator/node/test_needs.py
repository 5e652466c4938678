"""What a node lacks of what controllers may need, and who refuses to run without it."""

from __future__ import annotations

import pytest

from stallward.actuator.engine.engine import Engine
from stallward.actuator.engine.interface import EngineSettings
from stallward.actuator.guard.budgets import Budgets
from stallward.actuator.node.needs import lacks_of
from stallward.agent.controller import THREAD_NEEDS, Need, NodeContext
from stallward.agent.errors import ControllerError
from stallward.agent.registry import make_controller

ALL = [
    (f"{lever}:{slot}", "")
    for slot in ("a", "b")
    for lever in ("pause", "limit", "cpu_weight", "nice", "cpu_max", "reclaim", "terminate")
] + [(f"{lever}:app", "") for lever in ("thread_slice", "thread_nice", "thread_cpus")]


def without(*missing: str) -> list[tuple[str, str]]:
    return [(name, "gone" if name in missing else why) for name, why in ALL]


def lacks(
    levers: list[tuple[str, str]], trees: tuple[str, ...] = (), *, threads_allowed: bool = True
) -> dict[Need, str]:
    return lacks_of(
        levers,
        slots=("a", "b"),
        protected="app",
        threads_allowed=threads_allowed,
        trees=trees,
        swap_total_bytes=1 << 30,
        memory_stall_us=0,
        file_pages={},
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
    found = lacks_of(
        ALL,
        slots=("a", "b"),
        protected="app",
        threads_allowed=True,
        trees=(),
        swap_total_bytes=size,
        memory_stall_us=0,
        file_pages={},
    )
    assert why in found[Need.SWAP]


def test_a_node_without_pressure_files_says_so() -> None:
    found = lacks_of(
        ALL,
        slots=("a", "b"),
        protected="app",
        threads_allowed=True,
        trees=(),
        swap_total_bytes=1,
        memory_stall_us=None,
        file_pages={},
    )
    assert found == {Need.MEMORY_STALL: "the zone has no pressure file"}
    with pytest.raises(ControllerError, match="memory_stall"):
        engine("systemd-oomd", found)
    engine("earlyoom", found)


def test_what_cannot_be_done_to_file_pages_is_lacked_by_the_name_of_its_lever() -> None:
    found = lacks_of(
        ALL,
        slots=("a", "b"),
        protected="app",
        threads_allowed=True,
        trees=(),
        swap_total_bytes=1,
        memory_stall_us=0,
        file_pages={Need.FILE_CACHE: "no cachestat"},
    )
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
