"""``stallward describe``: reference pages."""

from __future__ import annotations

from stallward.actuator.cli import output
from stallward.actuator.sensors.reference_page import signals_page
from stallward.agent.reference_pages import observation_page


def signals() -> None:
    """List every signal: unit, meaning, source on each kind of node, and cost."""
    output.text(signals_page())


def observation() -> None:
    """List the features of the observation, and the actions."""
    output.text(observation_page())
