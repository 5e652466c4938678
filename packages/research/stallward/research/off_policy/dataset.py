"""The off-policy dataset: observations, actions, propensities and rewards from recordings.

Observations are computed again from the recorded signals, by the same code as on a node. The
reward is a part of the reward in training: background progress less a price for windows that miss
the target. It has no terms for the mean latency and slow requests, whose prices move during a
training, and none for moving levers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.agent.action_table import LEVELS, SET_POINTS, ActionTable
from stallward.agent.controller import Controller, NodeContext, needs_threads
from stallward.agent.desired import PROFILES, SLOTS, DesiredState, limit_level
from stallward.agent.observation.encoder import OBSERVATION_SIZE, ObservationEncoder
from stallward.agent.observation.raw import NODE, RawFrame
from stallward.agent.sample import Sample
from stallward.env.objective import window_severity
from stallward.env.recording.recording import Recording
from stallward.env.twin.inputs.exogenous import Exogenous
from stallward.research.off_policy.action_tables import (
    check_table,
    set_points_of,
    table_of_recording,
)
from stallward.research.raw_rows import Array, recorded_frames, recorded_samples
from stallward.training.errors import DatasetError

Actions = NDArray[np.int64]
_TICK_S: Final = 0.1
_GAP_S: Final = 0.25
"""A longer time between two ticks is a gap."""
_RATE_S: Final = 0.5
"""Work is counted over this time before and after a tick, because programs report it rarely."""
_FASTEST: Final = 1.5
"""Progress is clipped to this; more comes from reports that were late."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedRun:
    """One run of a randomised controller; each row is a tick."""

    name: str
    """The name of the run."""
    observations: NDArray[np.float32]
    """The observations before each action, ``(T, OBSERVATION_SIZE)``."""
    actions: Actions
    """The desired actions, ``(T, len(table.sizes))``; 0 for absent slots."""
    propensity: Array
    """The probability of each action given the ticks before it, ``(T,)``."""
    reward: Array
    """The reward of the tick after each action, ``(T,)``."""
    last: NDArray[np.bool_]
    """Whether a tick is the last one before a gap, in which something else decided or ticks are
    missing, or the last of all, ``(T,)``."""
    slots: int
    """The number of background groups."""
    table: ActionTable = LEVELS
    """The action table of the actions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedRecording:
    """A recording for off-policy estimates, with the inputs to run controllers on it."""

    run: LoggedRun
    """The dataset of the recording."""
    samples: tuple[Sample, ...]
    """The sample of each tick, as far as recordings hold it."""
    frames: tuple[RawFrame, ...]
    """The raw frame of each tick."""
    context: NodeContext
    """The node of the recording, as a controller is told at its start."""
    seconds: float
    """The length of the measured part."""


def read_logged(recording: Recording, scenario: Exogenous, price: float) -> LoggedRecording:
    """Read a recording of a randomised controller.

    Args:
        recording: A recording with actions of an action table and their propensities.
        scenario: The exogenous description with the full speed of each program.
        price: The price of a window that misses the target by far, in units of full background
            speed.

    Raises:
        DatasetError: If it holds no propensities.
    """
    table, actions, propensity = _logged_actions(recording)
    frames = recorded_frames(recording)
    encoder = ObservationEncoder(recording.run.slo_ms)
    observations = np.stack([encoder.encode(frame) for frame in frames])
    start_s, end_s = recording.run.measured_from_s, recording.run.end_s
    time_s = recording.tick("time_s")
    keep = np.flatnonzero((time_s >= start_s) & (time_s <= end_s) & np.isfinite(propensity))
    reward = _rewards(recording, frames, scenario, price)
    slots, samples = len(recording.run.slot_names), recorded_samples(recording)
    run = LoggedRun(
        name=recording.path.name,
        observations=observations[keep],
        actions=actions[keep],
        propensity=propensity[keep],
        reward=reward[keep],
        last=_before_gaps(keep, time_s),
        slots=slots,
        table=table,
    )
    return LoggedRecording(
        run=run,
        samples=tuple(samples[k] for k in keep),
        frames=tuple(frames[k] for k in keep),
        context=NodeContext(
            zone_limit_bytes=recording.run.sandbox_bytes,
            slot_names=recording.run.slot_names,
            floors_bytes=tuple(slot.floor_bytes for slot in scenario.slots[:slots]),
            slo_ms=recording.run.slo_ms,
            tick_period_s=_TICK_S,
            seed=recording.run.seed,
        ),
        seconds=end_s - start_s,
    )


def _before_gaps(keep: NDArray[np.int64], time_s: Array) -> NDArray[np.bool_]:
    """Whether no tick, or a gap, follows each one that is kept."""
    gap = (np.diff(keep) > 1) | (np.diff(time_s[keep]) > _GAP_S)
    return np.append(gap, True)[: keep.size]


def _logged_actions(recording: Recording) -> tuple[ActionTable, Actions, Array]:
    texts, propensities = recording.actions.get("action"), recording.actions.get("propensity")
    if texts is None or propensities is None:
        raise DatasetError(
            f"{recording.path} has no propensities.",
            next_step="Off-policy estimates need recordings of the arm excite.",
        )
    table = table_of_recording(recording)
    if table is None:
        raise DatasetError(
            f"{recording.path} has no action of a known action table.",
            next_step="Off-policy estimates need recordings of the arm excite.",
        )
    actions = np.zeros((len(texts), len(table.sizes)), dtype=np.int64)
    propensity = np.asarray(propensities, dtype=np.float64).copy()
    for row, text in enumerate(texts):
        parts = str(text).split(",")
        if len(parts) == len(table.sizes):
            actions[row] = [int(part) for part in parts]
        else:
            propensity[row] = np.nan
    return table, actions, propensity


def _rewards(
    recording: Recording, frames: list[RawFrame], scenario: Exogenous, price: float
) -> Array:
    """The reward of the tick after each action, ``(T,)``."""
    time_s = recording.tick("time_s")
    node = np.array([frame.node for frame in frames])
    progress = []
    for slot, program in enumerate(scenario.slots[: len(recording.run.slot_names)]):
        in_slot = recording.units.slot == slot
        if in_slot.any() and program.units_per_s > 0.0:
            times_s, units = recording.units.time_s[in_slot], recording.units.units[in_slot]
            span_s = (time_s - _RATE_S + _TICK_S, time_s + _RATE_S + _TICK_S)
            done = np.interp(span_s[1], times_s, units) - np.interp(span_s[0], times_s, units)
            progress.append(np.clip(done / (2 * _RATE_S) / program.units_per_s, 0.0, _FASTEST))
    mean = np.mean(progress, axis=0) if progress else np.ones(len(time_s))
    rate_per_s = max(recording.run.request_rate_per_s, 1e-3)
    severity = np.array(
        [
            window_severity(p95_ms, age_s, running_s, recording.run.slo_ms, rate_per_s)
            for p95_ms, age_s, running_s in zip(
                node[:, NODE["latency_p95_ms"]].tolist(),
                node[:, NODE["latency_age_s"]].tolist(),
                (time_s - recording.run.start_s).tolist(),
                strict=True,
            )
        ]
    )
    following = np.append(severity[1:], severity[-1:])  # an action shows in the next sample
    return np.asarray(mean - price * following)


def check_replayable(controller: Controller) -> None:
    """Refuse a controller that reads what recordings do not contain.

    Raises:
        DatasetError: If it reads processes, of which recordings contain only how many there are,
            or threads.
    """
    if controller.needs_processes:
        raise DatasetError(f"{controller.name!r} looks at processes, which recordings leave out.")
    if needs_threads(controller):
        raise DatasetError(f"{controller.name!r} looks at threads, which recordings leave out.")


def controller_actions(controller: Controller, logged: LoggedRecording) -> Actions:
    """The actions of a controller at every tick of a recording, ``(T, len(table.sizes))``.

    A rule with memory reads the recorded observations in order, as if it had watched the run in
    shadow mode up to each tick.

    Raises:
        DatasetError: If the controller reads what recordings do not contain
            (:func:`check_replayable`), or has actions of another table.
    """
    table = logged.run.table
    check_replayable(controller)
    check_table(controller, table)
    controller.reset(logged.context)
    rows = []
    for sample, observation in zip(logged.samples, logged.run.observations, strict=True):
        decision = controller.decide(sample, observation)
        if table is SET_POINTS:
            rows.append(set_points_of(controller, decision))
        else:
            rows.append(decision.action or _nearest_levels(decision.desired, sample))
    return np.array(rows, dtype=np.int64).reshape(-1, len(table.sizes))


def _nearest_levels(desired: DesiredState, sample: Sample) -> tuple[int, ...]:
    """The action of the table of limit levels that is nearest to a rule's wish."""
    levels = []
    for slot in range(SLOTS):
        slot_desire = desired.slot(slot)
        known = slot < len(sample.slot_states)
        reference = sample.slot_states[slot].reference_bytes if known else None
        levels += [int(slot_desire.paused), limit_level(slot_desire.limit_bytes, reference)]
    names = [profile.name for profile in PROFILES]
    return (*levels, names.index(desired.tuning.name) if desired.tuning.name in names else 0)


def features(
    observations: NDArray[np.float32], actions: Actions, table: ActionTable
) -> NDArray[np.float32]:
    """The inputs of the value function, ``(T, OBSERVATION_SIZE + len(table.sizes))``."""
    inputs = np.empty((len(actions), OBSERVATION_SIZE + len(table.sizes)), dtype=np.float32)
    inputs[:, :OBSERVATION_SIZE] = observations
    inputs[:, OBSERVATION_SIZE:] = actions / (np.array(table.sizes) - 1.0)
    return inputs
