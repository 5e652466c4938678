"""The experiment of DASEC in a real sandbox, with a real daemon: what it does, not how fast."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from stallward.agent.threads import ThreadRef
from stallward.evaluation.arms import Arm
from stallward.papers.experiments.dasec.applications import APPLICATIONS, Application
from stallward.papers.experiments.dasec.experiment import DasecSession, open_dasec_session
from stallward.papers.experiments.dasec.instances.figures import rates_per_s
from stallward.papers.experiments.dasec.instances.session import open_instances_session
from stallward.papers.experiments.dasec.steps import Setting
from stallward.papers.experiments.dasec.threads import ThreadWatch

pytestmark = [
    pytest.mark.live,
    pytest.mark.reaches(
        "actuator/stallward/actuator/",
        "env/stallward/env/workloads/",
        "env/stallward/env/scenario/",
    ),
]
HEADERS = {"ordered": "/usr/include/lmdb.h", "transactional": "/usr/include/rocksdb/c.h"}


@pytest.fixture(scope="module")
def session() -> Iterator[DasecSession]:
    with open_dasec_session(division="thread", cpus=2) as opened:
        yield replace(opened, measured_s=2.0)


@pytest.mark.parametrize("application", APPLICATIONS)
def test_an_application_answers_beside_batch_jobs_and_is_seen(
    session: DasecSession, application: Application
) -> None:
    if application in HEADERS and not Path(HEADERS[application]).exists():
        pytest.skip(f"{HEADERS[application]} is not installed")
    session.prepare(application)
    with ThreadWatch(session.sandbox.protected, session.sandbox.paths.proc) as watch:
        run = session.run(Setting(application=application, ratio=2, controller="dasec"), 1)
    assert run.requests > 50
    assert run.answered_per_s > 0
    assert run.batch_per_s, "the batch jobs had the processors"
    assert run.threads is not None
    assert run.threads.threads >= 2
    assert run.threads.running > 0
    settings: dict[ThreadRef, set[object]] = {}
    for thread in (thread for reading in watch.readings for thread in reading.threads):
        settings.setdefault(thread.ref, set()).add((thread.slice_us, thread.nice, thread.cpus))
    assert any(len(values) > 1 for values in settings.values()), "it answered no interference"


def test_alone_no_batch_job_runs(session: DasecSession) -> None:
    run = session.run(Setting(application="memcached"), 1)
    assert run.batch_per_s is None
    assert run.threads is not None


def test_threads_of_all_programs_compete_in_one_group(session: DasecSession) -> None:
    shared = session.sandbox.zone.v1_dir("cpu")
    assert shared is not None
    assert session.sandbox.shared_dirs == (shared,)
    assert not any(path.is_dir() for path in shared.iterdir()), "there are no groups within it"


def test_groups_have_a_share_each_where_that_is_asked_for() -> None:
    with open_dasec_session(division="group", cpus=2) as opened:
        session = replace(opened, measured_s=2.0)
        shared = session.sandbox.zone.v1_dir("cpu")
        assert shared is not None
        assert {path.name for path in shared.iterdir() if path.is_dir()} == {
            "app", *(slot.name.rpartition("/")[2] for slot in session.sandbox.slots)
        }  # fmt: skip
        run = session.run(Setting(application="memcached", ratio=1, controller="bvt"), 1)
        assert run.batch_per_s
    assert not shared.exists(), "nothing is left behind"


def test_instances_run_side_by_side_and_each_is_scheduled() -> None:
    with open_instances_session(division="thread", cpus=2, measured_s=2.0) as session:
        session.prepare(("memcached",))
        cost = session.measure_cost("memcached", 1)
        assert cost.service_us > 0
        assert cost.generator_us > 0
        applications: tuple[Application, ...] = ("memcached",) * 3
        rates = rates_per_s(applications, 0.9, {"memcached": cost}, 2)
        groups = session.sandbox.applications[:3]
        watches = [ThreadWatch(group, session.sandbox.paths.proc) for group in groups]
        with watches[0], watches[1], watches[2]:
            run = session.run(applications, rates, Arm(label="dasec", spec="dasec"), 1)
    assert [one.application for one in run.instances] == list(applications)
    assert all(one.requests > 50 and one.answered_share > 0 for one in run.instances)
    assert len({one.requests for one in run.instances}) > 1, "each has arrivals of its own"
    assert run.cpu.services > 0
    assert run.cpu.generators > 0
    for watch in watches:
        seen = {
            (thread.slice_us, thread.nice, thread.cpus)
            for reading in watch.readings
            for thread in reading.threads
        }
        assert len(seen) > 1, "no thread of this instance was scheduled"


def test_a_watch_of_an_empty_group_sees_no_threads(session: DasecSession) -> None:
    session.sandbox.kill()
    with ThreadWatch(session.sandbox.protected, session.sandbox.paths.proc) as watch:
        pass
    assert watch.readings == ()
