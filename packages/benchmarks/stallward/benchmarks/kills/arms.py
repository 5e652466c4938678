"""The arms of a kill campaign: which controllers are killed in turn, and what each needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stallward.agent.controller import NodeContext, check_node, needs_threads
from stallward.agent.errors import StallwardError
from stallward.agent.registry import make_controller
from stallward.benchmarks.errors import BenchError
from stallward.benchmarks.kills.tally import CHECK_S
from stallward.evaluation.arms import ALL, Arm, find_policy_of, parse_arms
from stallward.models.registry import DEFAULT_POLICY

STORM: Final = f"storm:idle_s={1.25 * CHECK_S}"
"""The controller that moves every lever all the time."""
ENDING_STORM: Final = f"{STORM},ends=0.2"
"""The same, which also ends a program with every fifth new state."""
_ACTS_FOR_A_CLIENT: Final = "remote"
"""What the daemon runs where a process beside it decides."""
_BESIDE_ALL: Final = ("excite", "remote", ENDING_STORM)
"""A comparison of all controllers leaves these out. Here they are killed like the others."""
_LEFT_OUT: Final = {
    "onnx": "'onnx' runs a policy that one names; 'ppo' runs the shipped one in the same way."
}
"""The controllers for which ``all`` does not stand here either, with the reason."""
_TWIN: Final = "detector-anon"
"""The scenario on whose twin ``mpc`` plans, unless the arm names another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KilledArm:
    """A daemon that is killed: its controller, and what decides beside it."""

    label: str
    """Its name in the results."""
    controller: str
    """The daemon's controller."""
    may_end: bool = False
    """Whether it may end programs of the background."""
    schedules_threads: bool = False
    """Whether it may move settings of the application's threads."""
    client_file: Path | None = None
    """What a process beside the daemon decides with; ``None`` where the daemon itself decides."""
    plans: bool = False
    """Whether that is a fitted twin to plan with, and not a policy."""


def one_controller(spec: str = STORM, *, ends: bool = False) -> KilledArm:
    """The arm of a campaign that kills one controller only.

    Args:
        spec: The controller, with its arguments.
        ends: Whether it may end programs of the background.

    Raises:
        ControllerError: If there is no such controller.
    """
    threads = needs_threads(make_controller(spec))
    return KilledArm(label=spec, controller=spec, may_end=ends, schedules_threads=threads)


def choose_arms(
    text: str, context: NodeContext
) -> tuple[tuple[KilledArm, ...], Mapping[str, str]]:
    """Take the arms that a node supports.

    Args:
        text: The arms, as for ``stallward compare``. ``all`` stands for every controller, also for
            those that a comparison leaves out.
        context: The node of the campaign.

    Returns:
        The arms, and label of each other one -> why it is left out.

    Raises:
        BenchError: If an arm is a peer, or none is left.
        StallwardError: If an arm is not known.
    """
    parts = [part.strip() for part in text.split(",")]
    named = set(parts)
    left_out: dict[str, str] = {}
    if ALL in named:
        parts += [part for part in _BESIDE_ALL if part not in named]
        left_out |= _LEFT_OUT
    chosen = []
    for arm in parse_arms(",".join(parts)):
        if arm.peer is not None:
            raise BenchError(
                f"{arm.label!r} is a program of its own, and a daemon beside it changes nothing.",
                next_step="Name controllers.",
            )
        try:
            chosen.append(_killed(arm, context))
        except StallwardError as error:
            left_out[arm.label] = error.cause
    if not chosen:
        raise BenchError(" ".join(left_out.values()), next_step="Name other arms.")
    return tuple(chosen), left_out


def _killed(arm: Arm, context: NodeContext) -> KilledArm:
    if arm.decides_remotely:
        return KilledArm(
            label=arm.label,
            controller=_ACTS_FOR_A_CLIENT,
            client_file=find_policy_of(arm, DEFAULT_POLICY, _TWIN),
            plans=arm.controller == "mpc",
        )
    controller = make_controller(arm.spec)
    check_node(controller, context)
    return KilledArm(
        label=arm.label,
        controller=arm.spec,
        may_end=arm.lifts_budgets or "ends" in arm.arguments,
        schedules_threads=needs_threads(controller),
    )
