"""When the background is only paused, because swap is too slow for limits."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from stallward.agent.sample import (
    GroupSample,
    LatencySample,
    NodeSample,
    PsiTotals,
    Sample,
    SlotState,
)
from stallward.agent.sharing.slow_swap import (
    FIRST_WAIT_S,
    LONGEST_PAUSE_S,
    READ_BACK_S,
    STEPS_S,
    WINDOW_S,
    SlowSwap,
    SlowSwapThresholds,
    SwapDelay,
    Way,
)

SLO_MS = 10.0
BORDER = Path(__file__).parents[3] / "docs/lab/border"


@dataclass
class Node:
    """One background group that swaps, and an application with a p95."""

    delay_us: float = 500.0
    tick_s: float = 0.1
    pages_per_s: float = 400.0
    of_files_per_s: float = 0.0
    ratio: float | None = 0.5
    stall_share: float = 0.0
    readable: bool = True
    silent: bool = False
    paused: bool = False
    limits: bool = True
    anon: float = 0.0
    files: float = 0.0
    waited_us: float = 0.0
    time_s: float = 100.0
    swap: SlowSwap = field(default_factory=lambda: SlowSwap(SlowSwapThresholds()))

    def sample(self) -> Sample:
        self.time_s += self.tick_s
        if not self.paused:
            pages = self.pages_per_s * self.tick_s
            self.anon += pages
            self.waited_us += pages * self.delay_us
            self.files += self.of_files_per_s * self.tick_s
        group = GroupSample(
            name="bg",
            psi=PsiTotals(io_some_us=int(self.waited_us)),
            refault_anon_pages=int(self.anon) if self.readable else None,
            refault_file_pages=int(self.files),
        )
        latency = None
        if self.silent:
            latency = LatencySample(completed_total=9, last_completion_age_s=40.0)
        elif self.ratio is not None:
            latency = LatencySample(
                completed=9, p95_ms=self.ratio * SLO_MS, last_completion_age_s=0.0
            )
        return Sample(
            sequence=0,
            time_s=self.time_s,
            node=NodeSample(),
            zone=GroupSample(name="zone"),
            protected=GroupSample(name="app"),
            slots=(group,),
            slot_states=(SlotState(paused=self.paused),),
            latency=latency,
        )

    def run(self, seconds: float) -> Way:
        for _ in range(round(seconds / self.tick_s)):
            self.swap.update(
                self.sample(),
                self.tick_s,
                slo_ms=SLO_MS,
                stall_share=self.stall_share,
                limits=self.limits,
            )
        return self.swap.way


def test_where_swap_is_slow_nothing_is_limited_once_that_is_seen() -> None:
    node = Node(delay_us=500.0)
    assert node.run(0.1) is Way.STEPS
    assert node.run(5.0) is Way.PAUSES
    assert node.run(600.0) is Way.PAUSES


def test_where_swap_is_fast_limits_are_as_ever_after_seconds() -> None:
    node = Node(delay_us=40.0)
    node.run(1.5)
    assert node.run(600.0) is Way.LIMITS


def test_a_fast_disk_that_is_busy_for_a_while_is_not_slow() -> None:
    """nginx-hogs: 20 counts of 12 to 40 us, then as many of 80 to 520 while the groups thrashed."""
    node = Node(delay_us=25.0)
    node.run(20.0)
    node.delay_us = 300.0
    for _ in range(150):
        assert node.run(0.1) is Way.LIMITS
    assert node.run(120.0) is Way.PAUSES, "what stays slow is slow"


def test_first_limits_take_little_and_soon_more() -> None:
    node = Node(pages_per_s=0.0)
    node.run(0.1)
    first = node.swap.step_bytes
    node.run(STEPS_S - 1.0)
    assert node.swap.way is Way.STEPS
    assert node.swap.step_bytes > 10 * first
    assert node.run(2.0) is Way.LIMITS, "it cannot be measured where nothing comes back"


@pytest.mark.parametrize("unknown", ["counters", "latency"])
def test_where_it_cannot_be_known_there_are_limits(unknown: str) -> None:
    node = Node(readable=unknown != "counters", ratio=0.5 if unknown != "latency" else None)
    assert node.run(20.0) is Way.LIMITS


def test_a_program_that_reads_files_says_nothing_about_swap() -> None:
    node = Node(delay_us=5000.0, pages_per_s=100.0, of_files_per_s=4000.0)
    assert node.run(60.0) is Way.LIMITS


def test_what_a_paused_group_waits_for_says_nothing() -> None:
    node = Node(pages_per_s=0.0, paused=True)
    node.run(1.0)
    node.waited_us, node.anon = 3e6, 3000.0
    assert node.run(1.0) is Way.STEPS


def test_steps_stand_still_while_the_background_does() -> None:
    node = Node(pages_per_s=0.0, ratio=2.0)
    node.run(0.1)
    first = node.swap.step_bytes
    node.run(60.0)
    assert node.swap.way is Way.STEPS
    assert node.swap.step_bytes == first


def test_the_background_stands_while_the_application_is_near_its_target_or_stalls() -> None:
    node = Node()
    node.run(10.0)
    assert not node.swap.paused
    node.ratio = 0.95
    node.run(0.1)
    assert node.swap.paused
    node.ratio = 0.5
    node.run(1.0)
    assert node.swap.paused, "a pause lasts"
    node.run(LONGEST_PAUSE_S)
    assert not node.swap.paused
    node.stall_share = 0.2
    node.run(0.1)
    assert node.swap.paused


def test_an_application_that_lacks_memory_gets_limits_at_once_and_no_other_trial_for_long() -> (
    None
):
    node = Node(tick_s=0.5)
    assert node.run(5.0) is Way.PAUSES
    node.stall_share = 0.25
    assert node.run(120.0) is Way.PAUSES, "so much says nothing"
    node.stall_share = 0.9
    assert node.run(2.0) is Way.LIMITS
    node.stall_share = 0.0
    assert node.run(FIRST_WAIT_S - 10.0) is Way.LIMITS
    assert node.run(20.0) is Way.PAUSES
    node.stall_share = 0.9
    node.run(2.0)
    node.stall_share = 0.0
    assert node.run(2 * FIRST_WAIT_S - 10.0) is Way.LIMITS, "the next wait is twice as long"


def test_pauses_under_which_most_of_a_minute_is_missed_end() -> None:
    node = Node()
    node.run(5.0)
    node.ratio = 2.0
    assert node.run(READ_BACK_S) is Way.PAUSES, (
        "what is read back at first is not held against them"
    )
    assert node.run(WINDOW_S) is Way.LIMITS


def test_another_target_is_another_chance_for_pauses() -> None:
    node = Node()
    node.run(5.0)
    node.stall_share = 0.9
    assert node.run(2.0) is Way.LIMITS
    node.stall_share = 0.0
    node.swap.retarget()
    assert node.run(0.1) is Way.PAUSES


def test_an_application_without_requests_keeps_nobody_waiting() -> None:
    node = Node(tick_s=0.5)
    node.run(5.0)
    node.silent = True
    for _ in range(600):
        assert node.run(1.0) is Way.PAUSES
    assert not node.swap.paused


@pytest.mark.parametrize(
    ("scenario", "slow"),
    [("dovecot-zpaq", True), ("memcached-zstd", False), ("erlang-r", False), ("redis-mix", False)],
)
def test_recordings_of_a_slow_and_of_fast_disks_are_told_apart(scenario: str, slow: bool) -> None:
    names = ["psi_io_some_us", "refault_anon_pages", "refault_file_pages", "state_paused"]
    file = BORDER / scenario / "ticks.parquet"
    columns = pq.read_table(file, columns=[f"slot0_{name}" for name in names]).to_pydict()
    delay, seen = SwapDelay(SlowSwapThresholds().slow_swap_us), []
    for waited_us, anon, of_files, paused in zip(*columns.values(), strict=True):
        group = GroupSample(
            name="bg",
            psi=PsiTotals(io_some_us=waited_us),
            refault_anon_pages=anon,
            refault_file_pages=of_files,
        )
        delay.update(
            Sample(
                sequence=0,
                time_s=0.0,
                node=NodeSample(),
                zone=GroupSample(name="zone"),
                protected=GroupSample(name="app"),
                slots=(group,),
                slot_states=(SlotState(paused=bool(paused)),),
            )
        )
        if delay.slow is not None:
            seen.append(delay.slow)
    assert len(seen) > 1000
    assert seen.count(slow) > 0.99 * len(seen)
