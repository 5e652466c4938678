"""The demo divides its time between its stages."""

from __future__ import annotations

import inspect

import pytest

from stallward.evaluation.cli.demo import demo
from stallward.evaluation.demo.run import (
    BURN_IN_S,
    CONDITIONS,
    MIN_BLOCK_S,
    SPARE_S,
    SWITCH_S,
    Blocks,
    plan_live_blocks,
    plan_stages,
)

LOADING_S = 60.0
"""For loading libraries, compiling and exporting, which belong to no stage."""


def live_s(blocks: Blocks) -> float:
    """How long blocks take on a node, with the block that finds the target."""
    each_s = blocks.block_s + BURN_IN_S + SWITCH_S
    return CONDITIONS * blocks.rounds * each_s + blocks.calibration_s


@pytest.mark.parametrize("minutes", [6.0, 8.0, 9.0, 20.0, 40.0])
def test_all_stages_fit_into_the_time(minutes: float) -> None:
    stages = plan_stages(60.0 * minutes)
    spent_s = LOADING_S + stages.fit_s + stages.train_s
    blocks = plan_live_blocks(60.0 * minutes - spent_s)
    assert spent_s + live_s(blocks) + SPARE_S <= 60.0 * minutes + 1e-6


def test_a_long_time_is_used_up() -> None:
    left_s = 600.0
    assert live_s(plan_live_blocks(left_s)) == pytest.approx(left_s - SPARE_S)


@pytest.mark.parametrize("left_s", [0.0, 60.0, 150.0, 300.0, 450.0, 3600.0])
def test_blocks_are_never_too_short(left_s: float) -> None:
    blocks = plan_live_blocks(left_s)
    assert 1 <= blocks.rounds <= 4
    assert blocks.block_s >= MIN_BLOCK_S


def test_too_little_time_still_gives_one_round() -> None:
    assert plan_live_blocks(10.0) == Blocks(rounds=1, block_s=MIN_BLOCK_S)


def test_rounds_come_before_long_blocks() -> None:
    rounds = [plan_live_blocks(left_s).rounds for left_s in (150.0, 400.0, 600.0, 800.0)]
    assert rounds == sorted(rounds)
    assert rounds[-1] == 4


def test_the_default_time_gives_two_rounds_for_intervals_and_leaves_a_minute_for_the_set_up() -> (
    None
):
    minutes = inspect.signature(demo).parameters["minutes"].default
    stages = plan_stages(60.0 * minutes)
    left_s = 60.0 * minutes - LOADING_S - stages.fit_s - stages.train_s
    assert minutes <= 9.0
    assert plan_live_blocks(left_s).rounds >= 2
