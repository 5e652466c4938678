"""How the CPU is divided between the programs of a sandbox."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from stallward.actuator.errors import GroupError
from stallward.env.sandbox.sandbox import Sandbox
from stallward.papers.errors import ReplicationError
from stallward.papers.experiments.dasec.applications import Division

_CPU: Final = "cpu"


def divide_cpu(sandbox: Sandbox, division: Division) -> Sandbox:
    """Divide the CPU in the sandbox; the load generator stays outside, where it is real-time.

    Args:
        sandbox: The sandbox.
        division: How the CPU is divided.

    Raises:
        ReplicationError: If the node cannot divide it that way.
    """
    shared = sandbox.zone.v1_dir(_CPU)
    if shared is None and division == "thread":
        raise ReplicationError(
            "This node divides the CPU by groups: it has no cpu controller of cgroup v1.",
            next_step="Give --division group, or boot with the v1 cpu controller.",
        )
    groups = (sandbox.zone, *sandbox.applications, *sandbox.slots)
    try:
        for group in groups if division == "group" else groups[:1]:
            group.create((_CPU,))
    except GroupError as error:
        raise ReplicationError(error.cause, next_step=error.next_step) from error
    if division == "group" or shared is None:
        return sandbox
    return replace(sandbox, shared_dirs=(*sandbox.shared_dirs, shared))
