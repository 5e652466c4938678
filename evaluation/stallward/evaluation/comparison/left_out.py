"""Arms that the node of a comparison cannot support: they are left out, with the reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from stallward.actuator.kernel.paths import DEFAULT_PATHS, Paths
from stallward.agent.controller import Need, NodeContext, check_node
from stallward.agent.errors import ControllerError
from stallward.agent.registry import make_controller
from stallward.env.sandbox.lacks import sandbox_lacks
from stallward.env.sandbox.peers.programs import Peer, why_not
from stallward.env.scenario.scenario import Scenario
from stallward.env.twin.inputs.lacks import twin_lacks
from stallward.evaluation.arms import Arm, find_policy_of
from stallward.evaluation.comparison.request import ComparisonRequest
from stallward.evaluation.errors import PlanError
from stallward.models.errors import RegistryError


def leave_out(
    request: ComparisonRequest, scenario: Scenario, paths: Paths = DEFAULT_PATHS
) -> tuple[ComparisonRequest, Mapping[str, str]]:
    """Take out the arms that need what the node of the comparison has not.

    Args:
        request: The request of the user.
        scenario: The scenario that it names.
        paths: The kernel's files, for a comparison on this machine.

    Returns:
        The request with the other arms, and label of an arm -> why it was taken out.

    Raises:
        PlanError: If no arm is left.
    """
    context = NodeContext(
        zone_limit_bytes=scenario.sandbox.limit_bytes,
        slot_names=tuple(group.name for group in scenario.background),
        lacks=_lacks(request, scenario, paths),
    )
    reasons: dict[str, str] = {}
    for arm in request.arms:
        if arm.peer is not None:
            if why := _why_no_peer(request, arm.peer):
                reasons[arm.label] = why
            continue
        if arm.controller == "mpc":
            reasons.update(_without_twin(arm, scenario))
        if arm.runs_policy:  # it does what it can with the levers that there are
            continue
        try:
            check_node(make_controller(arm.spec), context)
        except ControllerError as error:
            reasons[arm.label] = error.cause
    if len(reasons) == len(request.arms):
        raise PlanError(
            " ".join(reasons.values()), next_step="Choose other arms, or another scenario."
        )
    kept = tuple(arm for arm in request.arms if arm.label not in reasons)
    return replace(request, arms=kept), reasons


def _why_no_peer(request: ComparisonRequest, peer: Peer) -> str:
    """Why a peer cannot run; empty if it can."""
    if request.mode == "twin":
        return f"The peer {peer.name!r} is a program, and a twin has no processes."
    return why_not(peer)


def _without_twin(arm: Arm, scenario: Scenario) -> dict[str, str]:
    """Why ``mpc`` cannot plan for a scenario: it has no fitted twin."""
    try:
        find_policy_of(arm, "", scenario.name)
    except RegistryError as error:
        return {arm.label: f"{arm.label!r} plans on a fitted twin. {error.cause}"}
    return {}


def _lacks(request: ComparisonRequest, scenario: Scenario, paths: Paths) -> dict[Need, str]:
    """What the node of the comparison lacks."""
    swap_bytes = scenario.sandbox.swap_bytes
    return twin_lacks(swap_bytes) if request.mode == "twin" else sandbox_lacks(swap_bytes, paths)
