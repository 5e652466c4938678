"""The interface of everything that decides.

To write a controller, copy ``controllers/none.py``, add its entry to ``controllers/__init__.py``
(or name it as an entry point of your own package), and run
:func:`stallward.agent.testing.check_controller` on it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from stallward.agent.desired import DEFAULT_FLOOR_BYTES, DesiredState
from stallward.agent.sample import Sample


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeContext:
    """What a controller may know about the node before the first tick."""

    zone_limit_bytes: int
    """Memory that the protected application and the background share."""
    slot_names: tuple[str, ...]
    floors_bytes: tuple[int, ...] = ()
    slo_ms: float = 100.0
    tick_period_s: float = 0.1
    seed: int = 0

    def floor(self, slot: int) -> int:
        """The lowest limit allowed for ``slot``."""
        return self.floors_bytes[slot] if slot < len(self.floors_bytes) else DEFAULT_FLOOR_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A desired state and how it came about."""

    desired: DesiredState
    reason: str = ""
    """One short clause; it ends up in the tick record."""
    action: tuple[int, ...] | None = None
    """The entry of the action table, for controllers that use it."""
    propensity: float | None = None
    """Probability with which a randomised controller chose this; ``None`` if deterministic."""
    score: float | None = None
    """Distance of the observation from the training data, where the policy knows it."""


class Controller(Protocol):
    """Maps a sample (and the observation computed from it) to a desired state.

    Deciding must be pure apart from the controller's own memory: no I/O, no sleeping, no clock
    other than ``sample.time_s``, no randomness other than the context's seed, so that a
    recorded episode replays to the same decisions.
    """

    name: str
    needs_processes: bool
    """Whether samples must carry the background's processes (costs a /proc walk a tick)."""

    def reset(self, context: NodeContext) -> None:
        """Forget everything and prepare for a node."""

    def decide(self, sample: Sample, observation: NDArray[np.float32]) -> Decision:
        """Decide for this tick.

        Args:
            sample: The raw signals.
            observation: Shape ``(OBSERVATION_SIZE,)``, see
            ``stallward.agent.observation.encoder``.
        """


@runtime_checkable
class PolicyController(Controller, Protocol):
    """A controller that runs a policy file.

    The daemon can turn it off, watch it or follow it, and follows it only while its scores
    (``Decision.score``) are at most its limit.
    """

    @property
    def path(self) -> Path:
        """The policy file."""

    @property
    def sha256(self) -> str:
        """The digest of the file, in hexadecimal."""

    @property
    def ood_limit(self) -> float:
        """The largest score of an observation that is still near the training data."""
