"""``partition`` divides what the application leaves over."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from divided_zone import (
    CONTEXT,
    FLOOR,
    MARGIN_MIB,
    NUMBERS,
    OBSERVATION,
    ZONE_MIB,
    Zone,
    limits_mib,
    sum_mib,
)

from stallward.agent.control_law.thresholds import thresholds_text
from stallward.agent.controller import Need, NodeContext
from stallward.agent.controllers.partition import PartitionController, PartitionThresholds
from stallward.agent.desired import FLUSH, KEEP_ANON, MIB, RELEASED
from stallward.agent.errors import ThresholdError
from stallward.agent.registry import make_controller


def test_nothing_is_changed_while_everything_fits() -> None:
    assert Zone(200, 100, 100).run(2.0).desired == RELEASED


def test_the_background_shares_what_the_application_leaves_over() -> None:
    decision = Zone(200, 250, 250).run(2.0)
    room = ZONE_MIB - MARGIN_MIB - 200
    assert limits_mib(decision) == [pytest.approx(room / 2), pytest.approx(room / 2)]
    assert not any(slot.paused for slot in decision.desired.slots)
    assert decision.desired.protected_low_bytes == 200 * MIB


def test_the_background_runs_while_the_application_does_not_want_the_cpu() -> None:
    assert {slot.cpu_weight for slot in Zone(200, 250, 250).run(2.0).desired.slots} == {1}
    equal = PartitionController(replace(NUMBERS, background_cpu_weight=100))
    decision = Zone(200, 250, 250, controller=equal).run(2.0)
    assert {slot.cpu_weight for slot in decision.desired.slots} == {None}


def test_another_target_changes_what_is_danger_and_nothing_that_is_known() -> None:
    zone = Zone(200, 250, 250)
    zone.thrashing = {0, 1}
    before = zone.run(10.0)
    assert any(slot.paused for slot in before.desired.slots), "they take turns"
    controller = zone.controller
    assert isinstance(controller, PartitionController)
    controller.retarget(5.0)
    after = zone.run(0.1)
    assert [slot.paused for slot in after.desired.slots] == [
        slot.paused for slot in before.desired.slots
    ]
    twice = PartitionController(NUMBERS)
    other = Zone(200, 250, 250, controller=twice)
    other.p95_ms = 6.0
    other.run(2.0)
    calm = twice._caution.danger
    twice.retarget(CONTEXT.slo_ms / 2.0)
    other.run(0.1)
    assert twice._caution.danger == pytest.approx(2.0 * calm, rel=0.05)


def test_a_small_group_keeps_what_it_wants() -> None:
    small, large = limits_mib(Zone(200, 60, 400).run(2.0))
    assert small is not None
    assert small >= 60
    assert large == pytest.approx(ZONE_MIB - MARGIN_MIB - 200 - small)


def test_limits_stand_before_the_zone_is_full_so_that_growth_cannot_overrun_it() -> None:
    decision = Zone(200, 150, 150).run(2.0)
    limits = limits_mib(decision)
    assert all(limit is not None and limit > 150 for limit in limits)
    assert sum_mib(decision) == pytest.approx(ZONE_MIB - MARGIN_MIB - 200)


def test_what_was_swapped_of_the_application_stays_its_own() -> None:
    zone = Zone(200, 250, 250)
    zone.run(2.0)
    zone.app_mib, zone.app_swap_mib = 140, 60
    assert sum_mib(zone.run(2.0)) == pytest.approx(364, abs=2)


def test_limits_are_released_a_while_after_the_background_fits_again() -> None:
    zone = Zone(200, 250, 250)
    zone.run(2.0)
    zone.groups_mib = [50, 50]
    assert zone.run(5.0).desired != RELEASED
    assert zone.run(8.0).desired == RELEASED


def test_groups_that_thrash_with_a_part_take_turns() -> None:
    zone = Zone(200, 250, 250)
    zone.thrashing = {0, 1}
    zone.run(6.0)
    paused = []
    for _ in range(600):
        slots = zone.tick().desired.slots
        paused.append(tuple(slot.paused for slot in slots))
        whole = next(slot for slot in slots if not slot.paused)
        waits = next(slot for slot in slots if slot.paused)
        assert (whole.limit_bytes or 0) >= 250 * MIB
        assert waits.limit_bytes == FLOOR
    for index in range(2):
        assert 0.4 < np.mean([pair[index] for pair in paused]) < 0.6


def pass_over(zone: Zone, seconds: float, *, stall_share: float, refaults_per_s: float) -> None:
    """A time in which the groups wait and read again, and nobody looks."""
    for index in range(len(zone.groups_mib)):
        zone.stalled_us[index] += int(1e6 * seconds * stall_share)
        zone.refaults[index] += int(seconds * refaults_per_s)
    zone.time_s += seconds


@pytest.mark.parametrize("seconds", [8.0, 600.0])
def test_what_happened_while_a_client_decided_is_no_thrashing_now(seconds: float) -> None:
    zone = Zone(200, 300, 300)
    zone.run(12.0)
    pass_over(zone, seconds, stall_share=0.01, refaults_per_s=20.0)
    for _ in range(30):
        assert not any(slot.paused for slot in zone.tick().desired.slots)


@pytest.mark.parametrize(("stall_share", "pauses"), [(0.15, False), (0.6, True)])
def test_groups_that_thrash_are_found_whatever_the_time_between_two_ticks(
    stall_share: float, pauses: bool
) -> None:
    zone = Zone(200, 300, 300)
    for _ in range(6):
        pass_over(zone, 4.9, stall_share=stall_share, refaults_per_s=5000.0 * stall_share)
        decision = zone.tick()
    assert any(slot.paused for slot in decision.desired.slots) is pauses


def test_groups_that_fit_whole_are_not_held_back_though_they_thrashed() -> None:
    zone = Zone(200, 250, 250)
    zone.thrashing = {0, 1}
    zone.run(6.0)
    zone.groups_mib = [120, 120]
    assert not any(slot.paused for slot in zone.run(5.0).desired.slots)


def test_one_group_that_never_fits_runs_with_what_there_is_while_the_application_is_well() -> None:
    zone = Zone(200, 500)
    zone.thrashing = {0}
    assert not zone.run(10.0).desired.slots[0].paused
    zone.p95_ms = 30.0
    assert zone.run(3.0).desired.slots[0].paused


def test_what_others_hold_is_no_room_for_the_background() -> None:
    """On a whole machine there are the system's services, the kernel and compressed swap."""
    zone = Zone(200, 250, 250)
    alone = zone.run(2.0)
    assert "others" not in alone.reason
    zone.other_mib = 80
    beside = zone.run(2.0)
    assert sum_mib(beside) == pytest.approx(sum_mib(alone) - 80, abs=2)
    assert "others hold 80 MiB" in beside.reason


def test_in_danger_more_is_kept_for_the_application_until_memory_is_free() -> None:
    zone = Zone(200, 250, 250)
    zone.other_file_mib = 80
    before = zone.run(2.0)
    zone.p95_ms = 30.0
    after = zone.run(5.0)
    assert sum_mib(after) < sum_mib(before) - 30
    assert "reserved" in after.reason


def test_only_an_application_that_lives_on_anonymous_pages_has_them_kept() -> None:
    zone = Zone(200, 250, 250)
    tunings = []
    for anon_mib in (120, 95, 80, 105, 120):
        zone.app_anon_mib = anon_mib
        tunings.append(zone.run(1.0).desired.tuning)
    # The tuning changes only once the share is clearly on the other side of a half.
    assert tunings == [KEEP_ANON, KEEP_ANON, FLUSH, FLUSH, KEEP_ANON]


def test_a_part_of_the_demand_is_lent_while_latencies_are_low() -> None:
    zone = Zone(200, 250, 250)
    before = zone.run(2.0)
    zone.p95_ms = 1.0
    lent = zone.run(30.0)
    assert sum_mib(lent) == pytest.approx(sum_mib(before) + 0.6 * 200, abs=5)
    assert lent.desired.protected_low_bytes == pytest.approx(0.4 * 200 * MIB, rel=0.01)
    assert "lent" in lent.reason
    zone.p95_ms = 8.5
    assert sum_mib(zone.run(30.0)) == pytest.approx(sum_mib(before), abs=8)


def test_a_loan_is_returned_at_once_when_the_application_stands_and_waits_for_memory() -> None:
    """Its requests are not answered, so for a second its p95 is still that of the time before."""
    zone = Zone(200, 250, 250)
    zone.app_stalls = 0.0
    before = zone.run(2.0)
    zone.p95_ms = 2.0
    lent = zone.run(30.0)
    assert sum_mib(lent) > sum_mib(before) + 100
    zone.app_stalls = 1.0
    returned = zone.run(0.3)
    assert sum_mib(returned) <= sum_mib(before) + 5
    assert "lent" not in returned.reason
    zone.app_stalls = 0.0
    assert sum_mib(zone.run(10.0)) < sum_mib(before) + 60, "less is lent than was too much"


def test_anonymous_pages_are_not_lent() -> None:
    zone = Zone(200, 250, 250)
    zone.app_anon_mib = 180
    before = zone.run(2.0)
    zone.p95_ms = 1.0
    assert sum_mib(zone.run(30.0)) == pytest.approx(sum_mib(before) + 20, abs=3)


def test_nothing_is_lent_where_latencies_are_not_known() -> None:
    zone = Zone(200, 250, 250)
    zone.p95_ms = None
    assert sum_mib(zone.run(30.0)) == pytest.approx(ZONE_MIB - MARGIN_MIB - 200, abs=3)


def test_a_group_waits_for_a_loan_that_is_growing_rather_than_thrash() -> None:
    zone = Zone(400, 190)
    zone.thrashing = {0}
    zone.run(6.0)
    zone.p95_ms = 1.0
    assert zone.run(2.5).desired.slots[0].paused
    decision = zone.run(8.0)
    assert not decision.desired.slots[0].paused
    assert sum_mib(decision) >= 190


def test_swapped_pages_are_read_back_once_there_is_room_and_not_before() -> None:
    zone = Zone(200, 250, 250)
    zone.run(2.0)
    zone.app_mib, zone.app_swap_mib = 180, 20
    asked = [zone.tick().desired.protected_willneed for _ in range(100)]
    starts = sum(now and not before for before, now in pairwise(asked))
    assert asked[0]
    assert starts == 1
    zone.other_file_mib = 60  # now the zone is full
    assert not any(zone.tick().desired.protected_willneed for _ in range(100))


@pytest.mark.parametrize(("least_mib", "waits"), [(1000.0, True), (100.0, False), (None, False)])
def test_what_no_limit_holds_waits_while_the_application_is_in_danger(
    least_mib: float | None, waits: bool
) -> None:
    """Without swap the guard gives a running v1 group more than it holds."""
    zone = Zone(200, 250, 250)
    zone.least_limit_mib = least_mib
    assert not any(slot.paused for slot in zone.run(2.0).desired.slots)
    zone.p95_ms = 12.0
    assert all(slot.paused == waits for slot in zone.run(2.0).desired.slots)
    zone.p95_ms = 5.0
    assert not any(slot.paused for slot in zone.run(20.0).desired.slots)


def test_without_background_nothing_is_wanted() -> None:
    assert Zone(590).run(1.0).desired == RELEASED


def test_the_demand_begins_with_what_was_measured_before() -> None:
    zone = Zone(50, 250, 250)
    zone.controller.reset(replace(CONTEXT, demand_bytes=200 * MIB))
    assert sum_mib(zone.run(2.0)) == pytest.approx(ZONE_MIB - MARGIN_MIB - 200, abs=2)


@pytest.mark.parametrize(("keep_mib", "kept_mib"), [(20, MARGIN_MIB), (100, 100)])
def test_as_much_of_the_zone_stays_free_as_the_node_wants(keep_mib: int, kept_mib: int) -> None:
    zone = Zone(200, 250, 250)
    zone.controller.reset(replace(CONTEXT, keep_available_bytes=keep_mib * MIB))
    assert sum_mib(zone.run(2.0)) == pytest.approx(ZONE_MIB - kept_mib - 200, abs=2)


def test_a_zone_of_unknown_size_takes_that_of_the_node() -> None:
    zone = Zone(200, 250, 250)
    sample = zone.sample()
    unknown = replace(sample, zone=replace(sample.zone, memory_limit_bytes=None))
    decision = zone.controller.decide(unknown, OBSERVATION)
    assert sum_mib(decision) == pytest.approx(364, abs=1)


def test_its_numbers_are_arguments_and_are_checked() -> None:
    decision = Zone(200, 250, 250, controller=make_controller("partition:margin_share=0.2")).run(
        2.0
    )
    assert sum_mib(decision) == pytest.approx(280, abs=1)
    with pytest.raises(ThresholdError, match="margin_share"):
        make_controller("partition:margin_share=0.9")


def test_its_numbers_come_from_a_file_and_arguments_replace_some(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    numbers = PartitionThresholds(margin_share=0.2, turn_s=20.0)
    file.write_text(thresholds_text(numbers, "partition", {}))
    made = make_controller(f"partition:path={file},turn_s=30")
    assert isinstance(made, PartitionController)
    assert made.thresholds == replace(numbers, turn_s=30.0)
    file.write_text(thresholds_text(numbers, "rule", {}))
    with pytest.raises(ThresholdError, match="is for the controller 'rule'"):
        make_controller(f"partition:path={file}")


def test_the_reason_says_what_was_divided() -> None:
    zone = Zone(200, 250, 250)
    assert zone.run(2.0).reason == "demand 200 MiB, room 364 MiB"
    zone.thrashing = {0, 1}
    assert "waiting: b" in zone.run(6.0).reason
    assert Zone(200, 50).run(1.0).reason.startswith("fits: ")


def test_readers_are_slowed_down_where_the_application_waits_but_lacks_no_memory() -> None:
    zone = Zone(200, 250, 250)
    zone.reads_mib_per_s = [400.0, 1.0]
    zone.app_refaults = 0
    before = zone.run(20.0)
    assert [slot.io_max_bytes_per_s for slot in before.desired.slots] == [None, None]
    zone.p95_ms = 12.0
    slowed = zone.run(10.0)
    reader, other = (slot.io_max_bytes_per_s for slot in slowed.desired.slots)
    assert reader is not None
    assert reader < 200 * MIB
    assert other is None
    assert sum_mib(slowed) == pytest.approx(sum_mib(before)), "less memory would not help"


def test_an_application_that_lacks_memory_gets_memory_and_not_the_disk() -> None:
    zone = Zone(200, 250, 250)
    zone.reads_mib_per_s = [400.0, 1.0]
    before = zone.run(20.0)
    zone.p95_ms, zone.app_refaults = 12.0, 0
    for _ in range(100):
        zone.app_refaults += 20
        after = zone.tick()
    assert [slot.io_max_bytes_per_s for slot in after.desired.slots] == [None, None]
    assert sum_mib(after) < sum_mib(before)


def test_limits_under_which_the_target_is_missed_are_lifted_as_long_as_that_helps() -> None:
    zone = Zone(200, 250, 250)
    zone.p95_ms = 3.0 * CONTEXT.slo_ms
    assert zone.run(25.0).desired != RELEASED
    lifted = zone.run(15.0)
    assert lifted.desired == RELEASED
    assert lifted.reason.startswith("limits lifted: demand 200 MiB")
    zone.p95_ms = 0.5 * CONTEXT.slo_ms
    assert zone.run(60.0).desired == RELEASED
    zone.p95_ms = 50.0 * CONTEXT.slo_ms
    assert zone.run(30.0).desired != RELEASED


def test_nothing_is_reserved_while_limits_are_lifted() -> None:
    zone = Zone(200, 250, 250)
    zone.run(20.0)
    zone.p95_ms = 3.0 * CONTEXT.slo_ms
    controller = zone.controller
    assert isinstance(controller, PartitionController)
    lifted = zone.run(20.0)
    assert lifted.desired == RELEASED
    controller._caution.reserve_share = 0.0
    zone.app_refaults = 0
    for _ in range(50):
        zone.app_refaults += 20
        zone.tick()
    assert controller._caution.reserve_share == 0.0


FAR = replace(NUMBERS, far_ratio=0.25)


def test_far_from_the_target_nothing_is_limited_and_the_application_is_still_preferred() -> None:
    zone = Zone(200, 250, 250, controller=PartitionController(FAR))
    zone.p95_ms = 0.1 * CONTEXT.slo_ms
    limited = zone.run(5.0)
    assert all(limits_mib(limited)), "it is not known yet how far"
    free = zone.run(60.0)
    assert limits_mib(free) == [None, None]
    assert free.reason.startswith("far from the target: demand 200 MiB")
    assert not any(slot.paused for slot in free.desired.slots)
    assert free.desired.protected_low_bytes
    assert free.desired.tuning == limited.desired.tuning
    weights = [slot.cpu_weight for slot in free.desired.slots]
    assert weights == [slot.cpu_weight for slot in limited.desired.slots] != [None, None]
    zone.p95_ms = 2.0 * CONTEXT.slo_ms
    assert all(limits_mib(zone.run(3.0)))


def test_an_application_that_lives_on_anonymous_pages_keeps_its_limits() -> None:
    zone = Zone(200, 250, 250, controller=PartitionController(FAR))
    zone.p95_ms = 0.1 * CONTEXT.slo_ms
    zone.app_anon_mib = 200.0
    for _ in range(600):
        assert all(limits_mib(zone.tick()))


@pytest.mark.parametrize("far", [True, False])
def test_only_under_limits_something_is_reserved(far: bool) -> None:
    controller = PartitionController(FAR if far else NUMBERS)
    zone = Zone(200, 250, 250, controller=controller)
    zone.p95_ms = 0.1 * CONTEXT.slo_ms
    zone.run(20.0)
    controller._caution.reserve_share = 0.0
    zone.app_refaults, zone.other_mib = 0, 200.0
    zone.p95_ms = 1.5 * CONTEXT.slo_ms
    for _ in range(15):
        zone.app_refaults += 20
        assert (limits_mib(zone.tick()) == [None, None]) is far
    assert (controller._caution.reserve_share == 0.0) is far


def test_time_without_limits_is_no_time_under_which_they_are_judged() -> None:
    """Limits that come back have half a minute to help before they are lifted for a trial."""
    zone = Zone(200, 250, 250, controller=PartitionController(FAR))
    zone.p95_ms = 0.1 * CONTEXT.slo_ms
    assert limits_mib(zone.run(120.0)) == [None, None]
    zone.p95_ms = 2.0 * CONTEXT.slo_ms
    zone.run(3.0)
    for _ in range(250):
        assert all(limits_mib(zone.tick()))
    assert zone.run(15.0).reason.startswith("limits lifted")


def test_another_target_ends_a_trial_without_limits() -> None:
    controller = PartitionController(FAR)
    zone = Zone(200, 250, 250, controller=controller)
    zone.p95_ms = 0.1 * CONTEXT.slo_ms
    assert limits_mib(zone.run(30.0)) == [None, None]
    controller.retarget(0.2 * CONTEXT.slo_ms)
    assert all(limits_mib(zone.run(60.0))), "it is near the new one"


def test_where_swap_is_slow_the_background_is_paused_however_far_the_target_is() -> None:
    zone = swapping_zone(500.0)
    zone.controller = PartitionController(FAR)
    zone.controller.reset(CONTEXT)
    zone.p95_ms = 0.1 * CONTEXT.slo_ms
    assert zone.run(60.0).reason.startswith("slow swap, no limits")


def swapping_zone(swap_us: float, context: NodeContext = CONTEXT) -> Zone:
    zone = Zone(200, 250, 250, context=context)
    zone.swap_us, zone.thrashing = swap_us, {0, 1}
    return zone


def test_where_swap_is_slow_the_background_is_paused_and_not_limited() -> None:
    zone = swapping_zone(500.0)
    first = limits_mib(zone.tick())
    assert all(limit is not None and limit > 240 for limit in first), "a small step at first"
    calm = zone.run(10.0)
    assert limits_mib(calm) == [None, None]
    assert not any(slot.paused for slot in calm.desired.slots)
    assert calm.reason.startswith("slow swap, no limits: demand 200 MiB")
    assert {slot.cpu_weight for slot in calm.desired.slots} == {1}
    zone.p95_ms = 0.95 * CONTEXT.slo_ms
    near = zone.run(1.0)
    assert limits_mib(near) == [None, None]
    assert all(slot.paused for slot in near.desired.slots)


def test_where_swap_is_slow_an_application_that_lacks_memory_gets_it() -> None:
    zone = swapping_zone(500.0)
    controller = zone.controller
    assert isinstance(controller, PartitionController)
    zone.run(10.0)
    zone.p95_ms, zone.app_stalls = 2.0 * CONTEXT.slo_ms, 0.2
    zone.run(20.0)
    assert controller._caution.danger >= 1.0
    assert controller._caution.reserve_share == 0.0, "without limits nothing is reserved"
    zone.app_stalls = 0.9
    short = zone.run(10.0)
    assert all(limits_mib(short))
    assert sum_mib(short) < 400
    zone.app_stalls = 0.0
    controller.retarget(2.0 * CONTEXT.slo_ms)
    assert limits_mib(zone.run(1.0)) == [None, None], "another target is another chance"


def test_pauses_in_place_of_limits_are_not_lifted() -> None:
    zone = swapping_zone(500.0)
    zone.run(10.0)
    zone.p95_ms = 2.0 * CONTEXT.slo_ms
    for _ in range(600):
        decision = zone.tick()
        assert decision.reason.startswith("slow swap")
    assert any(slot.paused for slot in decision.desired.slots)


@pytest.mark.parametrize("why", ["fast", "no pauses"])
def test_limits_come_within_seconds_where_pauses_are_not_the_way(why: str) -> None:
    context = replace(CONTEXT, lacks={Need.PAUSE: "no freezer"} if why == "no pauses" else {})
    zone = swapping_zone(30.0 if why == "fast" else 500.0, context)
    zone.run(6.0)
    for _ in range(100):
        decision = zone.tick()
        assert all(limits_mib(decision))
        assert sum_mib(decision) < 400
