"""What an experiment compares, fixed before it starts. Pure."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Final

from stallward.actuator.errors import ExperimentError

MIN_BLOCK_S: Final = 10.0
MAX_BLOCK_S: Final = 86400.0
MAX_PAIRS: Final = 1000
MAX_SEED: Final = (1 << 63) - 1


class Arm(IntEnum):
    """One of the two controllers that are compared."""

    BASELINE = 0
    TREATMENT = 1

    @property
    def other(self) -> Arm:
        """The arm that it is compared with."""
        return Arm(1 - self)


class PrimaryMeasure(StrEnum):
    """The measure that decides whether the arms differ."""

    P95 = "p95"
    """The typical p95 latency of a second."""
    WORST = "worst"
    """The p95 latency that one second in twenty exceeds."""
    WORK = "work"
    """The work of the background: in its own units, or else its processor time."""
    BLOCK_P95 = "block-p95"
    """The p95 latency of all requests of a block."""
    BLOCK_P99 = "block-p99"
    """The p99 latency of all requests of a block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """The controller of one arm."""

    policy: str = ""
    """The policy, as for loading it; empty for the configured controller."""
    sha256: str = ""
    """The policy's digest; empty for the configured controller."""

    @property
    def is_policy(self) -> bool:
        """Whether it is a policy."""
        return bool(self.policy)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentPlan:
    """An experiment of paired blocks.

    Both arms run once in each pair, in an order that is drawn from the seed. So what changes
    slowly on the node hits both alike.

    Raises:
        ExperimentError: If a number is out of its range.
    """

    baseline: Candidate
    treatment: Candidate
    pairs: int
    """The most pairs of blocks."""
    block_s: float
    """The measured length of a block."""
    burn_in_s: float
    """What is left out at the start of a block, because the other arm still has an effect."""
    seed: int
    primary: PrimaryMeasure = PrimaryMeasure.P95
    stop_when_certain: bool = False
    """Whether it ends as soon as the arms certainly differ in the primary measure."""
    margin: float = 0.05
    """By how much less often the treatment may keep the target, as a share of the seconds, before
    the experiment is stopped."""
    fleet_seed: int | None = None
    """The seed of the experiment on many nodes that this is a part of; ``None`` if it is one by
    itself. It also tells such experiments apart."""

    def __post_init__(self) -> None:
        ranges = (
            ("pairs", self.pairs, 1, MAX_PAIRS),
            ("block_s", self.block_s, MIN_BLOCK_S, MAX_BLOCK_S),
            ("burn_in_s", self.burn_in_s, 0.0, MAX_BLOCK_S),
            ("margin", self.margin, 0.0, 1.0),
            ("seed", self.seed, 0, MAX_SEED),
            ("fleet_seed", self.fleet_seed or 0, 0, MAX_SEED),
        )
        for name, value, low, high in ranges:
            if not low <= value <= high:
                raise ExperimentError(f"{name} is {value:g}, outside {low:g}..{high:g}.")

    def candidate(self, arm: Arm) -> Candidate:
        """The controller of an arm."""
        return self.baseline if arm is Arm.BASELINE else self.treatment

    @property
    def blocks(self) -> int:
        """How many blocks there are at most."""
        return 2 * self.pairs

    def arm_of(self, block: int) -> Arm:
        """The arm of a block.

        The order of a pair comes from a digest of the seed and the pair's number, so it is the
        same on every machine and after every restart, and nobody can choose it.
        """
        pair, second = divmod(block, 2)
        first = Arm(hashlib.sha256(f"{self.seed}/{pair}".encode()).digest()[0] & 1)
        return first.other if second else first
