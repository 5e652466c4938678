"""The grid of static settings, and their screening on the twin."""

from __future__ import annotations

import numpy as np
import pytest

from stallward.agent.controller import NodeContext
from stallward.agent.controllers.static import StaticController
from stallward.agent.desired import ACTION_SIZES, LIMIT_RATIOS
from stallward.env.testing import small_twin
from stallward.evaluation.arms import parse_arms
from stallward.research.screening import Screened, Setting, grid, screen, shortlist

TWIN = small_twin()


@pytest.mark.parametrize(("slots", "count"), [(1, 48), (2, 432), (4, 720)])
def test_every_setting_of_the_grid_is_a_different_arm_and_action(slots: int, count: int) -> None:
    settings = grid(slots)
    assert len(settings) == count == len({s.spec for s in settings})
    assert len(parse_arms(",".join(s.spec for s in settings))) == count
    actions = np.array([s.action() for s in settings])
    assert len(np.unique(actions, axis=0)) == count
    assert (actions < np.array(ACTION_SIZES)).all()


def test_the_arm_of_a_setting_desires_what_its_action_desires() -> None:
    setting = Setting(levels=(0, 3), paused=(0,), profile=1)
    assert setting.spec == f"static:limit=1+{LIMIT_RATIOS[3]:g},pause=0,profile=flush"
    arguments = dict(part.split("=") for part in setting.spec.partition(":")[2].split(","))
    StaticController(arguments).reset(NodeContext(zone_limit_bytes=0, slot_names=("a", "b")))
    assert setting.action().tolist() == [1, 0, 0, 3, 0, 0, 0, 0, 1]


def test_a_setting_of_four_slots_is_cut_to_the_slots_of_a_scenario() -> None:
    setting = Setting(levels=(0, 3, 1, 2), paused=(0, 3), profile=1)
    assert setting.for_slots(2) == Setting(levels=(0, 3), paused=(0,), profile=1)
    assert setting.for_slots(4) == setting


def test_in_screening_a_hog_hurts_until_it_is_limited() -> None:
    settings = [Setting(levels=(level,)) for level in (0, 5)]
    free, tight = screen(TWIN, settings, nodes=4, seconds=10.0)
    assert free.violated > 0.5 > tight.violated
    assert free.background_work > tight.background_work


def test_the_shortlist_takes_the_best_that_keep_the_target_and_the_best_that_nearly_do() -> None:
    def one(level: int, work: float, violated: float) -> Screened:
        return Screened(setting=Setting(levels=(level,)), background_work=work, violated=violated)

    whole = [
        one(0, 0.9, 0.8), one(1, 0.8, 0.12), one(2, 0.7, 0.11), one(3, 0.6, 0.04),
        one(4, 0.5, 0.0), one(5, 0.4, 0.0),
    ]  # fmt: skip
    chosen = shortlist(whole, allowed=0.05, count=4)
    assert [s.setting.levels[0] for s in chosen] == [3, 4, 1, 2]
    assert len(shortlist(whole, allowed=0.05, count=6)) == 6
    assert shortlist(whole[:1], allowed=0.05, count=3) == whole[:1]


def test_only_the_best_profile_of_equal_limits_and_pauses_is_taken() -> None:
    def one(level: int, profile: int, work: float, violated: float) -> Screened:
        return Screened(
            setting=Setting(levels=(level,), profile=profile),
            background_work=work,
            violated=violated,
        )

    keeping = [one(1, 0, 0.80, 0.01), one(1, 1, 0.81, 0.02), one(1, 2, 0.9, 0.06)]
    missing = [one(2, 0, 0.7, 0.5), one(2, 1, 0.6, 0.4)]
    other = [one(3, 0, 0.5, 0.0)]
    chosen = shortlist(keeping + missing + other, allowed=0.05, count=3)
    assert chosen == [keeping[1], other[0], missing[1]]
