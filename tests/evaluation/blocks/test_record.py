"""A recording plan is read strictly, has one target, and is recorded again in part."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest

from stallward.actuator.errors import ActuatorError
from stallward.actuator.kernel.paths import Paths
from stallward.agent.errors import UsageError
from stallward.env.errors import RecordingError
from stallward.env.recording.recording import Requests, Units, write_recording
from stallward.env.recording.run_info import CONDITIONS, NodeInfo, RunInfo, load_run
from stallward.env.recording.split import load_split
from stallward.env.scenario.file import find_scenarios, load_scenario, scenario_from
from stallward.env.scenario.scenario import Scenario, workload_of
from stallward.evaluation.blocks import record
from stallward.evaluation.blocks.live import open_session
from stallward.evaluation.blocks.record import (
    ORDER_NAME,
    RecordRequest,
    choose,
    in_blocks,
    load_plan,
    record_all,
    record_one,
)
from stallward.evaluation.blocks.request import Disturbances, RunRequest
from stallward.evaluation.errors import ComparisonError, PlanError
from stallward.proto.v1 import stallward_pb2 as pb

SCENARIO = "detector-anon"
NAMES = ("none", "latd", "ample")


LEARNED_FROM = {
    "none", "latd", "static:pause=all", "static:limit=0.35", "excite",
    "excite:dwell_s=12,pause=0.2", "excite:table=set-points",
    "excite:table=set-points,dwell_s=8", "partition", "rule", "ppo",
}  # fmt: skip
"""The arms under which every scenario is recorded that is trained on or chosen by."""
ARMS = {
    "train": LEARNED_FROM | {"latd-cgroup", "static:limit=0.6"},
    "validation": LEARNED_FROM,
    "test": {"none"},
}


def test_the_shipped_plan_records_every_scenario_under_the_arms_of_its_part() -> None:
    runs, split = load_plan(None).runs, load_split()
    assert len({run.name for run in runs}) == len(runs), "two runs share a directory"
    # Nothing is learned from compressed swap or several applications, which no twin has.
    scenarios = [
        one for one in find_scenarios() if one.sandbox.compressed_swap is None and not one.others
    ]
    assert {run.scenario for run in runs} == {one.name for one in scenarios}
    for scenario in scenarios:
        own = [run for run in runs if run.scenario == scenario.name]
        together = [run for run in own if run.condition == "together"]
        assert {run.arm for run in together} == ARMS[split.part_of(scenario)], scenario.name
        assert all(run.seconds >= 60.0 for run in together)
        # A verdict off-policy needs four minutes, and a fit both short and long actions.
        assert {run.seconds for run in together if run.arm.startswith("excite")} <= {120.0}
        assert {run.condition for run in own} == set(CONDITIONS)


def test_the_makefile_says_how_long_all_recordings_take() -> None:
    runs = load_plan(None).runs
    seconds = sum(run.burn_in_s + run.seconds + record._OVERHEAD_S for run in runs)
    makefile = (Path(__file__).parents[3] / "Makefile").read_text()
    assert f"(all: {math.ceil(seconds / 3600.0)} hours, as root)" in makefile


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("runs = [", "cannot be read"),
        ("second = 60\nruns = []", "unknown key 'second'"),
        ("seconds = 60", "lacks a key"),
        ('[[runs]]\nscenarios = ["x"]\narm = "none"', "unknown key 'arm'"),
        ('[[runs]]\narms = ["none"]', "lacks a key"),
        (
            'seconds = "long"\n[[runs]]\nscenarios = ["x"]\narms = ["none"]',
            "seconds is 'long', not a number",
        ),
        ('[[runs]]\nscenarios = "xyz"\narms = ["none"]', "scenarios is 'xyz', not a list"),
        ("order_seed = 1.5\nruns = []", r"order_seed is 1\.5, not a whole number"),
    ],
)
def test_plans_with_mistakes_are_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(text)
    with pytest.raises(PlanError, match=message):
        load_plan(path)


def test_runs_that_would_share_a_directory_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(
        '[[runs]]\nscenarios = ["detector-anon"]\narms = ["none"]\nseconds = 600.0\n'
        '[[runs]]\nscenarios = ["mine/detector-anon.toml"]\narms = ["none", "latd"]\n'
    )
    with pytest.raises(PlanError, match=r"mine/detector-anon\.toml.* both detector-anon-none-s1"):
        load_plan(path)


def test_a_run_has_one_arm_and_a_known_condition() -> None:
    with pytest.raises(UsageError, match="several arms"):
        RecordRequest(scenario="x", arm="none,latd")
    with pytest.raises(UsageError, match="no condition"):
        RecordRequest(scenario="x", condition="lonely")


@dataclass
class KnownSession:
    """A session that writes real recordings of invented blocks."""

    scenario: Scenario
    node: NodeInfo
    scratch: Path
    ran: list[RunRequest] = field(default_factory=list)
    disturbances: list[Disturbances] = field(default_factory=list)

    @property
    def facts(self) -> NodeInfo:
        return self.node

    def run_block(self, request: RunRequest, out: Path) -> Disturbances:
        self.ran.append(request)
        at_s = np.arange(0.0, request.burn_in_s + request.duration_s, 0.1)
        sojourn_s = np.full(at_s.size, 0.01 * len(self.ran))
        write_recording(
            out,
            run=RunInfo(
                scenario=self.scenario.name,
                condition=request.condition,
                arm=request.arm.label,
                seed=request.seed,
                start_s=0.0,
                end_s=request.burn_in_s + request.duration_s,
                burn_in_s=request.burn_in_s,
                sandbox_bytes=1 << 29,
                slo_ms=request.slo_ms,
                node=self.node,
                scenario_parameters=self.scenario.content,
            ),
            ticks=[pb.TickRecord(sequence=i, time_s=float(t)) for i, t in enumerate(at_s)],
            requests=Requests(
                scheduled_s=at_s,
                start_s=at_s,
                end_s=at_s + sojourn_s,
                ok=np.ones(at_s.size, dtype=bool),
            ),
            units=Units.empty(),
        )
        return self.disturbances.pop(0) if self.disturbances else Disturbances()


@pytest.fixture
def node() -> NodeInfo:
    return NodeInfo(kind="none", kernel="test", cpu_count=2, memory_total_bytes=1 << 33)


@pytest.fixture
def session(node: NodeInfo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> KnownSession:
    scenario = load_scenario(SCENARIO).with_target("tight")
    known = KnownSession(scenario=scenario, node=node, scratch=tmp_path)
    monkeypatch.setattr(record, "open_session", lambda _scenario: contextlib.nullcontext(known))
    return known


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    path = tmp_path / "plan.toml"
    runs = (
        '[[runs]]\nscenarios = ["detector-anon"]\n'
        'arms = ["none", "latd"]\nconditions = ["ample"]\n'
    )
    path.write_text(f"seconds = 5\nburn_in_s = 1\n{runs}")
    return path


def test_all_runs_of_a_scenario_get_one_target_measured_long_enough(
    tmp_path: Path, session: KnownSession, plan: Path
) -> None:
    recordings = record_all(plan, tmp_path / "out")
    assert {path.name for path in recordings} == {f"detector-anon-{n}-s1" for n in NAMES}
    calibration, *runs = session.ran
    assert (calibration.condition, calibration.duration_s) == ("ample", 135.0)
    assert [run.slo_ms for run in runs] == [pytest.approx(1.5 * 10.0, rel=1e-3)] * 3


def test_new_recordings_take_the_target_from_those_that_are_kept(
    tmp_path: Path, session: KnownSession, plan: Path
) -> None:
    out = tmp_path / "out"
    record_all(plan, out)
    target_ms = load_run(out / "detector-anon-none-s1").slo_ms
    session.ran.clear()
    recordings = record_all(plan, out, only=["*-latd-*"], replace=True)
    assert [path.name for path in recordings] == ["detector-anon-latd-s1"]
    assert [(run.arm.label, run.slo_ms) for run in session.ran] == [("latd", target_ms)]
    assert record_all(plan, out) == []
    assert sorted(path.name for path in out.iterdir()) == sorted(
        [ORDER_NAME, *(f"detector-anon-{name}-s1" for name in NAMES)]
    )


def test_the_target_is_measured_again_if_no_comparable_recording_is_kept(
    tmp_path: Path, session: KnownSession, plan: Path
) -> None:
    out = tmp_path / "out"
    record_all(plan, out)
    session.ran.clear()
    record_all(plan, out, replace=True)
    assert len(session.ran) == 4, "all are replaced, so the target is measured again"
    session.ran.clear()
    session.node = replace(session.node, cpu_count=64)
    record_all(plan, out, only=["*-none-*"], replace=True)
    assert [run.condition for run in session.ran] == ["ample", "together"]


def test_a_recording_that_is_torn_too_short_or_outdated_is_made_again(
    tmp_path: Path, session: KnownSession, plan: Path
) -> None:
    out = tmp_path / "out"
    record_all(plan, out)
    ticks = out / "detector-anon-none-s1" / "ticks.parquet"
    ticks.write_bytes(ticks.read_bytes()[:-100])
    older = out / "detector-anon-ample-s1" / "run.json"
    older.write_text(older.read_text().replace("detector beside", "a detector beside"))
    assert {path.name for path in record_all(plan, out)} == {
        "detector-anon-none-s1",
        "detector-anon-ample-s1",
    }
    plan.write_text(plan.read_text().replace("seconds = 5", "seconds = 9"))
    assert len(record_all(plan, out)) == 3
    assert record_all(plan, out) == []


def test_the_place_of_each_run_in_the_order_is_written(
    tmp_path: Path, session: KnownSession, plan: Path
) -> None:
    recordings = record_all(plan, tmp_path / "out")
    lines = (tmp_path / "out" / ORDER_NAME).read_text().splitlines()
    notes = [json.loads(line) for line in lines]
    assert [note["name"] for note in notes] == [path.name for path in recordings]
    assert [note["position"] for note in notes] == [0, 1, 2]
    assert {note["order_seed"] for note in notes} == {load_plan(plan).order_seed}


def test_the_order_is_random_in_blocks_and_comes_from_its_seed() -> None:
    runs = [
        RecordRequest(scenario=scenario, arm=arm, seed=seed)
        for scenario in ("a", "b")
        for arm in ("none", "latd", "excite", "static:pause=all")
        for seed in (1, 2)
    ]
    orders = [in_blocks(runs, seed) for seed in range(8)]
    assert in_blocks(runs, 3) == orders[3]
    for order in orders:
        assert sorted(order, key=runs.index) == runs
        blocks = [(run.scenario, run.seed) for run in order]
        assert len([1 for a, b in itertools.pairwise(blocks) if a != b]) == 3
    assert len({tuple(run.arm for run in order[:4]) for order in orders}) > 1
    assert {order[0].scenario for order in orders} == {"a", "b"}


def test_a_plan_says_how_long_it_will_take(
    tmp_path: Path, session: KnownSession, plan: Path
) -> None:
    messages: list[str] = []
    record_all(plan, tmp_path / "out", lambda message, _share: messages.append(message))
    assert any(", 1 of 3, about 1 min left" in message for message in messages)
    assert any(", 3 of 3, about 0 min left" in message for message in messages)


def test_a_failed_run_leaves_the_old_recording(
    tmp_path: Path, session: KnownSession, plan: Path
) -> None:
    out = tmp_path / "out"
    record_all(plan, out)
    before = sorted(out.rglob("*"))
    session.disturbances[:] = [Disturbances(oom_kills=1)] * 4
    with pytest.raises(ComparisonError, match="the memory of the whole sandbox ran out"):
        record_all(plan, out, only=["*-none-*"], replace=True)
    assert sorted(out.rglob("*")) == before


def test_a_run_on_a_busy_host_is_made_again_and_the_last_one_is_kept(
    tmp_path: Path, session: KnownSession, plan: Path
) -> None:
    out = tmp_path / "out"
    record_all(plan, out)
    before = len(session.ran)
    session.disturbances[:] = [Disturbances(steal_share=0.1), Disturbances(steal_share=0.019)]
    record_all(plan, out, only=["*-none-*"], replace=True)
    assert len(session.ran) == before + 2
    falling = [Disturbances(steal_share=0.9 / 3**n) for n in range(9)]
    session.disturbances[:] = falling
    record_all(plan, out, only=["*-none-*"], replace=True)
    assert len(session.ran) == before + 2 + 4


@pytest.mark.slow
@pytest.mark.reaches("docs/", "models/", "recordings/")
def test_a_target_of_a_busy_host_is_measured_again(
    tmp_path: Path, session: KnownSession, plan: Path
) -> None:
    session.disturbances[:] = [Disturbances(steal_share=0.1), Disturbances(oom_kills=1)]
    record_all(plan, tmp_path / "out")
    conditions = [run.condition for run in session.ran]
    assert conditions[:3] == ["ample"] * 3
    # The n-th block of this session takes 10 ms times n.
    assert session.ran[-1].slo_ms == pytest.approx(1.5 * 30.0, rel=1e-3)
    session.ran.clear()
    session.disturbances[:] = [Disturbances(oom_kills=1)] * 4
    with pytest.raises(ComparisonError, match="for the target was invalid 4 times"):
        record_all(plan, tmp_path / "none")
    assert len(session.ran) == 4


def test_a_directory_that_is_no_recording_is_never_replaced(
    tmp_path: Path, session: KnownSession, plan: Path
) -> None:
    mine = tmp_path / "out" / "detector-anon-latd-s1" / "thesis.txt"
    mine.parent.mkdir(parents=True)
    mine.write_text("x")
    with pytest.raises(RecordingError, match="not a recording"):
        record_all(plan, tmp_path / "out", replace=True)
    with pytest.raises(UsageError, match="exists already"):
        record_one(RecordRequest(scenario="detector-anon"), mine.parent)
    assert mine.read_text() == "x"
    assert session.ran == []


def test_patterns_that_match_nothing_are_refused() -> None:
    runs = load_plan(None).runs
    assert {run.arm for run in choose(runs, ["memcached-gcc-latd-s*"])} == {"latd"}
    with pytest.raises(UsageError, match="'mysql-"):
        choose(runs, ["memcached-*", "mysql-*"])


def test_a_machine_that_cannot_hold_a_sandbox_is_refused_before_anything_is_prepared(
    tmp_path: Path,
) -> None:
    bare = Paths(proc=tmp_path / "proc", cgroup=tmp_path / "cgroup")
    with (
        pytest.raises(ActuatorError, match="cannot be used live"),
        open_session(load_scenario("detector-anon"), tmp_path / "cache", bare),
    ):
        pytest.fail("the session was opened")
    assert not (tmp_path / "cache").exists()


def test_a_target_that_was_stated_is_not_taken_for_a_measured_one(
    tmp_path: Path, session: KnownSession
) -> None:
    """Recordings with and without a stated target are of one workload, but not of one target."""
    stated = _with_target(session.scenario, 7.0)
    out = tmp_path / "out"
    session.scenario = stated
    record_one(RecordRequest(scenario=SCENARIO, seconds=5.0, burn_in_s=1.0), out / "stated")
    assert load_run(out / "stated").slo_ms == 7.0
    session.scenario = stated.with_target("tight")
    record_one(RecordRequest(scenario=SCENARIO, seconds=5.0, burn_in_s=1.0), out / "tight")
    assert load_run(out / "tight").slo_ms != 7.0
    measured = len(session.ran)
    record_one(RecordRequest(scenario=SCENARIO, seconds=5.0, burn_in_s=1.0), out / "again")
    assert load_run(out / "again").slo_ms == load_run(out / "tight").slo_ms
    assert len(session.ran) == measured + 1, "the target was measured already"


def test_a_recording_stays_current_when_its_scenario_states_another_target(
    tmp_path: Path, session: KnownSession, plan: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    record_all(plan, out)
    stated = _with_target(session.scenario, 7.0)
    monkeypatch.setattr(record, "load_scenario", lambda _name: stated)
    assert record_all(plan, out) == []


def _with_target(scenario: Scenario, latency_ms: float) -> Scenario:
    content = workload_of(scenario.content)
    protected = content["protected"]
    slo = {**protected.get("slo", {}), "latency_ms": latency_ms}
    return scenario_from(
        {**content, "protected": {**protected, "slo": slo}}, Path(f"{scenario.name}.toml")
    )
