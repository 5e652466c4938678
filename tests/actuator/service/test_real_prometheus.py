"""A real Prometheus scrapes the service, evaluates the example alerts, and answers queries."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from free_port import free_port
from prometheus_server import alerts, ask, prometheus, value
from service_without_loop import WAIT_S, Service

from stallward.actuator.ipc.channels import frame_status, frame_tick
from stallward.proto.v1 import stallward_pb2 as pb


@pytest.mark.slow
def test_it_scrapes_the_metrics_and_evaluates_the_alerts(
    tmp_path: Path, start: Callable[..., Service]
) -> None:
    target = f"127.0.0.1:{free_port()}"
    service = start(metrics=target)
    with prometheus(tmp_path, [target]) as address:
        deadline_s = time.monotonic() + WAIT_S
        seen: dict[str, float | None] = {}
        health: set[str] = set()
        while not (seen and all(v is not None for v in seen.values()) and health == {"ok"}):
            assert time.monotonic() < deadline_s, (seen, health)
            service.tick()
            time.sleep(0.2)
            seen = {
                name: value(address, name)
                for name in ("up", "stallward_ticks_total", "stallward_slo_seconds")
            }
            groups = (ask(address, "rules") or {"groups": []})["groups"]
            health = {rule["health"] for group in groups for rule in group["rules"]}
        assert seen["up"] == 1.0
        assert seen["stallward_slo_seconds"] == pytest.approx(0.06)
        ticks = seen["stallward_ticks_total"]
        assert ticks is not None
        assert ticks > 0
        kinds = ask(address, "targets/metadata")
        assert {one["type"] for one in kinds if one["metric"] == "stallward_ticks"} == {"counter"}


MIB: Final = 1 << 20
SLO_MS: Final = 60.0


class Session:
    """A daemon that does well, tick by tick, but for what a test changes."""

    def __init__(self, service: Service, **changes: Any) -> None:
        self.service = service
        self.changes = changes
        self.ticks = 0

    def tick(self) -> None:
        """Send a tick and a status, as a loop does."""
        self.ticks += 1
        changes = self.changes
        if self.ticks > changes.get("ticks", 10**9):
            return
        now_s = time.monotonic()
        latency = pb.LatencySample(
            completed=10, completed_total=10 * self.ticks, p95_ms=changes.get("p95_ms", 20.0)
        )
        sample = pb.Sample(
            time_s=now_s,
            latency=latency,
            node=pb.NodeSample(memory_total_bytes=8 << 30),
            zone=pb.GroupSample(
                memory_limit_bytes=600 * MIB,
                memory_usage_bytes=changes.get("usage_bytes", 300 * MIB),
                inactive_file_bytes=MIB,
            ),
            slots=[pb.GroupSample(memory_usage_bytes=100 * MIB, cpu_usage_us=self.ticks)],
            slot_states=[pb.SlotState(paused=self.ticks % 10 < changes.get("paused_of_ten", 5))],
        )
        if changes.get("foreign") and self.ticks % 20 > 10:
            sample.levers.add(lever="limit:sort", value="7", foreign=True)
        ok = not changes.get("failing", False)
        record = pb.TickRecord(
            sequence=self.ticks,
            time_s=now_s,
            sample=sample,
            slo_ms=SLO_MS,
            fallback=changes.get("fallback", False),
            applied=[
                pb.LeverResult(lever="limit:sort", ok=ok),
                pb.LeverResult(lever="memory_low:web", ok=False, missing=True),
            ],
        )
        self.service.loop.send(frame_tick(record.SerializeToString()))
        status = pb.StatusResponse(
            node_kind="hybrid",
            missing=["memory_low:web: v1 has none"],
            problems=changes.get("problems", ()),
            loop_restarts=self.ticks // 5 if changes.get("restarting") else 0,
            latency_source=pb.LatencySourceStatus(
                source="lines", fault=changes.get("fault", ""), step_ms=changes.get("step_ms", 0.0)
            ),
        )
        self.service.loop.send(frame_status(status.SerializeToString()))


BROKEN: Final[dict[str, dict[str, Any]]] = {
    "": {},
    "StallwardLoopGone": {"ticks": 10},
    "StallwardRestarts": {"restarting": True},
    "StallwardTargetMissed": {"p95_ms": 90.0},
    "StallwardBlind": {"fault": "there is no such file"},
    "StallwardSourceTooCoarse": {"step_ms": 10.0},
    "StallwardProblem": {"problems": ["journal: it cannot be written"]},
    "StallwardFallsBack": {"fallback": True},
    "StallwardStepsAside": {"foreign": True},
    "StallwardLeversFail": {"failing": True},
    "StallwardBackgroundStarves": {"paused_of_ten": 9},
    "StallwardEvictionNear": {"usage_bytes": 580 * MIB},
}
"""What is wrong with a daemon, by the one alert that it is to raise; nothing with the first."""


@pytest.mark.slow
def test_each_broken_daemon_raises_its_alert_and_a_healthy_one_none(
    tmp_path: Path, start: Callable[..., Service]
) -> None:
    """Minutes of the rules are seconds here."""
    sessions = {}
    for number, (alert, changes) in enumerate(BROKEN.items()):
        target = f"127.0.0.1:{free_port()}"
        folder = tmp_path / str(number)
        folder.mkdir()
        service = start(folder=folder, metrics=target, slots=("sort",))
        sessions[target] = alert, Session(service, **changes)
    expected = {target: {alert} for target, (alert, _) in sessions.items() if alert}
    with prometheus(tmp_path, tuple(sessions), hurried=True) as address:
        deadline_s = time.monotonic() + 4.0 * WAIT_S
        firing: dict[str, set[str]] = {}
        while firing != expected:
            assert time.monotonic() < deadline_s, {
                sessions[t][0] if t in sessions else t: names for t, names in firing.items()
            }
            for _ in range(5):
                for _, session in sessions.values():
                    session.tick()
                time.sleep(0.2)
            firing = alerts(address, "firing")
        (healthy,) = (target for target, (alert, _) in sessions.items() if not alert)
        assert healthy not in alerts(address, "firing", "pending")
