"""How what a node shows differs from what the twin shows, as nuisance for training. Pure.

Under the levers of a recording, replayed, the twin shows other stalls, rates and shares than the
node did, each off by its own factor from scenario to scenario. A policy that trusts them to the
twin's last digit does otherwise live: with PostgreSQL a processor stall of 0.08 where the twin has
none moved its limits by a level and a half. So each episode has sensors of its own: every
quantity times a factor, a few not there at all. Latencies are left as they are: on a node they
are what is measured.

The spreads are those of the logarithm of (live / twin), means of a minute, over the recordings of
the scenarios that are trained on or chosen by: the tenth to the ninetieth percentile, divided by
2.56, and 0.6 at most, for they are larger where one of the two is next to nothing; of rates, which
are logarithms already, 0.3 at most: at 150 pages/s one standard deviation is 40 to 870
(``docs/lab/2026-11-23-sim-to-real-gap.md`` has the table). The method is domain randomisation
(Tobin et al., 2017).
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
"""Chance that a sense that may be missing is: kernels and versions of cgroups differ in theirs."""
NUMBERS_PER_SENSE: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class SensorNuisance:
    """Features that are off together.

    Args:
        features: Their names; the remembered averages of each belong to it.
        spread: Of the logarithm of the factor.
        most_offset: What is added at most.
        may_miss: Whether a node may not have it.
    """

    features: tuple[str, ...]
    spread: float
    most_offset: float = 0.0
    may_miss: bool = False

    def columns(self) -> tuple[int, ...]:
        """Where they are in an observation."""
        return tuple(
            i
            for i, name in enumerate(OBSERVATION_NAMES)
            if any(name == one or name.startswith(f"{one}_") for one in self.features)
        )


def _of_slot(i: int) -> tuple[SensorNuisance, ...]:
    slot = f"slot{i}_"
    return (
        SensorNuisance(features=(f"{slot}psi_memory_some_share",), spread=0.60, may_miss=True),
        SensorNuisance(features=(f"{slot}psi_io_some_share",), spread=0.35, may_miss=True),
        SensorNuisance(features=(f"{slot}usage_ratio",), spread=0.10),
        SensorNuisance(features=(f"{slot}file_ratio",), spread=0.40),
        SensorNuisance(features=(f"{slot}swap_ratio",), spread=0.25),
        SensorNuisance(features=(f"{slot}refault_rate",), spread=0.30, may_miss=True),
        SensorNuisance(features=(f"{slot}cpu_share",), spread=0.60),
    )


SENSES: Final = (
    SensorNuisance(
        features=("zone_psi_memory_some_share", "zone_psi_memory_full_share"), spread=0.35
    ),
    SensorNuisance(features=("zone_psi_io_some_share",), spread=0.35),
    SensorNuisance(
        features=("zone_psi_cpu_some_share",), spread=0.60, most_offset=0.1, may_miss=True
    ),
    SensorNuisance(features=("zone_usage_ratio",), spread=0.035),
    SensorNuisance(features=("zone_file_ratio",), spread=0.40),
    SensorNuisance(features=("zone_dirty_ratio",), spread=0.60, may_miss=True),
    SensorNuisance(features=("swap_used_ratio",), spread=0.40),
    SensorNuisance(features=("swap_in_rate", "swap_out_rate"), spread=0.30),
    SensorNuisance(
        features=("protected_psi_memory_some_share", "protected_psi_memory_full_share"),
        spread=0.40,
        may_miss=True,
    ),
    SensorNuisance(features=("protected_psi_io_some_share",), spread=0.50, may_miss=True),
    SensorNuisance(features=("protected_usage_ratio",), spread=0.15),
    SensorNuisance(features=("protected_file_ratio",), spread=0.40),
    SensorNuisance(features=("protected_refault_rate",), spread=0.30, may_miss=True),
    SensorNuisance(features=("protected_fault_rate",), spread=0.30, may_miss=True),
    SensorNuisance(features=("latency_age",), spread=0.0, most_offset=0.1),
    *(sense for i in range(SLOTS) for sense in _of_slot(i)),
)
_SENSE_OF: Final = np.full(OBSERVATION_SIZE, len(SENSES))
"""Which of them each feature is of; those of none come behind the others."""
for _k, _sense in enumerate(SENSES):
    _SENSE_OF[list(_sense.columns())] = _k
_SPREAD: Final = np.array([sense.spread for sense in SENSES])
_OFFSET: Final = np.array([sense.most_offset for sense in SENSES])
_MAY_MISS: Final = np.array([sense.may_miss for sense in SENSES])
NUMBERS: Final = NUMBERS_PER_SENSE * len(SENSES)


def draw_sensors(numbers: Array, amount: float) -> tuple[Gains, Gains]:
    """The sensors of some nodes for an episode.

    Args:
        numbers: Random ones in [0, 1), ``(NUMBERS, n)``.
        amount: How much of what was measured: 1 for all, 0 for sensors like the twin's.

    Returns:
        Factors and what is added, ``(n, OBSERVATION_SIZE)``.
    """
    factor, offset, missing = numbers.reshape(NUMBERS_PER_SENSE, len(SENSES), -1)
    # Evenly over the logarithm, of the same standard deviation.
    reach = math.sqrt(3.0) * amount * _SPREAD[:, None]
    there = ~(_MAY_MISS[:, None] & (missing < amount * MISSING_SHARE))
    factor = np.exp(reach * (2.0 * factor - 1.0)) * there
    offset = amount * _OFFSET[:, None] * offset * there
    exact = np.ones((1, numbers.shape[1]))
    gains = np.concatenate([factor, exact])[_SENSE_OF].T.astype(np.float32)
    return gains, np.concatenate([offset, 0.0 * exact])[_SENSE_OF].T.astype(np.float32)


@dataclass(frozen=True, slots=True, kw_only=True)
class Nuisance:
    """What varies from episode to episode beyond the fitted draws."""

    rate_ratio: tuple[float, float] = (0.7, 1.4)
    """Request rate, times the scenario's."""
    zone_ratio: tuple[float, float] = (0.85, 1.2)
    slot_missing_share: float = 0.15
    """Chance that a slot is absent (one at least stays)."""
    late_share: float = 0.02
    """Chance that a decision sees the observation before the newest."""
    slow_lever_share: float = 0.1
    """Chance of an episode whose actions take hold a tick late."""
    paused_before: float = 0.78
    """Largest share of the minute before an episode for which a slot was paused. An episode is
    as long as the minute that the guard's budget counts: with the whole budget left at its start
    a policy would learn to live on what it cannot have for long."""
    sensing: float = 1.0
    """How much sensors are off: 1 for as much as was measured."""
    used_before: float = 0.5
    """Chance that a slot is known to have used more before an episode than it holds at its
    start. Where nothing is known a policy would learn to catch every program as it starts and
    to keep it from ever showing what it uses, on which limits are counted."""
    usual_known: float = 0.5
    """Chance that the usual latency is known from before an episode."""
    usual_ratio: tuple[float, float] = (0.8, 1.1)
    """What is known of it, times the mean latency with ample memory: the least of many averages
    is less, and it drifts up where it has not been reached for long."""


NO_NUISANCE: Final = Nuisance(
    rate_ratio=(1.0, 1.0),
    zone_ratio=(1.0, 1.0),
    slot_missing_share=0.0,
    late_share=0.0,
    slow_lever_share=0.0,
    paused_before=0.0,
    sensing=0.0,
    used_before=0.0,
    usual_known=0.0,
    usual_ratio=(1.0, 1.0),
)
