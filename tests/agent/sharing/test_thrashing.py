"""Which groups count as thrashing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stallward.agent.desired import MIB
from stallward.agent.sample import GroupSample, PsiTotals, SlotState
from stallward.agent.sharing.thrashing import Thrashing, ThrashingThresholds

THRESHOLDS = ThrashingThresholds(
    thrash_stall_share=0.3,
    thrash_refaults_per_s=1000.0,
    thrash_notice_s=2.0,
    thrash_remember_s=60.0,
)
STEP_S = 0.1
LIMITED = SlotState(limit_bytes=100 * MIB)


class Group:
    """A group of 200 MiB, half of it in swap, which stalls and refaults steadily."""

    def __init__(self) -> None:
        self.thrashing = Thrashing(THRESHOLDS)
        self.sample = GroupSample(
            name="work",
            psi=PsiTotals(memory_full_us=0, io_full_us=0),
            memory_usage_bytes=100 * MIB,
            swap_bytes=100 * MIB,
            refault_anon_pages=0,
            refault_file_pages=0,
        )
        self.time_s = 0.0

    def run(
        self,
        seconds: float,
        *,
        state: SlotState = LIMITED,
        memory_share: float = 0.1,
        io_share: float = 0.4,
        refaults_per_s: float = 10_000.0,
    ) -> bool:
        found = False
        for _ in range(round(seconds / STEP_S)):
            psi = self.sample.psi
            self.sample = replace(
                self.sample,
                psi=PsiTotals(
                    memory_full_us=(psi.memory_full_us or 0) + int(1e6 * STEP_S * memory_share),
                    io_full_us=(psi.io_full_us or 0) + int(1e6 * STEP_S * io_share),
                ),
                refault_anon_pages=(self.sample.refault_anon_pages or 0)
                + int(STEP_S * refaults_per_s),
            )
            self.time_s += STEP_S
            found = self.thrashing.update(self.sample, state, self.time_s, STEP_S)
        return found


def test_a_group_that_waits_for_swapped_pages_under_its_limit_thrashes() -> None:
    group = Group()
    assert not group.run(1.5)
    assert group.run(4.0)


@pytest.mark.parametrize(("usage_mib", "thrashes"), [(98, True), (80, False)])
def test_a_group_that_reads_files_again_and_again_thrashes_while_it_fills_its_limit(
    usage_mib: int, thrashes: bool
) -> None:
    group = Group()
    group.sample = replace(group.sample, memory_usage_bytes=usage_mib * MIB, swap_bytes=0)
    assert group.run(6.0) is thrashes


def test_waiting_for_pages_from_swap_counts_though_it_is_a_stall_on_disk() -> None:
    assert Group().run(8.0, memory_share=0.0, io_share=0.5)
    assert Group().run(8.0, memory_share=0.5, io_share=0.0)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("it hardly waits", {"io_share": 0.1}),
        ("it waits for a disk and not for evicted pages", {"refaults_per_s": 100.0}),
        ("it has no limit", {"state": SlotState()}),
        ("it has what it needs", {"state": SlotState(limit_bytes=210 * MIB)}),
        ("it is paused", {"state": replace(LIMITED, paused=True)}),
    ],
)
def test_what_is_no_thrashing(kind: str, values: dict[str, object]) -> None:
    assert not Group().run(8.0, **values), kind  # type: ignore[arg-type]


def test_a_small_group_is_left_alone() -> None:
    group = Group()
    group.sample = replace(group.sample, memory_usage_bytes=10 * MIB, swap_bytes=10 * MIB)
    assert not group.run(8.0, state=SlotState(limit_bytes=10 * MIB))


def test_it_is_remembered_while_the_group_has_all_or_waits_and_then_tried_again() -> None:
    group = Group()
    assert group.run(8.0)
    whole = SlotState(limit_bytes=210 * MIB)
    assert group.run(30.0, state=whole, io_share=0.0, memory_share=0.0, refaults_per_s=0.0)
    assert group.run(20.0, state=replace(LIMITED, paused=True))
    assert not group.run(20.0, state=whole, io_share=0.0, memory_share=0.0, refaults_per_s=0.0)


def test_a_group_whose_stall_cannot_be_read_never_counts() -> None:
    group = Group()
    group.sample = replace(group.sample, psi=PsiTotals())
    blind = Thrashing(THRESHOLDS)
    for tick in range(100):
        assert not blind.update(group.sample, LIMITED, tick * STEP_S, STEP_S)


def test_counters_that_start_again_are_no_negative_stall() -> None:
    group = Group()
    group.run(1.0)
    group.sample = replace(
        group.sample, psi=PsiTotals(memory_full_us=0, io_full_us=0), refault_anon_pages=0
    )
    group.run(0.1)
    assert 0.0 <= group.thrashing.stall_share <= 1.0
    assert group.thrashing.refaults_per_s >= 0.0
