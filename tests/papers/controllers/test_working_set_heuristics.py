"""The working-set heuristics: when they act, on whom, and what their arms accept."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from stallward.agent.controller import Decision, Need, NodeContext, check_node
from stallward.agent.desired import MIB, RELEASED
from stallward.agent.errors import ControllerError
from stallward.agent.file_pages import FilePages
from stallward.agent.observation.encoder import OBSERVATION_SIZE
from stallward.agent.registry import make_controller
from stallward.agent.sample import GroupSample, PsiTotals, Sample
from stallward.agent.testing import CONTEXT, make_sample
from stallward.papers.controllers.watermarks import free_bytes, watermarks_of
from stallward.papers.controllers.working_set import WorkingSetController

OBSERVATION = np.zeros(OBSERVATION_SIZE, dtype=np.float32)
MARKS = watermarks_of(CONTEXT.zone_limit_bytes)


def made(spec: str, context: NodeContext = CONTEXT) -> WorkingSetController:
    controller = make_controller(spec)
    assert isinstance(controller, WorkingSetController)
    controller.reset(context)
    return controller


def acts(decision: Decision) -> bool:
    assert decision.desired == RELEASED or decision.desired.file_pages is not None
    return decision.desired.file_pages is not None


def after(
    controller: WorkingSetController, *, free: float, some_us: int = 0, full_us: int = 0
) -> Decision:
    """Decide for a second sample, by which the stalls have grown by what is given."""
    free = int(free)
    controller.decide(make_sample(0, available_bytes=free), OBSERVATION)
    sample = make_sample(1, available_bytes=free, some_us=some_us, full_us=full_us)
    return controller.decide(sample, OBSERVATION)


# ------------------------------------------------------------------ the watermarks


def test_low_is_a_quarter_and_high_a_half_above_min() -> None:
    marks = watermarks_of(0.0, 40_000_000)
    assert (marks.min_bytes, marks.low_bytes, marks.high_bytes) == (4e7, 5e7, 6e7)


@pytest.mark.parametrize(
    ("zone_mib", "min_kib"),
    [(16, 512), (64, 1024), (512, 2896), (1024, 4096), (16 * 1024, 16384), (0, 128)],
)
def test_min_of_a_group_is_that_of_a_machine_of_its_size(zone_mib: int, min_kib: int) -> None:
    """The figures are those in the comment above init_per_zone_wmark_min(), in mm/page_alloc.c."""
    assert watermarks_of(zone_mib * MIB).min_bytes == min_kib * 1024


def test_what_is_free_is_not_known_without_usage_or_size() -> None:
    assert free_bytes(GroupSample(name="zone"), 100.0) is None
    assert free_bytes(GroupSample(name="zone", memory_usage_bytes=5), 0.0) is None
    assert free_bytes(GroupSample(name="zone", memory_usage_bytes=150), 100.0) == 0.0


# ------------------------------------------------------------------ the triggers


@pytest.mark.parametrize(
    ("at", "free", "expected"),
    [
        ("low", MARKS.low_bytes - 1, True),
        ("low", MARKS.low_bytes + 4096, False),
        ("min", MARKS.min_bytes - 1, True),
        ("min", MARKS.min_bytes + 4096, False),
    ],
)
@pytest.mark.parametrize("arm", ["ws-flush", "ws-pressure", "ws-deactivate", "ws-promote"])
def test_at_a_watermark_it_acts_at_or_below_it(
    arm: str, at: str, free: float, expected: bool
) -> None:
    assert acts(after(made(f"{arm}:at={at}"), free=free, some_us=100)) is expected


def test_full_memory_that_nobody_waits_for_is_left_alone() -> None:
    assert not acts(after(made("ws-pressure"), free=0, some_us=0))


def test_a_whole_machine_has_the_watermarks_of_its_kernel() -> None:
    context = replace(CONTEXT, watermark_min_bytes=80 * MIB)
    free = 90 * MIB
    assert not acts(after(made("ws-pressure"), free=free, some_us=100))
    assert acts(after(made("ws-pressure", context), free=free, some_us=100))
    assert not acts(after(made("ws-pressure:at=min", context), free=free, some_us=100))


@pytest.mark.parametrize(
    ("priority", "full_us", "expected"),
    [(3, 13_000, True), (3, 12_000, False), (2, 24_000, False), (2, 26_000, True)],
)
def test_distress_is_half_as_much_with_each_priority(
    priority: int, full_us: int, expected: bool
) -> None:
    """Per tick of 100 ms: 12.5 % are priority 3, the first below 4; 25 % are priority 2."""
    controller = made(f"ws-promote:priority={priority}")
    assert acts(after(controller, free=300 * MIB, full_us=full_us)) is expected


@pytest.mark.parametrize("at", ["low", "min", "distress"])
@pytest.mark.parametrize("arm", ["ws-flush", "ws-pressure", "ws-deactivate", "ws-promote"])
def test_without_psi_it_is_refused_unless_it_acts_by_phases(arm: str, at: str) -> None:
    context = replace(CONTEXT, lacks={Need.MEMORY_STALL: "the kernel has no PSI"})
    with pytest.raises(ControllerError, match=r"memory_stall \(the kernel has no PSI\)"):
        check_node(make_controller(f"{arm}:at={at}"), context)
    check_node(make_controller(f"{arm}:at=phase"), context)


def test_at_a_change_of_phase_it_acts_once() -> None:
    controller = made("ws-deactivate:at=phase")

    def at(sequence: int, usage_mib: int) -> Sample:
        sample = make_sample(sequence)
        slots = tuple(replace(slot, memory_usage_bytes=usage_mib * MIB) for slot in sample.slots)
        return replace(sample, slots=(slots[0], replace(slots[1], memory_usage_bytes=90 * MIB)))

    times = [
        i
        for i in range(200)
        if acts(controller.decide(at(i, 80 if i < 100 else 280), OBSERVATION))
    ]
    assert len(times) == 1
    assert 100 <= times[0] <= 105


def test_a_reset_forgets_stalls_and_phases() -> None:
    controller = made("ws-pressure")
    controller.decide(make_sample(0, available_bytes=0, some_us=100), OBSERVATION)
    controller.reset(CONTEXT)
    sample = replace(
        make_sample(1, available_bytes=0), zone=GroupSample(
            name="zone", psi=PsiTotals(memory_some_us=200), memory_limit_bytes=600 * MIB,
            memory_usage_bytes=600 * MIB,
        ),
    )  # fmt: skip
    assert not acts(controller.decide(sample, OBSERVATION))


# ------------------------------------------------------------------ the arms


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("ws-flush", FilePages(action="flush", victim="largest-file")),
        (
            "ws-pressure",
            FilePages(
                action="clear", victim="largest-file", scope="all", grab_pages=512,
                writeback=True,
            ),
        ),
        (
            "ws-pressure:writeback=no,victim=most-run",
            FilePages(action="clear", victim="most-run", scope="all", grab_pages=512),
        ),
        ("ws-deactivate", FilePages(action="cold", victim="largest-size")),
        (
            "ws-deactivate:by=pageout,victim=largest-file,grab=16,files=all",
            FilePages(action="pageout", victim="largest-file", scope="all", grab_pages=16),
        ),
        ("ws-promote", FilePages(action="mark", victim="next", grab_pages=16)),
        (
            "ws-promote:who=most-run,by=activate-mark",
            FilePages(action="activate-mark", victim="most-run", grab_pages=16),
        ),
        (
            "ws-promote:by=willneed,who=protected,grab=512,files=all",
            FilePages(action="willneed", victim="protected", scope="all", grab_pages=512),
        ),
    ],
)  # fmt: skip
def test_an_arm_wants_what_its_arguments_say(spec: str, expected: FilePages) -> None:
    assert made(spec).heuristic.wish == expected


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("ws-flush:at=high", "at='high' is none of low, min, distress, phase"),
        ("ws-flush:victim=most-run", "victim='most-run' is none of"),
        ("ws-pressure:grab=16", "clear_refs, which takes all its file pages"),
        ("ws-pressure:writeback=maybe", "writeback='maybe'"),
        ("ws-deactivate:grab=17", "grab='17' is none of 16, 256, 512"),
        ("ws-promote:who=largest-file", "who='largest-file'"),
        ("ws-promote:priority=13", "priority=13 is outside 0 to 12"),
        ("ws-promote:by=cold", "by='cold' is none of mark, activate, activate-mark, willneed"),
        ("ws-promote:lag=1", "lag"),
    ],
)
def test_a_wrong_argument_is_refused_with_what_is_right(spec: str, says: str) -> None:
    with pytest.raises(ControllerError, match=says):
        make_controller(spec)
