"""The runs of the experiments on swap assignment, in the order in which they are made. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from stallward.evaluation.arms import Arm
from stallward.papers.experiments.swap.analysis import UNMANAGED
from stallward.papers.experiments.swap.configurations import Configuration

ALONE_RUNS: Final = 2
"""How often each application runs alone."""
SCHEDULING, DIRECT, BOTH = "scheduling", "direct swap", "both"
ARMS: Final = {
    UNMANAGED: "none",
    "MaT": "mat",
    "average": "swap-average:path={contention}",
    SCHEDULING: "swap-assign:swap=0,path={contention}",
    DIRECT: "swap-assign:cpu=0,path={contention}",
    BOTH: "swap-assign:path={contention}",
}
"""Name of an arm -> its controller, given the file of contention degrees. All but the first two
are told what each application needs: the document evaluates that beforehand."""
ALPHA_ARMS: Final = {UNMANAGED: ARMS[UNMANAGED]} | {
    f"alpha {alpha}": f"swap-assign:cpu=0,alpha={alpha},path={{contention}}"
    for alpha in ("0", "0.1", "0.2", "0.3", "0.4", "0.5")
}
"""The same for direct swap access with a given share of the lowest priority in swap."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One run."""

    configuration: Configuration
    arm: str
    """The name of its arm; alone it is the unmanaged one."""
    slot: int | None = None
    """The application that runs alone; ``None`` if all run."""
    repeat: int = 0
    """The number of the repeat, from 1; 0 in the runs that contention degrees come from."""

    @property
    def key(self) -> str:
        """The name of its file."""
        if self.slot is not None:
            return f"{self.configuration.name}-alone{self.slot}-{self.repeat}"
        return f"{self.configuration.name}-{self.arm.replace(' ', '-')}-{self.repeat}"

    @property
    def spec(self) -> str:
        """Its controller, with a placeholder for the file of contention degrees."""
        return (ARMS | ALPHA_ARMS)[self.arm]

    def controller(self, contention: Path) -> Arm:
        """The controller, given the file of contention degrees."""
        return Arm(label=self.arm, spec=self.spec.format(contention=contention))


def alone_slots(configuration: Configuration) -> tuple[int, ...]:
    """The slots whose applications run alone: one for all that are alike but for the name."""
    kinds: dict[tuple[object, ...], int] = {}
    for slot in range(len(configuration.programs)):
        kinds.setdefault(_kind(configuration, slot), slot)
    return tuple(kinds.values())


def stands_for(configuration: Configuration, slot: int) -> int:
    """The slot whose runs alone count for ``slot``."""
    same = _kind(configuration, slot)
    return next(i for i in alone_slots(configuration) if _kind(configuration, i) == same)


def _kind(configuration: Configuration, slot: int) -> tuple[object, ...]:
    one = configuration.programs[slot]
    return (one.mib, one.subtasks, one.rounds, one.compute, one.order)


def degree_steps(configuration: Configuration) -> Iterator[Step]:
    """The runs that the contention degrees of a configuration come from."""
    for slot in alone_slots(configuration):
        for number in range(ALONE_RUNS):
            yield Step(configuration=configuration, arm=UNMANAGED, slot=slot, repeat=number)
    yield Step(configuration=configuration, arm=UNMANAGED)


def plan_steps(
    configurations: Sequence[Configuration], arms: Iterable[str], repeats: int, seed: int
) -> list[Step]:
    """All runs: first those for the degrees, then one repeat of everything after the other.

    Within a repeat the order is drawn, so that slow drifts of the machine affect all alike.

    Args:
        configurations: The configurations.
        arms: The names of the arms.
        repeats: How often each arm runs in each of them.
        seed: Seeds the order.
    """
    steps = [step for one in configurations for step in degree_steps(one)]
    for repeat in range(1, repeats + 1):
        rng = np.random.default_rng([seed, repeat])
        ours = [
            Step(configuration=one, arm=arm, repeat=repeat)
            for one in configurations
            for arm in arms
        ]
        steps += [ours[i] for i in rng.permutation(len(ours))]
    return steps
