"""Recordings as what a learner needs: observations, actions, how likely they were, rewards.

Observations are computed again from the recorded signals, by the code that nodes run. The reward
is part of training's: background progress less a price for windows that miss the target. Mean and
slow requests, whose prices follow a training, and moving levers are not charged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.agent.controller import Controller, NodeContext
from stallward.agent.desired import ACTION_SIZES, PROFILES, SLOTS, limit_level
from stallward.agent.observation.encoder import OBSERVATION_SIZE, ObservationEncoder
from stallward.agent.observation.raw import NODE, RawFrame
from stallward.agent.sample import GroupSample, NodeSample, Sample, SlotState
from stallward.env.objective import window_severity
from stallward.env.recording.raw_rows import Array, recorded_frames
from stallward.env.recording.recording import Recording
from stallward.env.twin.inputs.exogenous import Exogenous
from stallward.training.errors import DatasetError

Actions = NDArray[np.int64]
_TICK_S: Final = 0.1
_RATE_S: Final = 0.5
"""Work is counted over this long on either side of a tick: programs report it now and then."""
_FASTEST: Final = 1.5
"""Progress above full speed is a report that came late."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedRun:
    """One run of a randomised controller; a row is a tick.

    Attributes:
        name: Which run.
        observations: ``(T, OBSERVATION_SIZE)``, before the action.
        actions: ``(T, len(ACTION_SIZES))``, as they were desired; 0 for absent slots.
        propensity: Probability of each action given what went before, ``(T,)``.
        reward: Of the tick that followed, ``(T,)``.
        slots: Background groups.
    """

    name: str
    observations: NDArray[np.float32]
    actions: Actions
    propensity: Array
    reward: Array
    slots: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedRecording:
    """A recording read for off-policy estimates, and what candidates are asked with."""

    run: LoggedRun
    samples: tuple[Sample, ...]
    """What a controller may look at beside the observation: times and slot states."""
    context: NodeContext
    seconds: float
    """Length of the measured part."""


def read_logged(recording: Recording, scenario: Exogenous, price: float) -> LoggedRecording:
    """Read a recording of a randomised controller.

    Args:
        recording: Its actions must be in the action table, with propensities.
        scenario: For the speed of each program with the node to itself.
        price: Of every window missing the target by far, in units of full background speed.

    Raises:
        DatasetError: If it holds no propensities.
    """
    actions, propensity = _logged_actions(recording)
    frames = recorded_frames(recording)
    encoder = ObservationEncoder(recording.run.slo_ms)
    observations = np.stack([encoder.encode(frame) for frame in frames])
    start_s, end_s = recording.run.measured_from_s, recording.run.end_s
    time_s = recording.tick("time_s")
    keep = np.flatnonzero((time_s >= start_s) & (time_s <= end_s) & np.isfinite(propensity))
    reward = _rewards(recording, frames, scenario, price)
    slots = len(recording.run.slot_names)
    run = LoggedRun(
        name=recording.path.name,
        observations=observations[keep],
        actions=actions[keep],
        propensity=propensity[keep],
        reward=reward[keep],
        slots=slots,
    )
    return LoggedRecording(
        run=run,
        samples=tuple(_sample(recording, int(k), slots) for k in keep),
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


def _logged_actions(recording: Recording) -> tuple[Actions, Array]:
    texts, found = recording.actions.get("action"), recording.actions.get("propensity")
    if texts is None or found is None:
        raise DatasetError(
            f"{recording.path} has no propensities.",
            next_step="Off-policy estimates need recordings of the arm excite.",
        )
    actions = np.zeros((len(texts), len(ACTION_SIZES)), dtype=np.int64)
    propensity = np.asarray(found, dtype=np.float64).copy()
    for row, text in enumerate(texts):
        parts = str(text).split(",")
        if len(parts) == len(ACTION_SIZES):
            actions[row] = [int(part) for part in parts]
        else:
            propensity[row] = np.nan
    return actions, propensity


def _rewards(
    recording: Recording, frames: list[RawFrame], scenario: Exogenous, price: float
) -> Array:
    """What the tick after each action was worth."""
    time_s = recording.tick("time_s")
    node = np.array([frame.node for frame in frames])
    progress = []
    for slot, program in enumerate(scenario.slots[: len(recording.run.slot_names)]):
        mine = recording.units.slot == slot
        if mine.any() and program.units_per_s > 0.0:
            times_s, units = recording.units.time_s[mine], recording.units.units[mine]
            span_s = (time_s - _RATE_S + _TICK_S, time_s + _RATE_S + _TICK_S)
            done = np.interp(span_s[1], times_s, units) - np.interp(span_s[0], times_s, units)
            progress.append(np.clip(done / (2 * _RATE_S) / program.units_per_s, 0.0, _FASTEST))
    mean = np.mean(progress, axis=0) if progress else np.ones(len(time_s))
    rate_per_s = max(recording.run.request_rate_per_s, 1e-3)
    late = np.array(
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
    after = np.append(late[1:], late[-1:])  # what the levers did shows in the next sample
    return np.asarray(mean - price * after)


def _sample(recording: Recording, row: int, slots: int) -> Sample:
    """The part of a sample that rules of observations look at."""

    def number(name: str) -> float:
        return float(recording.tick(name)[row])

    def count(name: str) -> int | None:
        value = number(name)
        return int(value) if np.isfinite(value) else None

    states = tuple(
        SlotState(
            paused=bool(number(f"slot{i}_state_paused") > 0.0),
            limit_bytes=count(f"slot{i}_state_limit_bytes"),
            reference_bytes=count(f"slot{i}_state_reference_bytes"),
        )
        for i in range(slots)
    )
    return Sample(
        sequence=row,
        time_s=number("time_s"),
        node=NodeSample(),
        zone=GroupSample(name="zone"),
        protected=GroupSample(name="protected"),
        slots=tuple(GroupSample(name=name) for name in recording.run.slot_names),
        slot_states=states,
    )


def check_askable(controller: Controller) -> None:
    """Refuse controllers that look at what recordings leave out.

    Raises:
        DatasetError: If it looks at processes, of which recordings hold only counts.
    """
    if controller.needs_processes:
        raise DatasetError(f"{controller.name!r} looks at processes, which recordings leave out.")


def ask(controller: Controller, logged: LoggedRecording) -> Actions:
    """What a controller would do at every tick of a recording, ``(T, len(ACTION_SIZES))``.

    A rule with memory sees the recorded observations one after the other: as if it had watched,
    and took over at each tick.

    Raises:
        DatasetError: As :func:`check_askable`.
    """
    check_askable(controller)
    controller.reset(logged.context)
    rows = []
    for sample, observation in zip(logged.samples, logged.run.observations, strict=True):
        decision = controller.decide(sample, observation)
        action = decision.action
        if action is None:
            desired = decision.desired
            levels = []
            for slot in range(SLOTS):
                want = desired.slot(slot)
                known = slot < len(sample.slot_states)
                reference = sample.slot_states[slot].reference_bytes if known else None
                levels += [int(want.paused), limit_level(want.limit_bytes, reference)]
            names = [profile.name for profile in PROFILES]
            profile = names.index(desired.tuning.name) if desired.tuning.name in names else 0
            action = (*levels, profile)
        rows.append(action)
    return np.array(rows, dtype=np.int64).reshape(-1, len(ACTION_SIZES))


def features(observations: NDArray[np.float32], actions: Actions) -> NDArray[np.float32]:
    """What values are learned from, ``(T, OBSERVATION_SIZE + len(ACTION_SIZES))``."""
    found = np.empty((len(actions), OBSERVATION_SIZE + len(ACTION_SIZES)), dtype=np.float32)
    found[:, :OBSERVATION_SIZE] = observations
    found[:, OBSERVATION_SIZE:] = actions / (np.array(ACTION_SIZES) - 1.0)
    return found
