"""What is searched: the thresholds of each rule and the settings of a search."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from stallward.agent.control_law.law import Law
from stallward.agent.controllers.pi import PiLaw, PiThresholds
from stallward.agent.controllers.rule import RuleLaw, RuleThresholds
from stallward.env.objective import Slack
from stallward.env.simulation.simulation import SimulationSettings
from stallward.training.errors import TrainingError
from stallward.training.selection.rollout import Act, Outcome
from stallward.training.selection.selection import MakeAct
from stallward.training.synthetic_scenarios import Composing

_TICK_S: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Tunable:
    """A rule that can be tuned."""

    name: str
    thresholds: type[Any]
    law: Callable[[Sequence[Any], int], Law]

    def maker(self, thresholds: Any, ticks_per_action: int) -> MakeAct:
        """Makes the rule for so many nodes."""
        return lambda nodes: as_act(self.law([thresholds], nodes), ticks_per_action)


TUNABLE: Final = {
    "rule": Tunable(name="rule", thresholds=RuleThresholds, law=RuleLaw),
    "pi": Tunable(name="pi", thresholds=PiThresholds, law=PiLaw),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneSettings:
    """How thresholds are searched."""

    seed: int = 1
    seeds: int = 5
    """Searches, of which one is kept."""
    total_steps: int = 30_000_000
    """Decisions on the twin for each seed, evaluation included."""
    max_seconds: float = float("inf")
    """Wall time for all searches; the final evaluation comes on top."""
    episodes: int = 128
    """Nodes each candidate meets."""
    seconds: float = 20.0
    """How long it runs on each, after a burn-in."""
    sigma: float = 0.25
    """First spread of the search, in the unit cube."""
    slack: Slack = field(default_factory=Slack)
    """As for PPO: what is allowed beyond ample memory."""
    evaluation_episodes: int = 256
    """Fresh nodes for each finalist."""
    evaluation_seconds: float = 40.0
    """How long each finalist runs on them."""
    finalists: int = 6
    """Best of the later generations that are evaluated beside the middle and the defaults."""
    judged_episodes: int = 1024
    """As for PPO: fresh nodes for the choice between seeds, over all scenarios."""
    composing: Composing = field(default_factory=Composing)
    """As for PPO: scenarios beside the recorded ones."""
    settings: SimulationSettings = field(default_factory=SimulationSettings)


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneResult:
    """What the searches found.

    Attributes:
        thresholds: The rule's dataclass.
        outcomes: How it did in each scenario that it was chosen by, on nodes that chose nothing.
        default: How the rule with its defaults did on the same.
        steps: Decisions spent, over all seeds.
        provenance: For the file: strings and numbers only.
    """

    thresholds: Any
    outcomes: dict[str, Outcome]
    default: dict[str, Outcome]
    steps: int
    provenance: dict[str, Any]


def as_act(law: Law, ticks_per_action: int) -> Act:
    """A law as ``rollout.evaluate`` takes it; fresh for each evaluation."""
    elapsed_s = 0.0

    def act(observations: NDArray[np.float32]) -> NDArray[np.int64]:
        nonlocal elapsed_s
        chosen = law.act(observations, elapsed_s)
        elapsed_s = _TICK_S * ticks_per_action
        return chosen

    return act


def find_tunable(name: str) -> Tunable:
    """The rule ``name``.

    Raises:
        TrainingError: If there is no such rule.
    """
    if name not in TUNABLE:
        raise TrainingError(
            f"{name!r} is no rule that can be tuned.",
            next_step=f"Choose one of: {', '.join(TUNABLE)}.",
        )
    return TUNABLE[name]
