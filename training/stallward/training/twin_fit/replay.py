"""Replay of recorded lever states and exogenous inputs through many twins in one batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stallward.agent.controllers.latd import TUNINGS
from stallward.agent.desired import NORMAL_CPU_WEIGHT, PROFILES, SLOTS
from stallward.env.recording.recording import Recording
from stallward.env.twin.batch import TICK_S, TwinBatch
from stallward.env.twin.estimate.background import recorded_running
from stallward.env.twin.inputs.exogenous import PAGE_BYTES, Exogenous
from stallward.env.twin.physics.latency import Array, pooled_quantiles
from stallward.env.twin.physics.pages import GROUPS
from stallward.env.twin.physics.randomness import keys_of
from stallward.env.twin.settings import NODE_SETTINGS, NodeSettings, settings_of
from stallward.training.twin_fit.loss import QUANTILES, log_share, segment_edges_s

_TUNED: Final = ("swappiness", "protected_swappiness", "dirty_background_ratio", "dirty_ratio")
_PROFILES_BY_NAME: Final = {p.name: p for p in (*PROFILES, *TUNINGS)}


class RecordedLevers(NamedTuple):
    """The lever states in force, with a tick of 0.1 s as the first axis."""

    paused: Array
    """``(T, SLOTS)``."""
    limit_pages: Array
    """``(T, SLOTS)``; infinite for none."""
    cpu_weight: Array
    """``(T, SLOTS)``."""
    swappiness: Array
    dirty_ratios: Array
    """``(T, 2)``: where writeback starts, and where writers block."""
    protected_swappiness: Array
    protected_low_pages: Array
    read_back: Array
    """1 where the application's pages in swap are asked for, else 0."""


def replay_levers(recording: Recording) -> RecordedLevers:
    """The lever states in force at every tick of 0.1 s from the start of the recording."""
    time_s = recording.tick("time_s")
    grid_s = np.arange(recording.run.start_s, recording.run.end_s, TICK_S)
    paused = np.zeros((len(grid_s), SLOTS))
    limits = np.full((len(grid_s), SLOTS), np.inf)
    if not len(time_s):
        at = np.zeros(0, dtype=np.int64)
        settings = [NODE_SETTINGS] * len(grid_s)
    else:
        at = np.clip(np.searchsorted(time_s, grid_s, side="right") - 1, 0, len(time_s) - 1)
        for i in range(SLOTS):
            whole = np.nan_to_num(recording.tick(f"slot{i}_state_paused")[at])
            stopped = np.nan_to_num(recording.tick(f"slot{i}_stopped_processes")[at])
            paused[:, i] = (whole > 0) | (stopped > 0)
            limit = recording.tick(f"slot{i}_state_limit_bytes")[at]
            limits[:, i] = np.where(np.isnan(limit), np.inf, limit / PAGE_BYTES)
        settings = _settings(recording, at)
    asked = np.nan_to_num(_granted(recording, "protected_willneed", at, len(grid_s)))
    low = np.nan_to_num(_granted(recording, "protected_low_bytes", at, len(grid_s)))
    return RecordedLevers(
        paused=paused,
        limit_pages=limits,
        cpu_weight=np.stack(
            [
                np.nan_to_num(
                    _granted(recording, f"slot{i}_cpu_weight", at, len(grid_s)),
                    nan=NORMAL_CPU_WEIGHT,
                )
                for i in range(SLOTS)
            ],
            axis=1,
        ),
        swappiness=np.array([s.swappiness for s in settings]),
        dirty_ratios=np.array([(s.dirty_start, s.dirty_block) for s in settings]).reshape(-1, 2),
        protected_swappiness=np.array([s.protected_swappiness for s in settings]),
        protected_low_pages=low / PAGE_BYTES,
        read_back=np.diff(asked, prepend=0.0).clip(0.0),
    )


def _settings(recording: Recording, at: NDArray[np.int64]) -> list[NodeSettings]:
    """The kernel settings in the recorded ticks ``at``: those granted, and those of the profile.

    A profile by name is all that older recordings tell.
    """
    names = recording.ticks["profile"][at]
    granted = {key: _granted(recording, key, at, len(at)) for key in _TUNED}
    settings = []
    for k, name in enumerate(names):
        known = {key: values[k] for key, values in granted.items() if np.isfinite(values[k])}
        tuning = _PROFILES_BY_NAME.get(str(name), PROFILES[0])
        settings.append(settings_of(replace(tuning, **known)))
    return settings


def _granted(recording: Recording, name: str, at: NDArray[np.int64], ticks: int) -> Array:
    """What was granted in the recorded ticks ``at``; NaN where that was not recorded."""
    column = recording.actions.get(f"granted_{name}")
    if column is None or not len(at):
        return np.full(ticks, np.nan)
    return np.array([np.nan if v is None else float(v) for v in column])[at]


def set_levers(twin: TwinBatch, levers: RecordedLevers) -> None:
    """Set the levers of all nodes to those of one tick; the last axis is the node."""
    twin.set_levers(
        levers.paused > 0,
        levers.limit_pages,
        levers.swappiness,
        (levers.dirty_ratios[0], levers.dirty_ratios[1]),
        protected_swappiness=levers.protected_swappiness,
        protected_low_pages=levers.protected_low_pages,
        cpu_weight=levers.cpu_weight,
    )
    asked = levers.read_back > 0
    if asked.any():
        twin.read_back(asked)


def ended_slots(recording: Recording, ticks: int) -> NDArray[np.bool_]:
    """Slots whose program has ended for the rest of the recording, ``(ticks, SLOTS)``.

    A rule may terminate a program, which the twin does not have to explain.
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
    recordings: Sequence[Recording],
    scenario: Exogenous,
    parameters: Array,
    *,
    seed: int,
    first: int = 0,
) -> list[Array]:
    """Replay the lever states of recordings through the twin, one node per parameter column.

    Args:
        recordings: The recordings whose levers, zone sizes and times are used, in one batch.
        scenario: The exogenous description.
        parameters: The parameters of ``N`` twins, ``(len(PARAMETER_NAMES), N)``.
        seed: The seed of the twin's randomness, which is the same for all columns.
        first: The number of the first recording, where more are replayed in parts; each has
            random numbers of its own.

    Returns:
        For each recording the figures of the whole and of its segments, ``(1 + segments,
        len(NAMES), N)``.
    """
    count = parameters.shape[1]
    replays = [
        _Replay(recording, slice(k * count, (k + 1) * count))
        for k, recording in enumerate(recordings)
    ]
    scenarios = [with_recorded_running(scenario, recording) for recording in recordings]
    twin = TwinBatch(scenarios, count * len(replays), seed=seed)
    twin.reset(
        np.ones(twin.batch, dtype=bool),
        np.repeat(np.arange(len(scenarios)), count),
        np.tile(parameters, (1, len(scenarios))),
    )
    # All columns have the same randomness, so that they differ by their parameters only.
    twin.world.keys[: twin.batch] = np.repeat(keys_of(seed, first + len(replays))[first:], count)
    for replay in replays:
        replay.configure(twin)
    sums = _TickSums(twin)
    for k in range(max(replay.ticks for replay in replays)):
        for replay in replays:
            replay.before_tick(k, twin, sums)
        levers = _levers_at(replays, k)
        set_levers(twin, RecordedLevers(*(np.repeat(v, count, axis=-1) for v in levers)))
        twin.advance()
        sums.add(twin)
        for replay in replays:
            replay.after_tick(k, twin, sums)
    return [replay.summary(scenario) for replay in replays]


class _TickSums:
    """Sums over ticks of quantities for which the twin has no counter."""

    def __init__(self, twin: TwinBatch) -> None:
        self.pages = np.zeros((GROUPS, twin.batch))
        self.on_ticks = np.zeros((SLOTS, twin.batch))

    def add(self, twin: TwinBatch) -> None:
        self.pages += twin.nodes.resident.sum(axis=1)
        self.on_ticks += twin.nodes.on


class _Replay:
    """One recording, replayed on the nodes ``rows`` of a batch."""

    def __init__(self, recording: Recording, rows: slice) -> None:
        self._run, self._rows = recording.run, rows
        self.levers = replay_levers(recording)
        self.ticks = len(self.levers[0])
        length_s = recording.run.end_s - recording.run.start_s
        edges = [round(s / TICK_S) for s in segment_edges_s(recording.run.burn_in_s, length_s)]
        self._edges = [min(edge, self.ticks - 1) for edge in edges[:-1]] + [self.ticks]
        self._ended = ended_slots(recording, self.ticks)
        self._counted: list[dict[str, Array]] = []

    def configure(self, twin: TwinBatch) -> None:
        """Set the nodes' zone size, and which programs run, as in the recording."""
        nodes = twin.nodes.at(np.arange(twin.batch)[self._rows])
        nodes.zone_pages = self._run.sandbox_bytes / PAGE_BYTES
        if self._run.condition == "alone":
            nodes.has_program = 0.0
        if self._run.condition == "background":
            nodes.rate_per_s = 1e-9
        self._full_speed = nodes.units_per_s

    def before_tick(self, k: int, twin: TwinBatch, sums: _TickSums) -> None:
        """End the programs that ended in the recording, and take the counters at segment edges."""
        if k < self.ticks and self._ended[k].any():
            ended = np.zeros((SLOTS, twin.batch), dtype=bool)
            ended[self._ended[k], self._rows] = True
            twin.end_slots(ended)
        if k in self._edges[:-1]:
            self._counted.append(self._counters(twin, sums))

    def after_tick(self, k: int, twin: TwinBatch, sums: _TickSums) -> None:
        """Take the counters at the end of the recording."""
        if k == self.ticks - 1:
            self._counted.append(self._counters(twin, sums))

    def _counters(self, twin: TwinBatch, sums: _TickSums) -> dict[str, Array]:
        nodes = twin.nodes.at(np.arange(twin.batch)[self._rows])
        counters = {name: np.array(getattr(nodes, name)) for name in _COUNTERS}
        counters["pages"] = sums.pages[:, self._rows].copy()
        counters["on_ticks"] = sums.on_ticks[:, self._rows].copy()
        counters["answers"] = twin.pooled[:, self._rows]
        return counters

    def summary(self, scenario: Exogenous) -> Array:
        """The figures of the whole and of its segments, ``(1 + segments, len(NAMES), N)``."""
        last = len(self._edges) - 1
        spans = [(0, last), *((k, k + 1) for k in range(last))]
        return np.array([self._between(scenario, first, end) for first, end in spans])

    def _between(self, scenario: Exogenous, first: int, end: int) -> Array:
        """The figures between two edges, ``(len(NAMES), N)``."""
        before, after = self._counted[first], self._counted[end]
        change = {name: after[name] - before[name] for name in after}
        ticks = max(self._edges[end] - self._edges[first], 1)
        rate = {name: value / (ticks * TICK_S) for name, value in change.items()}
        full_speed = self._full_speed * change["on_ticks"] / ticks
        return np.concatenate(
            [
                np.log(pooled_quantiles(change["answers"], QUANTILES)),
                rate["units"] / np.maximum(full_speed, 1e-12),
                log_share(rate["psi_some_us"][:GROUPS]),
                change["pages"] / ticks * PAGE_BYTES / scenario.zone_bytes,
                np.log1p(rate["refault_pages"]),
                log_share(rate["psi_io_us"][:GROUPS]),
                np.log1p(rate["swap_in_pages"][None]),
                np.log1p(rate["major_faults"][None]),
                log_share(rate["psi_full_us"][GROUPS:]),
                rate["cpu_us"][1:] * 1e-6,
            ]
        )


def _levers_at(replays: Sequence[_Replay], k: int) -> list[Array]:
    """The levers of every recording at tick ``k``; the last axis is the recording.

    After the end of a recording its last levers stay.
    """
    at = [[lever[min(k, r.ticks - 1)] for lever in r.levers] for r in replays]
    return [np.stack(column, axis=-1) for column in zip(*at, strict=True)]


_COUNTERS: Final = (
    "units", "psi_some_us", "psi_full_us", "psi_io_us", "refault_pages", "swap_in_pages", "cpu_us",
    "major_faults",
)  # fmt: skip


def with_recorded_running(scenario: Exogenous, recording: Recording) -> Exogenous:
    """The scenario, with its programs running when they ran in the recording."""
    slots = tuple(
        replace(slot, running=recorded_running(recording, i))
        for i, slot in enumerate(scenario.slots)
    )
    return replace(scenario, slots=slots)
