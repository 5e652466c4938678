"""The exogenous description of a scenario, taken from its recordings.

Working sets and full-speed work rates come from the runs with memory for all (or, without one,
from the largest use seen); the service time from the runs without background.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from stallward.agent.desired import SLOTS
from stallward.env.recording import Recording
from stallward.env.twin.latency import Array
from stallward.env.twin.scenario import PAGE_BYTES, ProtectedProgram, SlotProgram, TwinScenario
from stallward.training.errors import DatasetError

_MIB_PAGES: Final = 256.0
_SLO_FACTOR: Final = 1.5
_POISSON_SPREAD: Final = 0.5
_LEAST_UNITS: Final = 1e-6


def describe(name: str, recordings: Sequence[Recording]) -> TwinScenario:
    """The twin's scenario of the recordings of one scenario.

    Raises:
        DatasetError: If there is no run with background under pressure.
    """
    together = [r for r in recordings if r.run.condition == "together"]
    if not together:
        raise DatasetError(
            f"There is no run of {name} with everything together.",
            next_step="Record it with `stallward record`.",
        )
    unpressed = [r for r in recordings if r.run.condition in {"ample", "background"}]
    quiet = [r for r in recordings if r.run.condition == "alone"] or unpressed or together
    run = together[0].run
    names = max((r.run.slot_names for r in recordings), key=len)[:SLOTS]
    ample = [r for r in recordings if r.run.condition == "ample"]
    return TwinScenario(
        name=name,
        zone_bytes=run.sandbox_bytes,
        swap_bytes=run.swap_bytes or 2 << 30,
        slo_ms=_slo_ms(run.slo_ms, ample or quiet),
        cores=float(max(run.node.cpu_count, 1)),
        slo_quantile=run.slo_quantile,
        protected=_protected(quiet, together),
        slots=tuple(
            _slot(i, slot_name, unpressed or together, together)
            for i, slot_name in enumerate(names)
        ),
    )


def measured_ms(recording: Recording) -> Array:
    """Sojourn times of the requests scheduled after the burn-in; unfinished ones as they stand."""
    requests = recording.requests
    mine = requests.scheduled_s >= recording.run.measured_from_s
    return np.asarray(requests.sojourn_ms[mine])


def measured_ticks(recording: Recording) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which ticks lie after the burn-in."""
    return np.asarray(recording.tick("time_s") >= recording.run.measured_from_s)


def _slo_ms(stated: float, runs: Sequence[Recording]) -> float:
    if np.isfinite(stated) and stated > 0.0:
        return float(stated)
    pooled = np.concatenate([measured_ms(r) for r in runs])
    return _SLO_FACTOR * float(np.quantile(pooled, 0.99))


def _protected(quiet: Sequence[Recording], together: Sequence[Recording]) -> ProtectedProgram:
    pooled = np.concatenate([measured_ms(r) for r in quiet])
    if not len(pooled):
        raise DatasetError(f"{quiet[0].path} has no requests after its burn-in.")
    gaps = np.concatenate([np.diff(r.requests.scheduled_s) for r in together])
    rate = 1.0 / max(float(gaps.mean()), 1e-9)
    anon = _largest(quiet, "protected_anon_bytes") / PAGE_BYTES
    file = _largest(quiet, "protected_file_bytes") / PAGE_BYTES
    service_s = float(np.median(pooled)) * 1e-3
    # Touches are scaled by a fitted factor; a tenth of the set is where the search starts, and
    # no request can touch more than it has time to read from memory.
    most = max(service_s * 10e9 / PAGE_BYTES, 1.0)
    return ProtectedProgram(
        request_rate_per_s=rate,
        service_s=service_s,
        poisson=bool(gaps.std() > _POISSON_SPREAD * gaps.mean()),
        anon_pages=anon,
        file_pages=file,
        touch_anon_pages=min(0.1 * anon, most),
        touch_file_pages=min(0.5 * file, most),
    )


def _slot(
    index: int, name: str, free: Sequence[Recording], together: Sequence[Recording]
) -> SlotProgram:
    prefix = f"slot{index}_"
    anon, file = _program(free, prefix)
    if max(anon) + max(file) < 1.0:
        anon, file = _program(together, prefix)
    rates = [
        r.units.rate_per_s(index, r.run.measured_from_s, r.run.end_s) for r in (*free, *together)
    ]
    full = max((rate for rate in rates if rate), default=_LEAST_UNITS)
    dirty = _largest(free, f"{prefix}dirty_bytes") / PAGE_BYTES
    program = SlotProgram(
        name=name,
        units_per_s=full,
        anon_pages=anon,
        file_pages=file,
        cores=_cores(free, prefix),
    )
    held = max(file)
    if dirty > 4.0 * _MIB_PAGES and dirty > 0.02 * held:
        seconds = float(len(file))
        return replace(
            program,
            file_pages=tuple(0.0 for _ in file),
            stream_pages_per_s=max(held / seconds, dirty / 5.0),
            dirty_share=1.0,
        )
    return program


def _program(
    runs: Sequence[Recording], prefix: str
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """What a slot uses over its own time, second by second, from the longest run."""
    run = max(runs, key=lambda r: len(r.ticks["time_s"]))
    time_s = run.tick("time_s")
    if not len(time_s):
        return (0.0,), (0.0,)
    seconds = np.arange(max(int(time_s[-1] - time_s[0]), 1))
    owned = np.nan_to_num(run.tick(prefix + "anon_bytes")) + np.nan_to_num(
        run.tick(prefix + "swap_bytes")
    )
    file = np.nan_to_num(run.tick(prefix + "file_bytes"))

    def sampled(values: Array) -> tuple[float, ...]:
        found = np.interp(seconds + 0.5, time_s - time_s[0], values / PAGE_BYTES)
        return tuple(float(round(v)) for v in found)

    return sampled(owned), sampled(file)


def _cores(runs: Sequence[Recording], prefix: str) -> float:
    shares = []
    for run in runs:
        used, time_s = run.tick(prefix + "cpu_usage_us"), run.tick("time_s")
        known = np.isfinite(used)
        if known.sum() > 1:
            span_s = time_s[known][-1] - time_s[known][0]
            shares.append((used[known][-1] - used[known][0]) * 1e-6 / max(span_s, 1e-9))
    return float(np.clip(np.mean(shares), 0.02, 8.0)) if shares else 1.0


def _largest(runs: Sequence[Recording], column: str) -> float:
    values = [np.nanmax(v) for r in runs if np.isfinite(v := r.tick(column)).any()]
    return float(max(values, default=0.0))
