"""The hindsight oracle: the best static setting, found by trying a grid of them.

A static setting that was chosen after seeing how the scenario goes is the ceiling for whatever
does not change with time, and the measure of what does. The grid is screened on the scenario's
twin; the verdict is a live comparison of what is left (``stallward compare``), of which
:func:`best_meeting_target` takes the one that does most work among those that keep the target as
well as ample memory does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.agent.desired import ACTION_SIZES, LIMIT_RATIOS, PROFILES
from stallward.env.simulation.constraints import measure_ample
from stallward.env.simulation.nuisance import NO_NUISANCE
from stallward.env.simulation.simulation import Simulation, SimulationSettings
from stallward.env.twin.inputs.fitted import FittedTwin
from stallward.evaluation.errors import EvaluationError, ResultError
from stallward.evaluation.results.comparison import ComparisonResult
from stallward.evaluation.results.interval import Interval
from stallward.evaluation.results.oracle import Hindsight, ScreenedArm, Screening
from stallward.evaluation.results.serialise import load

_SETTINGS: Final = SimulationSettings(episode_s=1e6, nuisance=NO_NUISANCE)
_BURN_IN_STEPS: Final = 40
_STEP_S: Final = 0.2
_MOST_SLOTS: Final = 2
"""With more slots the later ones share a level: the grid would grow sixfold with each."""
SLACK: Final = 0.005
"""Share of windows by which a setting may miss the target more often than ample memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One point of the grid."""

    levels: tuple[int, ...]
    """Limit level of each slot, see ``LIMIT_RATIOS``."""
    paused: tuple[int, ...] = ()
    """Slots paused as much as the guard allows."""
    profile: int = 0

    @property
    def spec(self) -> str:
        """The arm: a spec of the controller ``static``."""
        parts = []
        if any(self.levels):
            parts.append("limit=" + "+".join(f"{LIMIT_RATIOS[v]:g}" for v in self.levels))
        if self.paused:
            parts.append("pause=" + "+".join(map(str, self.paused)))
        if self.profile:
            parts.append(f"profile={PROFILES[self.profile].name}")
        return f"static:{','.join(parts)}" if parts else "static"

    @classmethod
    def of_action(cls, action: Sequence[int]) -> Setting:
        """The setting of an entry of the action table."""
        slots = range(len(action) // 2)
        return cls(
            levels=tuple(int(action[2 * slot + 1]) for slot in slots),
            paused=tuple(slot for slot in slots if action[2 * slot]),
            profile=int(action[-1]),
        )

    def for_slots(self, slots: int) -> Setting:
        """What is left of it where there are so many groups."""
        return replace(
            self,
            levels=self.levels[:slots],
            paused=tuple(slot for slot in self.paused if slot < slots),
        )

    def action(self) -> NDArray[np.int64]:
        """As an entry of the action table."""
        action = np.zeros(len(ACTION_SIZES), dtype=np.int64)
        action[1 : 2 * len(self.levels) : 2] = self.levels
        action[[2 * slot for slot in self.paused]] = 1
        action[-1] = self.profile
        return action


def grid(slots: int) -> tuple[Setting, ...]:
    """All settings for a number of slots: limits, pauses of the first slots, profiles.

    The slots after the second share the second one's level.

    Args:
        slots: Background groups, 1 to 4.
    """
    free = min(slots, _MOST_SLOTS)
    shapes = [
        (*levels, *[levels[-1]] * (slots - free))
        for levels in product(range(len(LIMIT_RATIOS)), repeat=free)
    ]
    pauses = [tuple(range(count)) for count in range(slots + 1)]
    return tuple(
        Setting(levels=levels, paused=paused, profile=profile)
        for levels, paused, profile in product(shapes, pauses, range(len(PROFILES)))
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Screened:
    """What a setting did on the twin, means over nodes drawn from it."""

    setting: Setting
    background_work: float
    """Share of full speed."""
    violated: float
    """Share of windows over the target."""


def screen(
    twin: FittedTwin,
    settings: Sequence[Setting],
    *,
    nodes: int = 8,
    seconds: float = 40.0,
    seed: int = 1,
) -> list[Screened]:
    """Run every setting on nodes drawn from a twin, all side by side.

    Args:
        twin: Of the scenario.
        settings: The grid.
        nodes: Drawn for each.
        seconds: After a burn-in of 8 s.
        seed: Everything random follows from it.
    """
    simulation = Simulation([twin], nodes * len(settings), _SETTINGS, seed=seed, draws=nodes)
    simulation.reset(np.ones(simulation.batch, dtype=bool))
    actions = np.repeat([setting.action() for setting in settings], nodes, axis=0)
    steps = round(seconds / _STEP_S)
    sums = np.zeros((2, simulation.batch))
    for k in range(_BURN_IN_STEPS + steps):
        result = simulation.step(actions)
        if k >= _BURN_IN_STEPS:
            sums += (result.progress, result.window_violated)
    work, violated = (sums / steps).reshape(2, len(settings), nodes).mean(axis=2)
    return [
        Screened(setting=setting, background_work=float(w), violated=float(v))
        for setting, w, v in zip(settings, work, violated, strict=True)
    ]


def shortlist(screened: Sequence[Screened], *, allowed: float, count: int) -> list[Screened]:
    """The settings worth running live: those that do most work for how often they miss the target.

    The twin is off, so not only its own winner is taken: half of the list are the best that keep
    the target on it, the rest the best that miss it up to thrice as often, or, where there are
    none, those that miss it least. Of the same limits and pauses only the best profile is taken:
    profiles differ by less than the twin is off, and a list of them would be one setting.

    Args:
        screened: The whole grid.
        allowed: Share of windows that may miss the target.
        count: Settings wanted.
    """

    def best(among: list[Screened], number: int) -> list[Screened]:
        return sorted(among, key=lambda s: (-s.background_work, s.violated))[:number]

    profiles: dict[Setting, list[Screened]] = {}
    for one in screened:
        profiles.setdefault(replace(one.setting, profile=0), []).append(one)
    differing = [
        min(some, key=lambda s: (max(s.violated, allowed), -s.background_work))
        for some in profiles.values()
    ]
    keeping = best([s for s in differing if s.violated <= allowed], (count + 1) // 2)
    near = [s for s in differing if allowed < s.violated <= 3.0 * allowed]
    chosen = keeping + best(near, count - len(keeping))
    rest = sorted((s for s in differing if s not in chosen), key=lambda s: s.violated)
    return chosen + rest[: count - len(chosen)]


def best_meeting_target(
    result: ComparisonResult, *, slack: float = SLACK, chosen: str = ""
) -> Hindsight:
    """The oracle of a live comparison: most work among the static arms that keep the target.

    Args:
        result: The comparison; its arms that run ``static`` are the grid.
        slack: Share of windows by which an arm may keep the target less often than ample memory.
        chosen: The label that was chosen elsewhere: only whether it keeps the target is asked.

    Raises:
        EvaluationError: If there is no static arm in it.
    """
    arms = {
        label: arm.metrics
        for label, arm in result.table.arms.items()
        if arm.facts.controller.partition(":")[0] == "static" and chosen in ("", label)
    }
    if not arms:
        raise EvaluationError(
            "No static arm was compared.",
            next_step="Run `stallward oracle` for arms to compare.",
        )
    ample = _value(result.table.references.ample.slo_attainment)

    def kept(label: str) -> float:
        return _value(arms[label].slo_attainment)

    keeping = [label for label in arms if kept(label) >= ample - slack]
    if not keeping:
        return Hindsight(arm=max(arms, key=kept), meets_target=False)
    best = max(keeping, key=lambda label: _value(arms[label].background_work))
    return Hindsight(arm=best, meets_target=True)


def oracle_of(file: Path, scenario: str) -> Hindsight:
    """:func:`best_meeting_target` of the result of a comparison of ``scenario``.

    Raises:
        EvaluationError: If it cannot be read, or is of another scenario.
    """
    try:
        result = load(ComparisonResult, file)
    except ResultError as error:
        raise EvaluationError(
            f"{file} is no result of a comparison: {error.cause}",
            next_step="Name the result.json that `stallward compare` wrote.",
        ) from error
    if result.scenario != scenario:
        raise EvaluationError(
            f"{file} is the result of {result.scenario!r:.80}, not of {scenario!r}."
        )
    return best_meeting_target(result)


def _value(figure: Interval) -> float:
    return float("-inf") if figure.value is None else figure.value


def screen_scenario(
    twin: FittedTwin, *, count: int = 8, seconds: float = 40.0, seed: int = 1
) -> Screening:
    """Screen the whole grid of a scenario on its twin.

    Args:
        twin: Of the scenario.
        count: Settings to run live.
        seconds: On each node.
        seed: Everything random follows from it.
    """
    settings = grid(max(len(twin.scenario.slots), 1))
    allowed = float(measure_ample([twin], _SETTINGS, seed=seed).windows[0]) + SLACK
    chosen = shortlist(
        screen(twin, settings, seconds=seconds, seed=seed), allowed=allowed, count=count
    )
    return Screening(
        scenario=twin.scenario.name,
        settings=len(settings),
        allowed=allowed,
        arms=tuple(
            ScreenedArm(
                arm=one.setting.spec,
                background_work=one.background_work,
                violated=one.violated,
            )
            for one in chosen
        ),
        spec=",".join(one.setting.spec for one in chosen),
    )
