"""The compiled observation equals that of the encoder that nodes run."""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit
from numpy.typing import NDArray

from stallward.agent.desired import ACTION_SIZES, PROFILES, SLOTS
from stallward.agent.observation.encoder import (
    OBSERVATION_NAMES,
    OBSERVATION_SIZE,
    ObservationEncoder,
)
from stallward.agent.observation.raw import RawFrame
from stallward.env.simulation.nuisance import Nuisance
from stallward.env.simulation.observe import (
    ENCODER,
    Observations,
    encode,
    encoder_at,
    write_observation,
)
from stallward.env.simulation.simulation import Simulation, SimulationSettings
from stallward.env.testing import small_twin
from stallward.env.twin.frame import FRAME, frame_at, raw_frames
from stallward.env.twin.simd.backend import WIDTH
from stallward.env.twin.simd.layout import Arrays

Array = NDArray[np.float64]
NODES = 64


@njit(error_model="numpy")  # type: ignore[untyped-decorator]
def _encode_all(frames: Array, encoders: Array, out: Observations, slots: int) -> None:
    for at in range(0, out.shape[0], WIDTH):
        memory = encoder_at(encoders, at)
        encode(frame_at(frames, at), memory, slots)
        for lane in range(WIDTH):
            write_observation(memory, out, at, lane)


def random_frame(rng: np.random.Generator, frames: Array, time_s: float) -> None:
    """Set random values, some of them absent; counters sometimes go back."""
    frame = Arrays(FRAME, frames, np.arange(NODES))
    for name, (_, shape) in FRAME.fields.items():
        values = np.exp(rng.uniform(-8.0, 12.0, (*shape, NODES)))
        absent = rng.random(values.shape) < 0.03
        setattr(frame, name, np.where(absent, np.nan, values))
    frame.time_s = time_s + rng.uniform(0.0, 0.05, NODES)
    frame.present = (rng.random((SLOTS, NODES)) < 0.7).astype(float)
    frame.paused = (rng.random((SLOTS, NODES)) < 0.5).astype(float)
    frame.profile_index = rng.integers(len(PROFILES), size=NODES).astype(float)
    frame.zone_limit_bytes = 6e8
    frame.slo_ms, frame.one, frame.five = 20.0, 1.0, 5.0


def assert_same(actual: Observations, expected: Observations) -> None:
    """Check that observations are equal, with a difference in the last bit in rare cases."""
    different = actual != expected
    assert different.mean() < 1e-4
    if different.any():
        name = OBSERVATION_NAMES[int(np.argwhere(different)[0, 1])]
        np.testing.assert_array_max_ulp(actual, expected, 1), name


def encoded(encoders: list[ObservationEncoder], frames: list[RawFrame]) -> Observations:
    """Return the observations that nodes compute from their frames."""
    return np.stack([one.encode(frame) for one, frame in zip(encoders, frames, strict=True)])


class BothEncoders:
    """The compiled encoders of all nodes, beside those that nodes run."""

    def __init__(self) -> None:
        self.frames, self._encoders = FRAME.empty(NODES), ENCODER.empty(NODES)
        self.state = Arrays(ENCODER, self._encoders, np.arange(NODES))
        self.state.fresh, self.state.known_ms = 1.0, np.nan
        self._references = [ObservationEncoder(20.0) for _ in range(NODES)]
        self.out = np.zeros((NODES, OBSERVATION_SIZE), dtype=np.float32)

    def reset(self, rows: NDArray[np.bool_]) -> None:
        """Let some nodes begin anew."""
        self.state.fresh = np.where(rows, 1.0, self.state.fresh)
        for row in np.flatnonzero(rows):
            self._references[row].reset()

    def encode(self) -> Observations:
        """Encode the frames, and check that both give the same."""
        _encode_all(self.frames, self._encoders, self.out, SLOTS)
        assert_same(self.out, encoded(self._references, raw_frames(self.frames, np.arange(NODES))))
        return self.out


@pytest.mark.slow
def test_random_frames_are_encoded_as_on_a_node() -> None:
    rng = np.random.default_rng(4)
    both = BothEncoders()
    for k in range(60):
        random_frame(rng, both.frames, 0.4 * k)
        if k % 7 == 6:
            both.reset(rng.random(NODES) < 0.2)
        out = both.encode()
    assert (out[:, OBSERVATION_NAMES.index("latency_mean_over_usual")] > 0.0).any()


def test_a_demand_that_falls_and_a_room_that_is_scarce_are_encoded_as_on_a_node() -> None:
    rng = np.random.default_rng(5)
    both = BothEncoders()
    both.state.demand_bytes = np.nan
    column = {name: i for i, name in enumerate(OBSERVATION_NAMES)}
    demands, rooms, swapped = [], [], []
    for k in range(60):
        random_frame(rng, both.frames, 9.0 * k)
        frame = Arrays(FRAME, both.frames, np.arange(NODES))
        for name in ("usage", "anon", "swap", "working_set"):
            values = 6e8 * rng.uniform(0.0, 0.6, NODES) ** 4
            unknown = rng.random(NODES) < 0.3
            setattr(frame, f"protected_{name}_bytes", np.where(unknown, np.nan, values))
        held = 6e8 * rng.uniform(0.0, 0.6, (2, SLOTS, NODES))
        held[rng.random(held.shape) < 0.2] = np.nan
        frame.usage_bytes, frame.swap_bytes = held
        out = both.encode()
        demands.append(out[:, column["demand_ratio"]].copy())
        rooms.append(out[:, column["room_ratio"]].copy())
        swapped.append(out[:, column["protected_swap_ratio"]].copy())
    changes = np.diff(np.array(demands), axis=0)
    assert (changes < 0.0).any()
    assert (changes == 0.0).any()
    assert (changes > 0.0).any()
    assert (np.array(rooms) == 2.0).any()
    assert ((np.array(rooms) > 0.0) & (np.array(rooms) < 2.0)).any()
    assert (np.array(swapped) > 0.2).any()


@pytest.mark.parametrize("ticks", [1, 2])
def test_observations_of_the_simulation_are_those_of_its_frames(ticks: int) -> None:
    twin = small_twin()
    exact = Nuisance(sensing=0.0, usual_known=0.0)
    settings = SimulationSettings(ticks_per_action=ticks, episode_s=1e6, nuisance=exact)
    simulation = Simulation([twin], 16, settings, seed=1)
    simulation.reset(np.ones(16, dtype=bool))
    targets_ms = simulation.twin.nodes.slo_ms.tolist()
    first = [ObservationEncoder(ms) for ms in targets_ms]
    assert_same(simulation.observation, encoded(first, simulation.frames()))
    rng = np.random.default_rng(2)
    references = [ObservationEncoder(ms) for ms in targets_ms]
    late = 0
    for _ in range(40):
        before = simulation.observation.copy()
        shown = simulation.step(rng.integers(ACTION_SIZES, size=(16, len(ACTION_SIZES))))
        assert np.isfinite(shown.observation).all()
        if ticks == 1:
            newest = encoded(references, simulation.frames())
            stale = (shown.observation != newest).any(axis=1)
            np.testing.assert_array_equal(shown.observation[stale], before[stale])
            late += int(stale.sum())
    assert ticks == 2 or 0 < late < 40
