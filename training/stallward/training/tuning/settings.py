"""The rules that can be tuned, and the settings and result of a search."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from stallward.agent.control_law.law import Law
from stallward.agent.control_law.thresholds import spans
from stallward.agent.controllers.partition import PartitionThresholds
from stallward.agent.controllers.pi import PiLaw, PiThresholds
from stallward.agent.controllers.rule import RuleLaw, RuleThresholds
from stallward.agent.sharing.slack import SlackThresholds
from stallward.agent.sharing.slow_swap import SlowSwapThresholds
from stallward.agent.sharing.thrashing import ThrashingThresholds
from stallward.agent.sharing.throttle import ThrottleThresholds
from stallward.env.objective import Slack
from stallward.env.simulation.simulation import SimulationSettings
from stallward.training.errors import TrainingError
from stallward.training.selection.rollout import RULE_TICKS, Act, Arm, Outcome
from stallward.training.synthetic_scenarios import SyntheticScenarioSettings

_TICK_S: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Tunable:
    """A rule that can be tuned."""

    name: str
    """The name of the rule."""
    thresholds: type[Any]
    """The dataclass of its thresholds."""
    arm: Callable[[Any], Arm]
    """Makes the arm on twins from thresholds."""
    not_searched: frozenset[str] = frozenset()
    """Names of thresholds that keep their defaults, because the twin cannot tell their worth."""

    @property
    def searched(self) -> NDArray[np.bool_]:
        """Which thresholds are searched, in the order of their fields."""
        return np.array([name not in self.not_searched for name in spans(self.thresholds)])


def _of_law(law: Callable[[Sequence[Any], int], Law]) -> Callable[[Any], Arm]:
    """Arms of a control law, from its thresholds and a number of nodes."""

    def arm(thresholds: Any) -> Arm:
        return Arm(make=lambda nodes: as_act(law([thresholds], nodes), RULE_TICKS))

    return arm


TUNABLE: Final = {
    "rule": Tunable(name="rule", thresholds=RuleThresholds, arm=_of_law(RuleLaw)),
    "pi": Tunable(name="pi", thresholds=PiThresholds, arm=_of_law(PiLaw)),
    # The twin thinks too well of programs with a part of their memory, limits no reads, gives
    # everybody the CPU, and has no pauses in place of limits.
    "partition": Tunable(
        name="partition",
        thresholds=PartitionThresholds,
        arm=Arm.of_partition,
        not_searched=frozenset(
            {
                *spans(ThrashingThresholds),
                *spans(ThrottleThresholds),
                *spans(SlowSwapThresholds),
                *spans(SlackThresholds),
                "background_cpu_weight",
            }
        ),
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneSettings:
    """The settings of a search."""

    seed: int = 1
    """The first seed; further seeds count up from it."""
    seeds: int = 5
    """The number of searches, of which one is kept."""
    total_steps: int = 30_000_000
    """Decisions on the twin for each seed, including the evaluation."""
    max_seconds: float = float("inf")
    """Wall time for all searches, without the final evaluation."""
    episodes: int = 128
    """Nodes that each candidate runs on."""
    seconds: float = 40.0
    """How long a candidate runs on each node, after a burn-in."""
    sigma: float = 0.25
    """The initial spread of the search, in the unit cube."""
    slack: Slack = field(default_factory=Slack)
    """What is allowed beyond ample memory, as for PPO."""
    evaluation_episodes: int = 256
    """Fresh nodes that each finalist runs on."""
    evaluation_seconds: float = 40.0
    """How long a finalist runs on each node."""
    finalists: int = 6
    """How many of the best candidates of late generations are finalists. The mean of the search
    and the default thresholds are evaluated with them."""
    judged_episodes: int = 1024
    """Fresh nodes for the choice between seeds, over all scenarios, as for PPO."""
    composing: SyntheticScenarioSettings = field(default_factory=SyntheticScenarioSettings)
    """The synthetic scenarios that are searched on in addition, as for PPO."""
    settings: SimulationSettings = field(default_factory=SimulationSettings)
    """The settings of the simulation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneResult:
    """The result of the searches."""

    thresholds: Any
    """The thresholds that were chosen, as the rule's dataclass."""
    outcomes: dict[str, Outcome]
    """The rule's outcome in each scenario of the choice, on nodes that had no part in it."""
    default: dict[str, Outcome]
    """The outcome of the rule with its default thresholds, on the same nodes."""
    steps: int
    """Decisions spent, over all seeds."""
    provenance: dict[str, Any]
    """The provenance for the file: strings and numbers only."""


def as_act(law: Law, ticks_per_action: int) -> Act:
    """A control law as a policy for ``rollout.evaluate``, to be made for each evaluation."""
    elapsed_s = 0.0

    def act(observations: NDArray[np.float32]) -> NDArray[np.int64]:
        nonlocal elapsed_s
        actions = law.act(observations, elapsed_s)
        elapsed_s = _TICK_S * ticks_per_action
        return actions

    return act


def find_tunable(name: str) -> Tunable:
    """Find the tunable rule ``name``.

    Raises:
        TrainingError: If there is no such rule.
    """
    if name not in TUNABLE:
        raise TrainingError(
            f"{name!r} is no rule that can be tuned.",
            next_step=f"Choose one of: {', '.join(TUNABLE)}.",
        )
    return TUNABLE[name]
