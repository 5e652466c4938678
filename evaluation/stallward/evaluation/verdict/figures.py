"""What live comparisons of held-out scenarios say of every arm, beside the targets. Pure.

Scenarios are resampled alike: a resample takes the same rounds of every scenario, as it does of
every arm, so the figures over all scenarios have an interval like any other. It holds for these
scenarios, not for others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final, TypeVar

import numpy as np

from stallward.evaluation.arms import ALONE, AMPLE
from stallward.evaluation.errors import EvaluationError
from stallward.evaluation.measures.bootstrap import Array
from stallward.evaluation.measures.contrasts import Estimate
from stallward.evaluation.measures.estimates import Estimated
from stallward.evaluation.measures.intervals import Scale, impact_interval, interval
from stallward.evaluation.results.interval import UNKNOWN, Interval
from stallward.evaluation.results.oracle import Hindsight
from stallward.evaluation.verdict.result import (
    JudgedFigure,
    ScenarioVerdict,
    Shipped,
    Verdict,
    WhatWasRun,
)
from stallward.evaluation.verdict.score import score
from stallward.evaluation.verdict.targets import (
    AGAIN,
    FIGURES,
    ORACLE,
    POLICY,
    RULE,
    SCORE_OVER_RULE,
    SPREAD,
    SPREAD_OF_SEEDS,
    WORST_POINTS,
    Figure,
    How,
    Target,
)

_OTHER_SEED: Final = "onnx:"
"""Arms that run a file are other seeds of the policy."""
_Count = TypeVar("_Count", int, float)


@dataclass(frozen=True, kw_only=True)
class Scene:
    """The comparison of one scenario.

    Args:
        found: Its estimates.
        roles: What an arm is to the verdict -> its label. Scenarios have the same roles, though
            settings and twins differ.
        oracle: Which static arm was the oracle; ``None`` where there was none.
        spoiled: Label -> blocks that were run again.
        stolen: Label -> share of the processors' time that the host took in the worst block.
        ended: Label -> programs that the arm terminated.
        nodes: Machines that the blocks were run on.
        run: What was run where.
    """

    found: Estimated
    roles: Mapping[str, str]
    oracle: Hindsight | None = None
    spoiled: Mapping[str, int] = field(default_factory=dict)
    stolen: Mapping[str, float] = field(default_factory=dict)
    ended: Mapping[str, int] = field(default_factory=dict)
    nodes: int = 1
    run: WhatWasRun = field(default_factory=WhatWasRun)

    @cached_property
    def labels(self) -> dict[str, str]:
        """All roles, with those of the references, and the oracle where it keeps the target."""
        own = {ALONE: ALONE, AMPLE: AMPLE, **self.roles}
        if self.oracle is not None and self.oracle.meets_target:
            own[ORACLE] = self.oracle.arm
        return own

    @cached_property
    def scores(self) -> dict[str, Estimate]:
        """The score of every arm and of ample, by label."""
        return {
            label: score(self.found, label) for label in self.labels.values() if label != ALONE
        }

    def estimate(self, role: str, figure: Figure) -> Estimate | None:
        """The estimate of an arm that a figure is made of; ``None`` without such an arm."""
        label = self.labels.get(role)
        if label is None:
            return None
        if figure.of is None:
            return self.scores[label]
        return figure.of(self.found.known[label].estimates)

    def by_round(self, role: str) -> tuple[Array, Array]:
        """The p99 of each round over that of ample, and the share of windows met; ``(R,)``."""
        label = self.labels[role]
        p99, ample = (self.found.conditions[name].p99s_ms() for name in (label, AMPLE))
        met = [m.mean() if m.size else np.nan for m in self.found.known[label].met]
        return p99 / ample, np.array(met)

    def windows(self, role: str) -> int:
        """Windows of all blocks of an arm."""
        return sum(m.size for m in self.found.known[self.labels[role]].met)


def judge(
    scenes: Mapping[str, Scene],
    targets: Sequence[Target],
    failed: Mapping[str, str] | None = None,
) -> Verdict:
    """The verdict on every arm.

    Args:
        scenes: Name of a scenario -> its comparison.
        targets: What figures have to reach.
        failed: Scenario that could not be run -> why.

    Raises:
        EvaluationError: If the policy is not among the arms.
    """
    for name, scene in scenes.items():
        if POLICY not in scene.roles:
            raise EvaluationError(f"The comparison of {name} has no arm {POLICY!r}.")
    judging = _Judging({target.figure: target for target in targets})
    every = list(scenes.values())
    roles = [role for role in _roles(every) if role != ALONE]
    arms = {role: judging.figures(every, role) for role in roles}
    again = {
        role: {
            figure.name: judging.figure(every, figure, role, role.partition("#")[0])
            for figure in AGAIN
        }
        for role in roles
        if "#" in role
    }
    return Verdict(
        scenarios={name: _scenario(judging, scene, roles) for name, scene in scenes.items()},
        arms=arms,
        again=again,
        ships=_ships(arms[POLICY].get(SCORE_OVER_RULE.name)),
        failed=dict(failed or {}),
    )


def _scenario(judging: _Judging, scene: Scene, roles: Sequence[str]) -> ScenarioVerdict:
    return ScenarioVerdict(
        rounds=scene.found.rounds,
        slo_ms=scene.found.target.ms,
        slo_quantile=scene.found.target.quantile,
        oracle=scene.oracle,
        roles=dict(scene.roles),
        nodes=scene.nodes,
        run=scene.run,
        spoiled_blocks=_of_roles(scene, scene.spoiled),
        ended_programs=_of_roles(scene, scene.ended),
        stolen_share_worst=_of_roles(scene, scene.stolen),
        arms={role: judging.figures([scene], role) for role in roles if role in scene.labels},
    )


def _of_roles(scene: Scene, counts: Mapping[str, _Count]) -> dict[str, _Count]:
    return {role: counts[label] for role, label in scene.roles.items() if counts.get(label)}


def _ships(score_over_rule: JudgedFigure | None) -> Shipped:
    if score_over_rule is None or score_over_rule.interval.value is None:
        why = "the policy was not compared with the tuned rule"
    elif score_over_rule.met is None:
        why = "the plan does not say by how much the policy's score has to be higher"
    elif not score_over_rule.met:
        why = "the policy's score is not certainly higher than the tuned rule's"
    else:
        return Shipped(
            controller=POLICY, why="its score is certainly higher than the tuned rule's"
        )
    return Shipped(controller=RULE, why=why)


def _roles(scenes: Sequence[Scene]) -> list[str]:
    """Roles that every scenario has, in order."""
    first, *rest = [scene.labels for scene in scenes]
    return [role for role in first if all(role in labels for labels in rest)]


class _Judging:
    """Makes figures and holds them against their targets.

    Args:
        targets: Name of a figure -> what it has to reach.
    """

    def __init__(self, targets: Mapping[str, Target]) -> None:
        self._targets = targets

    def figures(self, scenes: Sequence[Scene], role: str) -> dict[str, JudgedFigure]:
        """All figures of an arm, over one scenario or several."""
        special = (WORST_POINTS, SPREAD, SPREAD_OF_SEEDS)
        found = {
            figure.name: self.figure(scenes, figure, role, figure.against)
            for figure in FIGURES
            if figure not in special and figure.against != role
        }
        found[WORST_POINTS.name] = self._worst_round(scenes, role)
        found[SPREAD.name] = self._spread(scenes, [role], SPREAD)
        if role == POLICY:
            seeds = [one for one in _roles(scenes) if one == POLICY or one.startswith(_OTHER_SEED)]
            several = seeds if len(seeds) > 1 else []
            found[SPREAD_OF_SEEDS.name] = self._spread(scenes, several, SPREAD_OF_SEEDS)
        return {name: self._where_met(name, found) for name in found}

    def _where_met(self, name: str, found: Mapping[str, JudgedFigure]) -> JudgedFigure:
        """A figure, whose target counts as met only where that of another figure is."""
        one, target = found[name], self._targets.get(name)
        other = None if target is None or target.where_met is None else found.get(target.where_met)
        if other is None:
            return one
        return replace(
            one,
            met=other.met if one.met else one.met,
            surely=other.surely if one.surely else one.surely,
        )

    def figure(
        self, scenes: Sequence[Scene], figure: Figure, role: str, against: str | None
    ) -> JudgedFigure:
        """One figure of an arm, over one scenario or several."""
        pairs = [
            _Pair(
                scene=scene,
                one=one,
                two=None if against is None else scene.estimate(against, figure),
            )
            for scene in scenes
            if (one := scene.estimate(role, figure)) is not None
        ]
        usable = [pair for pair in pairs if against is None or pair.two is not None]
        if not usable:
            return self._judged(figure, UNKNOWN)
        whole = _interval(
            figure.how, _combined(figure.how, usable), min(p.scene.found.rounds for p in usable)
        )
        if figure.counts_windows and whole.low is not None and whole.low == whole.high:
            whole = _rule_of_three(whole, sum(pair.scene.windows(role) for pair in usable))
        known = [
            value for pair in usable if np.isfinite(value := _combined(figure.how, [pair]).value)
        ]
        worst = None
        if len(scenes) > 1 and known:
            worst = min(known) if figure.more_is_better else max(known)
        return self._judged(
            figure,
            whole,
            beyond=_is_beyond_nothing(usable),
            worst=worst,
            left_out=len(scenes) - len(usable),
        )

    def _worst_round(self, scenes: Sequence[Scene], role: str) -> JudgedFigure:
        """Points under ample's attainment in the same round, of the worst round of any scenario.

        A worst value has no interval from resampling, and one window of a block more than ample
        misses is more than a point: what it says, it says of these blocks.
        """
        under = [scene.by_round(AMPLE)[1] - scene.by_round(role)[1] for scene in scenes]
        value = float(np.max(np.concatenate(under)))
        found = Interval(value=value, low=None, high=None) if np.isfinite(value) else UNKNOWN
        worst = value if len(scenes) > 1 and np.isfinite(value) else None
        return self._judged(WORST_POINTS, found, worst=worst)

    def _spread(
        self, scenes: Sequence[Scene], roles: Sequence[str], figure: Figure
    ) -> JudgedFigure:
        """The standard deviation over rounds, and arms, of p99 against ample, by scenario.

        The figure is the mean over scenarios.
        """
        rounds = min(scene.found.rounds for scene in scenes)
        if rounds < 2 or not roles or AMPLE in roles:
            return self._judged(figure, UNKNOWN)
        each = []
        for scene in scenes:
            ratios = np.array([scene.by_round(role)[0] for role in roles])
            once = np.ones((1, ratios.shape[1]), dtype=np.int64)
            counts = np.concatenate([scene.found.conditions[AMPLE].counts, once])
            mean = counts @ ratios.sum(axis=0) / ratios.size
            square = counts @ np.square(ratios).sum(axis=0) / ratios.size - np.square(mean)
            each.append(np.sqrt(np.maximum(square, 0.0) * ratios.size / (ratios.size - 1)))
        rows = np.mean(each, axis=0)
        found = interval(float(rows[-1]), rows[:-1], blocks=rounds, scale=Scale.LOG)
        return self._judged(figure, found)

    def _judged(
        self,
        figure: Figure,
        found: Interval,
        *,
        beyond: bool = False,
        worst: float | None = None,
        left_out: int = 0,
    ) -> JudgedFigure:
        target = self._targets.get(figure.name)
        return JudgedFigure(
            interval=found,
            worst=worst,
            beyond=beyond,
            left_out_scenarios=left_out,
            target="" if target is None else target.in_words(),
            met=None if target is None else target.met(found, beyond=beyond),
            surely=None if target is None else target.surely(found, beyond=beyond),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pair:
    """The estimate of an arm in one scenario, and that of what it is held against."""

    scene: Scene
    one: Estimate
    two: Estimate | None


def _is_beyond_nothing(pairs: Sequence[_Pair]) -> bool:
    """Whether an arm did something where what it is held against did nothing at all."""
    others = [pair.two.value for pair in pairs if pair.two is not None]
    return bool(others) and sum(others) == 0.0 < sum(pair.one.value for pair in pairs)


def _combined(how: How, pairs: Sequence[_Pair]) -> Estimate:
    """A figure of one scenario or several, and its draws."""
    a = [np.append(pair.one.draws, pair.one.value) for pair in pairs]
    b = [np.append(pair.two.draws, pair.two.value) for pair in pairs if pair.two is not None]
    with np.errstate(divide="ignore", invalid="ignore"):
        if how is How.LEVEL:
            rows = np.mean(a, axis=0)
        elif how is How.SHARE:
            rows = np.sum(a, axis=0) / np.sum(b, axis=0)
        elif how is How.RATIO:
            rows = np.exp(np.mean(np.log(np.array(a) / np.array(b)), axis=0))
        elif how is How.IMPACT:
            rows = np.mean(np.array(a) / np.array(b), axis=0) - 1.0
        else:
            sign = 1.0 if how is How.MORE else -1.0
            rows = sign * np.mean(np.array(a) - np.array(b), axis=0)
    return Estimate(value=float(rows[-1]), draws=rows[:-1])


def _interval(how: How, found: Estimate, rounds: int) -> Interval:
    if how is How.IMPACT:
        return impact_interval(found.value + 1.0, found.draws + 1.0, blocks=rounds)
    scale = Scale.LOG if how in {How.RATIO, How.SHARE} else Scale.LINEAR
    return interval(found.value, found.draws, blocks=rounds, scale=scale)


def _rule_of_three(found: Interval, windows: int) -> Interval:
    """An interval for a difference that never varied: what so many windows may have missed."""
    assert found.value is not None  # it has an interval
    margin = min(3.0 / max(windows, 1), 1.0)
    return Interval(value=found.value, low=found.value - margin, high=found.value + margin)
