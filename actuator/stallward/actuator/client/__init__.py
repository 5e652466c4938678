"""The Python client of the daemon, and starting a daemon from a program."""

from __future__ import annotations

from importlib import import_module
from typing import Final

from stallward.actuator.client.client import ActuatorClient, Advised, Experiments, Granted, Watched
from stallward.actuator.client.latency_reports import Reported, ReportSummary
from stallward.actuator.client.remote_daemon import RemoteDaemon, daemon_at
from stallward.actuator.client.status import (
    CanaryInfo,
    DaemonStatus,
    LatencyInfo,
    PolicyInfo,
    StoredPolicyInfo,
    WorkInfo,
)
from stallward.actuator.experiments.block_tally import BlockResult, Loss
from stallward.actuator.experiments.plan import (
    Arm,
    Candidate,
    ExperimentPlan,
    PrimaryMeasure,
)
from stallward.actuator.experiments.state import Progress
from stallward.actuator.experiments.wire import Experiment, Phase
from stallward.actuator.record.advice.advice import Advice
from stallward.actuator.record.shadow_summary import ShadowSummary, ShadowTally
from stallward.actuator.record.tick_record import Mode

__all__ = [
    "ActuatorClient",
    "Advice",
    "Advised",
    "Arm",
    "BlockResult",
    "CanaryInfo",
    "Candidate",
    "DaemonStatus",
    "Experiment",
    "ExperimentPlan",
    "Experiments",
    "Granted",
    "LatencyInfo",
    "Loss",
    "Mode",
    "Phase",
    "PolicyInfo",
    "PrimaryMeasure",
    "Progress",
    "RemoteDaemon",
    "ReportSummary",
    "Reported",
    "ShadowSummary",
    "ShadowTally",
    "StoredPolicyInfo",
    "Watched",
    "WorkInfo",
    "daemon_at",
]

_OF_MANY_NODES: Final = frozenset(
    {
        "Answers",
        "Fleet",
        "FleetFollower",
        "FleetSource",
        "FleetTick",
        "FleetWatch",
        "Started",
        "TickCount",
        "load_fleet",
    }
)
"""What ``stallward.fleet`` has, which was here before it became a package of its own."""


def __getattr__(name: str) -> object:
    """A name of ``stallward.fleet``.

    Raises:
        AttributeError: If there is no such name.
        ModuleNotFoundError: If the package is not installed.
    """
    if name not in _OF_MANY_NODES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        fleet = import_module("stallward.fleet")
    except ModuleNotFoundError as error:
        if error.name != "stallward.fleet":
            raise
        raise ModuleNotFoundError(
            f"{name} is in stallward.fleet, which is not installed. Run `pip install "
            "'stallward[fleet]'`.",
            name=error.name,
        ) from error
    found: object = getattr(fleet, name)
    return found
