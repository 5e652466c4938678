"""The grid of static settings, screened on a scenario's twin.

The best settings are worth comparing live; :mod:`stallward.research.hindsight` names the
best of them then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.agent.desired import ACTION_SIZES, LIMIT_RATIOS, PROFILES
from stallward.env.simulation.constraints import measure_ample
from stallward.env.simulation.nuisance import NO_NUISANCE
from stallward.env.simulation.simulation import Simulation, SimulationSettings
from stallward.env.twin.inputs.fitted import FittedTwin
from stallward.training.parallel.executor import Executor, Job
from stallward.training.parallel.local_processes import IN_THIS_PROCESS
from stallward.training.progress import Report, silent

_SETTINGS: Final = SimulationSettings(episode_s=1e6, nuisance=NO_NUISANCE)
_BURN_IN_STEPS: Final = 40
_STEP_S: Final = 0.2
_MOST_SLOTS: Final = 2
"""How many slots have a limit level of their own; the later ones share the last one's, because the
grid would grow sixfold with each."""
SLACK: Final = 0.005
"""By how much a setting's share of missed windows may exceed that of ample memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreenedArm:
    """A static setting that is worth comparing live, with its results on the twin."""

    arm: str
    """The setting as an arm of a comparison."""
    background_work: float
    """Background work as a share of full speed."""
    violated: float
    """Share of windows that missed the target."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Screening:
    """The result of trying a grid of settings on a scenario's twin."""

    scenario: str
    """Name of the scenario."""
    settings: int
    """How many settings the grid has."""
    allowed: float
    """Share of windows that may miss the target."""
    arms: tuple[ScreenedArm, ...]
    """The settings to compare live, the best first."""
    spec: str
    """The settings as one value for ``--arms``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One point of the grid."""

    levels: tuple[int, ...]
    """The limit level of each slot; see ``LIMIT_RATIOS``."""
    paused: tuple[int, ...] = ()
    """The slots that are paused as much as the guard allows."""
    profile: int = 0

    @property
    def spec(self) -> str:
        """The setting as an arm: a spec of the controller ``static``."""
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
        """The setting that equals an action."""
        slots = range(len(action) // 2)
        return cls(
            levels=tuple(int(action[2 * slot + 1]) for slot in slots),
            paused=tuple(slot for slot in slots if action[2 * slot]),
            profile=int(action[-1]),
        )

    def for_slots(self, slots: int) -> Setting:
        """The setting for a node with only the first ``slots`` slots."""
        return replace(
            self,
            levels=self.levels[:slots],
            paused=tuple(slot for slot in self.paused if slot < slots),
        )

    def action(self) -> NDArray[np.int64]:
        """The action that equals the setting."""
        action = np.zeros(len(ACTION_SIZES), dtype=np.int64)
        action[1 : 2 * len(self.levels) : 2] = self.levels
        action[[2 * slot for slot in self.paused]] = 1
        action[-1] = self.profile
        return action


def grid(slots: int) -> tuple[Setting, ...]:
    """All settings for a number of slots: limits, pauses of the first slots, profiles.

    The slots after the second share the second one's level.

    Args:
        slots: Number of background groups, 1 to 4.
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
    """The results of a setting on the twin, as means over nodes drawn from it."""

    setting: Setting
    background_work: float
    """Background work as a share of full speed."""
    violated: float
    """Share of windows that missed the target."""


def screen(
    twin: FittedTwin,
    settings: Sequence[Setting],
    *,
    nodes: int = 8,
    seconds: float = 40.0,
    seed: int = 1,
    executor: Executor = IN_THIS_PROCESS,
    report: Report = silent,
) -> list[Screened]:
    """Run every setting on nodes drawn from a twin, all side by side.

    Args:
        twin: The scenario's twin.
        settings: The grid.
        nodes: How many nodes are drawn for each setting.
        seconds: The measured length, after a burn-in of 8 s.
        seed: Seeds everything random.
        executor: Runs parts of the grid; every setting meets the same nodes in any part.
        report: Called with the progress.
    """
    parts = executor.workers(len(settings))
    run = partial(_screen_part, twin, nodes=nodes, seconds=seconds, seed=seed)
    jobs = [
        Job(f"part {k + 1} of the grid", partial(_reported, run, settings[k::parts]))
        for k in range(parts)
    ]
    screened: list[Screened | None] = [None] * len(settings)
    for k, part in enumerate(executor.run(jobs, report)):
        screened[k::parts] = part
    return [one for one in screened if one is not None]


def _reported(
    run: Callable[[Sequence[Setting]], list[Screened]],
    settings: Sequence[Setting],
    report: Report,
) -> list[Screened]:
    report(f"{len(settings)} settings", 0.0)
    return run(settings)


def _screen_part(
    twin: FittedTwin, settings: Sequence[Setting], *, nodes: int, seconds: float, seed: int
) -> list[Screened]:
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
    """The settings worth running live, chosen by their background work and missed windows.

    The twin has errors, so more than its best setting is taken. Half of the list are the best
    settings that keep the target on the twin. The rest are the best of those that miss it up to
    three times as often as allowed, or if there are not enough, those that miss it least. Of
    settings that differ only in the profile, the best one is taken, because profiles differ by
    less than the error of the twin.

    Args:
        screened: The whole grid.
        allowed: Share of windows that may miss the target.
        count: How many settings to choose.
    """

    def best(among: list[Screened], number: int) -> list[Screened]:
        return sorted(among, key=lambda s: (-s.background_work, s.violated))[:number]

    profiles: dict[Setting, list[Screened]] = {}
    for one in screened:
        profiles.setdefault(replace(one.setting, profile=0), []).append(one)
    best_profiles = [
        min(same, key=lambda s: (max(s.violated, allowed), -s.background_work))
        for same in profiles.values()
    ]
    keeping = best([s for s in best_profiles if s.violated <= allowed], (count + 1) // 2)
    near = [s for s in best_profiles if allowed < s.violated <= 3.0 * allowed]
    chosen = keeping + best(near, count - len(keeping))
    rest = sorted((s for s in best_profiles if s not in chosen), key=lambda s: s.violated)
    return chosen + rest[: count - len(chosen)]


def screen_scenario(
    twin: FittedTwin,
    *,
    count: int = 8,
    seed: int = 1,
    executor: Executor = IN_THIS_PROCESS,
    report: Report = silent,
) -> Screening:
    """Screen the whole grid of a scenario on its twin.

    Args:
        twin: The scenario's twin.
        count: How many settings to choose for running live.
        seed: Seeds everything random.
        executor: Runs parts of the grid.
        report: Called with the progress.
    """
    settings = grid(max(len(twin.scenario.slots), 1))
    allowed = float(measure_ample([twin], _SETTINGS, seed=seed).windows[0]) + SLACK
    screened = screen(twin, settings, seed=seed, executor=executor, report=report)
    chosen = shortlist(screened, allowed=allowed, count=count)
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
