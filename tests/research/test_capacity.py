"""The memory that each arm needs is found by blocks in zones of different sizes."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from stallward.agent.desired import MIB
from stallward.agent.errors import UsageError
from stallward.env.recording.recording import (
    Recording,
    Requests,
    Units,
    load_recording,
    write_recording,
)
from stallward.env.recording.run_info import NodeInfo, RunInfo
from stallward.env.scenario.file import load_scenario
from stallward.env.scenario.scenario import Scenario
from stallward.evaluation.arms import parse_arms
from stallward.evaluation.blocks.request import Disturbances, RunRequest
from stallward.evaluation.cli.app import app
from stallward.models.registry import find_thresholds
from stallward.proto.v1 import stallward_pb2 as pb
from stallward.research.capacity import (
    LEAST_STEPS,
    STEPS,
    CapacityRequest,
    measure_capacity,
    wanted_bytes,
)

WANTED_MIB = 480
NEEDED_MIB = {"none": 420, "partition": 300, "latd": 9000}
"""From which size on the target is met under each arm."""
NODE = NodeInfo(kind="none", kernel="test", cpu_count=2, memory_total_bytes=1 << 33)


@dataclass(frozen=True)
class Session:
    """A session whose blocks have figures that follow from their arm and the zone's size."""

    scenario: Scenario
    scratch: Path
    ran: list[str] = field(default_factory=list)
    work_ratio: float = 1.0
    """The work with little memory."""
    kills: int = 0
    """Processes that the kernel kills there."""

    def run_block(self, request: RunRequest, out: Path) -> Disturbances:
        ample = request.condition == "ample"
        size_mib = 4096 if ample else self.scenario.sandbox.limit_bytes / MIB
        enough = ample or size_mib >= NEEDED_MIB[request.arm.label]
        self.ran.append(f"{request.condition} {request.arm.label} {size_mib:.0f}")
        at_s = np.arange(0.0, request.burn_in_s + request.duration_s, 0.04)
        ticks = []
        for number, time_s in enumerate(np.arange(0.0, at_s[-1], 0.5)):
            tick = pb.TickRecord(sequence=number, time_s=float(time_s))
            tick.sample.zone.memory_usage_bytes = (WANTED_MIB - 20) * MIB
            tick.sample.zone.swap_bytes = 20 * MIB
            ticks.append(tick)
        groups = len(self.scenario.background)
        work = 1.0 if ample else self.work_ratio
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
                sandbox_bytes=int(size_mib * MIB),
                slo_ms=request.slo_ms,
                node=NODE,
                slot_names=tuple(group.name for group in self.scenario.background),
                oom_kills=0 if ample else self.kills,
                policy_sha256=request.policy_sha256,
                scenario_parameters=self.scenario.content,
            ),
            ticks=ticks,
            requests=Requests(
                scheduled_s=at_s,
                start_s=at_s,
                end_s=at_s + 1e-3 * (1.0 if enough else 90.0),
                ok=np.ones(at_s.size, dtype=bool),
            ),
            units=Units(
                slot=np.repeat(np.arange(groups, dtype=np.int32), at_s.size),
                time_s=np.tile(at_s, groups),
                units=np.tile(work * at_s, groups),
            ),
        )
        return Disturbances()


@pytest.fixture
def session(tmp_path: Path) -> Session:
    scenario = load_scenario("detector-anon")
    slo = replace(scenario.protected.slo, latency_ms=10.0)
    return Session(replace(scenario, protected=replace(scenario.protected, slo=slo)), tmp_path)


def request(out: Path, arms: str = "none,partition") -> CapacityRequest:
    return CapacityRequest(
        scenario="detector-anon", arms=parse_arms(arms), out=out, block_s=2.0, burn_in_s=0.5
    )


def opener(session: Session):  # type: ignore[no-untyped-def]
    @contextlib.contextmanager
    def opened(_scenario: Scenario) -> Iterator[Session]:
        yield session

    return opened


def test_the_smallest_zone_that_serves_is_found_for_every_arm(
    session: Session, tmp_path: Path
) -> None:
    result = measure_capacity(
        request(tmp_path / "out", "none,partition,latd"), opener=opener(session)
    )
    assert result.wanted_bytes == WANTED_MIB * MIB
    step_mib = WANTED_MIB // STEPS
    found = {arm.arm: arm.zone_bytes // MIB for arm in result.arms}
    assert found == {"none": 420, "partition": 300, "latd": WANTED_MIB}
    assert {arm.arm: round(arm.saved_ratio, 3) for arm in result.arms} == {
        "none": 0.125,
        "partition": 0.375,
        "latd": 0.0,
    }
    sizes = {int(block.size_bytes / MIB) for arm in result.arms for block in arm.blocks}
    assert all(size % step_mib == 0 and size > LEAST_STEPS * step_mib for size in sizes)


def test_blocks_that_are_there_are_not_run_again(session: Session, tmp_path: Path) -> None:
    out = tmp_path / "out"
    first = measure_capacity(request(out), opener=opener(session))
    ran = len(session.ran)
    assert measure_capacity(request(out), opener=opener(session)) == first
    assert len(session.ran) == ran
    written = json.loads((out / "capacity.json").read_text())
    assert written["arms"][0]["zone_bytes"] == first.arms[0].zone_bytes


@pytest.mark.parametrize(
    "change",
    [{"arms": parse_arms("partition,none")}, {"block_s": 9.0}, {"seed": 2}, {"burn_in_s": 1.0}],
)
def test_blocks_of_another_measurement_are_refused(
    session: Session, tmp_path: Path, change: dict[str, object]
) -> None:
    out = tmp_path / "out"
    measure_capacity(request(out), opener=opener(session))
    other = replace(request(out), **change)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="another measurement"):
        measure_capacity(other, opener=opener(session))


def test_blocks_of_a_scenario_that_was_edited_are_refused(
    session: Session, tmp_path: Path
) -> None:
    measure_capacity(request(tmp_path / "out"), opener=opener(session))
    content = {**session.scenario.content, "summary": "Something else."}
    edited = replace(session, scenario=replace(session.scenario, content=content))
    with pytest.raises(UsageError, match="another measurement"):
        measure_capacity(request(tmp_path / "out"), opener=opener(edited))


def test_blocks_of_another_policy_are_refused(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = tmp_path / "policy.onnx"
    monkeypatch.setattr("stallward.research.capacity.find_policy_of", lambda *_of: policy)
    out = tmp_path / "out"
    policy.write_bytes(b"one")
    first = measure_capacity(request(out, "partition"), opener=opener(session))
    assert measure_capacity(request(out, "partition"), opener=opener(session)) == first
    policy.write_bytes(b"another")
    with pytest.raises(UsageError, match="another measurement"):
        measure_capacity(request(out, "partition"), opener=opener(session))


def test_blocks_of_other_thresholds_are_refused(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    thresholds = Path(shutil.copy(find_thresholds("rule"), tmp_path / "rule.toml"))
    asked = request(tmp_path / "out", f"rule:path={thresholds}")
    monkeypatch.setitem(NEEDED_MIB, asked.arms[0].label, NEEDED_MIB["latd"])
    first = measure_capacity(asked, opener=opener(session))
    assert measure_capacity(asked, opener=opener(session)) == first
    thresholds.write_text(thresholds.read_text() + "\n# tuned again\n")
    with pytest.raises(UsageError, match="another measurement"):
        measure_capacity(asked, opener=opener(session))


def test_a_peak_that_was_read_more_often_is_no_longer_for_it(
    session: Session, tmp_path: Path
) -> None:
    measure_capacity(request(tmp_path / "out", "none"), opener=opener(session))
    ample: Recording = load_recording(tmp_path / "out/ample")
    long = replace(ample, run=replace(ample.run, end_s=100.0))

    def wanted(time_s: np.ndarray) -> int:
        held = np.where((time_s >= 50.0) & (time_s < 54.0), 500.0, 300.0) * MIB
        ticks = {"time_s": time_s, "zone_memory_usage_bytes": held}
        return wanted_bytes(replace(long, ticks=ticks)) // MIB

    even = np.arange(0.0, 100.0, 0.5)
    assert wanted(even) == wanted(np.union1d(even, np.arange(50.0, 54.0, 0.1))) == 300


@pytest.mark.parametrize("change", [{"work_ratio": 0.8}, {"kills": 1}])
def test_a_zone_in_which_work_is_lost_or_something_is_killed_does_not_serve(
    session: Session, tmp_path: Path, change: dict[str, float]
) -> None:
    lossy = replace(session, **change)  # type: ignore[arg-type]
    result = measure_capacity(request(tmp_path / "out", "none"), opener=opener(lossy))
    assert result.arms[0].saved_ratio == 0.0
    assert not any(block.serves for block in result.arms[0].blocks)


def test_arms_take_turns(session: Session, tmp_path: Path) -> None:
    measure_capacity(request(tmp_path / "out"), opener=opener(session))
    arms = [line.split()[1] for line in session.ran[1:]]
    assert {frozenset(arms[i : i + 2]) for i in (0, 2, 4)} == {frozenset({"none", "partition"})}


def test_the_command_prints_a_row_for_each_arm(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    made = measure_capacity(request(out), opener=opener(session))
    monkeypatch.setattr(
        "stallward.research.cli.capacity.measure_capacity", lambda _request, _report: made
    )
    done = CliRunner().invoke(app, ["capacity", "detector-anon", "--out", str(out)])
    assert done.exit_code == 0, done.stderr
    assert ["partition", "300", "38", "%"] in [
        line.split()[:4] for line in done.stdout.splitlines()
    ]
