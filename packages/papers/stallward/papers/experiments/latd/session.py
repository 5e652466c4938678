"""A sandbox in which the detector runs beside one hog after another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.actuator.kernel.paths import DEFAULT_PATHS, Paths
from stallward.env.recording.recording import Recording, Requests, load_recording
from stallward.evaluation.arms import Arm
from stallward.evaluation.blocks.live import LiveSession, open_session
from stallward.evaluation.blocks.request import RunRequest
from stallward.evaluation.measures.block_measures import paused_share, terminated_processes
from stallward.papers.errors import ReplicationError
from stallward.papers.experiments.latd.resident import ResidentReading, ResidentWatch
from stallward.papers.experiments.latd.result import LatdRun, Lookups, MemorySeries
from stallward.papers.experiments.latd.steps import ISOLATED, SCENARIOS, Setting
from stallward.papers.experiments.latd.workload import (
    BURN_IN_S,
    MEASURED_S,
    SLO_MS,
    USUAL,
    Machine,
)

# ---------- From the recording of a run to what is kept of it.

Array = NDArray[np.float64]


def reduce_run(recording: Recording, resident: Sequence[ResidentReading]) -> LatdRun:
    """What is kept of a run.

    Args:
        recording: The run.
        resident: The resident sets of the detector and of the hog while it ran.
    """
    run = recording.run
    beside = run.condition != "alone"
    asked = _asked(recording.requests)
    measured = asked.where(asked.start_s >= run.measured_from_s)
    inside = _inside(recording, run.measured_from_s, run.end_s)
    missing = next((text for text in run.missing if "page cache" in text), "")
    return LatdRun(
        request_s=_rounded(measured.start_s - run.measured_from_s, 3),
        latency_ms=_rounded((measured.end_s - measured.start_s) * 1e3, 2),
        unfinished=int((~measured.ok).sum()),
        detector_lookups=_lookups(recording, "protected", inside),
        zone_lookups=_lookups(recording, "zone", inside),
        memory=_memory(recording, asked, resident),
        work_mib_per_s=(
            recording.units.rate_per_s(0, run.measured_from_s, run.end_s) if beside else None
        ),
        stopped_share=float(paused_share(recording, 0)[inside].mean()) if inside.any() else 0.0,
        terminated=terminated_processes(recording),
        stolen_share=run.stolen_share or 0.0,
        node=run.node,
        not_counted=missing,
    )


def _asked(requests: Requests) -> Requests:
    """The images that the detector was asked for; the others were still waiting at the end."""
    return requests.where(requests.end_s > requests.start_s)


def _inside(recording: Recording, from_s: float, to_s: float) -> NDArray[np.bool_]:
    time_s = recording.tick("time_s")
    return np.asarray((time_s >= from_s) & (time_s <= to_s))


def _lookups(recording: Recording, of: str, inside: NDArray[np.bool_]) -> Lookups | None:
    """The growth of both counters over some ticks; ``None`` where they were not counted."""
    grown = []
    for kind in ("hits", "misses"):
        total = recording.tick(f"{of}_page_cache_{kind}")[inside]
        known = total[np.isfinite(total)]
        if known.size < 2:
            return None
        grown.append(int(known[-1] - known[0]))
    return Lookups(hits=grown[0], misses=grown[1])


def _memory(
    recording: Recording, asked: Requests, resident: Sequence[ResidentReading]
) -> MemorySeries:
    """Memory at each reading of the resident sets within the run."""
    run, tick_s = recording.run, recording.tick("time_s")
    inside = [one for one in resident if run.start_s <= one.time_s <= run.end_s]
    time_s = np.array([one.time_s for one in inside])
    return MemorySeries(
        images=tuple(np.searchsorted(np.sort(asked.start_s), time_s).tolist()),
        detector_bytes=tuple(one.resident_bytes[0] for one in inside),
        hog_bytes=tuple(one.resident_bytes[1] for one in inside),
        cache_bytes=_at(time_s, tick_s, recording.tick("zone_file_bytes")),
        used_bytes=_at(time_s, tick_s, recording.tick("zone_memory_usage_bytes")),
    )


def _at(time_s: Array, tick_s: Array, values: Array) -> tuple[int, ...]:
    """A signal at some times; 0 where it was never read."""
    known = np.isfinite(values)
    if not known.any():
        return (0,) * time_s.size
    return tuple(np.interp(time_s, tick_s[known], values[known]).astype(np.int64).tolist())


def _rounded(values: Array, digits: int) -> tuple[float, ...]:
    return tuple(np.round(values, digits).tolist())


ATTEMPTS: Final = 3
"""How often a run is tried in which the kernel kills."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectorSession:
    """A sandbox with the detector's data and the compiled programs."""

    live: LiveSession
    machine: Machine = USUAL
    measured_s: float = MEASURED_S
    """How long a run is measured."""

    def run(self, setting: Setting, seed: int) -> LatdRun:
        """Make one run.

        Args:
            setting: What runs.
            seed: The seed of the arrivals and the hog.

        Raises:
            ReplicationError: If the kernel kills a program again and again.
            StallwardError: If the sandbox, the daemon or a program fails.
        """
        live = replace(self.live, scenario=setting.scenario(self.machine))
        request = RunRequest(
            condition="alone" if setting.hog is None else "together",
            arm=Arm(label=setting.controller, spec=setting.controller),
            slo_ms=SLO_MS,
            duration_s=self.measured_s,
            burn_in_s=BURN_IN_S,
            seed=seed,
            probes=False,
        )
        groups = (live.sandbox.protected, *live.sandbox.slots)
        for _ in range(ATTEMPTS):
            with TemporaryDirectory(dir=live.scratch) as folder:
                out = Path(folder) / "recording"
                with ResidentWatch(groups, live.sandbox.paths.proc) as watch:
                    result = live.run(request, out)
                if result.oom_kills == result.limit_kills:
                    return reduce_run(load_recording(out), watch.readings)
        raise ReplicationError(
            f"{setting.name}: memory ran out {ATTEMPTS} times.",
            next_step="Check that swap is on and that its file is not full.",
        )


@contextmanager
def open_detector_session(
    machine: Machine = USUAL,
    measured_s: float = MEASURED_S,
    cache_dir: Path | None = None,
    paths: Paths = DEFAULT_PATHS,
) -> Iterator[DetectorSession]:
    """Make the data, compile the programs, and make a sandbox for them with swap of its own.

    Args:
        machine: What the programs run on.
        measured_s: How long a run is measured.
        cache_dir: The folder for data, builds and the swap file; by default the user's cache.
        paths: The roots of the kernel's files.

    Raises:
        StallwardError: If this user or machine cannot have the sandbox, or a program that is
            needed is not installed; the message says which, and what to do.
    """
    with open_session(SCENARIOS[ISOLATED].scenario(machine), cache_dir, paths) as live:
        yield DetectorSession(live=live, machine=machine, measured_s=measured_s)
