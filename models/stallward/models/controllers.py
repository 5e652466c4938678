"""Controllers with a shipped file: a policy for ``ppo``, thresholds for ``rule`` and ``pi``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from stallward.agent.control_law.law import Law, LawController
from stallward.agent.control_law.thresholds import (
    as_values,
    make_thresholds,
    read_thresholds,
    spans,
)
from stallward.agent.controller import Need
from stallward.agent.controllers.onnx import OnnxController
from stallward.agent.controllers.pi import NEEDS, PiLaw, PiThresholds
from stallward.agent.controllers.rule import ONE_OF, RuleLaw, RuleThresholds
from stallward.agent.plugin import ControllerEntry, number
from stallward.models.registry import find_policy, find_thresholds


def _make_ppo(arguments: Mapping[str, str]) -> OnnxController:
    path = arguments.get("path")
    controller = OnnxController(Path(path) if path else find_policy("default"))
    controller.name = "ppo"
    return controller


PPO = ControllerEntry(
    name="ppo",
    summary="the shipped PPO policy, or the one at path",
    make=_make_ppo,
    parameters={"path": "a policy file (default: the shipped one)"},
)


def _tuned(
    name: str,
    summary: str,
    kind: type[Any],
    law: Callable[[Sequence[Any], int], Law],
    *,
    needs: Sequence[Need] = (),
    one_of: Sequence[Need] = (),
) -> ControllerEntry:
    """Make the entry of a rule; its thresholds come from a file, and arguments replace some."""

    def make(arguments: Mapping[str, str]) -> LawController:
        file = find_thresholds(arguments.get("path", name))
        values = as_values(read_thresholds(file, kind, name)[0])
        overrides = {key: number(arguments, key, 0.0) for key in arguments if key != "path"}
        settings = make_thresholds(kind, {**values, **overrides}, f"the arm {name!r}")
        return LawController(name, lambda: law([settings], 1), needs, one_of)

    return ControllerEntry(
        name=name,
        summary=summary,
        make=make,
        parameters={
            "path": "a file of thresholds (default: the shipped one)",
            **{key: span.meaning for key, span in spans(kind).items()},
        },
    )


RULE = _tuned(
    "rule",
    "tuned rule: tightens limits step by step, pauses and squeezes in danger, releases gradually",
    RuleThresholds,
    RuleLaw,
    one_of=ONE_OF,
)
PI = _tuned(
    "pi",
    "PI control of the application's memory stall through the memory of the background",
    PiThresholds,
    PiLaw,
    needs=NEEDS,
)
