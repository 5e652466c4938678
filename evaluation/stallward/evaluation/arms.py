"""Arms: the controllers under test, as named on the command line."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stallward.agent.controllers.onnx import OnnxController
from stallward.agent.registry import make_controller
from stallward.env.twin.inputs.fitted import load_fitted
from stallward.evaluation.errors import PlanError

POLICY_ARMS: Final = ("ppo", "onnx", "remote", "mpc")
"""Arms that run a file: a policy loaded and activated over gRPC, or run by another process; the
fitted twin that ``mpc`` plans with."""

REMOTE_ARMS: Final = ("remote", "mpc")
"""Those that decide in a process of their own, and act by gRPC."""

UNBUDGETED: Final = ("latd", "latd-cgroup", "latd-grow")
"""Published algorithms that must run as their source states them: without pause budgets, and
allowed to terminate (at 0.1 % available memory they end their victim and themselves)."""

_CONTINUES: Final = re.compile(r"^[A-Za-z_]\w*=")


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One controller under test.

    ``label`` is what the user wrote and what results are filed under: ``none#2`` is a second
    arm with the controller ``none`` (an A/A comparison).
    """

    label: str
    spec: str
    """Controller spec without the repeat mark, as ``make_controller`` takes it."""

    @property
    def controller(self) -> str:
        """The controller's name without arguments."""
        return self.spec.partition(":")[0]

    @property
    def arguments(self) -> dict[str, str]:
        """The arguments of the spec; the registry has checked them."""
        rest = self.spec.partition(":")[2]
        return dict(part.split("=", 1) for part in rest.split(",") if "=" in part)

    @property
    def runs_policy(self) -> bool:
        """Whether this arm needs a policy file, or a fitted twin."""
        return self.controller in POLICY_ARMS

    @property
    def decides_remotely(self) -> bool:
        """Whether a process of its own decides."""
        return self.controller in REMOTE_ARMS

    @property
    def lifts_budgets(self) -> bool:
        """Whether the guard's pause budgets are lifted for this arm."""
        return self.controller in UNBUDGETED

    @property
    def slug(self) -> str:
        """A name for directories."""
        return re.sub(r"[^A-Za-z0-9.]+", "-", self.label).strip("-")


def parse_arms(text: str) -> tuple[Arm, ...]:
    """Parse ``none,latd,static:pause=1,limit=0.4,none#2``.

    A piece of the form ``key=value`` belongs to the arm before it.

    Raises:
        PlanError: If nothing is named, or an arm is named twice without ``#``.
        ControllerError: If an arm or one of its arguments is unknown.
    """
    labels: list[str] = []
    for piece in (p.strip() for p in text.split(",")):
        if labels and _CONTINUES.match(piece) and ":" in labels[-1]:
            labels[-1] += f",{piece}"
        elif piece:
            labels.append(piece)
    return tuple(make_arms(labels))


def make_arms(labels: list[str]) -> list[Arm]:
    """Make arms from labels, checking each.

    Raises:
        PlanError: If there is none, or one is named twice.
        ControllerError: If one is unknown or its arguments do not fit.
    """
    if not labels:
        raise PlanError("No arm was named.", next_step="Try --arms none,latd,ppo.")
    for label in labels:
        if not label.isprintable():
            raise PlanError(f"The arm {label!r} has characters that cannot be printed.")
    arms = [Arm(label=label, spec=label.partition("#")[0]) for label in labels]
    seen: set[str] = set()
    for arm in arms:
        if arm.slug in seen or arm.label in seen:
            raise PlanError(
                f"The arm {arm.label!r} is named twice.",
                next_step=f"Write the second as {arm.spec}#2 to compare it with itself.",
            )
        seen.update((arm.slug, arm.label))
        _check(arm)
    return arms


def _check(arm: Arm) -> None:
    if not arm.runs_policy:
        make_controller(arm.spec)
        return
    for key in arm.arguments:
        if key != "path":
            raise PlanError(
                f"The arm {arm.controller!r} does not take {key!r}.",
                next_step=f"Write {arm.controller}:path=FILE.",
            )
    if arm.controller == "onnx" and "path" not in arm.arguments:
        raise PlanError(
            "The arm 'onnx' needs the file of a policy.", next_step="Write onnx:path=FILE.onnx."
        )


def find_policy_of(arm: Arm, default: str, scenario: str = "") -> Path | None:
    """The file that an arm runs, checked; ``None`` for arms that run none.

    Args:
        arm: A policy file is looked for, or the fitted twin that ``mpc`` plans with.
        default: The policy of arms that name none, file or name.
        scenario: Whose twin it is where ``mpc`` names none.

    Raises:
        PolicyError: If it is missing or cannot be run here.
        TwinError: If it is no fitted twin.
        RegistryError: If there is no such file.
    """
    if not arm.runs_policy:
        return None
    if arm.controller == "mpc":
        from stallward.env.twin.inputs.find import find_twin_of  # noqa: PLC0415 - needs no node

        twin = find_twin_of(scenario, arm.arguments.get("path", "default"))
        load_fitted(twin)
        return twin
    from stallward.models.registry import find_policy  # noqa: PLC0415

    named = arm.arguments.get("path", default)
    path = Path(named) if Path(named).is_file() else Path(find_policy(named))
    OnnxController(path)  # refuses what does not fit, before anything is started
    return path


ALONE: Final = "alone"


AMPLE: Final = "ample"


BACKGROUND: Final = "background"
"""The background with the node to itself: what its work is measured against."""


REFERENCES: Final = (ALONE, AMPLE, BACKGROUND)
