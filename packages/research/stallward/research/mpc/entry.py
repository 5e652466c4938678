"""The entry of ``mpc`` in the registry. It imports little, because listing must stay cheap."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from stallward.agent.controller import Controller
from stallward.agent.errors import ControllerError
from stallward.evaluation.planner import PlannerEntry

if TYPE_CHECKING:
    from stallward.env.twin.inputs.fitted import FittedTwin


def _refuse(_arguments: Mapping[str, str]) -> Controller:
    raise ControllerError(
        "mpc plans for longer than a tick, so it does not run inside a daemon.",
        next_step="Compare it (`stallward compare SCENARIO --arms mpc`), or run "
        "`python -P -m stallward.evaluation.remote --socket SOCKET --twin FILE` beside the "
        "daemon.",
    )


def _on_twin(twin: FittedTwin) -> Controller:
    twin.check_one_application()
    made: Controller = _module().MpcController(twin)
    return made


def _beside(twin: FittedTwin) -> Controller:
    twin.check_one_application()
    made: Controller = _module().PlanningController(twin)
    return made


def _module() -> Any:
    from stallward.research.mpc import controller  # noqa: PLC0415 - the twin's numba takes 0.7 s

    return controller


MPC = PlannerEntry(
    name="mpc",
    summary="plans on the scenario's fitted twin, in a process of its own, over gRPC",
    make=_refuse,
    on_twin=_on_twin,
    beside=_beside,
    parameters={"path": "a fitted twin (default: the shipped one of the scenario)"},
)
