"""The runs of the experiments of the latd thesis, in the order in which they are made. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from stallward.env.scenario.scenario import Scenario
from stallward.evaluation.arms import Arm
from stallward.papers.experiments.latd.published import RISE_AT
from stallward.papers.experiments.latd.workload import (
    ENDLESS,
    SHORT,
    USUAL,
    Hog,
    Machine,
    hog_scenario,
)

Part = Literal["all", "scenarios", "utilisation", "swappiness"]
SWAPPINESS: Final = (20, 40, 60, 80, 90, 100)
"""The values of the swappiness that the thesis plots."""
UTILISATIONS: Final = (0.9, 0.95, RISE_AT, 1.03, SHORT)
"""How much detector and hog want together, as shares of the memory."""
ISOLATED: Final = "isolated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What one run is made of."""

    hog: Hog | None = None
    """The hog beside the detector; ``None`` for none."""
    utilisation: float = SHORT
    """How much both want together, as a share of the memory."""
    controller: str = "none"

    @property
    def name(self) -> str:
        """The name of its runs."""
        if self.hog is None:
            return ISOLATED
        arm = Arm(label=self.controller, spec=self.controller)
        return f"{self.hog}-{100 * self.utilisation:.0f}-{arm.slug}"

    def scenario(self, machine: Machine = USUAL) -> Scenario:
        """The programs that run on a machine, or that would if there were a hog."""
        return hog_scenario(self.hog or "anon-once", self.utilisation, machine)


SCENARIOS: Final = {
    ISOLATED: Setting(),
    "anon": Setting(hog="anon-once", utilisation=ENDLESS),
    "anon-again": Setting(hog="anon-again"),
    "file-once": Setting(hog="file-once"),
    "file-again": Setting(hog="file-again"),
    "latd": Setting(hog="anon-once", utilisation=ENDLESS, controller="latd"),
    "latd-again": Setting(hog="anon-again", controller="latd"),
    "latd-cgroup": Setting(hog="file-again", controller="latd-cgroup"),
    "latd-grow": Setting(hog="file-again", controller="latd-grow"),
}
"""Name of a scenario -> its setting. Those with ``anon-again``, which touches its memory again and
again, are not in the thesis, and neither is ``latd-grow``."""
SWEPT_HOGS: Final[tuple[Hog, ...]] = ("anon-once", "anon-again", "file-again")
SWEEP: Final = {
    hog: {used: Setting(hog=hog, utilisation=used) for used in UTILISATIONS} for hog in SWEPT_HOGS
}
"""Hog -> utilisation -> setting, without control."""
SWAPPED_HOG: Final[Hog] = "anon-again"
"""The hog of the swappiness sweep."""
SWAPPINESS_SWEEP: Final[dict[float, Setting]] = {
    value: Setting(hog=SWAPPED_HOG, controller=f"static:swappiness={value}")
    for value in SWAPPINESS
}
"""Swappiness -> setting."""


def settings_of(part: Part) -> tuple[Setting, ...]:
    """The settings of a part, each once."""
    by_part = {
        "scenarios": tuple(SCENARIOS.values()),
        "utilisation": tuple(one for by_used in SWEEP.values() for one in by_used.values()),
        "swappiness": tuple(SWAPPINESS_SWEEP.values()),
    }
    parts = tuple(by_part) if part == "all" else (part,)
    # Every figure is beside that of the detector alone.
    found = (SCENARIOS[ISOLATED], *(one for name in parts for one in by_part[name]))
    return tuple(dict.fromkeys(found))
