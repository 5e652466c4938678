"""Validation of the off-policy estimators on the twin, where true values can be measured.

Twin nodes run the randomised policy of the arm ``excite``. Values are estimated from a few of
these runs at a time, as from recordings. The true value is the discounted reward of each policy
when it takes over in states that such runs reach.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.agent.control_law.law import Law
from stallward.agent.controller import NodeContext
from stallward.agent.controllers.excite import ExciteController
from stallward.agent.desired import ACTION_SIZES, SLOTS
from stallward.env.simulation.nuisance import NO_NUISANCE
from stallward.env.simulation.simulation import Simulation, SimulationSettings
from stallward.env.twin.inputs.fitted import FittedTwin
from stallward.research.off_policy.dataset import Actions, LoggedRun
from stallward.research.off_policy.estimators import (
    Estimate,
    OffPolicyEstimator,
    OffPolicySettings,
    OffPolicyValue,
)
from stallward.research.raw_rows import Array

_TICK_S: Final = 0.1
_BURN_IN_TICKS: Final = 60
_NEGLIGIBLE: Final = 0.01
"""Rewards are summed until their discount falls to this."""

MakeLaw = Callable[[int], Law]
"""Makes a new policy for a number of nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimatorAccuracy:
    """How accurate one estimator was for one policy, over repetitions."""

    policy: str
    """The name of the policy."""
    estimator: str
    """``fitted`` or ``doubly_robust``."""
    truth: float
    """The true value, measured by rollouts."""
    bias: float | None
    """The mean error."""
    rmse: float | None
    """The root mean squared error."""
    coverage: float | None
    """The share of the 95 % intervals that contain the true value."""
    made: float
    """The share of repetitions with an estimate."""
    ess: float
    """The mean effective sample size of the first tick."""
    refused: float
    """The share of repetitions in which the policy looked worse than the first one."""


class RandomLaw:
    """The randomised policy of the arm ``excite`` over a batch, with its propensities.

    Args:
        batch: The number of nodes.
        slots: The number of background groups of each node.
        seed: The seed of everything random.
    """

    def __init__(self, batch: int, slots: int, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        excite = ExciteController({})
        excite.reset(NodeContext(zone_limit_bytes=0, slot_names=(), tick_period_s=_TICK_S))
        self._redraw, self._rest = excite.redraw, excite.rest
        self._probabilities = {
            entry: excite.probabilities(entry) for entry in (*range(2 * slots), 2 * SLOTS)
        }
        self._action = np.zeros((batch, len(ACTION_SIZES)), dtype=np.int64)

    def act(self) -> tuple[Actions, Array]:
        """The actions of the next tick and their propensities."""
        batch, before = len(self._action), self._action
        drawn = np.zeros_like(before)
        for entry, probabilities in self._probabilities.items():
            drawn[:, entry] = self._rng.choice(len(probabilities), size=batch, p=probabilities)
        drawn[self._rng.random(batch) < self._rest] = 0
        redrawn = self._rng.random(batch) < self._redraw
        self._action = after = np.where(redrawn[:, None], drawn, before)
        factors = [
            probabilities[after[:, entry]] for entry, probabilities in self._probabilities.items()
        ]
        if_redrawn = (1.0 - self._rest) * np.prod(factors, axis=0)
        if_redrawn += np.where(after.any(axis=1), 0.0, self._rest)
        if_kept = np.where((after == before).all(axis=1), 1.0 - self._redraw, 0.0)
        return after.copy(), if_kept + self._redraw * if_redrawn


def _settings(price: float) -> SimulationSettings:
    return SimulationSettings(
        episode_s=1e6, ticks_per_action=1, price=price, switch_cost=0.0, nuisance=NO_NUISANCE
    )


def _open(twin: FittedTwin, batch: int, price: float, seed: int) -> Simulation:
    simulation = Simulation([twin], batch, _settings(price), seed=seed)
    simulation.reset(np.ones(batch, dtype=bool))
    return simulation


def behaviour_runs(
    twin: FittedTwin,
    policies: Mapping[str, MakeLaw],
    *,
    count: int,
    seconds: float,
    price: float,
    seed: int,
) -> tuple[list[LoggedRun], dict[str, list[Actions]]]:
    """Run the randomised policy on the twin, and collect every policy's actions in these runs."""
    simulation = _open(twin, count, price, seed)
    random = RandomLaw(count, len(twin.scenario.slots), seed)
    laws = {name: make(count) for name, make in policies.items()}
    rows: list[tuple[NDArray[np.float32], Actions, Array, Array]] = []
    actions_by_policy: dict[str, list[Actions]] = {name: [] for name in policies}
    for k in range(_BURN_IN_TICKS + round(seconds / _TICK_S)):
        observation = simulation.observation.copy()
        action, propensity = random.act()
        answers = {name: law.act(observation, _TICK_S * (k > 0)) for name, law in laws.items()}
        reward = simulation.step(action).reward
        if k >= _BURN_IN_TICKS:
            rows.append((observation, action, propensity, reward))
            for name, actions in answers.items():
                actions_by_policy[name].append(actions)
    runs = [
        LoggedRun(
            name=f"twin-{i}",
            observations=np.array([row[0][i] for row in rows]),
            actions=np.array([row[1][i] for row in rows]),
            propensity=np.array([row[2][i] for row in rows]),
            reward=np.array([row[3][i] for row in rows]),
            last=np.arange(len(rows)) == len(rows) - 1,
            slots=len(twin.scenario.slots),
        )
        for i in range(count)
    ]
    by_run = {
        name: [np.array([tick[i] for tick in ticks]) for i in range(count)]
        for name, ticks in actions_by_policy.items()
    }
    return runs, by_run


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
    """The mean discounted reward of a policy that takes over at moments spread over a run."""
    total = 0.0
    horizon = int(np.ceil(np.log(_NEGLIGIBLE) / np.log(gamma)))
    for number, moment in enumerate(np.linspace(0.1, 0.9, moments) * seconds / _TICK_S):
        simulation = _open(twin, nodes, price, seed + number)
        random = RandomLaw(nodes, len(twin.scenario.slots), seed + number)
        law = make(nodes)
        begins = _BURN_IN_TICKS + round(float(moment))
        for k in range(begins + horizon):
            policy_action = law.act(simulation.observation, _TICK_S * (k > 0))
            action = policy_action if k >= begins else random.act()[0]
            reward = simulation.step(action).reward
            if k >= begins:
                total += gamma ** (k - begins) * float(reward.mean())
    return total * (1.0 - gamma) / moments


def validate_on_twin(
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
) -> list[EstimatorAccuracy]:
    """Estimate policies repeatedly from runs on the twin, and compare with their true values.

    Args:
        twin: The twin that everything runs on.
        policies: Makers of the policies, by name.
        repetitions: The number of sets of runs.
        runs: The number of runs in each set.
        seconds: The length of a run.
        nodes: The number of rollouts for the true value, at each moment.
        moments: The number of moments at which policies take over for the true value.
        price: The price of a window that misses the target by far.
        seed: The seed of everything random.
        settings: How to estimate.
    """
    settings = settings or OffPolicySettings()
    logged, policy_actions = behaviour_runs(
        twin, policies, count=repetitions * runs, seconds=seconds, price=price, seed=seed
    )
    values, refused = _repeat(logged, policy_actions, repetitions, runs, settings)
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
        fitted = [value.fitted for value in values[name]]
        corrected = [value.doubly_robust for value in values[name]]
        shared = {
            "ess": float(np.mean([value.ess for value in values[name]])),
            "refused": refused[name],
        }
        rows.append(_accuracy(name, "fitted", truth, fitted, **shared))
        rows.append(_accuracy(name, "doubly_robust", truth, corrected, **shared))
    return rows


def _repeat(
    logged: Sequence[LoggedRun],
    policy_actions: Mapping[str, Sequence[Actions]],
    repetitions: int,
    runs: int,
    settings: OffPolicySettings,
) -> tuple[dict[str, list[OffPolicyValue]], dict[str, float]]:
    """Estimate from every set of runs, and count how often a policy looks worse than the first."""
    values: dict[str, list[OffPolicyValue]] = {name: [] for name in policy_actions}
    refused = dict.fromkeys(policy_actions, 0.0)
    first = next(iter(policy_actions))
    for k in range(repetitions):
        run_set = slice(k * runs, (k + 1) * runs)
        estimator = OffPolicyEstimator(logged[run_set], replace(settings, seed=settings.seed + k))
        for name, actions in policy_actions.items():
            values[name].append(estimator.value(actions[run_set]))
            difference = estimator.difference(values[name][-1], values[first][-1])
            refused[name] += (difference.high < 0.0) / repetitions
    return values, refused


def _accuracy(
    policy: str,
    estimator: str,
    truth: float,
    estimates: Sequence[Estimate | None],
    *,
    ess: float,
    refused: float,
) -> EstimatorAccuracy:
    made = [estimate for estimate in estimates if estimate is not None]
    errors = np.array([estimate.value - truth for estimate in made])
    covered = [estimate.low <= truth <= estimate.high for estimate in made]
    return EstimatorAccuracy(
        policy=policy,
        estimator=estimator,
        truth=truth,
        bias=float(errors.mean()) if made else None,
        rmse=float(np.sqrt((errors**2).mean())) if made else None,
        coverage=float(np.mean(covered)) if made else None,
        made=len(made) / len(estimates),
        ess=ess,
        refused=refused,
    )
