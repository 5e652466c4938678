"""The runs of several instances side by side, in the order in which they are made. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeVar, get_args

import numpy as np

from stallward.evaluation.arms import Arm
from stallward.evaluation.errors import PlanError
from stallward.papers.experiments.dasec.applications import (
    INSTANCE_APPLICATIONS,
    MOST_INSTANCES,
    Application,
)
from stallward.papers.experiments.dasec.steps import UNMANAGED

Mix = Literal["same", "mixed"]
"""Instances of the same application, or of each application in turn."""
MIXES: Final[tuple[Mix, ...]] = get_args(Mix)
ARMS: Final = (UNMANAGED, "dasec", "dasec:answers=latency", "bvt")
COUNTS: Final = (2, 4, 6)
LOADS: Final = (0.4, 0.7, 0.95)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """Instances that run side by side, under one controller after the other."""

    applications: tuple[Application, ...]
    """The application of each instance."""
    load: float
    """The share of all processors that the instances and their load generators use together."""

    @property
    def mix(self) -> str:
        """The application of all instances, or ``mixed``."""
        return "mixed" if len(set(self.applications)) > 1 else self.applications[0]

    @property
    def name(self) -> str:
        """The name of its runs."""
        return f"{self.mix}-{len(self.applications)}-{self.load:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CellRun:
    """One run."""

    cell: Cell
    controller: str
    repeat: int
    """The number of the round, from 1."""

    @property
    def arm(self) -> Arm:
        """The controller."""
        return Arm(label=self.controller, spec=self.controller)

    @property
    def key(self) -> str:
        """The name of its file."""
        return f"{self.cell.name}-{self.arm.slug}-{self.repeat}"

    @property
    def words(self) -> str:
        """What it is, for somebody who waits."""
        return f"{self.cell.name} under {self.controller}, round {self.repeat}"


def cells_of(
    applications: Sequence[Application],
    counts: Sequence[int],
    mixes: Sequence[Mix],
    loads: Sequence[float],
) -> tuple[Cell, ...]:
    """Every number of instances of each application, and of all in turn, at every load.

    Raises:
        PlanError: If there are to be different applications and only one is named, or if several
            instances of an application cannot run.
    """
    unknown = [one for one in applications if one not in INSTANCE_APPLICATIONS]
    if unknown:
        raise PlanError(
            f"Several instances of {unknown[0]} cannot run side by side.",
            next_step=f"Take some of {', '.join(INSTANCE_APPLICATIONS)}.",
        )
    if "mixed" in mixes and len(applications) < 2:
        raise PlanError(
            "Different applications are to run, and only one is named.",
            next_step="Name two with --applications, or write --mix same.",
        )
    kinds: list[tuple[Application, ...]] = []
    kinds += [(one,) for one in applications] if "same" in mixes else []
    kinds += [tuple(applications)] if "mixed" in mixes else []
    return tuple(
        Cell(applications=tuple(kind[i % len(kind)] for i in range(count)), load=load)
        for kind in kinds
        for count in counts
        for load in loads
    )


def plan_runs(cells: Sequence[Cell], repeats: int, seed: int) -> list[CellRun]:
    """All runs, one round of everything after the other.

    Within a round the order of the cells is drawn, and all controllers of a cell follow each other,
    so that drifts of the machine affect them alike. Each round of a cell begins with another one.

    Args:
        cells: What runs.
        repeats: How many rounds.
        seed: Seeds the order.
    """
    runs: list[CellRun] = []
    for repeat in range(1, repeats + 1):
        rng = np.random.default_rng([seed, repeat])
        for i in rng.permutation(len(cells)).tolist():
            first = (i + repeat) % len(ARMS)
            runs += [
                CellRun(cell=cells[i], controller=controller, repeat=repeat)
                for controller in (*ARMS[first:], *ARMS[:first])
            ]
    return runs


# ---------- What the user writes

T = TypeVar("T")


def parse_counts(text: str) -> tuple[int, ...]:
    """Numbers of instances, from ``2,6``.

    Raises:
        PlanError: If one is no number from 2 to :data:`MOST_INSTANCES`.
    """

    def count(part: str) -> int | None:
        return int(part) if part.isdecimal() and 2 <= int(part) <= MOST_INSTANCES else None

    return _parse(text, COUNTS, count, f"a number of instances from 2 to {MOST_INSTANCES}")


def parse_mixes(text: str) -> tuple[Mix, ...]:
    """Mixes, from ``same,mixed``; both if nothing is written.

    Raises:
        PlanError: If one is unknown.
    """

    def mix(part: str) -> Mix | None:
        return next((one for one in MIXES if one == part), None)

    return _parse(text, MIXES, mix, f"one of {', '.join(MIXES)}")


def parse_loads(text: str) -> tuple[float, ...]:
    """Shares of the processors, from ``0.4,0.95``.

    Raises:
        PlanError: If one is no number between 0 and 1.
    """

    def load(part: str) -> float | None:
        try:
            return float(part) if 0.0 < float(part) < 1.0 else None
        except ValueError:
            return None

    return _parse(text, LOADS, load, "a share of the processors between 0 and 1")


def _parse(
    text: str, default: tuple[T, ...], read: Callable[[str], T | None], wanted: str
) -> tuple[T, ...]:
    found: list[T] = []
    for part in (part.strip() for part in text.split(",") if part.strip()):
        value = read(part)
        if value is None:
            raise PlanError(f"{part!r} is not {wanted}.", next_step=f"Write {wanted}.")
        found.append(value)
    return tuple(dict.fromkeys(found)) or default
