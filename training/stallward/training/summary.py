"""What a recording and the twin are compared by: distributions, not traces."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.agent.controllers.latd import TUNINGS
from stallward.agent.desired import PROFILES, SLOTS
from stallward.env.recording import Recording
from stallward.env.twin.core import NODE_DIRTY_RATIOS, NODE_SWAPPINESS, TICK_S, TwinBatch
from stallward.env.twin.latency import Array, pooled_quantiles
from stallward.env.twin.pages import GROUPS
from stallward.env.twin.scenario import PAGE_BYTES, TwinScenario
from stallward.training.describe import measured_ms, measured_ticks

QUANTILES: Final = (0.5, 0.95, 0.99)
NAMES: Final = (
    "log_p50", "log_p95", "log_p99",
    *(f"work_{i}" for i in range(SLOTS)),
    *(f"psi_{i}" for i in range(GROUPS)),
    *(f"usage_{i}" for i in range(GROUPS)),
    "refaults", "swap_in",
)  # fmt: skip
_SCALES: Final = np.array(
    [0.10, 0.15, 0.30] + [0.05] * SLOTS + [0.10] * GROUPS + [0.10] * GROUPS + [0.7, 0.7]
)
"""An error of this much counts as one."""
_PROFILE: Final = {p.name: p for p in (*PROFILES, *TUNINGS)}


def live_summary(recording: Recording, scenario: TwinScenario) -> Array:
    """The summary of a recording, ``(len(NAMES),)``; NaN where it was not recorded."""
    ticks = measured_ticks(recording)
    latencies = measured_ms(recording)
    values: list[float] = [np.nan] * len(QUANTILES)
    if len(latencies):
        values = list(np.log(np.maximum(np.quantile(latencies, QUANTILES), 1e-3)))
    run = recording.run
    for i in range(SLOTS):
        rate = (
            recording.units.rate_per_s(i, run.measured_from_s, run.end_s)
            if i < len(scenario.slots)
            else None
        )
        values.append(np.nan if rate is None else rate / scenario.slots[i].units_per_s)
    groups = ["protected_", *(f"slot{i}_" for i in range(SLOTS))]
    time_s = recording.tick("time_s")[ticks]
    span_s = float(time_s[-1] - time_s[0]) if len(time_s) > 1 else np.nan

    def change(column: str) -> float:
        found = recording.tick(column)[ticks]
        return float(found[-1] - found[0]) / span_s if len(found) > 1 else np.nan

    values += [change(f"{g}psi_memory_some_us") * 1e-6 for g in groups]
    for group in groups:
        used = recording.tick(f"{group}memory_usage_bytes")[ticks]
        known = used[np.isfinite(used)]
        values.append(float(known.mean()) / scenario.zone_bytes if len(known) else np.nan)
    refaults = [change(f"protected_refault_{kind}_pages") for kind in ("file", "anon")]
    known_refaults = [v for v in refaults if np.isfinite(v)]
    values.append(float(np.log1p(sum(known_refaults))) if known_refaults else np.nan)
    values.append(float(np.log1p(max(change("node_swap_in_pages"), 0.0))))
    return np.array(values)


def replay_levers(recording: Recording) -> tuple[Array, Array, Array, Array]:
    """The lever states in force at every tick of 0.1 s from the start of the recording.

    Returns:
        Paused ``(T, SLOTS)``, limits in pages ``(T, SLOTS)``, swappiness ``(T,)`` and dirty
        ratios ``(T, 2)``.
    """
    time_s = recording.tick("time_s")
    grid_s = np.arange(recording.run.start_s, recording.run.end_s, TICK_S)
    if not len(time_s):
        at = np.zeros(len(grid_s), dtype=np.int64)
    else:
        at = np.clip(np.searchsorted(time_s, grid_s, side="right") - 1, 0, len(time_s) - 1)
    paused = np.zeros((len(grid_s), SLOTS))
    limits = np.full((len(grid_s), SLOTS), np.inf)
    swappiness = np.full(len(grid_s), NODE_SWAPPINESS)
    dirty = np.tile(NODE_DIRTY_RATIOS, (len(grid_s), 1))
    if len(time_s):
        for i in range(SLOTS):
            whole = np.nan_to_num(recording.tick(f"slot{i}_state_paused")[at])
            stopped = np.nan_to_num(recording.tick(f"slot{i}_stopped_processes")[at])
            paused[:, i] = (whole > 0) | (stopped > 0)
            limit = recording.tick(f"slot{i}_state_limit_bytes")[at]
            limits[:, i] = np.where(np.isnan(limit), np.inf, limit / PAGE_BYTES)
        for k, name in enumerate(recording.ticks["profile"][at]):
            profile = _PROFILE.get(str(name), PROFILES[0])
            if profile.swappiness is not None:
                swappiness[k] = profile.swappiness
            if profile.dirty_background_ratio is not None:
                dirty[k, 0] = profile.dirty_background_ratio / 100.0
            if profile.dirty_ratio is not None:
                dirty[k, 1] = profile.dirty_ratio / 100.0
    return paused, limits, swappiness, dirty


def ended_slots(recording: Recording, ticks: int) -> NDArray[np.bool_]:
    """Slots whose program is gone for the rest of the recording, ``(ticks, SLOTS)``.

    A rule may terminate a program; what happens then is not the twin's to explain.
    """
    ended = np.zeros((ticks, SLOTS), dtype=bool)
    time_s = recording.tick("time_s")
    for i in range(SLOTS):
        alive = np.flatnonzero(recording.tick(f"slot{i}_processes") > 0)
        if len(alive) and alive[-1] + 1 < len(time_s):
            from_s = time_s[alive[-1] + 1] - recording.run.start_s
            ended[max(int(from_s / TICK_S), 0) :, i] = True
    return ended


def twin_summaries(
    recording: Recording, scenario: TwinScenario, parameters: Array, *, seed: int
) -> Array:
    """Replay a recording's lever states through the twin, one node per parameter column.

    Args:
        recording: Whose levers, zone size and times are used.
        scenario: The exogenous description.
        parameters: ``(len(PARAMETER_NAMES), N)``.
        seed: Of the twin's randomness.

    Returns:
        ``(len(NAMES), N)``.
    """
    count = parameters.shape[1]
    run = recording.run
    twin = TwinBatch([scenario], count, seed=seed)
    everyone = np.ones(count, dtype=bool)
    twin.reset(everyone, np.zeros(count, dtype=np.int64), parameters)
    twin.columns.zone_pages[:] = run.sandbox_bytes / PAGE_BYTES
    if run.condition == "alone":
        twin.columns.present[:] = 0.0
    if run.condition == "background":
        twin.columns.rate_per_s[:] = 1e-9
    paused, limits, swappiness, dirty = replay_levers(recording)
    first = round(run.burn_in_s / TICK_S)
    use = np.zeros((GROUPS, count))
    before = (twin.units.copy(), twin.psi_some_us.copy(), twin.refault_pages[0].copy())
    swapped = twin.swap_in_pages.copy()
    ended = ended_slots(recording, len(paused))
    for k in range(len(paused)):
        if ended[k].any():
            twin.end_slots(np.repeat(ended[k][:, None], count, axis=1))
        if k == first:
            twin.pooled[:] = 0.0
            before = (twin.units.copy(), twin.psi_some_us.copy(), twin.refault_pages[0].copy())
            swapped = twin.swap_in_pages.copy()
        twin.tick(
            np.repeat(paused[k][:, None] > 0, count, axis=1),
            np.repeat(limits[k][:, None], count, axis=1),
            swappiness[k],
            (dirty[k, 0], dirty[k, 1]),
        )
        if k >= first:
            use += twin.resident.sum(axis=1)
    ticks = max(len(paused) - first, 1)
    span_s = ticks * TICK_S
    full = np.maximum(twin.columns.units_per_s, 1e-12)
    return np.concatenate(
        [
            np.log(pooled_quantiles(twin.pooled, QUANTILES)),
            (twin.units - before[0]) / span_s / full,
            (twin.psi_some_us[:GROUPS] - before[1][:GROUPS]) * 1e-6 / span_s,
            use / ticks * PAGE_BYTES / scenario.zone_bytes,
            np.log1p((twin.refault_pages[0] - before[2]) / span_s)[None],
            np.log1p((twin.swap_in_pages - swapped) / span_s)[None],
        ]
    )


def loss(live: Array, twin: Array) -> Array:
    """How far the twin is from a recording, ``(N,)``: robust, in units of what matters."""
    error = (twin - live[:, None]) / _SCALES[:, None]
    robust = np.log1p(np.square(error))
    known = np.isfinite(robust)
    total = np.where(known, robust, 0.0).sum(axis=0)
    # A twin without requests where the live run had some is no match.
    broken = (~np.isfinite(twin[:3])).any(axis=0) & np.isfinite(live[:3]).any()
    return np.asarray(total / np.maximum(known.sum(axis=0), 1) + 100.0 * broken)
