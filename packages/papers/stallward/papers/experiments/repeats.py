"""The runs of an experiment that makes each of its settings several times. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np


class Named(Protocol):
    """A setting of an experiment."""

    @property
    def name(self) -> str:
        """The name of its runs."""
        ...


N = TypeVar("N", bound=Named)


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeat(Generic[N]):
    """One run."""

    setting: N
    repeat: int
    """The number of the repeat, from 1."""

    @property
    def key(self) -> str:
        """The name of its file."""
        return f"{self.setting.name}-{self.repeat}"

    @property
    def words(self) -> str:
        """What it is, for somebody who waits."""
        return f"{self.setting.name}, repeat {self.repeat}"


def plan_repeats(settings: Sequence[N], repeats: int, seed: int) -> list[Repeat[N]]:
    """All runs, one repeat of everything after the other.

    Within a repeat the order is drawn, so that slow drifts of the machine affect all alike.

    Args:
        settings: What to run.
        repeats: How often each setting runs.
        seed: Seeds the order.
    """
    steps: list[Repeat[N]] = []
    for repeat in range(1, repeats + 1):
        rng = np.random.default_rng([seed, repeat])
        order: Sequence[int] = rng.permutation(len(settings)).tolist()
        steps += [Repeat(setting=settings[i], repeat=repeat) for i in order]
    return steps
