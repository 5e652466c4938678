"""``swap-assign`` and ``swap-average``: limits and weights from demands and priorities."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from stallward.agent.controller import Need, NodeContext, check_node
from stallward.agent.desired import MIB, DesiredState, SlotDesire
from stallward.agent.errors import ControllerError
from stallward.agent.observation.encoder import OBSERVATION_SIZE
from stallward.agent.registry import make_controller
from stallward.agent.sample import GroupSample, NodeSample, Sample, SlotState

OBSERVATION = np.zeros(OBSERVATION_SIZE, dtype=np.float32)
FLOOR = 16 * MIB
ZONE_MIB = 240


def sample(
    *held_mib: float, app_mib: float = 0.0, swapped_mib: float = 0.0, v2: bool = False
) -> Sample:
    """A zone of 240 MiB whose groups hold ``held_mib``, of which each has a part in swap."""
    return Sample(
        sequence=0,
        time_s=1.0,
        node=NodeSample(),
        zone=GroupSample(name="zone", memory_limit_bytes=ZONE_MIB * MIB),
        protected=GroupSample(name="app", memory_usage_bytes=int(app_mib * MIB), swap_bytes=0),
        slots=tuple(
            GroupSample(
                name=f"slot{i}",
                memory_usage_bytes=int((size - swapped_mib) * MIB),
                swap_bytes=int(swapped_mib * MIB),
                high_events=0 if v2 else None,
            )
            for i, size in enumerate(held_mib)
        ),
        slot_states=tuple(SlotState(reference_bytes=int(size * MIB)) for size in held_mib),
    )


def desired(spec: str, tick: Sample) -> DesiredState:
    controller = make_controller(spec)
    names = tuple(f"slot{i}" for i in range(len(tick.slots)))
    controller.reset(
        NodeContext(
            zone_limit_bytes=ZONE_MIB * MIB, slot_names=names, floors_bytes=(FLOOR,) * len(names)
        )
    )
    return controller.decide(tick, OBSERVATION).desired


def limits_mib(state: DesiredState) -> list[float | None]:
    return [None if s.limit_bytes is None else round(s.limit_bytes / MIB, 1) for s in state.slots]


def test_the_lowest_degree_lives_in_swap_and_nobody_else() -> None:
    state = desired("swap-assign:margin_share=0,degrees=0.3+0.1+0.2+0.4", sample(80, 80, 80, 80))
    assert limits_mib(state) == [None, 16.0, None, None]  # alpha is 1: the floor is what stays


def test_a_part_of_the_lowest_is_in_swap_where_that_is_enough() -> None:
    state = desired("swap-assign:margin_share=0,degrees=3+2+1", sample(90, 90, 90))
    assert limits_mib(state) == [None, None, 60.0]  # alpha is (270 - 240) / 90


def test_without_degrees_the_first_slot_has_the_lowest_priority() -> None:
    state = desired("swap-assign:margin_share=0", sample(90, 90, 90))
    assert limits_mib(state) == [60.0, None, None]


def test_what_the_application_needs_is_never_in_swap() -> None:
    state = desired("swap-assign:margin_share=0", sample(100, 60, app_mib=140))
    assert limits_mib(state) == [40.0, None]


def test_nothing_is_limited_where_everything_fits() -> None:
    assert limits_mib(desired("swap-assign", sample(60, 60, 60))) == [None, None, None]


def test_a_given_share_of_the_lowest_is_in_swap_while_memory_is_short() -> None:
    spec = "swap-assign:margin_share=0,degrees=3+1+2,alpha=0.2"
    assert limits_mib(desired(spec, sample(90, 90, 90))) == [None, 72.0, None]
    assert limits_mib(desired(spec, sample(300, 90, 90))) == [None, 72.0, None], "no second one"
    assert limits_mib(desired(spec, sample(150, 0, 100))) == [None, None, 80.0], "it has ended"
    assert limits_mib(desired(spec, sample(70, 70, 70))) == [None, None, None]


def test_a_given_share_of_0_limits_nobody() -> None:
    """On v2 the kernel would kill where the swap of all is limited."""
    state = desired("swap-assign:cpu=0,margin_share=0,alpha=0", sample(90, 90, 90, v2=True))
    assert all(slot == SlotDesire() for slot in state.slots)


def test_the_average_takes_the_same_of_each() -> None:
    state = desired("swap-average:margin_share=0", sample(90, 90, 90))
    assert limits_mib(state) == [80.0, 80.0, 80.0]
    assert all(slot.cpu_weight is None for slot in state.slots)


def test_the_cpu_goes_by_priority_whether_memory_is_short_or_not() -> None:
    state = desired("swap-assign:degrees=1+3+2", sample(10, 10, 10))
    low, high, middle = (slot.cpu_weight for slot in state.slots)
    assert low == 1
    assert (high, middle) == (22, 5)  # 100 is the application's


def test_each_half_can_be_left_out() -> None:
    tick = sample(90, 90, 90)
    scheduling = desired("swap-assign:swap=0", tick)
    assert limits_mib(scheduling) == [None, None, None]
    assert [slot.cpu_weight for slot in scheduling.slots] == [1, 5, 22]
    swap = desired("swap-assign:cpu=0,margin_share=0", tick)
    assert limits_mib(swap) == [60.0, None, None]
    assert all(slot.cpu_weight is None for slot in swap.slots)


def test_what_is_in_swap_counts_as_needed() -> None:
    """Otherwise a limit would make its own reason go away."""
    state = desired("swap-assign:margin_share=0", sample(90, 90, 90, swapped_mib=20))
    assert limits_mib(state) == [60.0, None, None]


def test_the_plan_follows_the_demands() -> None:
    controller = make_controller("swap-assign:margin_share=0")
    names = ("slot0", "slot1", "slot2")
    controller.reset(NodeContext(zone_limit_bytes=ZONE_MIB * MIB, slot_names=names))
    found = [
        limits_mib(controller.decide(sample(*sizes), OBSERVATION).desired)
        for sizes in ((90, 90, 90), (90, 90, 30), (90, 110, 90), (90, 90, 0))
    ]
    assert found == [
        [60.0, None, None],
        [None, None, None],
        [40.0, None, None],
        [None, None, None],
    ]


def test_said_needs_hold_from_the_start_until_the_program_ends() -> None:
    spec = "swap-assign:margin_share=0,needs_mib=90+90+90"
    assert limits_mib(desired(spec, sample(10, 10, 10))) == [60.0, None, None]
    assert limits_mib(desired(spec, sample(10, 10, 1))) == [None, None, None]


def test_a_program_may_need_more_than_was_said() -> None:
    spec = "swap-assign:margin_share=0,needs_mib=60+60+60"
    assert limits_mib(desired(spec, sample(60, 160, 60))) == [20.0, None, None]


def test_on_v2_the_swap_of_those_that_keep_their_memory_is_limited() -> None:
    state = desired("swap-assign:margin_share=0", sample(90, 90, 90, v2=True))
    assert [slot.swap_max_bytes for slot in state.slots] == [None, 30 * MIB, 30 * MIB]
    fits = desired("swap-assign", sample(50, 50, 50, v2=True))
    assert [slot.swap_max_bytes for slot in fits.slots] == [None, None, None]


@pytest.mark.parametrize("sizes", [(90, 90, 90), (200, 90, 90), (200, 200, 90), (300, 300, 300)])
@pytest.mark.parametrize("name", ["swap-assign", "swap-average"])
def test_somebody_can_always_give_what_nobody_planned_for(
    name: str, sizes: tuple[int, int, int]
) -> None:
    """With all swap limited, the kernel kills where a group grows before the next plan."""
    state = desired(name, sample(*sizes, v2=True))
    assert None in [slot.swap_max_bytes for slot in state.slots]


def test_measured_degrees_and_needs_are_found_by_name(tmp_path: Path) -> None:
    path = tmp_path / "contention.json"
    fields = {"alone_s": 1.0, "subtasks": 1, "memory_bytes": 90 * MIB}
    found = [
        {"name": name, "together_s": together_s, **fields}
        for name, together_s in (("slot2", 2.0), ("slot1", 4.0), ("slot0", 3.0))
    ]
    path.write_text(json.dumps({"applications": found}))
    spec = f"swap-assign:margin_share=0,path={path}"
    assert limits_mib(desired(spec, sample(10, 10, 10))) == [None, None, 60.0]
    with pytest.raises(ControllerError, match="No contention was measured for 'slot3'"):
        desired(spec, sample(10, 10, 10, 10))


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        ("swap-assign:swap=2", "neither 0 nor 1"),
        ("swap-assign:swap=0,cpu=0", "does nothing"),
        ("swap-assign:swap=0,alpha=0.3", "takes no alpha"),
        ("swap-assign:alpha=1.1", "outside 0 to 1"),
        ("swap-average:alpha=0.3", "does not take"),
        ("swap-assign:degrees=x", "not a number"),
        ("swap-assign:needs_mib=-1", "outside"),
        ("swap-assign:path=absent.json", "cannot be read"),
        ("swap-assign:path=a,degrees=1", "not both"),
        ("swap-average:degrees=1", "does not take"),
    ],
)
def test_a_wrong_argument_is_refused(spec: str, complaint: str) -> None:
    with pytest.raises(ControllerError, match=complaint):
        make_controller(spec)


def test_too_few_degrees_are_refused_for_the_node() -> None:
    with pytest.raises(ControllerError, match="degrees has 1 values, but there are 2 slots"):
        desired("swap-assign:degrees=1", sample(10, 10))


@pytest.mark.parametrize(
    ("spec", "needs"),
    [
        ("swap-assign", {Need.LIMIT, Need.SWAP, Need.SWAP_USE, Need.CPU_WEIGHT}),
        ("swap-assign:swap=0", {Need.CPU_WEIGHT}),
        ("swap-assign:cpu=0", {Need.LIMIT, Need.SWAP, Need.SWAP_USE}),
        ("swap-average", {Need.LIMIT, Need.SWAP, Need.SWAP_USE}),
        ("mat", {Need.PAUSE, Need.REFAULTS}),
    ],
)
def test_a_node_that_lacks_a_lever_is_named(spec: str, needs: set[Need]) -> None:
    controller = make_controller(spec)
    for need in Need:
        context = NodeContext(zone_limit_bytes=1, slot_names=("a",), lacks={need: "because"})
        if need in needs:
            with pytest.raises(ControllerError, match=rf"lacks {need} \(because\)"):
                check_node(controller, context)
        else:
            check_node(controller, context)


def test_unknown_sizes_limit_nothing() -> None:
    tick = sample(90, 90, 90)
    slots = tuple(replace(slot, memory_usage_bytes=None, swap_bytes=None) for slot in tick.slots)
    assert limits_mib(desired("swap-assign", replace(tick, slots=slots))) == [None, None, None]
