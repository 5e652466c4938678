"""What a recording and the twin are compared by: distributions, not traces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
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
from stallward.training.describe import measured_ms, measured_ticks, rate_while_on, running

QUANTILES: Final = (0.5, 0.95, 0.99)
NAMES: Final = (
    "log_p50", "log_p95", "log_p99",
    *(f"work_{i}" for i in range(SLOTS)),
    *(f"psi_{i}" for i in range(GROUPS)),
    *(f"usage_{i}" for i in range(GROUPS)),
    "refaults", "swap_in", "psi_io", "zone_psi_full",
    *(f"cores_{i}" for i in range(SLOTS)),
)  # fmt: skip
_SCALES: Final = np.array(
    [0.10, 0.15, 0.30]
    + [0.05] * SLOTS
    + [0.10] * GROUPS
    + [0.10] * GROUPS
    + [0.7, 0.7, 0.1, 0.15]
    + [0.15] * SLOTS
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
    for i in range(SLOTS):
        rate = rate_while_on(recording, i) if i < len(scenario.slots) else None
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
    values += [change("protected_psi_io_some_us") * 1e-6, change("zone_psi_memory_full_us") * 1e-6]
    values += [change(f"slot{i}_cpu_usage_us") * 1e-6 for i in range(SLOTS)]
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
    recordings: Sequence[Recording], scenario: TwinScenario, parameters: Array, *, seed: int
) -> list[Array]:
    """Replay the lever states of recordings through the twin, one node per parameter column.

    Args:
        recordings: Whose levers, zone sizes and times are used; they run side by side.
        scenario: The exogenous description.
        parameters: ``(len(PARAMETER_NAMES), N)``.
        seed: Of the twin's randomness.

    Returns:
        For each recording ``(len(NAMES), N)``.
    """
    count = parameters.shape[1]
    replays = [
        _Replay(recording, slice(k * count, (k + 1) * count))
        for k, recording in enumerate(recordings)
    ]
    worlds = [_as_it_ran(scenario, recording) for recording in recordings]
    twin = TwinBatch(worlds, count * len(replays), seed=seed)
    twin.reset(
        np.ones(twin.batch, dtype=bool),
        np.repeat(np.arange(len(worlds)), count),
        np.tile(parameters, (1, len(worlds))),
    )
    for replay in replays:
        replay.furnish(twin)
    held = _Held(twin)
    for k in range(max(replay.ticks for replay in replays)):
        for replay in replays:
            replay.before_tick(k, twin, held)
        levers = [np.repeat(v, count, axis=-1) for v in _side_by_side(replays, k)]
        twin.tick(levers[0] > 0, levers[1], levers[2], (levers[3][0], levers[3][1]))
        held.add(twin)
        for replay in replays:
            replay.after_tick(k, twin, held)
    return [replay.summary(scenario) for replay in replays]


class _Held:
    """Sums over ticks of what has no counter of its own."""

    def __init__(self, twin: TwinBatch) -> None:
        self.pages = np.zeros((GROUPS, twin.batch))
        self.on_ticks = np.zeros((SLOTS, twin.batch))

    def add(self, twin: TwinBatch) -> None:
        self.pages += twin.nodes.resident.sum(axis=1)
        self.on_ticks += twin.nodes.on


class _Replay:
    """One recording's levers on the nodes ``rows`` of a batch, and what they came to."""

    def __init__(self, recording: Recording, rows: slice) -> None:
        self._run, self._rows = recording.run, rows
        self.levers = replay_levers(recording)
        self.ticks = len(self.levers[0])
        self._first = min(round(recording.run.burn_in_s / TICK_S), self.ticks - 1)
        self._ended = ended_slots(recording, self.ticks)
        self._change: dict[str, Array] = {}
        self._histogram: Array | None = None

    def furnish(self, twin: TwinBatch) -> None:
        """Give the nodes the size and company of the recorded one."""
        nodes = twin.nodes.at(np.arange(twin.batch)[self._rows])
        nodes.zone_pages = self._run.sandbox_bytes / PAGE_BYTES
        if self._run.condition == "alone":
            nodes.present = 0.0
        if self._run.condition == "background":
            nodes.rate_per_s = 1e-9
        self._full_speed = nodes.units_per_s

    def before_tick(self, k: int, twin: TwinBatch, held: _Held) -> None:
        """End what ended, and begin to measure."""
        if k < self.ticks and self._ended[k].any():
            gone = np.zeros((SLOTS, twin.batch), dtype=bool)
            gone[self._ended[k], self._rows] = True
            twin.end_slots(gone)
        if k == self._first:
            twin.forget_pooled(self._rows)
            self._change = {n: -v for n, v in self._counters(twin, held).items()}

    def after_tick(self, k: int, twin: TwinBatch, held: _Held) -> None:
        """Take the counters when the recording is over."""
        if k == self.ticks - 1:
            for name, value in self._counters(twin, held).items():
                self._change[name] += value
            self._histogram = twin.pooled[:, self._rows]

    def _counters(self, twin: TwinBatch, held: _Held) -> dict[str, Array]:
        nodes = twin.nodes.at(np.arange(twin.batch)[self._rows])
        named = {name: getattr(nodes, name) for name in _COUNTERS}
        named["pages"] = held.pages[:, self._rows].copy()
        named["on_ticks"] = held.on_ticks[:, self._rows].copy()
        return named

    def summary(self, scenario: TwinScenario) -> Array:
        """``(len(NAMES), N)``."""
        assert self._histogram is not None
        ticks = self.ticks - self._first
        rate = {name: value / (ticks * TICK_S) for name, value in self._change.items()}
        full_speed = self._full_speed * self._change["on_ticks"] / ticks
        return np.concatenate(
            [
                np.log(pooled_quantiles(self._histogram, QUANTILES)),
                rate["units"] / np.maximum(full_speed, 1e-12),
                rate["psi_some_us"][:GROUPS] * 1e-6,
                self._change["pages"] / ticks * PAGE_BYTES / scenario.zone_bytes,
                np.log1p(rate["refault_pages"][:1]),
                np.log1p(rate["swap_in_pages"][None]),
                rate["psi_io_us"][:1] * 1e-6,
                rate["psi_full_us"][GROUPS:] * 1e-6,
                rate["cpu_us"][1:] * 1e-6,
            ]
        )


def _side_by_side(replays: Sequence[_Replay], k: int) -> list[Array]:
    """Levers of every recording at tick ``k``, the recording last; the last ones stay."""
    at = [[lever[min(k, r.ticks - 1)] for lever in r.levers] for r in replays]
    return [np.stack(column, axis=-1) for column in zip(*at, strict=True)]


_COUNTERS: Final = (
    "units", "psi_some_us", "psi_full_us", "psi_io_us", "refault_pages", "swap_in_pages", "cpu_us",
)  # fmt: skip


def _as_it_ran(scenario: TwinScenario, recording: Recording) -> TwinScenario:
    """The scenario with its programs coming and going as in the recording."""
    slots = tuple(
        replace(slot, running=running(recording, i)) for i, slot in enumerate(scenario.slots)
    )
    return replace(scenario, slots=slots)


def loss(live: Array, twin: Array) -> Array:
    """How far the twin is from a recording, ``(N,)``: robust, in units of what matters."""
    error = (twin - live[:, None]) / _SCALES[:, None]
    robust = np.log1p(np.square(error))
    known = np.isfinite(robust)
    total = np.where(known, robust, 0.0).sum(axis=0)
    # A twin without requests where the live run had some is no match.
    broken = (~np.isfinite(twin[:3])).any(axis=0) & np.isfinite(live[:3]).any()
    return np.asarray(total / np.maximum(known.sum(axis=0), 1) + 100.0 * broken)
