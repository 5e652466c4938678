"""``stallward ctl advice``: what a policy in advice mode would do."""

from __future__ import annotations

import json
import time
from typing import Annotated, Any

import typer

from stallward.actuator.cli import output
from stallward.actuator.cli.connect import DEFAULT_SOCKET, Socket, connect
from stallward.actuator.client import Advice, Mode
from stallward.actuator.record.advice.text import advice_text
from stallward.actuator.record.desired.text import desired_text
from stallward.agent.errors import UsageError

_NOT_ON = "No policy is in advice mode."
_NEXT_STEP = "Load one, and turn it on: stallward ctl mode advice."


def advice(
    socket: Socket = DEFAULT_SOCKET,
    last: Annotated[
        int, typer.Option(min=0, help="Print so many that were given before, and end.")
    ] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")] = False,
) -> None:
    """Say what a policy in advice mode would do, and why.

    One line each time that this changes, until Ctrl-C.
    """
    with connect(socket) as client:
        status = client.status()
        if status.mode is not Mode.ADVICE and not last:
            raise UsageError(_NOT_ON, next_step=_NEXT_STEP)
        given = 0
        # The newest first of all: what holds now was perhaps told long ago.
        for advised in client.advice(last=last or 1, follow=not last):
            given += 1
            one = advised.advice
            if as_json:
                output.line(json.dumps(_values(one, status.slots)))
                continue
            at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(one.wall_time_s))
            output.line(f"{at}  {advice_text(one, status.slots)}")
        if not given:
            raise UsageError("No advice was given since the service began.", next_step=_NEXT_STEP)


def _values(advice: Advice, names: tuple[str, ...]) -> dict[str, Any]:
    advised, decided, fault = advice.advised, advice.decided, advice.fault
    return {
        "sequence": advice.sequence,
        "time_s": advice.wall_time_s,
        "policy": advised.controller if advised else fault.controller if fault else None,
        "advised": None if advised is None else desired_text(advised.decision.desired, names),
        "reason": None if advised is None else advised.decision.reason,
        "fault": None if fault is None else fault.kind.value,
        "controller": decided.controller,
        "decided": desired_text(decided.decision.desired, names),
        "p95_ms": advice.p95_ms,
        "slo_ms": advice.slo_ms,
        "stall_share": advice.stall_share,
        "left_out": advice.left_out,
    }
