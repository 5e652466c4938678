"""The only definition of the observation: features of a frame, their history, and phases.

The features are in :mod:`stallward.agent.observation.feature_table`. :class:`ObservationEncoder`
runs on a node; the twin compiles the same table for thousands of nodes.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass
from operator import itemgetter
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.agent.action_table import LEVELS, ActionTable
from stallward.agent.desired import SLOTS
from stallward.agent.observation.feature_table import (
    FRAME_FEATURES,
    FRAME_NAMES,
    NODE_FEATURES,
    PHASE_FEATURES,
    SLOT_FEATURES,
)
from stallward.agent.observation.features import FrameFeatures
from stallward.agent.observation.raw import RawFrame

HISTORY_S: Final = (1.0, 8.0)
"""Time constants of the fast and the slow moving average, seconds."""

_REMEMBERED: Final = tuple(i for i, f in enumerate(FRAME_FEATURES) if f.remembered)
_select_remembered: Final = itemgetter(*_REMEMBERED)
_ZEROS: Final = (0.0,) * len(_REMEMBERED)


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureSet:
    """How much of an observation a policy reads: its first numbers, up to a size.

    An observation can grow at its end, and the policies that exist go on reading what they read.
    """

    name: str
    meanings: tuple[str, ...]
    """The features with their meanings, those of slots once."""
    names: tuple[str, ...]
    """The name of each number."""

    @property
    def size(self) -> int:
        """How many numbers it has."""
        return len(self.names)


BASIC: Final = FeatureSet(
    name="basic",
    meanings=(
        *(f"{f.name}: {f.meaning}" for f in NODE_FEATURES),
        *(f"slot_{f.name}: {f.meaning}" for f in SLOT_FEATURES),
    ),
    names=FRAME_NAMES
    + tuple(f"{FRAME_NAMES[i]}_{tau_s:g}s" for tau_s in HISTORY_S for i in _REMEMBERED),
)
"""The features of a frame, and their moving averages."""
PHASES: Final = FeatureSet(
    name="phases",
    meanings=(*BASIC.meanings, *(f"slot_{f.name}: {f.meaning}" for f in PHASE_FEATURES)),
    names=BASIC.names + tuple(f"slot{i}_{f.name}" for i in range(SLOTS) for f in PHASE_FEATURES),
)
"""The phases of the slots, too."""
FEATURE_SETS: Final = {features.name: features for features in (BASIC, PHASES)}
OBSERVATION_NAMES: Final = PHASES.names
OBSERVATION_SIZE: Final = len(OBSERVATION_NAMES)


def schema(table: ActionTable = LEVELS, features: FeatureSet = BASIC) -> dict[str, object]:
    """The observation and action schema, as written into a policy's metadata.

    Args:
        table: The action table of the policy.
        features: What it reads.
    """
    return {
        "observation": list(features.meanings),
        "names": list(features.names),
        "history_s": list(HISTORY_S),
        "slots": SLOTS,
        "action_table": table.name,
        "action_sizes": list(table.sizes),
        "choices": table.choices(),
    }


def schema_hash(table: ActionTable = LEVELS, features: FeatureSet = BASIC) -> str:
    """SHA-256 of the schema's canonical JSON; a policy's file holds the hash of its training."""
    canonical = json.dumps(schema(table, features), sort_keys=True)
    return hashlib.sha256(canonical.encode()).hexdigest()


class ObservationEncoder:
    """Turns the raw frames of one node into observations, and keeps the moving averages.

    Args:
        slo_ms: The latency target of the node.
        demand_bytes: The memory that the application is known to need; 0 if that was not measured.
    """

    def __init__(self, slo_ms: float = 100.0, demand_bytes: float = 0.0) -> None:
        self._features = FrameFeatures(slo_ms, demand_bytes)
        self._averages = [_ZEROS] * len(HISTORY_S)

    def retarget(self, slo_ms: float) -> None:
        """Go on with another latency target; the averages of ratios to the one before decay."""
        self._features.retarget(slo_ms)

    def reset(self) -> None:
        """Forget the history."""
        self._features.reset()

    def encode(self, frame: RawFrame) -> NDArray[np.float32]:
        """The observation of one tick.

        All rates of the first frame after a reset are 0, because a rate needs two samples.

        Args:
            frame: The raw counters; the encoder keeps them.

        Returns:
            An array of shape ``(OBSERVATION_SIZE,)``, finite, float32.
        """
        features, phases, elapsed_s = self._features.compute(frame)
        now = _select_remembered(features)
        if elapsed_s is None:
            self._averages = [now] * len(HISTORY_S)
        else:
            for k, tau_s in enumerate(HISTORY_S):
                share = 1.0 - math.exp(-max(elapsed_s, 0.0) / tau_s)
                past = zip(self._averages[k], now, strict=True)
                self._averages[k] = tuple([mean + (new - mean) * share for mean, new in past])
        for averages in self._averages:
            features += averages
        features += phases
        return np.array(features, dtype=np.float32)
