"""What a rollout is: the policy, the nodes in drawn order, the waves and the rules. Pure."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from stallward.fleet.errors import RolloutError

DEFAULT_WAVES: Final = "1,5%,25%,100%"
_WAVE: Final = re.compile(r"(\d{1,7}(?:\.\d{1,4})?)(%?)")
_WRITE: Final = "Write how many nodes have the policy after each wave, such as 1,5%,25%,100%."


@dataclass(frozen=True, slots=True, kw_only=True)
class WaveRules:
    """When a wave is bad, and how many nodes may be left out."""

    watch_s: float = 1800.0
    """How long the nodes are looked at after each wave, and before the first one."""
    look_s: float = 10.0
    """The time between two looks at a node: neighbouring seconds share their luck."""
    margin: float = 0.02
    """By how much less often the target may be kept, as a share of the looks."""
    guard_margin: float = 0.25
    """By how much more often the guard may intervene, as a share of the looks."""
    alpha: float = 0.01
    """The chance to stop at a wave although the policy is as good as what decided before."""
    failed_share: float = 0.05
    """The share of a wave's nodes on which the policy may fail: it was turned off there, the
    default controller decides in its place, or the node does not answer."""
    skipped_share: float = 0.05
    """The share of all nodes that may be left out because they do not answer or refuse."""
    need_requests: bool = True
    """Whether a wave is bad if too few of its nodes had requests to tell."""

    def __post_init__(self) -> None:
        if not 0.0 < self.look_s <= self.watch_s:
            raise RolloutError(
                f"Looks {self.look_s:g} s apart do not fit into {self.watch_s:g} s.",
                next_step="Watch for longer than the time between two looks.",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutPlan:
    """One rollout.

    Raises:
        RolloutError: If there are no nodes or the waves do not fit them.
    """

    policy: str
    """What is loaded on each node: a digest in its store, or ``controller:NAME[:key=value]``."""
    name: str
    """The name that a pushed policy gets on the nodes; empty if nothing is pushed."""
    sha256: str
    """The digest by which a node says that this policy decides."""
    nodes: tuple[str, ...]
    """In the order in which they are switched; see :func:`drawn_order`."""
    waves: tuple[int, ...]
    """How many nodes have the policy after each wave; the last is all of them."""
    rules: WaveRules = field(default_factory=WaveRules)

    def __post_init__(self) -> None:
        rising = all(a < b for a, b in zip((0, *self.waves), self.waves, strict=False))
        if not self.nodes or not rising or self.waves[-1] != len(self.nodes):
            raise RolloutError(
                f"The waves {self.waves} do not fit {len(self.nodes)} nodes.", next_step=_WRITE
            )

    def target(self, wave: int) -> int:
        """How many nodes are to have the policy after a wave, counted from 0."""
        return self.waves[min(wave, len(self.waves) - 1)]

    @property
    def most_skipped(self) -> int:
        """How many nodes may be left out."""
        return math.floor(self.rules.skipped_share * len(self.nodes))

    @property
    def least_s(self) -> float:
        """How long it takes at least: each wave is watched, and the fleet before the first."""
        return self.rules.watch_s * (1 + len(self.waves))


def drawn_order(names: Iterable[str], seed: int) -> tuple[str, ...]:
    """The nodes in an order that follows from the seed and their names alone.

    So each wave is a random part of the fleet, and what is left over is comparable with it.
    """
    return tuple(
        sorted(names, key=lambda name: hashlib.sha256(f"{seed}/rollout/{name}".encode()).digest())
    )


def parse_waves(text: str, nodes: int) -> tuple[int, ...]:
    """Read waves such as ``1,5%,25%,100%``.

    Args:
        text: How many nodes have the policy after each wave, or which share of them. Shares are
            rounded up, waves that add no node are left out, and a last one with all is added.
        nodes: How many nodes there are.

    Raises:
        RolloutError: If the text is no list of waves that grow.
    """
    waves: list[int] = []
    last = 0.0
    for part in text.split(","):
        match = _WAVE.fullmatch(part.strip())
        number = float(match.group(1)) if match else math.nan
        share = bool(match and match.group(2))
        if not match or (share and number > 100.0) or (not share and number != int(number)):
            raise RolloutError(f"{part.strip()!r} is not a wave.", next_step=_WRITE)
        exact = number * nodes / 100.0 if share else number
        if exact <= 0.0 or math.ceil(exact - 1e-9) < last:
            raise RolloutError(f"The waves {text} do not grow.", next_step=_WRITE)
        last = min(math.ceil(exact - 1e-9), nodes)
        waves.append(int(last))
    return tuple(sorted({*waves, nodes} - {0}))


def share_of(text: str) -> float:
    """Read a share such as ``5%``.

    Raises:
        RolloutError: If it is none.
    """
    match = re.fullmatch(r"(\d{1,3}(?:\.\d{1,4})?)%", text.strip())
    if not match or float(match.group(1)) > 100.0:
        raise RolloutError(f"{text!r} is not a share.", next_step="Write one such as 5%.")
    return float(match.group(1)) / 100.0
