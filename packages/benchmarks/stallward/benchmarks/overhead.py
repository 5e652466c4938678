"""``stallward bench``: the cost of the daemon, measured in live blocks.

Three blocks of the worst scenario are run, the shipped one whose latency degrades most: calm (the
application alone), under pressure with the shipped policy, and under pressure with a policy that
pauses as soon as the protected group stalls. The last gives the time from onset to pause, which
depends on the loop and the levers, not on a policy.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from typing import Final

import numpy as np
import psutil
from numpy.typing import NDArray

from stallward.actuator.client.daemon_process import Daemon, DaemonPids
from stallward.benchmarks import sample_cost
from stallward.benchmarks.earlyoom import Earlyoom
from stallward.benchmarks.onset import OnsetProbe
from stallward.env.recording.recording import Recording, load_recording
from stallward.env.scenario.file import load_scenario
from stallward.evaluation.arms import Arm, find_policy_of
from stallward.evaluation.blocks.live import LiveSession, open_session
from stallward.evaluation.blocks.request import Condition, RunRequest
from stallward.training.progress import Report, silent

Array = NDArray[np.float64]
WORST_SCENARIO: Final = "detector-anon"
_MIB: Final = 1 << 20
_BURN_IN_S: Final = 4.0
_SAMPLE_S: Final = 0.5
_CALM_SLO_MS: Final = 10_000.0
"""The target while the application is alone. On a node with requests near the target, the daemon
is not calm; on a disturbed machine they come near the scenario's target even then."""
MEANINGS: Final = {
    "decision_p99_ms": "observe + infer + guard, under pressure",
    "tick_jitter_p99_ms": "start of a tick after its due time, under pressure",
    "loop_cpu_share_calm": "share of one core the loop's process uses, application alone",
    "loop_cpu_share_pressure": "share of one core the loop's process uses, under pressure",
    "limits_cpu_share_pressure": "part of that in threads that write limits and so reclaim pages",
    "loop_rss_mib": "resident memory of the loop, with a policy loaded",
    "service_rss_mib": "resident memory of the gRPC service",
    "guardian_rss_mib": "resident memory of the guardian",
    "all_pss_mib": "proportional memory of all of the daemon's processes",
    "onset_to_pause_p50_ms": "first stall of the protected group to everything frozen, median",
    "onset_to_pause_p99_ms": "first stall to everything frozen, 99th percentile",
    "onsets": "number of such stalls",
    **sample_cost.MEANINGS,
    "earlyoom_cpu_share_pressure": "share of one core earlyoom uses, under pressure",
    "earlyoom_rss_mib": "resident memory of earlyoom",
    "earlyoom_actions": "how often earlyoom would have terminated a process under pressure",
}


@dataclass(slots=True)
class DaemonWatch:
    """Reads a running daemon's CPU time and memory from outside, until its block ends."""

    loop_cpu_s: list[tuple[float, float, float]] = field(default_factory=list)
    """Readings of the loop: time, CPU time of its first thread, and CPU time of its others."""
    rss_mib: dict[str, float] = field(default_factory=dict)
    """Name of a process -> its resident memory at the last reading."""
    pss_mib: float | None = None
    """Proportional memory of all processes at the last reading."""
    _stop: Event = field(default_factory=Event)
    _thread: Thread | None = None

    def __call__(self, daemon: Daemon) -> None:
        """Start watching; it ends by itself when the daemon's processes are gone."""
        self._thread = Thread(target=self._watch, args=(daemon.pids,), daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Stop watching."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _watch(self, pids: DaemonPids) -> None:
        while not self._stop.wait(_SAMPLE_S):
            try:
                self._read(pids)
            except psutil.NoSuchProcess:
                return  # the daemon has stopped

    def _read(self, pids: DaemonPids) -> None:
        if pids.loop is None:
            return
        self.loop_cpu_s.append((time.monotonic(), *_cpu_s(pids.loop)))
        named = {"loop": pids.loop, "service": pids.service, "guardian": pids.guardian}
        memory = {pid: _memory_mib(pid) for pid in pids.all}
        for name, pid in named.items():
            if pid is not None:
                self.rss_mib[name] = memory[pid][0]
        self.pss_mib = sum(pss for _, pss in memory.values())

    def loop_shares(self) -> tuple[float, float] | tuple[None, None]:
        """CPU seconds per second after the burn-in: of the loop, and of its other threads.

        The other threads write limits, and the kernel reclaims pages in the thread that writes.
        """
        if not self.loop_cpu_s:
            return None, None
        steady = [p for p in self.loop_cpu_s if p[0] >= self.loop_cpu_s[0][0] + _BURN_IN_S]
        if len(steady) < 2:
            return None, None
        (t0, ticks0, others0), (t1, ticks1, others1) = steady[0], steady[-1]
        others = others1 - others0
        return (ticks1 - ticks0 + others) / (t1 - t0), others / (t1 - t0)


def _cpu_s(pid: int) -> tuple[float, float]:
    """CPU time of a process: of its first thread, and of all others, ended ones included."""
    process = psutil.Process(pid)
    times = process.cpu_times()
    first = next(thread for thread in process.threads() if thread.id == pid)
    main_s = first.user_time + first.system_time
    return main_s, max(times.user + times.system - main_s, 0.0)


def _memory_mib(pid: int) -> tuple[float, float]:
    """(RSS, PSS) of a process."""
    memory = psutil.Process(pid).memory_full_info()
    return memory.rss / _MIB, memory.pss / _MIB


def bench_node(
    *, scenario: str = "", seconds: float = 40.0, report: Report = silent
) -> dict[str, float | None]:
    """Measure the daemon; a figure that could not be measured is ``None``.

    Raises:
        StallwardError: If this machine cannot have the sandbox, or cannot run the shipped policy.
    """
    loaded = load_scenario(scenario or WORST_SCENARIO)
    arm = Arm(label="ppo", spec="ppo")
    policy = find_policy_of(arm, "default")
    report("preparing programs and data", 0.0)
    with (
        open_session(loaded) as session,
        tempfile.TemporaryDirectory(dir=session.scratch) as folder,
    ):
        blocks = _Blocks(session=session, folder=Path(folder), seconds=seconds)
        report("calm", 0.1)
        _, calm = blocks.run("alone", arm, policy)
        report("under pressure", 0.35)
        with Earlyoom() as earlyoom:
            recording, pressure = blocks.run("together", arm, policy)
        report("onset to pause", 0.65)
        onsets = onset_to_pause_ms(session, Path(folder) / "onset", seconds=seconds)
    report("full samples", 0.9)
    samples = sample_cost.sample_costs()
    report("done", 1.0)
    loop_share, limits_share = pressure.loop_shares()
    return {
        **loop_times(recording),
        "loop_cpu_share_calm": calm.loop_shares()[0],
        "loop_cpu_share_pressure": loop_share,
        "limits_cpu_share_pressure": limits_share,
        "loop_rss_mib": pressure.rss_mib.get("loop"),
        "service_rss_mib": pressure.rss_mib.get("service"),
        "guardian_rss_mib": pressure.rss_mib.get("guardian"),
        "all_pss_mib": pressure.pss_mib,
        "onset_to_pause_p50_ms": _quantile(onsets, 0.5),
        "onset_to_pause_p99_ms": _quantile(onsets, 0.99),
        "onsets": float(onsets.size),
        **samples,
        "earlyoom_cpu_share_pressure": earlyoom.cpu_share,
        "earlyoom_rss_mib": earlyoom.rss_mib,
        "earlyoom_actions": earlyoom.actions,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Blocks:
    """Runs blocks of a scenario under a watched daemon."""

    session: LiveSession
    folder: Path
    seconds: float

    def run(
        self, condition: Condition, arm: Arm, policy: Path | None
    ) -> tuple[Recording, DaemonWatch]:
        request = RunRequest(
            condition=condition,
            arm=arm,
            policy=policy,
            slo_ms=_CALM_SLO_MS
            if condition == "alone"
            else self.session.scenario.protected.slo.latency_ms or 100.0,
            duration_s=self.seconds,
            burn_in_s=_BURN_IN_S,
            seed=1,
        )
        watch = DaemonWatch()
        out = self.folder / condition
        try:
            self.session.run(request, out, on_daemon=watch)
        finally:
            watch.finish()
        return load_recording(out), watch


def loop_times(recording: Recording) -> dict[str, float | None]:
    """Decision time and jitter of the loop in a recording, after its burn-in."""
    ticks = np.asarray(recording.ticks["time_s"], dtype=np.float64)
    steady = ticks >= recording.run.measured_from_s
    decision = sum(
        np.nan_to_num(recording.tick(f"timing_{part}_ms"))
        for part in ("observe", "decide", "guard")
    )
    return {
        "decision_p99_ms": _quantile(np.asarray(decision)[steady], 0.99),
        "tick_jitter_p99_ms": _quantile(recording.tick("timing_late_ms")[steady], 0.99),
    }


def _quantile(values: Array, q: float) -> float | None:
    finite = values[np.isfinite(values)]
    return float(np.quantile(finite, q)) if finite.size else None


def onset_to_pause_ms(session: LiveSession, out: Path, *, seconds: float) -> Array:
    """Measure the times from the protected group's first stall to the background being frozen.

    Raises:
        StallwardError: If the block cannot be run.
    """
    probe = OnsetProbe()
    request = RunRequest(
        condition="together",
        slo_ms=session.scenario.protected.slo.latency_ms or 100.0,
        duration_s=seconds,
        burn_in_s=_BURN_IN_S,
        seed=2,
        lift_budgets=True,  # else the least time between two pauses would count as delay
    )
    try:
        session.run(request, out, on_daemon=probe.starter(session))
    finally:
        probe.finish()
    return np.asarray(probe.delays_ms, dtype=np.float64)
