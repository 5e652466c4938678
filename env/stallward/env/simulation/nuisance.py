"""Nuisance: differences between nodes and the twin that training randomises. Pure.

When the actions of a recording are replayed on the twin, its stalls, rates and shares differ from
those of the node, by a factor that depends on the quantity and the scenario. A policy that trusts
the twin exactly acts differently on a node: with PostgreSQL, a processor stall of 0.08 where the
twin has none moved its limits by one and a half levels. So each episode has its own sensors: each
quantity is multiplied by a factor, and a few are missing. Latencies stay exact, since a node
measures them directly. The method is domain randomisation (Tobin et al., 2017).

The spreads come from means of a minute in the recordings of the scenarios for training and
validation: the difference between the 90th and the 10th percentile of log(live / twin), divided
by 2.56. They are cut at 0.6, because the ratio is large where one of the two is close to 0. Rates
are logarithms already; their spreads are cut at 0.3, with which one standard deviation around 150
pages/s reaches from 40 to 870. ``docs/lab/twin/features.csv`` has the table.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.agent.desired import SLOTS
from stallward.agent.observation.encoder import OBSERVATION_NAMES, OBSERVATION_SIZE

Array = NDArray[np.float64]
Gains = NDArray[np.float32]

MISSING_SHARE: Final = 0.05
"""Chance that a sensor that can be missing is missing: kernels and cgroup versions differ."""
NUMBERS_PER_SENSOR: Final = 3
"""Random numbers for each sensor: factor, offset, whether it is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SensorNuisance:
    """A sensor: features that share one random error."""

    features: tuple[str, ...]
    """Their names. The remembered averages of these features belong to the sensor, too."""
    spread: float
    """Standard deviation of the logarithm of the factor."""
    max_offset: float = 0.0
    """The largest offset."""
    can_miss: bool = False
    """Whether a node may lack the sensor."""

    def columns(self) -> tuple[int, ...]:
        """The columns of the sensor in an observation."""
        return tuple(
            i
            for i, name in enumerate(OBSERVATION_NAMES)
            if any(name == mine or name.startswith(f"{mine}_") for mine in self.features)
        )


def _sensors_of_slot(i: int) -> tuple[SensorNuisance, ...]:
    slot = f"slot{i}_"
    return (
        SensorNuisance(features=(f"{slot}psi_memory_some_share",), spread=0.60, can_miss=True),
        SensorNuisance(features=(f"{slot}psi_io_some_share",), spread=0.35, can_miss=True),
        SensorNuisance(features=(f"{slot}usage_ratio", f"{slot}phase_ratio"), spread=0.10),
        SensorNuisance(features=(f"{slot}file_ratio",), spread=0.40),
        SensorNuisance(features=(f"{slot}swap_ratio",), spread=0.25),
        SensorNuisance(features=(f"{slot}refault_rate",), spread=0.30, can_miss=True),
        SensorNuisance(features=(f"{slot}cpu_share",), spread=0.60),
    )


SENSORS: Final = (
    SensorNuisance(
        features=("zone_psi_memory_some_share", "zone_psi_memory_full_share"), spread=0.35
    ),
    SensorNuisance(features=("zone_psi_io_some_share",), spread=0.35),
    SensorNuisance(
        features=("zone_psi_cpu_some_share",), spread=0.60, max_offset=0.1, can_miss=True
    ),
    SensorNuisance(features=("zone_usage_ratio",), spread=0.035),
    SensorNuisance(features=("zone_file_ratio",), spread=0.40),
    SensorNuisance(features=("zone_dirty_ratio",), spread=0.60, can_miss=True),
    SensorNuisance(features=("swap_used_ratio",), spread=0.40),
    SensorNuisance(features=("swap_in_rate", "swap_out_rate"), spread=0.30),
    SensorNuisance(
        features=("protected_psi_memory_some_share", "protected_psi_memory_full_share"),
        spread=0.40,
        can_miss=True,
    ),
    SensorNuisance(features=("protected_psi_io_some_share",), spread=0.50, can_miss=True),
    SensorNuisance(
        features=("protected_usage_ratio", "protected_anon_ratio", "demand_ratio"), spread=0.15
    ),
    SensorNuisance(features=("protected_file_ratio",), spread=0.40),
    SensorNuisance(features=("protected_refault_rate",), spread=0.30, can_miss=True),
    SensorNuisance(features=("protected_fault_rate",), spread=0.30, can_miss=True),
    SensorNuisance(features=("latency_age",), spread=0.0, max_offset=0.1),
    # Assumed, not measured: as the swap of a slot, and as the demand.
    SensorNuisance(features=("protected_swap_ratio",), spread=0.25, can_miss=True),
    SensorNuisance(features=("room_ratio",), spread=0.15),
    *(sensor for i in range(SLOTS) for sensor in _sensors_of_slot(i)),
)
_SENSOR_OF: Final = np.full(OBSERVATION_SIZE, len(SENSORS))
"""The index of each feature's sensor; ``len(SENSORS)`` for a feature without one."""
for _k, _sensor in enumerate(SENSORS):
    _SENSOR_OF[list(_sensor.columns())] = _k
_SPREAD: Final = np.array([sensor.spread for sensor in SENSORS])
_OFFSET: Final = np.array([sensor.max_offset for sensor in SENSORS])
_CAN_MISS: Final = np.array([sensor.can_miss for sensor in SENSORS])
NUMBERS: Final = NUMBERS_PER_SENSOR * len(SENSORS)


def draw_sensors(numbers: Array, amount: float) -> tuple[Gains, Gains]:
    """Draw the sensor errors of ``n`` nodes for an episode.

    Args:
        numbers: Random numbers in [0, 1), ``(NUMBERS, n)``.
        amount: Scales the errors: 1 for those that were measured, 0 for exact sensors.

    Returns:
        Factors and offsets, each ``(n, OBSERVATION_SIZE)``.
    """
    factor, offset, missing = numbers.reshape(NUMBERS_PER_SENSOR, len(SENSORS), -1)
    # Uniform in the logarithm, with `spread` as its standard deviation.
    reach = math.sqrt(3.0) * amount * _SPREAD[:, None]
    there = ~(_CAN_MISS[:, None] & (missing < amount * MISSING_SHARE))
    factor = np.exp(reach * (2.0 * factor - 1.0)) * there
    offset = amount * _OFFSET[:, None] * offset * there
    exact = np.ones((1, numbers.shape[1]))
    gains = np.concatenate([factor, exact])[_SENSOR_OF].T.astype(np.float32)
    return gains, np.concatenate([offset, 0.0 * exact])[_SENSOR_OF].T.astype(np.float32)


@dataclass(frozen=True, slots=True, kw_only=True)
class Nuisance:
    """What varies between episodes, besides the parameters drawn from the fitted twin."""

    rate_ratio: tuple[float, float] = (0.7, 1.4)
    """Range of the factor on the scenario's request rate."""
    zone_ratio: tuple[float, float] = (0.85, 1.2)
    """Range of the factor on the size of the zone."""
    idle_file_share: float = 0.6
    """The largest share of the application's file pages that it does not use any more. Recordings
    in which nothing takes them cannot tell which are idle: PostgreSQL held 340 MiB and needed 190.
    Every second episode has some."""
    target_ratio: tuple[float, float] = (0.8, 2.5)
    """Range of the factor on the target, even in its logarithm. A target comes from the p99 with
    ample memory, which a busy host makes several times longer, and nothing else with it."""
    slot_missing_share: float = 0.15
    """Chance that a slot is absent; at least one slot stays."""
    late_share: float = 0.02
    """Chance that a decision is made on the observation before the newest one."""
    slow_lever_share: float = 0.1
    """Chance that the actions of an episode take effect a tick late."""
    paused_before: float = 0.78
    """Largest share of the minute before an episode in which a slot was paused. The guard's budget
    counts over a minute: if episodes began with the whole budget, a policy would learn to rely on
    more pausing than it can have for long."""
    sensing: float = 1.0
    """Scales the errors of sensors: 1 for those that were measured, 0 for none."""
    used_before: float = 0.5
    """Chance that a slot has a reference from before the episode: memory that it used then. Limits
    are ratios of that reference. Without one, a policy would learn to limit every program as it
    starts, so that it never shows how much memory it uses."""
    usual_known: float = 0.5
    """Chance that the latency baseline is known from before the episode."""
    usual_ratio: tuple[float, float] = (0.8, 1.1)
    """Range of that baseline, relative to the mean latency with ample memory. It can be lower,
    being the lowest of many averages, and higher, because it drifts up until reached again."""


NO_NUISANCE: Final = Nuisance(
    rate_ratio=(1.0, 1.0),
    zone_ratio=(1.0, 1.0),
    idle_file_share=0.0,
    target_ratio=(1.0, 1.0),
    slot_missing_share=0.0,
    late_share=0.0,
    slow_lever_share=0.0,
    paused_before=0.0,
    sensing=0.0,
    used_before=0.0,
    usual_known=0.0,
    usual_ratio=(1.0, 1.0),
)
