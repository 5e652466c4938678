"""A node for tests of published rules: what it holds is set, and time passes tick by tick."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from stallward.agent.controller import Controller, Decision, NodeContext
from stallward.agent.desired import MIB
from stallward.agent.observation.encoder import OBSERVATION_SIZE
from stallward.agent.registry import make_controller
from stallward.agent.sample import ProcessSample, Sample, SlotState
from stallward.agent.testing import CONTEXT, make_sample

OBSERVATION = np.zeros(OBSERVATION_SIZE, dtype=np.float32)
ZONE_BYTES = CONTEXT.zone_limit_bytes


def process(pid: int, *, score: int, slot: int = 0, rss_mib: int = 0) -> ProcessSample:
    """A process that the kernel would kill with this score."""
    return ProcessSample(
        pid=pid,
        start_time_ticks=pid,
        slot=slot,
        oom_score=score,
        stopped=False,
        rss_bytes=rss_mib * MIB,
    )


class PeerNode:
    """A node of two background groups and a 600 MiB zone, ticked every 0.1 s.

    Args:
        spec: The spec of the controller.
        slo_ms: The latency target.
        cpus: The CPUs of the node.
    """

    def __init__(self, spec: str, *, slo_ms: float = 100.0, cpus: float = 2.0) -> None:
        self.controller: Controller = make_controller(spec)
        self.context: NodeContext = replace(CONTEXT, slo_ms=slo_ms, cpus=cpus)
        self.controller.reset(self.context)
        self.sequence = 0
        self.available_bytes = ZONE_BYTES // 2
        self.anon_bytes = ZONE_BYTES // 2
        self.swap_total_bytes = 0
        self.swap_free_bytes = 0
        self.p95_ms: float | None = 20.0
        self.full_share = self.slot_full_share = self.slot_some_share = self.io_share = 0.0
        self.scanned_per_s: int | None = None
        self.slot_scanned_per_s = [0, 0]
        self.slot_bytes = [200 * MIB, 200 * MIB]
        self.slot_swap_bytes = [0, 0]
        self.slot_limits_bytes: list[int | None] = [None, None]
        self.app_cores, self.slot_cores = 0.0, [0.0, 0.0]
        self.idle_share = 0.0
        self.processes: tuple[ProcessSample, ...] = ()
        self._totals: dict[str, float] = {}

    @property
    def time_s(self) -> float:
        """The time of the last tick."""
        return 1000.0 + 0.1 * (self.sequence - 1)

    def run(self, seconds: float) -> list[Decision]:
        """Let so much time pass; returns every decision."""
        return [self.tick() for _ in range(round(10 * seconds))]

    def tick(self) -> Decision:
        """Let 0.1 s pass."""
        return self.controller.decide(self.sample(), OBSERVATION)

    def sample(self) -> Sample:
        """The sample of the next tick."""
        base = make_sample(self.sequence)
        self.sequence += 1
        zone = replace(
            base.zone,
            psi=replace(
                base.zone.psi,
                memory_full_us=self._sum("full", 1e6 * self.full_share),
                io_some_us=self._sum("io", 1e6 * self.io_share),
            ),
            memory_usage_bytes=ZONE_BYTES - self.available_bytes,
            anon_bytes=self.anon_bytes,
            file_bytes=0,
            scanned_pages=None
            if self.scanned_per_s is None
            else self._sum("scanned", self.scanned_per_s),
        )
        node = replace(
            base.node,
            swap_total_bytes=self.swap_total_bytes,
            swap_free_bytes=self.swap_free_bytes,
            cpu_time_us=self._sum("cpu", 1e6 * self.context.cpus),
            cpu_idle_us=self._sum("idle", 1e6 * self.context.cpus * self.idle_share),
        )
        latency: Any = None
        if self.p95_ms is not None and base.latency is not None:
            latency = replace(base.latency, p95_ms=self.p95_ms)
        return replace(
            base,
            node=node,
            zone=zone,
            protected=replace(
                base.protected,
                anon_bytes=100 * MIB,
                cpu_usage_us=self._sum("app", 1e6 * self.app_cores),
            ),
            slots=tuple(self._slot(base, i) for i in range(len(base.slots))),
            slot_states=tuple(SlotState(limit_bytes=limit) for limit in self.slot_limits_bytes),
            latency=latency,
            processes=self.processes,
        )

    def _slot(self, base: Sample, i: int) -> Any:
        group = base.slots[i]
        return replace(
            group,
            psi=replace(
                group.psi,
                memory_some_us=self._sum(f"some{i}", 1e6 * self.slot_some_share),
                memory_full_us=self._sum(f"full{i}", 1e6 * self.slot_full_share),
                io_some_us=0,
                io_full_us=0,
            ),
            memory_usage_bytes=self.slot_bytes[i],
            anon_bytes=self.slot_bytes[i],
            file_bytes=0,
            swap_bytes=self.slot_swap_bytes[i],
            cpu_usage_us=self._sum(f"cpu{i}", 1e6 * self.slot_cores[i]),
            scanned_pages=self._sum(f"scanned{i}", self.slot_scanned_per_s[i]),
        )

    def _sum(self, name: str, per_s: float) -> int:
        self._totals[name] = self._totals.get(name, 0.0) + per_s / 10.0
        return round(self._totals[name])


def kills_slot(decision: Decision) -> int | None:
    """The slot that a decision kills at once; ``None`` for none."""
    ended = [i for i, slot in enumerate(decision.desired.slots) if slot.terminated]
    assert len(ended) <= 1
    assert not ended or decision.desired.kill_at_once
    return ended[0] if ended else None
