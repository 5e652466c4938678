"""What the experiments on swap assignment run: applications, their memory, and that of the zone.

The document says how many applications there are, what they need and have, and how many sub-tasks;
what they compute it does not say. Here each works on its data in memory again and again.

Its case study has 8 GB; here everything is a 32nd of that. Its larger experiment has 18 GB and
240 MB; here it has 240 MiB.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from stallward.env.workloads.native.subtasks import ORDERS, Order, SubtaskProgram

Workload = Literal["same", "different"]
Computing = Literal["low", "high"]

MIB: Final = 1 << 20
SUBTASKS: Final = (5, 7, 9, 11, 128, 256)
"""The numbers of sub-tasks of the larger experiment."""
WORKLOADS: Final[tuple[Workload, ...]] = ("same", "different")
COMPUTINGS: Final[tuple[Computing, ...]] = ("low", "high")
_COMPUTE: Final = {"low": 1, "high": 15}
"""How often a sub-task computes over each word of a page that it visits."""
_ROUNDS: Final = {"low": 32, "high": 4}
"""How often an application works through its data: alone it takes 0.4 to 0.8 s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """Applications that run together, and the memory that they have."""

    name: str
    zone_bytes: int
    """MEM_sys: the memory limit of the zone."""
    programs: tuple[SubtaskProgram, ...]
    """The applications, by slot."""

    @property
    def needed_bytes(self) -> int:
        """What the data of all applications takes."""
        return sum(program.mib for program in self.programs) * MIB


def case_study(order: Order) -> Configuration:
    """Three applications that need 9/8 of the memory.

    The third one has half the work of each of the others, as its response times in the document
    suggest. Each has one sub-task, so that they contend for two processors about as little as for
    the six of the document's machine. The document does not say in what order they use their data.
    """
    return Configuration(
        name="case-study" if order == "scan" else f"case-study-{order}",
        zone_bytes=256 * MIB,
        programs=tuple(
            SubtaskProgram(name=name, mib=96, subtasks=1, rounds=rounds, compute=4, order=order)
            for name, rounds in (("T1", 24), ("T2", 24), ("T3", 12))
        ),
    )


CASE_STUDIES: Final = {one.name: one for one in map(case_study, ORDERS)}
"""Name -> the case study with each order."""
CASE_STUDY: Final = CASE_STUDIES["case-study"]


def larger(subtasks: int, workload: Workload, computing: Computing) -> Configuration:
    """One setting of the larger experiment: four applications that need 4/3 of the memory."""
    compute, rounds = _COMPUTE[computing], _ROUNDS[computing]
    if workload == "same":
        programs = [
            SubtaskProgram(name=name, mib=80, subtasks=subtasks, rounds=rounds, compute=compute)
            for name in ("A1", "A2", "A3", "A4")
        ]
    else:
        programs = [
            SubtaskProgram(
                name="A1", mib=40, subtasks=subtasks, rounds=2 * rounds, compute=compute
            ),
            SubtaskProgram(
                name="A2",
                mib=64,
                subtasks=subtasks,
                rounds=rounds,
                compute=compute,
                order="random",
            ),
            SubtaskProgram(
                name="A3", mib=96, subtasks=subtasks, rounds=rounds // 2, compute=2 * compute
            ),
            SubtaskProgram(
                name="A4",
                mib=120,
                subtasks=subtasks,
                rounds=rounds // 2,
                compute=compute,
                order="random",
            ),
        ]
    return Configuration(
        name=f"{workload}-{computing}-{subtasks}",
        zone_bytes=240 * MIB,
        programs=tuple(programs),
    )


LARGER: Final = tuple(
    larger(subtasks, workload, computing)
    for workload in WORKLOADS
    for computing in COMPUTINGS
    for subtasks in SUBTASKS
)
"""Every setting of the larger experiment."""


def find_configuration(name: str) -> Configuration | None:
    """The configuration ``name``; ``None`` if there is none."""
    return next((one for one in (*CASE_STUDIES.values(), *LARGER) if one.name == name), None)
