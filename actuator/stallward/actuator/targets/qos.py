"""A pod's quality of service, by which it is selected and which its group's name says."""

from __future__ import annotations

from enum import Enum


class Qos(Enum):
    """A pod's quality of service, in the words of its status."""

    GUARANTEED = "Guaranteed"
    BURSTABLE = "Burstable"
    BEST_EFFORT = "BestEffort"
