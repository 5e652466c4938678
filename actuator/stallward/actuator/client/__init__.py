"""The Python client of the daemon, and starting a daemon from a program."""

from __future__ import annotations

from stallward.actuator.client.client import ActuatorClient, Granted, Watched
from stallward.actuator.client.fleet.experiments import Started
from stallward.actuator.client.fleet.file import load_fleet
from stallward.actuator.client.fleet.fleet import Answers, Fleet
from stallward.actuator.client.fleet.tick_count import TickCount
from stallward.actuator.client.fleet.watch import FleetTick, FleetWatch
from stallward.actuator.client.latency_reports import Reported, ReportSummary
from stallward.actuator.client.remote_daemon import RemoteDaemon, daemon_at
from stallward.actuator.client.status import (
    CanaryInfo,
    DaemonStatus,
    LatencyInfo,
    PolicyInfo,
    StoredPolicyInfo,
)
from stallward.actuator.record.tick_record import Mode

__all__ = [
    "ActuatorClient",
    "Answers",
    "CanaryInfo",
    "DaemonStatus",
    "Fleet",
    "FleetTick",
    "FleetWatch",
    "Granted",
    "LatencyInfo",
    "Mode",
    "PolicyInfo",
    "RemoteDaemon",
    "ReportSummary",
    "Reported",
    "Started",
    "StoredPolicyInfo",
    "TickCount",
    "Watched",
    "daemon_at",
    "load_fleet",
]
