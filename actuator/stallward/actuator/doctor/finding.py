"""The result of examining one thing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.targets.sources import not_installed, target_point
from stallward.agent.errors import StallwardError, UnbelievedFileError

State = Literal["works", "degraded", "missing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of examining one thing."""

    area: str
    """``node``, ``signal``, ``lever``, ``safety`` or ``configuration``."""
    name: str
    state: State
    why: str = ""
    next_step: str = ""
    """What to do about it; empty if nothing needs to be done."""


def finding(area: str, name: str, fault: str, next_step: str, works: str = "") -> Finding:
    """Make a finding: it works if ``fault`` is empty, and is degraded if not."""
    if fault:
        return Finding(area=area, name=name, state="degraded", why=fault, next_step=next_step)
    return Finding(area=area, name=name, state="works", why=works)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodsFound:
    """What one look at the pods has shown."""

    findings: tuple[Finding, ...] = ()
    obstacle: str = ""
    """Why pods cannot be looked up at all; empty if they can."""
    protected_addresses: tuple[str, ...] = ()
    """The address of the protected application's pod; empty where it has none."""


def examine_pods(config: DaemonConfig) -> PodsFound:
    """Look at the pods that a configuration names, and at the kubelet of this node if it has one.

    Without a package that knows pods nothing is found, and that is an obstacle where pods are named.
    """
    try:
        point = target_point("pods.doctor")
    except UnbelievedFileError as error:
        return _without(error)
    if point is not None:
        examine: Callable[[DaemonConfig], PodsFound] = point.load()
        return examine(config)
    return _without(not_installed()) if config.follows_pods else PodsFound()


def _without(error: StallwardError) -> PodsFound:
    missing = Finding(
        area="configuration",
        name="pods",
        state="missing",
        why=error.cause,
        next_step=error.next_step,
    )
    return PodsFound(findings=(missing,), obstacle=str(error))
