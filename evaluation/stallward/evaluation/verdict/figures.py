"""What live comparisons of held-out scenarios say of every arm, beside the targets. Pure.

Scenarios are resampled alike: a resample takes the same rounds of every scenario, as it does of
every arm, so the figures over all scenarios have an interval like any other. It holds for these
scenarios, not for others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import numpy as np

from stallward.evaluation.arms import ALONE, AMPLE
from stallward.evaluation.comparison.oracle import Hindsight
from stallward.evaluation.errors import EvaluationError
from stallward.evaluation.measures.bootstrap import Array
from stallward.evaluation.measures.contrasts import Estimate
from stallward.evaluation.measures.estimates import Estimated
from stallward.evaluation.measures.intervals import (
    UNKNOWN,
    Interval,
    Scale,
    impact_interval,
    interval,
)
from stallward.evaluation.verdict.score import score
from stallward.evaluation.verdict.targets import (
    AGAIN,
    FIGURES,
    ORACLE,
    POLICY,
    RULE,
    SEEDS,
    SPREAD,
    WORST,
    Figure,
    How,
)

_OTHER_SEED: Final = "onnx:"
"""Arms that run a file are other seeds of the policy."""
_BY_NAME: Final = {figure.name: figure for figure in FIGURES}


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
        run: What was run where, see :func:`what_was_run`.
    """

    found: Estimated
    roles: Mapping[str, str]
    oracle: Hindsight | None = None
    spoiled: Mapping[str, int] = field(default_factory=dict)
    stolen: Mapping[str, float] = field(default_factory=dict)
    ended: Mapping[str, int] = field(default_factory=dict)
    nodes: int = 1
    run: Mapping[str, Any] = field(default_factory=dict)

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

    def estimate(self, role: str, of: str) -> Estimate | None:
        """An estimate of an arm; ``None`` without such an arm."""
        label = self.labels.get(role)
        if label is None:
            return None
        if of == "score":
            return self.scores[label]
        return self.found.known[label].estimates[of]

    def by_round(self, role: str) -> tuple[Array, Array]:
        """The p99 of each round over that of ample, and the share of windows met; ``(R,)``."""
        label = self.labels[role]
        p99 = [self.found.conditions[name].p99s_ms() for name in (label, AMPLE)]
        met = [m.mean() if m.size else np.nan for m in self.found.known[label].met]
        return p99[0] / p99[1], np.array(met)

    def windows(self, role: str) -> int:
        """Windows of all blocks of an arm."""
        return sum(m.size for m in self.found.known[self.labels[role]].met)


def judge(scenes: Mapping[str, Scene]) -> dict[str, Any]:
    """The verdict on every arm.

    Returns:
        ``scenarios`` (of each its rounds, target, oracle, what was run again or ended, and the
        figures of every arm), ``arms``
        (the figures over all scenarios, with the worst scenario and whether the target is met),
        ``again`` (arms that were run twice against themselves) and ``ships``: JSON values.

    Raises:
        EvaluationError: If the policy is not among the arms.
    """
    for name, scene in scenes.items():
        if POLICY not in scene.roles:
            raise EvaluationError(f"The comparison of {name} has no arm {POLICY!r}.")
    every = list(scenes.values())
    roles = [role for role in _roles(every) if role != ALONE]
    arms = {role: _figures(every, role) for role in roles}
    return {
        "schema": 2,
        "scenarios": {
            name: {
                "rounds": scene.found.rounds,
                "slo_ms": scene.found.target.ms,
                "slo_quantile": scene.found.target.quantile,
                "oracle": None if scene.oracle is None else scene.oracle.as_json(),
                "roles": dict(scene.roles),
                "nodes": scene.nodes,
                "run": dict(scene.run),
                "spoiled_blocks": _of_roles(scene, scene.spoiled),
                "ended_programs": _of_roles(scene, scene.ended),
                "stolen_share_worst": _of_roles(scene, scene.stolen),
                "arms": {r: _figures([scene], r) for r in roles if r in scene.labels},
            }
            for name, scene in scenes.items()
        },
        "arms": arms,
        "again": {
            role: {
                figure.name: _found([*every], figure, role, role.partition("#")[0])
                for figure in AGAIN
            }
            for role in roles
            if "#" in role
        },
        "ships": _ships(arms[POLICY]),
    }


def what_was_run(result: Mapping[str, Any]) -> dict[str, Any]:
    """Of a comparison's result: the machine, lengths of blocks, seed, SHA-256 of arms' files."""
    method = result.get("method", {})
    kept = ("block_s", "burn_in_s", "seed", "files_sha256")
    return {"node": result.get("node"), **{key: method.get(key) for key in kept}}


def _of_roles(scene: Scene, counts: Mapping[str, float]) -> dict[str, float]:
    return {role: counts[label] for role, label in scene.roles.items() if counts.get(label)}


def _ships(figures: Mapping[str, Any]) -> dict[str, str]:
    better = figures["score_over_rule"]["met"]
    said = {
        True: "its score is certainly higher than the tuned rule's",
        False: "the policy's score is not certainly higher than the tuned rule's",
        None: "the policy was not compared with the tuned rule",
    }
    return {"controller": POLICY if better else RULE, "why": said[better]}


def _roles(scenes: Sequence[Scene]) -> list[str]:
    """Those that every scenario has, in order."""
    first, *rest = [scene.labels for scene in scenes]
    return [role for role in first if all(role in labels for labels in rest)]


def _figures(scenes: Sequence[Scene], role: str) -> dict[str, Any]:
    """All figures of an arm, over one scenario or several."""
    found = {
        figure.name: _found(scenes, figure, role, figure.against)
        for figure in FIGURES
        if figure.name not in {WORST, SPREAD, SEEDS} and figure.against != role
    }
    found[WORST] = _worst_round(scenes, role)
    found[SPREAD] = _spread(scenes, [role], SPREAD)
    if role == POLICY:
        seeds = [one for one in _roles(scenes) if one == POLICY or one.startswith(_OTHER_SEED)]
        found[SEEDS] = _spread(scenes, seeds if len(seeds) > 1 else [], SEEDS)
    for name, one in found.items():
        along = _BY_NAME[name].along
        for said in ("met", "surely"):
            if along in found and one[said]:
                one[said] = found[along][said]
    return found


def _found(
    scenes: Sequence[Scene], figure: Figure, role: str, against: str | None
) -> dict[str, Any]:
    pairs = [
        (scene, scene.estimate(role, figure.of), scene.estimate(against, figure.of))
        if against is not None
        else (scene, scene.estimate(role, figure.of), None)
        for scene in scenes
    ]
    usable = [
        (scene, one, two)
        for scene, one, two in pairs
        if one is not None and (against is None or two is not None)
    ]
    if not usable:
        return _as_json(figure, UNKNOWN, beyond=False)
    rounds = min(scene.found.rounds for scene, _, _ in usable)
    ones = [one for _, one, _ in usable]
    twos = [two for _, _, two in usable if two is not None]
    values = [_of_one(figure.how, *pair) for pair in zip(ones, twos or ones, strict=True)]
    combined = _combined(figure.how, ones, twos)
    whole = _interval(figure.how, combined, rounds)
    if figure.of == "slo_attainment" and whole.low is not None and whole.low == whole.high:
        whole = _rule_of_three(whole, sum(scene.windows(role) for scene, _, _ in usable))
    beyond = bool(twos) and sum(t.value for t in twos) == 0.0 < sum(o.value for o in ones)
    known = [value for value in values if np.isfinite(value)]
    worst = None
    if len(scenes) > 1 and known:
        worst = min(known) if figure.more_is_better else max(known)
    left_out = len(scenes) - len(usable)
    return _as_json(figure, whole, beyond=beyond, worst=worst, left_out=left_out)


def _of_one(how: How, one: Estimate, two: Estimate) -> float:
    return _combined(how, [one], [two] if how is not How.LEVEL else []).value


def _combined(how: How, ones: Sequence[Estimate], twos: Sequence[Estimate]) -> Estimate:
    """A figure of one scenario or several, and its draws."""
    a = [np.append(one.draws, one.value) for one in ones]
    b = [np.append(two.draws, two.value) for two in twos]
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
    """Of a difference that never varied: what may have been missed in so many windows."""
    assert found.value is not None  # it has an interval
    margin = min(3.0 / max(windows, 1), 1.0)
    return Interval(value=found.value, low=found.value - margin, high=found.value + margin)


def _worst_round(scenes: Sequence[Scene], role: str) -> dict[str, Any]:
    """Points under ample's attainment in the same round, of the worst round of any scenario.

    A worst value has no interval from resampling, and one window of a block more than ample misses
    is more than a point: what it says, it says of these blocks.
    """
    under = [scene.by_round(AMPLE)[1] - scene.by_round(role)[1] for scene in scenes]
    value = float(np.max(np.concatenate(under)))
    found = Interval(value=value, low=None, high=None) if np.isfinite(value) else UNKNOWN
    worst = value if len(scenes) > 1 and np.isfinite(value) else None
    return _as_json(_BY_NAME[WORST], found, beyond=False, worst=worst)


def _spread(scenes: Sequence[Scene], roles: Sequence[str], name: str) -> dict[str, Any]:
    """The standard deviation over rounds, and arms, of p99 against ample, mean over scenarios."""
    rounds = min(scene.found.rounds for scene in scenes)
    if rounds < 2 or not roles or AMPLE in roles:
        return _as_json(_BY_NAME[name], UNKNOWN, beyond=False)
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
    return _as_json(_BY_NAME[name], found, beyond=False)


def _as_json(
    figure: Figure,
    found: Interval,
    *,
    beyond: bool,
    worst: float | None = None,
    left_out: int = 0,
) -> dict[str, Any]:
    return {
        **found.as_json(),
        "worst": worst,
        "beyond": beyond,
        "left_out_scenarios": left_out,
        "target": figure.target,
        "met": figure.met(found, beyond=beyond),
        "surely": figure.surely(found, beyond=beyond),
    }
