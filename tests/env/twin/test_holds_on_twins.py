"""The shipped rules and policy hold pressure down on every twin, and no hold is refused there."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from stallward.actuator.engine.engine import Engine
from stallward.actuator.engine.interface import EngineSettings
from stallward.actuator.guard.budgets import Budgets
from stallward.agent.registry import make_controller
from stallward.env.twin.inputs.fitted import load_fitted
from stallward.env.twin.node import TwinNode
from stallward.models.registry import find_twin, load_policy, twin_names

TICKS = 3600
"""Six minutes: a sign of memory pressure lasts five."""


ALWAYS = ("detector-anon", "detector-file", "memcached-mix")
"""Pressure by anonymous memory, by cached files and writers, and by both at once."""


HOLDING = {"partition": "partition:far_ratio=0"}
"""Far from the target it would hold nothing for a while."""


def cases() -> list[Any]:
    """The default rule and the policy on three twins; where models changed, all arms on all twins.

    The rules differ from the policy in when they act, not in what they set.
    """
    always = set(product(ALWAYS, ("partition", "policy")))
    rest = pytest.mark.reaches("models/")
    return [
        pytest.param(*case, marks=() if case in always else rest)
        for case in product(twin_names(), ("partition", "rule", "policy"))
    ]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("twin", "arm"), cases())
def test_no_hold_is_refused_while_pressure_is_held_down(twin: str, arm: str) -> None:
    fitted = load_fitted(find_twin(twin))
    node = TwinNode(fitted.scenario, fitted.draws[0], seed=1)
    engine = Engine(
        settings=EngineSettings(context=node.context(seed=1), budgets=Budgets()),
        configured=load_policy() if arm == "policy" else make_controller(HOLDING.get(arm, arm)),
        default=make_controller("none"),
    )
    held, longest_s = 0, 0.0
    for _ in range(TICKS):
        node.step(engine.step(node.sample(), late=False).granted)
        holds = engine.memory.holds
        held, longest_s = held + holds.held, max(longest_s, holds.since_sign_s or 0.0)
        assert not holds.refusing
    assert held > 0.9 * TICKS, "or it tests nothing"
    assert longest_s < Budgets().pressure_lasts_s / 2
    assert engine.memory.holds.used_s == 0.0
