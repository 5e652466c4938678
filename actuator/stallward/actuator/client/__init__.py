"""The Python client of the daemon, and starting a daemon from a program."""

from __future__ import annotations

from stallward.actuator.client.client import ActuatorClient, Advised, Experiments, Granted, Watched
from stallward.actuator.client.fleet.discovery.fleet_source import FleetSource, load_fleet
from stallward.actuator.client.fleet.experiments import Started
from stallward.actuator.client.fleet.fleet import Answers, Fleet
from stallward.actuator.client.fleet.following import FleetFollower
from stallward.actuator.client.fleet.watch import FleetTick, FleetWatch, TickCount
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
    "Answers",
    "Arm",
    "BlockResult",
    "CanaryInfo",
    "Candidate",
    "DaemonStatus",
    "Experiment",
    "ExperimentPlan",
    "Experiments",
    "Fleet",
    "FleetFollower",
    "FleetSource",
    "FleetTick",
    "FleetWatch",
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
    "Started",
    "StoredPolicyInfo",
    "TickCount",
    "Watched",
    "WorkInfo",
    "daemon_at",
    "load_fleet",
]
