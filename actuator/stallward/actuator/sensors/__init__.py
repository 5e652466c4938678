"""Sensors: every signal of a tick, read from the kernel's files without ever blocking."""

from __future__ import annotations

from stallward.actuator.sensors.latency import LineFormat, LineSource
from stallward.actuator.sensors.sampler import Sampler

__all__ = ["LineFormat", "LineSource", "Sampler"]
