"""The runs of the experiment of DASEC, in the order in which they are made. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from stallward.evaluation.arms import Arm
from stallward.evaluation.errors import PlanError
from stallward.papers.experiments.dasec.applications import APPLICATIONS, Application

UNMANAGED: Final = "none"
ARMS: Final = (
    UNMANAGED,
    "bvt",
    "dasec",
    "dasec:hold_periods=50",
    "dasec:answers=latency",
    "dasec:answers=layout",
    "dasec:answers=share",
    "dasec:memory=partition",
)
"""The controllers: none, what the source compares with, all of its answers, the same with those to
delays held for five seconds, each answer alone, and all beside one that shares the memory."""
RATIOS: Final = (1, 2, 4)
"""Batch threads for each processor, beside the application."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What one run is made of."""

    application: Application
    ratio: int = 0
    """Batch threads for each processor; 0 for the application alone."""
    controller: str = UNMANAGED

    @property
    def name(self) -> str:
        """The name of its runs."""
        return f"{self.application}-{self.ratio}-{self.arm.slug}"

    @property
    def arm(self) -> Arm:
        """The controller."""
        return Arm(label=self.controller, spec=self.controller)


def parse_applications(text: str) -> tuple[Application, ...]:
    """Applications from ``memcached,ordered``; all of them if nothing is written.

    Raises:
        PlanError: If one is unknown.
    """
    names = [part.strip() for part in text.split(",") if part.strip()]
    unknown = [name for name in names if name not in APPLICATIONS]
    if unknown:
        raise PlanError(
            f"{unknown[0]!r} is no application of the experiment.",
            next_step=f"Take some of {', '.join(APPLICATIONS)}.",
        )
    return tuple(one for one in APPLICATIONS if one in names or not names)


def settings_of(applications: Sequence[Application] = APPLICATIONS) -> tuple[Setting, ...]:
    """Each application alone, and at each ratio under each controller."""
    return tuple(
        setting
        for application in applications
        for setting in (
            Setting(application=application),
            *(
                Setting(application=application, ratio=ratio, controller=controller)
                for ratio in RATIOS
                for controller in ARMS
            ),
        )
    )
