"""``ppo``: the shipped policy, or one just trained, as a controller."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from stallward.agent.controller import ControllerEntry
from stallward.agent.controllers.onnx import OnnxController
from stallward.models.registry import find_policy


def _make(arguments: Mapping[str, str]) -> OnnxController:
    path = arguments.get("path")
    controller = OnnxController(Path(path) if path else find_policy("default"))
    controller.name = "ppo"
    return controller


PPO = ControllerEntry(
    name="ppo",
    summary="the shipped PPO policy, or the one at path",
    make=_make,
    parameters={"path": "a policy file (default: the shipped one)"},
)
