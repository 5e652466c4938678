"""What the experiments of the latd thesis run, and in which order."""

from __future__ import annotations

from collections import Counter
from typing import get_args

import pytest

from stallward.agent.registry import make_controller
from stallward.papers.experiments.latd.steps import (
    ISOLATED,
    SCENARIOS,
    SWAPPINESS,
    SWAPPINESS_SWEEP,
    SWEEP,
    Part,
    settings_of,
)
from stallward.papers.experiments.latd.workload import (
    DETECTOR_MIB,
    ENDLESS,
    MIB,
    SHORT,
    USUAL,
    ZONE_MIB,
    Machine,
    hog_scenario,
)
from stallward.papers.experiments.runs import plan_repeats


def test_the_hog_wants_what_the_detector_leaves_of_a_share_of_the_memory() -> None:
    for used in (0.7, 0.99, 1.1):
        size_mib = USUAL.hog_mib("anon-once", used)
        assert (size_mib + DETECTOR_MIB) / ZONE_MIB == pytest.approx(used, abs=0.001)
        argv = hog_scenario("anon-once", used).background[0].command.argv
        assert argv[argv.index("--program") + 1] == str(size_mib)
        assert "--rate" in argv


def test_small_swap_is_filled_as_fast_as_hogs_can() -> None:
    """Nearly all of memory and swap is wanted; pages of files do not go to swap."""
    machine = Machine(small_swap=True, disk_ops_per_s=150)
    for wanted in (SHORT, ENDLESS):
        scenario = hog_scenario("anon-once", wanted, machine)
        swap_mib = scenario.sandbox.swap_bytes / MIB
        size_mib = machine.hog_mib("anon-once", wanted)
        assert swap_mib == ZONE_MIB / 8
        assert 0.98 < (size_mib + DETECTOR_MIB) / (ZONE_MIB + swap_mib) < 1.0
        assert scenario.sandbox.disk is not None
        assert scenario.sandbox.disk.ops_per_s == 150
        assert "--rate" not in scenario.background[0].command.argv
    assert machine.hog_mib("file-again", SHORT) == USUAL.hog_mib("file-again", SHORT)


def test_every_hog_is_a_program_of_its_own_kind() -> None:
    programs = {
        name: setting.scenario().background[0].command.argv[0].rpartition("/")[2]
        for name, setting in SCENARIOS.items()
        if setting.controller == "none" and setting.hog is not None
    }
    assert programs == {
        "anon": "anon_once",
        "anon-again": "anon",
        "file-once": "file_once",
        "file-again": "file_loop",
    }
    anon = SCENARIOS["anon"].scenario()
    assert anon.sandbox.limit_bytes == ZONE_MIB * MIB
    assert anon.sandbox.swap_bytes > 0


def test_all_share_the_data_of_the_detector() -> None:
    prepared = {setting.scenario().protected.prepare for setting in settings_of("all")}
    assert len(prepared) == 1


def test_every_part_has_the_detector_alone() -> None:
    for part in get_args(Part):
        assert SCENARIOS[ISOLATED] in settings_of(part)


def test_the_parts_are_the_experiments_of_the_thesis() -> None:
    controllers = {setting.controller for setting in SCENARIOS.values()}
    assert controllers == {"none", "latd", "latd-cgroup", "latd-grow"}
    assert {hog.partition("-")[0] for hog in SWEEP} == {"anon", "file"}, "both kinds of hog"
    assert SWAPPINESS == (20, 40, 60, 80, 90, 100)
    for value, setting in SWAPPINESS_SWEEP.items():
        controller = make_controller(setting.controller)
        assert controller.name == "static"
        assert setting.controller.endswith(str(value))


def test_every_repeat_has_every_setting_once_in_an_order_that_is_drawn() -> None:
    steps = plan_repeats(settings_of("all"), repeats=3, seed=1)
    assert len({step.key for step in steps}) == len(steps)
    names = [[step.setting.name for step in steps if step.repeat == n] for n in (1, 2, 3)]
    assert Counter(names[0]) == Counter(names[1]) == Counter(names[2])
    assert set(Counter(names[0]).values()) == {1}
    assert names[0] != names[1], "the order is drawn"


def test_a_longer_plan_begins_with_a_shorter_one() -> None:
    short, longer = (plan_repeats(settings_of("all"), repeats, 7) for repeats in (1, 3))
    assert longer[: len(short)] == short
