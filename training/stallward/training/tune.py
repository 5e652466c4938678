"""Searching the thresholds of a rule on the twin, with the steps and the score that PPO gets.

CMA-ES in the unit cube of the thresholds. Every candidate of a generation meets the same nodes
(``rollout.evaluate`` with one seed), every generation others; the rules that did best, and the
middle of the search, then meet fresh draws, and the best lower confidence bound wins. The search
ends with the decisions it may spend, evaluation included.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from typing import Any, Final

import numpy as np
from cmaes import CMA
from numpy.typing import NDArray

from stallward.agent.controllers.pi import PiLaw, PiThresholds
from stallward.agent.controllers.rule import RuleLaw, RuleThresholds
from stallward.agent.law import Law
from stallward.agent.thresholds import as_values, from_unit, spans, to_unit
from stallward.env.simulation import SimulationSettings
from stallward.env.twin.fitted import FittedTwin
from stallward.training.composed import Composing, compose
from stallward.training.constraints import Slack
from stallward.training.errors import TrainingError
from stallward.training.progress import Report
from stallward.training.rollout import Act, Outcome, evaluate, rollout_steps
from stallward.training.statics import make_constraints

_TICK_S: Final = 0.1
_FRESH_SEED: Final = 10_000
"""As for policies: nodes that the search has not seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tunable:
    """A rule that can be tuned."""

    name: str
    thresholds: type[Any]
    law: Callable[[Sequence[Any], int], Law]


TUNABLE: Final = {
    "rule": Tunable(name="rule", thresholds=RuleThresholds, law=RuleLaw),
    "pi": Tunable(name="pi", thresholds=PiThresholds, law=PiLaw),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneSettings:
    """How thresholds are searched."""

    seed: int = 1
    total_steps: int = 30_000_000
    """Decisions on the twin, evaluation included: what PPO gets for a seed."""
    max_seconds: float = float("inf")
    """Wall time for the search; the final evaluation comes on top."""
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
    composing: Composing = field(default_factory=Composing)
    """As for PPO: scenarios beside the recorded ones."""
    settings: SimulationSettings = field(default_factory=SimulationSettings)


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneResult:
    """What a search found.

    Attributes:
        thresholds: The rule's dataclass.
        outcome: How it did on fresh nodes.
        default: How the rule with its defaults did on the same.
        steps: Decisions spent.
        provenance: For the file: strings and numbers only.
    """

    thresholds: Any
    outcome: Outcome
    default: Outcome
    steps: int
    provenance: dict[str, Any]


def as_act(law: Law, ticks_per_action: int) -> Act:
    """A law as :func:`stallward.training.rollout.evaluate` takes it; fresh for each evaluation."""
    elapsed_s = 0.0

    def act(observations: NDArray[np.float32]) -> NDArray[np.int64]:
        nonlocal elapsed_s
        chosen = law.act(observations, elapsed_s)
        elapsed_s = _TICK_S * ticks_per_action
        return chosen

    return act


def tune(
    name: str,
    twins: Sequence[FittedTwin],
    settings: TuneSettings | None = None,
    report: Report | None = None,
) -> TuneResult:
    """Search the thresholds of the rule ``name``.

    Raises:
        TrainingError: If there is no such rule, or no twin.
    """
    settings, rule = settings or TuneSettings(), find_tunable(name)
    if not twins:
        raise TrainingError("There is no twin to tune on.", next_step="Run `stallward fit`.")
    return _Search(rule, twins, settings, report or (lambda _message, _share: None)).run()


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


class _Search:
    """One search of one rule's thresholds."""

    def __init__(
        self,
        rule: Tunable,
        twins: Sequence[FittedTwin],
        settings: TuneSettings,
        report: Report,
    ) -> None:
        self._rule, self._settings, self._report = rule, settings, report
        composed = compose(twins, settings.composing, settings.settings, seed=settings.seed)
        self._twins, self._recorded = (*twins, *composed), len(twins)
        self._constraints, _ = make_constraints(
            self._twins, settings.settings, settings.slack, seed=settings.seed
        )
        self._default = rule.thresholds()
        size = len(spans(rule.thresholds))
        self._cma = CMA(
            mean=np.clip(to_unit(self._default), 0.05, 0.95),
            sigma=settings.sigma,
            bounds=np.tile([0.0, 1.0], (size, 1)),
            seed=settings.seed,
        )
        self._kept: list[tuple[float, NDArray[np.float64]]] = []
        self._steps = 0
        self._curve: list[float] = []

    def run(self) -> TuneResult:
        """Search until the steps or the time are spent, then choose on fresh nodes."""
        settings = self._settings
        began_s = time.monotonic()
        final = rollout_steps(settings.evaluation_seconds, settings.settings)
        final *= (settings.finalists + 2) * settings.evaluation_episodes
        budget = settings.total_steps - final
        generation = rollout_steps(settings.seconds, settings.settings) * settings.episodes
        generation *= self._cma.population_size
        while True:
            spent = (time.monotonic() - began_s) / settings.max_seconds
            done = max(spent, (self._steps + generation) / max(budget, 1))
            best = f": score {self._curve[-1]:.3f}" if self._curve else ""
            self._report(f"{self._rule.name}, generation {len(self._curve)}{best}", min(done, 1.0))
            if self._curve and done >= 1.0:
                break
            self._generation()
        return self._choose()

    def _generation(self) -> None:
        units = [self._cma.ask() for _ in range(self._cma.population_size)]
        seed = self._settings.seed + len(self._curve)
        length_s, nodes = self._settings.seconds, self._settings.episodes
        scores = [self._judge(self._at(u), nodes, seed, length_s).score for u in units]
        self._cma.tell([(u, -score) for u, score in zip(units, scores, strict=True)])
        best = int(np.argmax(scores))
        self._curve.append(scores[best])
        self._kept.append((scores[best], units[best]))

    def _at(self, unit: NDArray[np.float64]) -> Any:
        return from_unit(self._rule.thresholds, unit)

    def _judge(self, thresholds: Any, episodes: int, seed: int, seconds: float) -> Outcome:
        settings = self._settings
        self._steps += rollout_steps(seconds, settings.settings) * episodes
        law = self._rule.law([thresholds], episodes)
        return evaluate(
            as_act(law, settings.settings.ticks_per_action),
            self._twins,
            settings.settings,
            constraints=self._constraints,
            episodes=episodes,
            seed=seed,
            seconds=seconds,
        )

    def _choose(self) -> TuneResult:
        """The best on fresh nodes of the late generations' best, the middle and the default."""
        settings = self._settings
        late = self._kept[len(self._kept) // 2 :]
        late.sort(key=lambda item: item[0], reverse=True)
        finalists = [self._at(self._cma.mean)]
        finalists += [self._at(unit) for _, unit in late[: settings.finalists]]
        candidates = [self._default, *finalists]
        fresh = _FRESH_SEED + settings.seed
        outcomes = [
            self._judge(one, settings.evaluation_episodes, fresh, settings.evaluation_seconds)
            for one in candidates
        ]
        best = int(np.argmax([outcome.score_low for outcome in outcomes]))
        self._report("done", 1.0)
        return TuneResult(
            thresholds=candidates[best],
            outcome=outcomes[best],
            default=outcomes[0],
            steps=self._steps,
            provenance=self._provenance(outcomes[best], outcomes[0]),
        )

    def _provenance(self, outcome: Outcome, default: Outcome) -> dict[str, Any]:
        settings, recorded = self._settings, self._twins[: self._recorded]
        return {
            "search": f"CMA-ES (cmaes {version('cmaes')})",
            "stallward": version("stallward"),
            "seed": settings.seed,
            "decisions": self._steps,
            "generations": len(self._curve),
            "episodes": settings.episodes,
            **{f"slack_{key}": value for key, value in asdict(settings.slack).items()},
            "twins": [twin.scenario.name for twin in recorded],
            "composed": len(self._twins) - len(recorded),
            "recordings_sha256": [
                str(twin.provenance.get("recordings_sha256", "")) for twin in recorded
            ],
            **{key: round(value, 4) for key, value in asdict(outcome).items()},
            "default_score_low": round(default.score_low, 4),
            "start": [f"{name} {value:g}" for name, value in as_values(self._default).items()],
        }
