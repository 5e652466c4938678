"""The Python client of the daemon, and starting a daemon from a program."""

from __future__ import annotations

from stallward.actuator.client.client import ActuatorClient, Granted, Watched
from stallward.actuator.client.latency_reports import Reported, ReportSummary
from stallward.actuator.client.remote_daemon import RemoteDaemon
from stallward.actuator.client.status import (
    CanaryInfo,
    DaemonStatus,
    LatencyInfo,
    PolicyInfo,
    StoredPolicyInfo,
    WorkInfo,
)
from stallward.actuator.record.tick_record import Mode

__all__ = [
    "ActuatorClient",
    "CanaryInfo",
    "DaemonStatus",
    "Granted",
    "LatencyInfo",
    "Mode",
    "PolicyInfo",
    "RemoteDaemon",
    "ReportSummary",
    "Reported",
    "StoredPolicyInfo",
    "Watched",
    "WorkInfo",
]
