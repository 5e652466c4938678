"""The entry of ``mpc`` in the registry. It imports little, because listing must stay cheap."""

from __future__ import annotations

from collections.abc import Mapping

from stallward.agent.controller import Controller
from stallward.agent.errors import ControllerError
from stallward.agent.plugin import ControllerEntry


def _refuse(_arguments: Mapping[str, str]) -> Controller:
    raise ControllerError(
        "mpc plans for longer than a tick, so it does not run inside a daemon.",
        next_step="Compare it (`stallward compare SCENARIO --arms mpc`), or run "
        "`python -P -m stallward.evaluation.remote --socket SOCKET --twin FILE` beside the "
        "daemon.",
    )


MPC = ControllerEntry(
    name="mpc",
    summary="plans on the scenario's fitted twin, in a process of its own, over gRPC",
    make=_refuse,
    parameters={"path": "a fitted twin (default: the shipped one of the scenario)"},
)
