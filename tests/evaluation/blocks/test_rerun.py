"""Which blocks are run again."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from stallward.evaluation.blocks.request import ATTEMPTS, Attempts, Disturbances


@pytest.mark.parametrize(
    ("before", "shares", "tries"),
    [
        ((), [0.02], 1),
        ((), [0.021, 0.01], 2),
        ((), [0.14, 0.15], 2),
        ((), [0.14, 0.06, 0.05], 3),
        ((), [0.05, 0.11, 0.12, 0.2, 0.0], ATTEMPTS),
        ((), [0.05, 0.11, 0.1], 3),
        ((0.2, 0.07), [0.14], 1),
        ((0.2, 0.07), [0.15, 0.1], 2),
        ((0.001,), [0.021, 0.002], 2),
    ],
)
def test_a_block_counts_with_little_steal_time_or_as_much_as_its_arm_always_has(
    before: Sequence[float], shares: list[float], tries: int
) -> None:
    attempts = Attempts(before)
    results = [
        attempts.is_invalid(Disturbances(steal_share=share), number)
        for number, share in enumerate(shares, 1)
    ]
    assert results.index(False) + 1 == tries


def test_a_block_with_a_kill_never_counts() -> None:
    attempts = Attempts()
    for number in range(1, ATTEMPTS + 1):
        assert attempts.is_invalid(Disturbances(oom_kills=1), number)


def test_disturbed_blocks_can_be_kept_but_not_those_with_a_kill() -> None:
    attempts = Attempts(repeat_disturbed=False)
    assert not attempts.is_invalid(Disturbances(steal_share=0.5), 1)
    assert attempts.is_invalid(Disturbances(oom_kills=1), 1)


@pytest.mark.parametrize(("probed", "by_host"), [(None, True), (0.0, False), (0.05, True)])
def test_steal_time_that_probes_do_not_show_is_the_blocks_own(
    probed: float | None, *, by_host: bool
) -> None:
    high = Disturbances(steal_share=0.1, probed_steal_share=probed)
    assert high.by_host == Attempts().is_invalid(high, 1) == by_host
    assert not Disturbances(steal_share=0.01, probed_steal_share=probed).by_host
