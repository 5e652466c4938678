"""The off-policy estimates themselves, checked on the twin, where the truth can be had.

Twin nodes run the randomised policy of the arm ``excite``; estimates are made from a few of the
runs at a time, as they would be from recordings. The truth comes from letting each policy take
over in states that such runs reached, and adding up its discounted reward.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from stallward.agent.control_law.law import Law
from stallward.agent.controller import NodeContext
from stallward.agent.controllers.excite import ExciteController
from stallward.agent.desired import ACTION_SIZES, SLOTS
from stallward.env.recording.raw_rows import Array
from stallward.env.simulation.nuisance import NO_NUISANCE
from stallward.env.simulation.simulation import Simulation, SimulationSettings
from stallward.env.twin.inputs.fitted import FittedTwin
from stallward.training.off_policy.dataset import Actions, LoggedRun
from stallward.training.off_policy.estimators import (
    Estimate,
    OffPolicy,
    OffPolicySettings,
    OffPolicyValue,
)

_TICK_S: Final = 0.1
_BURN_IN_TICKS: Final = 60
_NEGLIGIBLE: Final = 0.01
"""Rewards are added up until they count for this much."""

MakeLaw = Callable[[int], Law]
"""Makes a policy afresh for so many nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """How one estimator did for one policy, over repetitions.

    Attributes:
        policy: Its name.
        estimator: ``fitted`` or ``doubly_robust``.
        truth: Of the value, by rollouts.
        bias: Mean error.
        rmse: Root of the mean squared error.
        coverage: Share of the 95 % intervals that hold the truth.
        made: Share of the repetitions in which there was an estimate.
        ess: Mean effective sample size of the first tick.
        refused: Share of the repetitions in which the policy looked worse than the first one.
    """

    policy: str
    estimator: str
    truth: float
    bias: float | None
    rmse: float | None
    coverage: float | None
    made: float
    ess: float
    refused: float

    def as_json(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)


class RandomLaw:
    """The randomised policy of ``excite`` over a batch, with the probability of what it did.

    Args:
        batch: Nodes.
        slots: Background groups of each.
        seed: Everything random follows from it.
    """

    def __init__(self, batch: int, slots: int, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        like = ExciteController({})
        like.reset(NodeContext(zone_limit_bytes=0, slot_names=(), tick_period_s=_TICK_S))
        self._redraw, self._rest = like.redraw, like.rest
        self._chances = {
            entry: like.probabilities(entry) for entry in (*range(2 * slots), 2 * SLOTS)
        }
        self._action = np.zeros((batch, len(ACTION_SIZES)), dtype=np.int64)

    def act(self) -> tuple[Actions, Array]:
        """The next tick's actions and their propensities."""
        batch, before = len(self._action), self._action
        fresh = np.zeros_like(before)
        for entry, chances in self._chances.items():
            fresh[:, entry] = self._rng.choice(len(chances), size=batch, p=chances)
        fresh[self._rng.random(batch) < self._rest] = 0
        drawn_now = self._rng.random(batch) < self._redraw
        self._action = after = np.where(drawn_now[:, None], fresh, before)
        parts = [chances[after[:, entry]] for entry, chances in self._chances.items()]
        chance = (1.0 - self._rest) * np.prod(parts, axis=0)
        chance += np.where(after.any(axis=1), 0.0, self._rest)
        stayed = np.where((after == before).all(axis=1), 1.0 - self._redraw, 0.0)
        return after.copy(), stayed + self._redraw * chance


def _settings(price: float) -> SimulationSettings:
    return SimulationSettings(
        episode_s=1e6, ticks_per_action=1, price=price, switch_cost=0.0, nuisance=NO_NUISANCE
    )


def _open(twin: FittedTwin, batch: int, price: float, seed: int) -> Simulation:
    simulation = Simulation([twin], batch, _settings(price), seed=seed)
    simulation.reset(np.ones(batch, dtype=bool))
    return simulation


def twin_runs(
    twin: FittedTwin,
    policies: Mapping[str, MakeLaw],
    *,
    count: int,
    seconds: float,
    price: float,
    seed: int,
) -> tuple[list[LoggedRun], dict[str, list[Actions]]]:
    """Runs of the randomised policy on the twin, and what each policy would have done in them."""
    simulation = _open(twin, count, price, seed)
    random = RandomLaw(count, len(twin.scenario.slots), seed)
    laws = {name: make(count) for name, make in policies.items()}
    rows: list[tuple[NDArray[np.float32], Actions, Array, Array]] = []
    wanted: dict[str, list[Actions]] = {name: [] for name in policies}
    for k in range(_BURN_IN_TICKS + round(seconds / _TICK_S)):
        observation = simulation.observation.copy()
        action, propensity = random.act()
        asked = {name: law.act(observation, _TICK_S * (k > 0)) for name, law in laws.items()}
        reward = simulation.step(action).reward
        if k >= _BURN_IN_TICKS:
            rows.append((observation, action, propensity, reward))
            for name, found in asked.items():
                wanted[name].append(found)
    runs = [
        LoggedRun(
            name=f"twin-{i}",
            observations=np.array([row[0][i] for row in rows]),
            actions=np.array([row[1][i] for row in rows]),
            propensity=np.array([row[2][i] for row in rows]),
            reward=np.array([row[3][i] for row in rows]),
            slots=len(twin.scenario.slots),
        )
        for i in range(count)
    ]
    of_policy = {
        name: [np.array([tick[i] for tick in ticks]) for i in range(count)]
        for name, ticks in wanted.items()
    }
    return runs, of_policy


def true_value(
    twin: FittedTwin,
    make: MakeLaw,
    *,
    nodes: int,
    seconds: float,
    price: float,
    gamma: float,
    seed: int,
    moments: int = 5,
) -> float:
    """Mean discounted reward of a policy that takes over at moments spread over a run."""
    total = 0.0
    ahead = int(np.ceil(np.log(_NEGLIGIBLE) / np.log(gamma)))
    for number, moment in enumerate(np.linspace(0.1, 0.9, moments) * seconds / _TICK_S):
        simulation = _open(twin, nodes, price, seed + number)
        random = RandomLaw(nodes, len(twin.scenario.slots), seed + number)
        law = make(nodes)
        begins = _BURN_IN_TICKS + round(float(moment))
        for k in range(begins + ahead):
            wanted = law.act(simulation.observation, _TICK_S * (k > 0))
            action = wanted if k >= begins else random.act()[0]
            reward = simulation.step(action).reward
            if k >= begins:
                total += gamma ** (k - begins) * float(reward.mean())
    return total * (1.0 - gamma) / moments


def check_on_twin(
    twin: FittedTwin,
    policies: Mapping[str, MakeLaw],
    *,
    repetitions: int = 12,
    runs: int = 4,
    seconds: float = 60.0,
    nodes: int = 128,
    moments: int = 5,
    price: float = 6.0,
    seed: int = 1,
    settings: OffPolicySettings | None = None,
) -> list[Checked]:
    """Estimate policies again and again from runs on the twin, and compare with the truth.

    Args:
        twin: Where everything runs.
        policies: Name to how it is made.
        repetitions: Sets of runs.
        runs: In each set.
        seconds: Length of a run.
        nodes: Rollouts for the truth, at each moment.
        moments: At which policies take over, for the truth.
        price: Of every window missing the target by far.
        seed: Everything random follows from it.
        settings: How to estimate.
    """
    settings = settings or OffPolicySettings()
    logged, wanted = twin_runs(
        twin, policies, count=repetitions * runs, seconds=seconds, price=price, seed=seed
    )
    found, refused = _repeat(logged, wanted, repetitions, runs, settings)
    rows = []
    for name, make in policies.items():
        truth = true_value(
            twin,
            make,
            nodes=nodes,
            seconds=seconds,
            price=price,
            gamma=settings.gamma,
            seed=seed + 1000,
            moments=moments,
        )
        fitted = [value.fitted for value in found[name]]
        corrected = [value.doubly_robust for value in found[name]]
        shared = {
            "ess": float(np.mean([value.ess for value in found[name]])),
            "refused": refused[name],
        }
        rows.append(_checked(name, "fitted", truth, fitted, **shared))
        rows.append(_checked(name, "doubly_robust", truth, corrected, **shared))
    return rows


def _repeat(
    logged: Sequence[LoggedRun],
    wanted: Mapping[str, Sequence[Actions]],
    repetitions: int,
    runs: int,
    settings: OffPolicySettings,
) -> tuple[dict[str, list[OffPolicyValue]], dict[str, float]]:
    """Estimates from every set of runs, and how often each policy looked worse than the first."""
    found: dict[str, list[OffPolicyValue]] = {name: [] for name in wanted}
    refused = dict.fromkeys(wanted, 0.0)
    first = next(iter(wanted))
    for k in range(repetitions):
        mine = slice(k * runs, (k + 1) * runs)
        estimator = OffPolicy(logged[mine], replace(settings, seed=settings.seed + k))
        for name, actions in wanted.items():
            found[name].append(estimator.value(actions[mine]))
            difference = estimator.difference(found[name][-1], found[first][-1])
            refused[name] += (difference.high < 0.0) / repetitions
    return found, refused


def _checked(
    policy: str,
    estimator: str,
    truth: float,
    estimates: Sequence[Estimate | None],
    *,
    ess: float,
    refused: float,
) -> Checked:
    made = [one for one in estimates if one is not None]
    errors = np.array([one.value - truth for one in made])
    held = [one.low <= truth <= one.high for one in made]
    return Checked(
        policy=policy,
        estimator=estimator,
        truth=truth,
        bias=float(errors.mean()) if made else None,
        rmse=float(np.sqrt((errors**2).mean())) if made else None,
        coverage=float(np.mean(held)) if made else None,
        made=len(made) / len(estimates),
        ess=ess,
        refused=refused,
    )
