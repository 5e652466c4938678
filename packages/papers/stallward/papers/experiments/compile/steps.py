"""The runs of the compile sweep: sizes of memory, arms, and the order. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from stallward.evaluation.arms import Arm

MIB: Final = 1 << 20
UNPATCHED: Final = "unpatched"
ARMS: Final = {
    UNPATCHED: "none",
    "flush": "ws-flush",
    "clear": "ws-pressure",
    "clear at MIN": "ws-pressure:at=min",
    "clear, no writeback": "ws-pressure:writeback=no",
    "deactivate": "ws-deactivate",
    "promote next": "ws-promote:who=next",
    "promote most-run": "ws-promote:who=most-run",
    "activate most-run": "ws-promote:who=most-run,by=activate",
    "activate and mark": "ws-promote:who=most-run,by=activate-mark,priority=2",
    "clear most-run": "ws-pressure:victim=most-run,at=distress",
}
"""Name of an arm -> its controller. The first is the kernel as it is."""
SIZES_MIB: Final = (48, 56, 64, 80, 96, 128, 192)
FILES: Final = 12
JOBS: Final = 3
"""As in the thesis: ``make -j3`` on two processors."""
PREPARE: Final = (
    (
        "{python}",
        "-m",
        "stallward.env.workloads.jobs.compile_tree",
        "{data}/tree",
        "--files",
        str(FILES),
        "--functions",
        "30",
    ),
)
"""The command that makes the data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compilation:
    """``make``, which compiles the whole tree and ends."""

    name: str = "compile"
    report: str = ""
    """It says nothing about its times."""

    @property
    def argv(self) -> tuple[str, ...]:
        """Its command, with placeholders."""
        tree = "{data}/tree/Makefile"
        return ("make", "--silent", f"-j{JOBS}", "-C", "{scratch}", "-f", tree)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySize:
    """The compilation in so much memory."""

    zone_mib: int

    @property
    def name(self) -> str:
        """Its name, also of its files."""
        return f"{self.zone_mib}-mib"

    @property
    def zone_bytes(self) -> int:
        """The memory of the zone."""
        return self.zone_mib * MIB

    @property
    def programs(self) -> Sequence[Compilation]:
        """The only application."""
        return (Compilation(),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One run."""

    zone_mib: int
    arm: str
    repeat: int
    """From 1."""

    @property
    def key(self) -> str:
        """The name of its file."""
        arm = self.arm.replace(",", "").replace(" ", "-")
        return f"{self.zone_mib}-{arm}-{self.repeat}"

    @property
    def controller(self) -> Arm:
        """Its controller."""
        return Arm(label=self.arm, spec=ARMS[self.arm])


def plan_steps(sizes_mib: Sequence[int], repeats: int, seed: int) -> list[Step]:
    """All runs, one repeat of everything after the other, each in an order that is drawn.

    Args:
        sizes_mib: The sizes of memory.
        repeats: How often each arm runs at each size.
        seed: Seeds the order.
    """
    steps: list[Step] = []
    for repeat in range(1, repeats + 1):
        rng = np.random.default_rng([seed, repeat])
        ours = [Step(zone_mib=size, arm=arm, repeat=repeat) for size in sizes_mib for arm in ARMS]
        steps += [ours[i] for i in rng.permutation(len(ours))]
    return steps
