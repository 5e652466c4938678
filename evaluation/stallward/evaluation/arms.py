"""Arms: the controllers under test, as named on the command line."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stallward.agent.controller import needs_threads
from stallward.agent.controllers.onnx import OnnxController
from stallward.agent.registry import controllers, find_entry, make_controller
from stallward.env.sandbox.peers.programs import Peer, find_peer
from stallward.env.twin.inputs.find import find_twin_of
from stallward.env.twin.inputs.fitted import load_fitted
from stallward.evaluation.errors import PlanError
from stallward.models.registry import find_policy, find_thresholds, rule_names

POLICY_ARMS: Final = ("ppo", "onnx", "remote", "mpc")
"""The controllers that need a file: a policy that is activated over gRPC or run by another
process, or the fitted twin that ``mpc`` plans with."""

REMOTE_ARMS: Final = ("remote", "mpc")
"""The controllers that decide in a separate process and act over gRPC."""

PEER: Final = "peer"
"""``peer:NAME``: a program of other people runs as itself, and the daemon does nothing."""

ALL: Final = "all"
"""What stands for every controller that can be compared without a file or a client."""

_NOT_IN_ALL: Final = ("excite", "storm", "onnx", "remote")
"""Two act at random, to record and to test. Two run what a user names; the shipped policy is
``ppo``."""

_ARGUMENT: Final = re.compile(r"^[A-Za-z_]\w*=")
_LABEL: Final = re.compile(r"[^#]*(#\w+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One controller under test."""

    label: str
    """The arm as the user wrote it, and its name in results. ``none#2`` is a second arm with the
    controller ``none`` (an A/A comparison)."""
    spec: str
    """The label without ``#2``: the spec for ``make_controller``, or ``peer:NAME``."""

    @property
    def controller(self) -> str:
        """The controller's name without arguments."""
        return self.spec.partition(":")[0]

    @property
    def arguments(self) -> dict[str, str]:
        """The arguments of the spec, which the registry has checked."""
        rest = self.spec.partition(":")[2]
        return dict(part.split("=", 1) for part in rest.split(",") if "=" in part)

    @property
    def peer(self) -> Peer | None:
        """The program that acts in place of a controller; ``None`` for all other arms.

        Raises:
            WorkloadError: If there is none of that name, which :func:`make_arms` has checked.
        """
        return find_peer(self.spec.partition(":")[2]) if self.controller == PEER else None

    @property
    def runs_policy(self) -> bool:
        """Whether this arm needs a policy file, or a fitted twin."""
        return self.controller in POLICY_ARMS

    @property
    def decides_remotely(self) -> bool:
        """Whether a separate process decides."""
        return self.controller in REMOTE_ARMS

    @property
    def lifts_budgets(self) -> bool:
        """Whether the guard's budgets are lifted for this arm, and it may end background work.

        It runs as published then, or it pages out what runs (``ws-deactivate:by=pageout``), which
        the guard allows only without budgets.
        """
        if self.peer is not None:
            return False
        return find_entry(self.controller).unbudgeted or self.arguments.get("by") == "pageout"

    @property
    def moves_threads(self) -> bool:
        """Whether the guard has to allow settings of the application's threads for this arm."""
        if self.runs_policy or self.peer is not None:
            return False
        return needs_threads(make_controller(self.spec))

    @property
    def slug(self) -> str:
        """A name for directories."""
        return re.sub(r"[^A-Za-z0-9.]+", "-", self.label).strip("-")


def parse_arms(text: str) -> tuple[Arm, ...]:
    """Parse ``none,latd,static:pause=1,limit=0.4,none#2``.

    A part ``key=value`` is an argument of the arm before it, and ``all`` stands for every
    controller that :data:`ALL` means.

    Raises:
        PlanError: If no arm is named, or an arm is named twice without ``#``.
        ControllerError: If an arm or one of its arguments is unknown.
    """
    labels: list[str] = []
    for part in (p.strip() for p in text.split(",")):
        if labels and _ARGUMENT.match(part) and ":" in labels[-1]:
            labels[-1] += f",{part}"
        elif part == ALL:
            labels.extend(_all_labels())
        elif part:
            labels.append(part)
    return tuple(make_arms(labels))


def _all_labels() -> list[str]:
    """Every controller as an arm, ``none`` first. ``static`` pauses, as it does nothing alone."""
    names = [entry.name for entry in controllers() if entry.name not in _NOT_IN_ALL]
    names.sort(key=lambda name: (name != "none", name))
    return ["static:pause=all" if name == "static" else name for name in names]


def make_arms(labels: list[str]) -> list[Arm]:
    """Make arms from labels, and check each arm.

    Raises:
        PlanError: If there is no label, an arm is named twice, or something follows its number.
        ControllerError: If a controller is unknown, or its arguments are wrong.
        WorkloadError: If a peer is unknown.
    """
    if not labels:
        raise PlanError("No arm was named.", next_step="Try --arms none,latd,ppo.")
    for label in labels:
        if not label.isprintable():
            raise PlanError(f"The arm {label!r} has characters that cannot be printed.")
        if not _LABEL.fullmatch(label):  # what follows would have no part in the arm
            raise PlanError(
                f"In the arm {label!r}, what follows the '#' is not a number.",
                next_step="Write the number last, as in static:limit=0.4#2.",
            )
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
    if arm.peer is not None:
        return
    if not arm.runs_policy:
        make_controller(arm.spec)
        return
    find_entry(arm.controller)  # that of a package may not be installed
    for key in arm.arguments:
        if key != "path":
            raise PlanError(
                f"The arm {arm.controller!r} does not take {key!r}.",
                next_step=f"Write {arm.controller}:path=FILE.",
            )
    if len(re.findall(r"[:,]path=", arm.spec)) > 1:
        raise PlanError(
            f"The arm {arm.label!r} names two files.",
            next_step=f"Write {arm.controller}:path=FILE.",
        )
    if arm.controller == "onnx" and "path" not in arm.arguments:
        raise PlanError(
            "The arm 'onnx' needs the file of a policy.", next_step="Write onnx:path=FILE.onnx."
        )


def find_policy_of(arm: Arm, default: str, scenario: str = "") -> Path | None:
    """Find the file that an arm needs and check it; ``None`` for arms that need no file.

    Args:
        arm: An arm that runs a policy, or ``mpc``, which plans with a fitted twin.
        default: File or name of the policy for arms that name none.
        scenario: The scenario whose twin is taken if ``mpc`` names none.

    Raises:
        PolicyError: If the policy is missing or cannot be run here.
        TwinError: If the file is not a fitted twin.
        RegistryError: If there is no such file.
    """
    if not arm.runs_policy:
        return None
    if arm.controller == "mpc":
        twin = find_twin_of(scenario, arm.arguments.get("path", "default"))
        load_fitted(twin)
        return twin
    named = arm.arguments.get("path", default)
    path = Path(named) if Path(named).is_file() else Path(find_policy(named))
    OnnxController(path)  # refuses an unsuitable policy before anything is started
    return path


def file_of(arm: Arm, policy: Path | None) -> Path | None:
    """The file that an arm decides by: a policy, a twin, or a rule's thresholds.

    Args:
        arm: The arm.
        policy: Its policy, or the twin that it plans with; see :func:`find_policy_of`.

    Raises:
        RegistryError: If there are no such thresholds.
    """
    named = arm.arguments.get("path")
    if arm.controller in rule_names() or (arm.controller == "partition" and named):
        return find_thresholds(named or arm.controller)
    return policy


ALONE: Final = "alone"
"""The reference condition in which the application runs by itself."""


AMPLE: Final = "ample"
"""The reference condition with enough memory for everything."""


BACKGROUND: Final = "background"
"""The reference condition in which the background has the node to itself, for its full speed."""


REFERENCES: Final = (ALONE, AMPLE, BACKGROUND)
