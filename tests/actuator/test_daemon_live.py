"""The whole daemon on a little sandbox with real pressure: what it does, and what it undoes."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import grpc
import numpy as np
import onnx
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)
from onnx import TensorProto, helper, numpy_helper
from own_names import own_name
from sudden_death import kill_guardian_and_loop
from tick_replay import replay

from stallward.actuator.client import ActuatorClient, Reported
from stallward.actuator.client.daemon_process import Daemon
from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.config.load import config_toml
from stallward.actuator.config.tables import (
    ControlConfig,
    ExperimentsConfig,
    JournalConfig,
    NodeConfig,
    ProtectedConfig,
    RecordConfig,
    RestartConfig,
    ServiceConfig,
    SlotConfig,
)
from stallward.actuator.engine.interface import EngineSettings
from stallward.actuator.errors import (
    DaemonError,
    DaemonUnavailableError,
    LeaseHeldError,
    RequestError,
)
from stallward.actuator.experiments.block_tally import Loss
from stallward.actuator.experiments.plan import Arm, Candidate, ExperimentPlan
from stallward.actuator.experiments.state import Progress
from stallward.actuator.guard.budgets import Budgets
from stallward.actuator.kernel.cgroups import Cgroup
from stallward.actuator.kernel.hierarchies import detect
from stallward.actuator.kernel.paths import Paths
from stallward.actuator.kernel.process_table import start_time_ticks
from stallward.actuator.latency.config import GrpcLatency, LinesLatency
from stallward.actuator.record.frames import FRAMES_NAME, read_frames
from stallward.actuator.record.tick_record import Mode
from stallward.actuator.record.wire import TICK_RECORD
from stallward.actuator.runtime.addresses import grpc_target
from stallward.actuator.work.config import FileWork
from stallward.agent.controller import NodeContext
from stallward.agent.desired import (
    ACTION_SIZES,
    KEEP_CACHE,
    DesiredState,
    ProcessRef,
    SlotDesire,
    Tuning,
)
from stallward.agent.errors import PolicyError, StallwardError
from stallward.agent.observation.encoder import BASIC, schema, schema_hash
from stallward.agent.registry import make_controller
from stallward.agent.sample import WorkFault, WorkSample, WorkSource
from stallward.proto.v1 import stallward_pb2 as pb

pytestmark = pytest.mark.live

MIB = 1 << 20
ZONE_LIMIT_BYTES = 96 * MIB

# Reads a file larger than the zone for ever, so that its pages are evicted and fault again.
READER = """
import mmap, sys, time
with open(sys.argv[1], "rb") as file:
    pages = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
while True:
    for offset in range(0, len(pages), 4096):
        pages[offset]
    time.sleep(float(sys.argv[2]))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LittleSandbox:
    """A zone with an application and two background groups that press on each other."""

    zone: Cgroup
    app: Cgroup
    hogs: tuple[Cgroup, Cgroup]
    pids: tuple[int, ...]
    folder: Path
    knobs: dict[str, str]
    """The settings of the whole machine before the test."""

    def config(self, controller: str = "none", **changes: object) -> DaemonConfig:
        """A daemon's configuration for this sandbox."""
        values: dict[str, object] = {
            "node": NodeConfig(zone=self.zone.name),
            "protected": ProtectedConfig(group=self.app.name),
            "background": tuple(
                SlotConfig(name=f"hog{i}", group=hog.name, floor_bytes=4 * MIB)
                for i, hog in enumerate(self.hogs)
            ),
            "service": ServiceConfig(socket=self.folder / "s.sock"),
            "journal": JournalConfig(path=self.folder / "journal"),
            "record": RecordConfig(dir=self.folder / "record"),
            "control": ControlConfig(controller=controller, seed=1),
            "restart": RestartConfig(delay_s=0.02, max_delay_s=0.05, max_per_minute=1000),
        }
        return DaemonConfig(**{**values, **changes})  # type: ignore[arg-type]

    def leftovers(self) -> list[str]:
        """The changes that a daemon has left behind; empty when everything is as before."""
        changes = []
        for hog in self.hogs:
            assert hog.unified_dir is not None
            assert hog.memory_dir is not None
            if (hog.unified_dir / "cgroup.freeze").read_text().strip() != "0":
                changes.append(f"{hog.name} is frozen")
            for name in ("memory.limit_in_bytes", "memory.high", "memory.max"):
                limit = hog.memory_dir / name
                if limit.exists() and limit.read_text().strip() not in UNLIMITED:
                    changes.append(f"{hog.name}: {name} is {limit.read_text().strip()}")
        for pid in self.pids:
            status = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
            if status == "T":
                changes.append(f"pid {pid} is stopped")
        for name, now in knobs().items():
            if now != self.knobs[name]:
                changes.append(f"vm.{name} is {now}, was {self.knobs[name]}")
        return changes


UNLIMITED = {"max", str((1 << 63) - os.sysconf("SC_PAGE_SIZE"))}
_KNOB_NAMES = (
    "swappiness",
    "dirty_ratio",
    "dirty_background_ratio",
    "dirty_bytes",
    "dirty_background_bytes",
    "overcommit_memory",
)


def knobs() -> dict[str, str]:
    """The settings of the whole machine that a daemon may move."""
    files = {name: Path("/proc/sys/vm", name) for name in _KNOB_NAMES}
    return {name: path.read_text().strip() for name, path in files.items() if path.exists()}


def forget_pages(path: Path) -> None:
    """Drop the pages of a file from the cache: who reads it first is charged for it."""
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The files that the application and the two groups read; written once, by name."""
    folder = tmp_path_factory.mktemp("data")
    paths = {}
    for name, size_mib in (("app", 24), ("hog0", 80), ("hog1", 60)):
        paths[name] = folder / name
        with paths[name].open("wb") as file:
            file.write(bytes(MIB) * size_mib)
            file.flush()
            os.fsync(file.fileno())
    return paths


PATIENCE_S = 20.0
"""After which a wait is given up: far beyond what it takes, however busy the machine is."""


def wait_for(condition: Callable[[], object], timeout_s: float = PATIENCE_S) -> bool:
    """Poll a callable until it is true; returns whether it became so."""
    deadline_s = time.monotonic() + timeout_s
    while time.monotonic() < deadline_s:
        if condition():
            return True
        time.sleep(0.01)
    return bool(condition())


@pytest.fixture
def little_sandbox(tmp_path: Path, data: dict[str, Path]) -> Iterator[LittleSandbox]:
    before = knobs()
    hierarchy = detect(Paths())
    zone = hierarchy.group(own_name())
    app, hogs = zone.child("app"), (zone.child("hog0"), zone.child("hog1"))
    processes = []
    try:
        for group in (zone, app, *hogs):
            group.create()
        assert zone.memory_dir is not None
        v1 = zone.memory_dir / "memory.limit_in_bytes"
        limit = v1 if v1.exists() else zone.memory_dir / "memory.max"
        limit.write_text(str(ZONE_LIMIT_BYTES))
        for group, pause_s in ((app, 0.05), (hogs[0], 0), (hogs[1], 0)):
            read = data[group.name.rpartition("/")[2]]
            forget_pages(read)
            command = [sys.executable, "-c", READER, str(read), str(pause_s)]
            process = subprocess.Popen(command)
            processes.append(process)
            group.add_pid(process.pid)
        yield LittleSandbox(
            zone=zone,
            app=app,
            hogs=hogs,
            pids=tuple(process.pid for process in processes),
            folder=tmp_path,
            knobs=before,
        )
    finally:
        for group in (*hogs, app):
            group.kill()
        for process in processes:
            process.kill()
            process.wait()
        for group in (*hogs, app, zone):
            group.remove()
        # A test that fails between a kill and the next start must not change the machine.
        for name in ("swappiness", "overcommit_memory"):
            Path("/proc/sys/vm", name).write_text(before[name])


SQUEEZE = DesiredState(
    slots=(SlotDesire(paused=True, limit_bytes=8 * MIB), SlotDesire()),
    tuning=Tuning(name="try", swappiness=77, dirty_ratio=33, dirty_background_ratio=7),
)


def write_policy(path: Path, *, paused: bool = True, nan: bool = False, **metadata: str) -> Path:
    """A valid policy that always wants slot 0 paused (or nothing), or returns NaN."""
    total = sum(ACTION_SIZES)
    bias = np.zeros(total, dtype=np.float32)
    bias[1 if paused else 0] = 5.0
    if nan:
        bias[0] = np.nan
    weights = numpy_helper.from_array(np.zeros((BASIC.size, total), np.float32), "w")
    nodes = [helper.make_node("Gemm", ["observation", "w", "b"], ["logits"])]
    sizes = numpy_helper.from_array(np.array(ACTION_SIZES, dtype=np.int64), "sizes")
    parts = [f"part{i}" for i in range(len(ACTION_SIZES))]
    nodes.append(helper.make_node("Split", ["logits", "sizes"], parts, axis=1))
    nodes += [
        helper.make_node("ArgMax", [part], [f"{part}_best"], axis=1, keepdims=1) for part in parts
    ]
    nodes.append(helper.make_node("Concat", [f"{p}_best" for p in parts], ["action"], axis=1))
    graph = helper.make_graph(
        nodes,
        "policy",
        [helper.make_tensor_value_info("observation", TensorProto.FLOAT, [1, BASIC.size])],
        [
            helper.make_tensor_value_info("action", TensorProto.INT64, [1, len(ACTION_SIZES)]),
            helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, total]),
        ],
        [weights, numpy_helper.from_array(bias, "b"), sizes],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    entries = {
        "schema_hash": schema_hash(),
        "schema": json.dumps(schema()),
        "ticks_per_action": "1",
        "observation_low": json.dumps([-1e9] * BASIC.size),
        "observation_high": json.dumps([1e9] * BASIC.size),
        "ood_limit": "0.5",
        **metadata,
    }
    helper.set_model_props(model, {f"stallward.{key}": value for key, value in entries.items()})
    onnx.save(model, path)
    return path


def frozen(group: Cgroup) -> bool:
    assert group.unified_dir is not None
    return "frozen 1" in (group.unified_dir / "cgroup.events").read_text()


def records_of(box: LittleSandbox) -> list[bytes]:
    path = box.folder / "record" / FRAMES_NAME
    return list(read_frames(path)) if path.exists() else []


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def all_gone(pids: list[int]) -> bool:
    return all(gone(pid) for pid in pids)


def test_a_reload_changes_target_and_budgets_and_lets_nothing_go(
    little_sandbox: LittleSandbox,
) -> None:
    config = little_sandbox.config("static:limit=0.5")
    with Daemon(config) as daemon, daemon.client() as client:
        assert wait_for(little_sandbox.leftovers), "it limits"
        before = daemon.pids
        control = replace(config.control, slo_ms=7.0)
        gaps = []

        def changed() -> bool:
            gaps.extend([] if little_sandbox.leftovers() else ["let go"])
            with contextlib.suppress(DaemonUnavailableError):
                return client.status().slo_ms == 7.0  # the service is started again
            return False

        other = replace(config, control=control, guard=Budgets(max_pause_s=1.0))
        for _ in range(3):  # one after the other, before the loop has seen the first
            daemon.reload(other)
        assert wait_for(changed), daemon.last_words()
        moved = JournalConfig(path=little_sandbox.folder / "elsewhere")
        daemon.reload(replace(other, journal=moved))
        assert wait_for(lambda: "config.journal has changed" in daemon.last_words())
        daemon.reload(replace(other, control=replace(control, controller="rule")))
        assert wait_for(lambda: "config.control has changed" in daemon.last_words())
        time.sleep(0.5)
        assert gaps == []
        assert little_sandbox.leftovers(), "it still limits"
        assert (daemon.pids.guardian, daemon.pids.loop) == (before.guardian, before.loop)
        assert client.wait_ready().controller == "static"
        os.kill(before.loop or 0, signal.SIGKILL)
        assert wait_for(lambda: daemon.pids.loop not in {None, before.loop})
        assert client.wait_ready().slo_ms == 7.0, "a later loop finds what is in force"
    assert little_sandbox.leftovers() == []


def test_a_lease_moves_the_levers_and_keeps_others_out(little_sandbox: LittleSandbox) -> None:
    hog = little_sandbox.hogs[0]
    with Daemon(little_sandbox.config()) as daemon, daemon.client() as client:
        granted = client.apply(SQUEEZE, lease_s=30.0, holder="test")
        assert granted.granted.slots[0].paused
        assert 0 < granted.lease_remaining_s <= 30.0
        assert wait_for(lambda: frozen(hog))
        assert Path("/proc/sys/vm/swappiness").read_text().strip() == "77"
        with pytest.raises(LeaseHeldError, match="'test' holds the lease"):
            client.apply(SQUEEZE, lease_s=1.0, holder="other")
        status = client.status()
        assert status.lease_held
        assert status.controller == "remote"
    assert little_sandbox.leftovers() == [], "an orderly stop puts everything back"


def test_a_lease_that_lapses_puts_everything_back_and_not_before(
    little_sandbox: LittleSandbox,
) -> None:
    hog = little_sandbox.hogs[0]
    with Daemon(little_sandbox.config()) as daemon, daemon.client() as client:
        client.apply(SQUEEZE, lease_s=30.0, holder="test")
        assert wait_for(lambda: frozen(hog))
        asked_s = time.monotonic()
        client.apply(SQUEEZE, lease_s=1.0, holder="test")
        assert wait_for(lambda: not frozen(hog))
        assert time.monotonic() - asked_s >= 1.0, "it had been granted for longer"
        assert wait_for(lambda: not little_sandbox.leftovers()), little_sandbox.leftovers()
        assert not client.status().lease_held


def test_a_released_lease_puts_everything_back(little_sandbox: LittleSandbox) -> None:
    with Daemon(little_sandbox.config()) as daemon, daemon.client() as client:
        client.apply(SQUEEZE, lease_s=30.0, holder="other")
        assert wait_for(lambda: frozen(little_sandbox.hogs[0]))
        client.release(holder="other")
        assert wait_for(lambda: not little_sandbox.leftovers()), little_sandbox.leftovers()


def test_refused_calls_say_why_and_are_counted(
    little_sandbox: LittleSandbox, tmp_path: Path
) -> None:
    foreign = write_policy(tmp_path / "foreign.onnx", schema_hash="0", schema='{"slots": 3}')
    (tmp_path / "junk.onnx").write_bytes(b"junk")
    with Daemon(little_sandbox.config()) as daemon, daemon.client() as client:
        with pytest.raises(RequestError, match="lease_s is 99"):
            client.apply(SQUEEZE, lease_s=99.0, holder="test")
        with pytest.raises(RequestError, match="needs a holder"):
            client.apply(SQUEEZE, lease_s=1.0, holder="")
        three = DesiredState(slots=(SlotDesire(),) * 3)
        with pytest.raises(RequestError, match="3 slots desired, the node has 2"):
            client.apply(three, lease_s=1.0, holder="test")
        with pytest.raises(RequestError, match="No policy is loaded"):
            client.set_mode(Mode.ACTIVE)
        with pytest.raises(PolicyError, match=r"no policy file '/nowhere"):
            client.load("/nowhere/p.onnx")
        with pytest.raises(RequestError, match=r"another schema: .* in the policy and"):
            client.load(str(foreign))
        with pytest.raises(RequestError, match="not an ONNX model"):
            client.load(str(tmp_path / "junk.onnx"))
        status = client.status()
        assert status.refused == (
            ("FAILED_PRECONDITION", 3),
            ("INVALID_ARGUMENT", 3),
            ("NOT_FOUND", 1),
        )
        assert any("latency" in text for text in status.missing)


def test_closing_the_client_ends_its_watching(little_sandbox: LittleSandbox) -> None:
    with Daemon(little_sandbox.config()) as daemon, ThreadPoolExecutor(1) as watcher:
        client = daemon.client()
        ticks = client.watch()
        next(ticks)
        rest = watcher.submit(list, ticks)
        time.sleep(0.3)
        client.close()
        assert rest.result(timeout=10.0)


def test_a_policy_is_loaded_watched_and_activated(
    little_sandbox: LittleSandbox, tmp_path: Path
) -> None:
    policy = write_policy(tmp_path / "pause.onnx")
    hog = little_sandbox.hogs[0]
    with Daemon(little_sandbox.config()) as daemon, daemon.client() as client:
        before = client.status().ticks
        info = client.load(str(policy))
        after = client.status().ticks
        assert (info.name, info.schema_hash) == ("pause", schema_hash())
        client.set_mode(Mode.SHADOW)
        watched = next(w for w in client.watch() if w.record.shadow is not None)
        assert watched.record.shadow is not None
        assert watched.record.shadow.decision.desired.slots[0].paused
        assert watched.record.decision.controller == "none"
        assert not frozen(hog)
        client.set_mode(Mode.ACTIVE)
        assert wait_for(lambda: frozen(hog))
        status = client.status()
        assert (status.controller, status.mode) == ("onnx", Mode.ACTIVE)
        assert status.ticks > before
        client.set_mode(Mode.OFF)
        assert wait_for(lambda: not frozen(hog))
        assert client.status().controller == "none", "the daemon is configured to do nothing"
    records = [
        TICK_RECORD.from_wire(pb.TickRecord.FromString(data))
        for data in records_of(little_sandbox)
    ]
    assert [r.sequence for r in records] == list(range(len(records))), "no tick was lost"
    # A busy host is late with any tick; importing the runtime alone takes 200 ms.
    late_ms = [r.timings.late_ms for r in records]
    loading = slice(before, after + 1)
    others = [*late_ms[:before], *late_ms[after + 1 :]]
    assert max(late_ms[loading]) < max(90.0, 3 * max(others)), f"a tick was held up: {late_ms}"
    difference = replay(
        records,
        make_controller("none"),
        settings=settings_of(little_sandbox),
        policy=make_controller(f"onnx:path={policy}"),
    )
    assert difference is None


@pytest.mark.reaches
def test_an_experiment_runs_on_the_node_and_survives_the_death_of_the_service(
    little_sandbox: LittleSandbox, tmp_path: Path
) -> None:
    policy = write_policy(tmp_path / "pause.onnx")
    config = little_sandbox.config(
        latency=GrpcLatency(), experiments=ExperimentsConfig(dir=tmp_path / "experiments")
    )
    plan = ExperimentPlan(
        baseline=Candidate(),
        treatment=Candidate(policy=str(policy)),
        pairs=2,
        block_s=10.0,
        burn_in_s=2.0,
        seed=3,
    )
    hog, over = little_sandbox.hogs[0], threading.Event()

    def requests() -> Iterator[list[Reported]]:
        while not over.wait(0.05):
            yield [Reported(latency_ms=5.0)] * 4

    def keep_reporting() -> None:
        while not over.is_set():
            with daemon.client() as reporter, contextlib.suppress(DaemonError):
                reporter.report(requests())

    def reached(blocks: int) -> bool:
        with contextlib.suppress(DaemonError):  # the service may be starting
            found = client.experiments.get()
            return found is not None and len(found.blocks) >= blocks
        return False

    with Daemon(config) as daemon, daemon.client() as client, ThreadPoolExecutor() as pool:
        reporting = pool.submit(keep_reporting)
        try:
            client.experiments.start(plan)
            paused_at_first = plan.arm_of(0) is Arm.TREATMENT
            assert wait_for(lambda: frozen(hog) is paused_at_first)
            assert wait_for(lambda: reached(1), 5 * PATIENCE_S)
            assert wait_for(lambda: frozen(hog) is not paused_at_first)
            assert daemon.pids.service is not None
            os.kill(daemon.pids.service, signal.SIGKILL)
            assert wait_for(lambda: reached(4), 10 * PATIENCE_S)
            ended = client.experiments.get()
        finally:
            over.set()
            reporting.result(PATIENCE_S)
        assert ended is not None
        assert ended.progress is Progress.COMPLETE
        first, killed, *others = ended.blocks
        assert killed.loss is Loss.SERVICE_RESTARTED
        # A busy host may lose a block; what counts has the requests that were reported.
        for block in (first, *others):
            if block.loss is Loss.NONE:
                assert block.p95_ms == pytest.approx(5.0, rel=0.1)
                assert block.background_cores is not None
        assert wait_for(lambda: not frozen(hog)), "what was in force before decides again"
        assert client.status().mode is Mode.OFF
    assert little_sandbox.leftovers() == []


def test_a_rule_decides_where_a_policy_that_was_asked_for_is_off(
    little_sandbox: LittleSandbox, tmp_path: Path
) -> None:
    policy = write_policy(tmp_path / "pause.onnx")
    config = little_sandbox.config(f"onnx:path={policy}")
    with Daemon(config) as daemon, daemon.client() as client:
        assert client.status().controller == "onnx"
        client.set_mode(Mode.OFF)
        assert wait_for(lambda: client.status().controller == "partition")


def settings_of(box: LittleSandbox) -> EngineSettings:
    config = box.config()
    context = NodeContext(
        zone_limit_bytes=ZONE_LIMIT_BYTES,
        slot_names=tuple(slot.name for slot in config.background),
        floors_bytes=tuple(slot.floor_bytes for slot in config.background),
        slo_ms=config.control.slo_ms,
        seed=config.control.seed,
    )
    return EngineSettings(context=context, budgets=config.guard)


def test_a_policy_that_returns_nan_is_refused(
    little_sandbox: LittleSandbox, tmp_path: Path
) -> None:
    policy = write_policy(tmp_path / "nan.onnx", nan=True)
    with Daemon(little_sandbox.config()) as daemon, daemon.client() as client:
        with pytest.raises(RequestError, match="not finite"):
            client.load(str(policy))
        assert client.status().policy is None


def test_latd_acts_under_pressure_and_replays_bit_for_bit(little_sandbox: LittleSandbox) -> None:
    with Daemon(little_sandbox.config("latd")) as daemon, daemon.client() as client:
        assert daemon.pids.recorder is not None
        deadline_s = time.monotonic() + PATIENCE_S
        stopped = False
        for watched in client.watch():
            stopped = stopped or bool(watched.record.granted.stopped)
            if (stopped and watched.record.sequence >= 20) or time.monotonic() > deadline_s:
                break
    assert little_sandbox.leftovers() == []
    records = [
        TICK_RECORD.from_wire(pb.TickRecord.FromString(data))
        for data in records_of(little_sandbox)
    ]
    assert len(records) >= 10
    notes = {note for r in records for note in r.guard_notes}
    assert any(r.granted.stopped for r in records), f"there was pressure to react to; {notes}"
    assert replay(records, make_controller("latd"), settings=settings_of(little_sandbox)) is None


def test_health_and_reflection_answer(little_sandbox: LittleSandbox) -> None:
    with Daemon(little_sandbox.config()) as daemon:
        socket_path = daemon.config.service.socket
        assert stat.S_IMODE(socket_path.stat().st_mode) == 0o600
        with grpc.insecure_channel(grpc_target(socket_path)) as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            request = health_pb2.HealthCheckRequest(service="stallward.proto.v1.ActuatorService")
            assert wait_for(lambda: stub.Check(request).status == 1)
            services = ProtoReflectionDescriptorDatabase(channel).get_services()
        assert "stallward.proto.v1.ActuatorService" in services
    assert not socket_path.exists()


def try_apply(client: ActuatorClient, desired: DesiredState) -> bool:
    """Apply; returns False if there is no loop, or if it dies meanwhile."""
    try:
        client.apply(desired, lease_s=10.0, holder="test")
    except DaemonUnavailableError:
        return False
    return True


def apply_until_in_force(
    client: ActuatorClient, box: LittleSandbox, desired: DesiredState
) -> None:
    """Apply once the group may be limited, which is not while it starts; wait for the limit."""
    for watched in client.watch():
        if watched.record.sample.slot_states[0].reference_bytes is not None:
            break
    assert try_apply(client, desired)
    assert wait_for(lambda: frozen(box.hogs[0]))
    assert wait_for(lambda: any("memory." in left for left in box.leftovers()))


def with_a_stopped_process(box: LittleSandbox) -> DesiredState:
    """Pause and limit the first group, stop the process of the second, tune the node."""
    pid = box.pids[2]
    ticks = start_time_ticks(Path("/proc"), pid)
    assert ticks is not None
    return replace(SQUEEZE, stopped=(ProcessRef(pid=pid, start_time_ticks=ticks),))


def test_twelve_kills_of_the_loop_leave_nothing_held(little_sandbox: LittleSandbox) -> None:
    """Half of them while everything is held, half while it changes, at any moment of a tick."""
    rng = random.Random(7)
    control = ControlConfig(read_processes=True)
    desired = with_a_stopped_process(little_sandbox)
    slowest_s = 0.0
    config = little_sandbox.config(
        control=control,
        guard=Budgets(lift_budgets=True),  # else a restarted loop pauses nothing for a while
    )
    with Daemon(config) as daemon, daemon.client() as client:
        for number in range(12):
            assert wait_for(lambda: try_apply(client, desired)), daemon.last_words()
            pid = daemon.pids.loop
            assert pid is not None
            if number % 2:
                moment_s = time.monotonic() + rng.uniform(0.0, 0.3)
                while time.monotonic() < moment_s:
                    try_apply(client, rng.choice([desired, DesiredState(), SQUEEZE]))
            else:
                assert wait_for(lambda: frozen(little_sandbox.hogs[0])), daemon.last_words()
                time.sleep(rng.uniform(0.0, 0.1))
            os.kill(pid, signal.SIGKILL)
            killed_s = time.monotonic()
            back = wait_for(lambda: not little_sandbox.leftovers())
            assert back, little_sandbox.leftovers()
            slowest_s = max(slowest_s, time.monotonic() - killed_s)
        assert wait_for(lambda: try_apply(client, DesiredState()))
        assert client.status().loop_restarts >= 12
    assert little_sandbox.leftovers() == []
    sys.stdout.write(f"slowest restore {slowest_s * 1e3:.0f} ms\n")


def test_a_killed_guardian_takes_everything_with_it(little_sandbox: LittleSandbox) -> None:
    control = ControlConfig(read_processes=True)
    for number in range(3):
        # A journal each: a daemon that follows a killed one pauses nothing for a while.
        journal = JournalConfig(path=little_sandbox.folder / f"journal{number}")
        daemon = Daemon(little_sandbox.config(control=control, journal=journal))
        with daemon, daemon.client() as client:
            apply_until_in_force(client, little_sandbox, with_a_stopped_process(little_sandbox))
            pids = daemon.pids
            os.kill(pids.guardian, signal.SIGKILL)
            back = wait_for(lambda: not little_sandbox.leftovers())
            assert back, little_sandbox.leftovers()
            others = [pid for pid in pids.all if pid != pids.guardian]
            assert len(others) == 3
            assert wait_for(partial(all_gone, others))


def test_guardian_and_loop_killed_are_restored_at_the_next_start(
    little_sandbox: LittleSandbox,
) -> None:
    with Daemon(little_sandbox.config()) as daemon, daemon.client() as client:
        apply_until_in_force(client, little_sandbox, SQUEEZE)
        pids = daemon.pids
        kill_guardian_and_loop(pids)
        assert wait_for(lambda: gone(pids.loop or 0))
        time.sleep(0.3)
        assert little_sandbox.leftovers(), "nobody was left to restore"
    with Daemon(little_sandbox.config()):
        assert little_sandbox.leftovers() == []


@contextlib.contextmanager
def frozen_process(pid: int) -> Iterator[None]:
    """Freeze a process; the kernel itself continues a stopped one that loses its parent."""
    group = detect(Paths()).group(f"{own_name()}-frozen")
    group.create()
    assert group.unified_dir is not None
    freeze = group.unified_dir / "cgroup.freeze"
    try:
        (group.unified_dir / "cgroup.procs").write_text(str(pid))
        freeze.write_text("1")
        assert wait_for(lambda: frozen(group))
        yield
    finally:
        freeze.write_text("0")
        wait_for(lambda: gone(pid))
        group.remove()


def test_no_daemon_starts_while_an_orphaned_loop_has_not_restored(
    little_sandbox: LittleSandbox,
) -> None:
    config = little_sandbox.config()
    with Daemon(config) as daemon, daemon.client() as client:
        apply_until_in_force(client, little_sandbox, SQUEEZE)
        pids = daemon.pids
        assert pids.loop is not None
        with frozen_process(pids.loop):
            os.kill(pids.guardian, signal.SIGKILL)
            assert wait_for(lambda: gone(pids.guardian))
            with pytest.raises(DaemonError, match="Another daemon uses"), Daemon(config):
                pass
            assert little_sandbox.leftovers(), "the loop has not put anything back yet"
        assert little_sandbox.leftovers() == []
    with Daemon(config) as successor, successor.client() as client:
        assert client.status().loop_restarts == 0


def test_a_killed_service_comes_back_and_the_loop_goes_on(little_sandbox: LittleSandbox) -> None:
    with Daemon(little_sandbox.config()) as daemon, daemon.client() as client:
        assert try_apply(client, SQUEEZE)
        before = daemon.pids
        ticks = client.status().ticks
        assert before.service is not None
        os.kill(before.service, signal.SIGKILL)
        assert wait_for(lambda: daemon.pids.service not in {None, before.service})
        assert wait_for(lambda: _ticks(client) > ticks), daemon.last_words()
        assert daemon.pids.loop == before.loop
        assert client.status().lease_held, "the lease is the loop's"
        assert frozen(little_sandbox.hogs[0])
    records = [pb.TickRecord.FromString(data) for data in records_of(little_sandbox)]
    assert [r.sequence for r in records] == list(range(len(records)))


def _ticks(client: ActuatorClient) -> int:
    try:
        return client.status().ticks
    except DaemonUnavailableError:
        return -1


def test_a_killed_recorder_comes_back(little_sandbox: LittleSandbox) -> None:
    with Daemon(little_sandbox.config()) as daemon:
        before = daemon.pids.recorder
        assert before is not None
        assert wait_for(lambda: records_of(little_sandbox))
        os.kill(before, signal.SIGKILL)
        assert wait_for(lambda: daemon.pids.recorder not in {None, before})
        count = len(records_of(little_sandbox))
        assert wait_for(lambda: len(records_of(little_sandbox)) > count + 3)


def test_work_is_counted_and_its_reader_may_die(
    little_sandbox: LittleSandbox, tmp_path: Path
) -> None:
    steps = tmp_path / "steps"
    steps.write_text("0\n")
    hogs = little_sandbox.hogs
    work = FileWork(path=steps, unit="steps", period_s=0.1)
    config = little_sandbox.config(
        background=(
            SlotConfig(name="counted", group=hogs[0].name, work=work),
            SlotConfig(name="plain", group=hogs[1].name),
        )
    )

    def known() -> WorkSample | None:
        tick = client.status().last_tick
        return next(iter(tick.sample.work), None) if tick else None

    def counted_on() -> bool:
        steps.write_text(f"{int(steps.read_text()) + 10}\n")
        seen = known()
        return seen is not None and seen.units > 0.0 and seen.fault is WorkFault.NONE

    with Daemon(config) as daemon, daemon.client() as client:
        assert wait_for(counted_on)
        assert wait_for(lambda: not client.status().work[0].fault), "a second later at most"
        counted, plain = client.status().work
        assert (counted.source, counted.unit) == (WorkSource.FILE, "steps")
        assert (plain.source, plain.unit) == (WorkSource.CPU, "cpu-s")
        before = daemon.pids.work
        assert before is not None
        os.kill(before, signal.SIGKILL)
        assert wait_for(lambda: daemon.pids.work not in {None, before})
        assert wait_for(counted_on)
    records = [pb.TickRecord.FromString(data) for data in records_of(little_sandbox)]
    assert {record.slo_ms for record in records} == {100.0}
    assert records[-1].sample.work[0].units > 0.0


def test_a_hung_loop_is_killed_and_restored(little_sandbox: LittleSandbox) -> None:
    with Daemon(little_sandbox.config()) as daemon, daemon.client() as client:
        apply_until_in_force(client, little_sandbox, SQUEEZE)
        pid = daemon.pids.loop
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        assert wait_for(lambda: not little_sandbox.leftovers()), daemon.last_words()
        assert wait_for(lambda: daemon.pids.loop not in {None, pid})


def test_two_daemons_never_share_a_journal_or_a_machine(little_sandbox: LittleSandbox) -> None:
    config = little_sandbox.config()
    with Daemon(config) as daemon:
        with pytest.raises(DaemonError, match=r"Another daemon uses .*journal\.lock"):
            Daemon(config).start()
        other = replace(config, journal=JournalConfig(path=little_sandbox.folder / "journal2"))
        with pytest.raises(DaemonError, match="Another stallward daemon runs on this machine"):
            Daemon(other).start()
        with daemon.client() as client:
            assert client.status().ticks > 0, "the first is unharmed"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"node": NodeConfig(zone="stallward-nowhere")}, "not below the zone"),
        ({"protected": ProtectedConfig(group="stallward-nowhere/app")}, "There is no group"),
        ({"control": ControlConfig(controller="onnx:path=/nowhere.onnx")}, "cannot be read"),
        ({"control": ControlConfig(controller="nonsense")}, "There is no controller 'nonsense'"),
        ({"record": RecordConfig(dir=Path("/proc/nowhere"))}, "cannot be written"),
    ],
)
def test_a_daemon_that_cannot_run_says_why(
    little_sandbox: LittleSandbox, change: dict[str, object], message: str
) -> None:
    with pytest.raises(StallwardError, match=message):
        Daemon(little_sandbox.config("none", **change)).start()
    assert little_sandbox.leftovers() == []


def test_a_daemon_inside_a_background_group_refuses_to_start(
    little_sandbox: LittleSandbox, tmp_path: Path
) -> None:
    config_path = tmp_path / "daemon.toml"
    config_path.write_text(config_toml(little_sandbox.config()))
    script = (
        "import sys; from pathlib import Path\n"
        "from stallward.actuator.guardian.__main__ import main\n"
        "from stallward.actuator.ipc.options import GuardianOptions\n"
        "for path in sys.argv[2:]: Path(path, 'cgroup.procs').write_text('0')\n"
        "sys.exit(main(GuardianOptions(config=Path(sys.argv[1]))))\n"
    )
    hog = little_sandbox.hogs[0]
    for group in little_sandbox.hogs:
        group.kill()  # what is loaded inside the group would thrash with them for minutes
    done = subprocess.run(
        [sys.executable, "-c", script, str(config_path), *map(str, hog.dirs)],
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 2
    assert f"The background group {hog.name!r} holds process" in done.stderr
    assert little_sandbox.leftovers() == []


def test_the_daemon_stops_with_its_owner(little_sandbox: LittleSandbox, tmp_path: Path) -> None:
    config_path = tmp_path / "daemon.toml"
    config_path.write_text(config_toml(little_sandbox.config()))
    script = (
        "import sys, time; from pathlib import Path\n"
        "from stallward.actuator.config.load import load_config\n"
        "from stallward.actuator.client.daemon_process import Daemon\n"
        "daemon = Daemon(load_config(Path(sys.argv[1]))); daemon.start()\n"
        "print(*daemon.pids.all, flush=True); time.sleep(60)\n"
    )
    owner = subprocess.Popen(
        [sys.executable, "-c", script, str(config_path)], stdout=subprocess.PIPE
    )
    assert owner.stdout is not None
    pids = [int(word) for word in owner.stdout.readline().split()]
    assert len(pids) == 4
    owner.kill()
    owner.wait()
    owner.stdout.close()
    assert wait_for(partial(all_gone, pids))
    assert little_sandbox.leftovers() == []


def swappiness(group: Cgroup) -> str:
    """The swappiness of a v1 group."""
    assert group.memory_dir is not None
    return (group.memory_dir / "memory.swappiness").read_text().strip()


def two_applications(box: LittleSandbox) -> DaemonConfig:
    """The sandbox with its second group as another application, which reports its latencies."""
    lines = LinesLatency(path=box.folder / "app.lines", latency="0", latency_unit_s=1e-3)
    return box.config(
        protected=(
            ProtectedConfig(name="app", group=box.app.name, slo_ms=10.0, latency=lines),
            ProtectedConfig(
                name="other", group=box.hogs[1].name, slo_ms=40.0, latency=GrpcLatency()
            ),
        ),
        background=(SlotConfig(name="hog0", group=box.hogs[0].name, floor_bytes=4 * MIB),),
    )


def test_two_applications_are_watched_protected_and_put_back(
    little_sandbox: LittleSandbox,
) -> None:
    box = little_sandbox
    both = (box.app, box.hogs[1])
    lines = box.folder / "app.lines"
    lines.touch()
    hybrid = detect(Paths()).kind == "hybrid"
    before = [swappiness(group) for group in both] if hybrid else []
    with Daemon(two_applications(box)) as daemon, daemon.client() as client:
        client.wait_ready()

        done = threading.Event()

        def requests() -> Iterator[list[Reported]]:
            for _ in range(1200):  # a minute, if the test fails meanwhile
                if done.is_set():
                    return
                with lines.open("a") as file:
                    file.write("5\n")
                yield [Reported(latency_ms=80.0, failed=False, ended_s=time.monotonic())]
                time.sleep(0.05)

        with pytest.raises(RequestError, match="No application 'none' reports here"):
            client.report(iter([[]]), "none")
        reporter = ThreadPoolExecutor(1)
        report = reporter.submit(client.report, requests(), "other")
        for watched in client.watch():
            sample = watched.record.sample
            known = [one.latency and one.latency.p95_ms for one in sample.applications]
            if None not in known:
                break
        assert known == pytest.approx([5.0, 80.0], rel=0.05)
        assert sample.latency is not None
        assert sample.latency.p95_ms == pytest.approx(200.0, rel=0.05), "twice the node's target"
        status = client.status()
        app, other = status.applications
        assert (app.name, app.slo_ms, other.name, other.slo_ms) == ("app", 10.0, "other", 40.0)
        assert app.latency is not None
        assert app.latency.source == "lines"
        assert other.missed_s
        assert not other.met_s
        assert app.met_s
        assert not app.missed_s
        wish = DesiredState(tuning=KEEP_CACHE, protected_low_bytes=48 * MIB)
        client.apply(wish, lease_s=30.0, holder="test")
        if hybrid:
            assert wait_for(lambda: [swappiness(group) for group in both] == ["90", "90"])
        else:
            lows = [group.unified_dir / "memory.low" for group in both if group.unified_dir]
            assert wait_for(lambda: all(int(low.read_text()) for low in lows))
            assert sum(int(low.read_text()) for low in lows) <= 48 * MIB
        done.set()  # without its latencies what the client applies would be let go
        assert report.result().accepted > 0
        reporter.shutdown()
        kill_guardian_and_loop(daemon.pids)
    with Daemon(two_applications(box)):
        if hybrid:
            assert [swappiness(group) for group in both] == before
        else:
            assert not any(int(low.read_text()) for low in lows)
        assert box.leftovers() == []


def test_a_process_of_any_application_is_left_alone(little_sandbox: LittleSandbox) -> None:
    box = little_sandbox
    with Daemon(two_applications(box)) as daemon, daemon.client() as client:
        client.wait_ready()
        for pid in (box.pids[0], box.pids[2]):
            ticks = start_time_ticks(Path("/proc"), pid)
            assert ticks is not None
            ref = ProcessRef(pid=pid, start_time_ticks=ticks)
            client.apply(DesiredState(stopped=(ref,)), lease_s=5.0, holder="test")
            time.sleep(0.3)
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
            assert state != "T", pid
