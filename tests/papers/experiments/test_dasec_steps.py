"""What the experiment of DASEC runs, and in which order."""

from __future__ import annotations

from collections import Counter

import pytest

from stallward.agent.registry import make_controller
from stallward.env.scenario.scenario import MAX_BACKGROUND_SLOTS
from stallward.evaluation.errors import PlanError
from stallward.papers.experiments.dasec.applications import APPLICATIONS, dasec_scenario
from stallward.papers.experiments.dasec.steps import (
    ARMS,
    RATIOS,
    Setting,
    parse_applications,
    settings_of,
)
from stallward.papers.experiments.runs import plan_repeats


def test_a_job_has_a_thread_for_each_processor() -> None:
    for application in APPLICATIONS:
        for jobs in (0, *RATIOS):
            scenario = dasec_scenario(application, jobs, cpus=6)
            threads = 0
            for job in scenario.background:
                argv = job.command.argv
                threads += int(argv[argv.index("--cpu") + 1])
            assert threads == 6 * jobs
            assert len({job.units.path for job in scenario.background}) == jobs
    assert max(RATIOS) <= MAX_BACKGROUND_SLOTS


def test_half_of_the_operations_of_both_caches_are_sets() -> None:
    for application in ("memcached", "ordered"):
        argv = dasec_scenario(application, 1, 2).protected.load.argv
        request = argv[argv.index("--request") + 1]
        assert (request.count("set "), request.count("get ")) == (1, 1)


def test_the_load_generator_is_not_delayed_by_batch_jobs() -> None:
    for application in APPLICATIONS:
        assert dasec_scenario(application, 4, 2).protected.load.argv[:2] == ("chrt", "--fifo")


def test_all_ratios_of_an_application_share_its_data() -> None:
    for application in APPLICATIONS:
        prepared = {dasec_scenario(application, n, 2).protected.prepare for n in (0, *RATIOS)}
        assert len(prepared) == 1


def test_the_controllers_are_all_answers_and_each_alone() -> None:
    made = [make_controller(arm) for arm in ARMS]
    assert [one.name for one in made[:3]] == ["none", "bvt", "dasec"]
    alone = {arm.rpartition("answers=")[2] for arm in ARMS if "answers=" in arm}
    assert alone == {"latency", "layout", "share"}
    assert all(setting.arm.moves_threads for setting in settings_of() if "dasec" in setting.name)


def test_every_repeat_has_every_setting_once_in_an_order_that_is_drawn() -> None:
    steps = plan_repeats(settings_of(APPLICATIONS), repeats=3, seed=1)
    assert len({step.key for step in steps}) == len(steps) == 3 * len(settings_of())
    names = [[step.setting.name for step in steps if step.repeat == n] for n in (1, 2, 3)]
    assert Counter(names[0]) == Counter(names[1]) == Counter(names[2])
    assert set(Counter(names[0]).values()) == {1}
    assert names[0] != names[1], "the order is drawn"
    assert plan_repeats(settings_of(APPLICATIONS), 1, 1) == steps[: len(settings_of())]


def test_without_batch_threads_nothing_controls() -> None:
    assert [one for one in settings_of(("memcached",)) if not one.ratio] == [
        Setting(application="memcached")
    ]


def test_applications_are_parsed_in_their_order() -> None:
    assert parse_applications("") == APPLICATIONS
    assert parse_applications(" ordered, memcached,") == ("memcached", "ordered")
    with pytest.raises(PlanError, match="'silo'") as raised:
        parse_applications("memcached,silo")
    assert "transactional" in raised.value.next_step
