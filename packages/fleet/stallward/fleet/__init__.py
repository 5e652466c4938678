"""Many nodes and one client: finding, watching and asking them. Nothing of the core imports it."""

from __future__ import annotations

from stallward.fleet.connections import Answers, Fleet
from stallward.fleet.discovery.fleet_source import FleetSource, load_fleet
from stallward.fleet.experiments import Started
from stallward.fleet.following import FleetFollower
from stallward.fleet.watch import FleetTick, FleetWatch, TickCount

__all__ = [
    "Answers",
    "Fleet",
    "FleetFollower",
    "FleetSource",
    "FleetTick",
    "FleetWatch",
    "Started",
    "TickCount",
    "load_fleet",
]
