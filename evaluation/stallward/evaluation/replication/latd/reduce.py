"""From the recording of a run to what is kept of it. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from stallward.env.recording.recording import Recording, Requests
from stallward.evaluation.measures.block_measures import paused_share, terminated_processes
from stallward.evaluation.replication.latd.resident import ResidentReading
from stallward.evaluation.replication.latd.result import LatdRun, Lookups, MemorySeries

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
