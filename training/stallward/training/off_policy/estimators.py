"""Off-policy estimates: what a policy would be worth, from runs of a randomised one.

The value is the expected discounted reward, times (1 - gamma), of following the policy from a
state that the randomised runs visited: a mean reward over the next seconds. Two estimates:

- **Fitted Q** (FQE). A forest of extra trees is grown once, on what followed under the randomised
  policy; with its leaves fixed, fitted-Q iteration is averaging in leaves, a contraction (Ernst,
  Geurts, Wehenkel 2005; Ormoneit, Sen 2002), and serves every policy. Runs are cut into folds;
  each is judged by trees and values of the others.
- **Doubly robust** (DR), weighted and per decision (Jiang, Li 2016; Thomas, Brunskill 2016): the
  fitted value, corrected by what it got wrong where the randomised runs did what the policy would
  have done, weighted by how unlikely that was. Weights multiply from tick to tick, so the
  correction stops after as many ticks as leave an effective sample size worth having; beyond
  them the fitted value stands alone. With no such tick there is no doubly robust estimate.

Intervals resample blocks of 5 s. They hold what varies from block to block, not what the trees
cannot see: docs/explanation/off-policy.md says how often they were right on the twin.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import ExtraTreesRegressor

from stallward.env.recording.raw_rows import Array
from stallward.training.errors import DatasetError
from stallward.training.off_policy.dataset import Actions, LoggedRun, features

_BLOCK: Final = 50
"""Ticks of a block: 5 s."""
_DRAWS: Final = 400
_LEAST_TICKS: Final = 300
_CONVERGED: Final = 1e-4


@dataclass(frozen=True, slots=True, kw_only=True)
class OffPolicySettings:
    """How values are estimated."""

    gamma: float = 0.985
    """Discount per tick of 0.1 s, a horizon of some 7 s: a third of that of training, further than
    which no stretch of a recording is what a candidate would have done."""
    folds: int = 3
    trees: int = 60
    least_leaf: int = 8
    least_ess: float = 20.0
    """Effective sample size down to which the doubly robust correction reaches."""
    most_ticks: int = 30
    """It reaches no further than this."""
    seed: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A value with its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class OffPolicyValue:
    """What was found of one policy.

    Attributes:
        fitted: By fitted Q.
        doubly_robust: ``None`` where too little was done as the policy would have.
        ess: Effective sample size of the first tick's weights.
        agreement: Share of ticks in which the randomised policy did what this one would.
        corrected_ticks: How far the doubly robust correction reaches.
        terms: What each tick that a policy may take over at contributes to the better of the
            two estimates; differences of two policies are taken by tick.
    """

    fitted: Estimate
    doubly_robust: Estimate | None
    ess: float
    agreement: float
    corrected_ticks: int
    terms: Array


class OffPolicy:
    """Estimates for any number of policies from the same runs.

    Args:
        runs: Of randomised policies.
        settings: How to estimate.

    Raises:
        DatasetError: If the runs are too short.
    """

    def __init__(
        self, runs: Sequence[LoggedRun], settings: OffPolicySettings | None = None
    ) -> None:
        self._settings = settings or OffPolicySettings()
        self._runs = tuple(runs)
        lengths = [len(run.reward) for run in runs]
        if sum(lengths) < _LEAST_TICKS:
            raise DatasetError(
                f"There are {sum(lengths)} ticks with propensities, fewer than {_LEAST_TICKS}.",
                next_step="Record the arm excite for a minute or more.",
            )
        self._fold, self._block = _cut(lengths, self._settings.folds)
        self._observations = np.concatenate([run.observations for run in runs])
        self._actions = np.concatenate([run.actions for run in runs])
        self._propensity = np.concatenate([run.propensity for run in runs])
        self._reward = np.concatenate([run.reward for run in runs])
        self._slots = np.repeat([run.slots for run in runs], lengths)
        last = np.zeros(sum(lengths), dtype=bool)
        last[np.cumsum(lengths) - 1] = True
        self._last = last
        self._forests = [self._grow(fold) for fold in range(self._settings.folds)]

    @property
    def logged(self) -> Estimate:
        """The same value of the randomised policy itself."""
        terms = (1.0 - self._settings.gamma) * self._returns()
        return _estimate(terms, self._block, self._settings.seed)

    def _returns(self) -> Array:
        """Discounted reward from each tick to the end of its run, and beyond it at its mean."""
        gamma = self._settings.gamma
        found = np.zeros_like(self._reward)
        ahead = 0.0
        for k in range(len(found) - 1, -1, -1):
            if self._last[k]:
                ahead = float(self._reward.mean()) / (1.0 - gamma)
            ahead = self._reward[k] + gamma * ahead
            found[k] = ahead
        return found

    def _grow(self, fold: int) -> ExtraTreesRegressor:
        settings, train = self._settings, self._fold != fold
        forest = ExtraTreesRegressor(
            n_estimators=settings.trees,
            min_samples_leaf=settings.least_leaf,
            max_features=0.5,
            random_state=settings.seed + fold,
        )
        inputs = features(self._observations[train], self._actions[train])
        return forest.fit(inputs, self._returns()[train])

    def value(self, policy: Sequence[Actions]) -> OffPolicyValue:
        """The value of a policy.

        Args:
            policy: What it would do at every tick of each run, in the order of the runs.

        Raises:
            DatasetError: If it is not one action a tick.
        """
        wanted = np.concatenate(list(policy))
        if wanted.shape != self._actions.shape:
            raise DatasetError("A policy's actions are not those of the recorded ticks.")
        state_value, taken_value = self._fit(wanted)
        starts = np.flatnonzero(~self._last)
        scale = 1.0 - self._settings.gamma
        fitted_terms = scale * state_value[starts]
        blocks, seed = self._block[starts], self._settings.seed
        weights = self._weights(wanted)
        reach, ess = self._reach(weights)
        corrected = None
        terms = fitted_terms
        if reach:
            terms = scale * self._corrected(weights[:reach], state_value, taken_value)[starts]
            corrected = _estimate(terms, blocks, seed)
        return OffPolicyValue(
            fitted=_estimate(fitted_terms, blocks, seed),
            doubly_robust=corrected,
            ess=ess,
            agreement=float((weights[0][starts] > 0.0).mean()),
            corrected_ticks=reach,
            terms=terms,
        )

    def difference(self, one: OffPolicyValue, other: OffPolicyValue) -> Estimate:
        """How much more ``one`` is worth than ``other``, from the same states."""
        starts = np.flatnonzero(~self._last)
        return _estimate(one.terms - other.terms, self._block[starts], self._settings.seed)

    def _fit(self, wanted: Actions) -> tuple[Array, Array]:
        """Value of every state and of every action taken, each by the folds it is not in."""
        state_value = np.zeros(len(wanted))
        taken_value = np.zeros(len(wanted))
        of_policy = features(self._observations, wanted)
        of_logged = features(self._observations, self._actions)
        for fold, forest in enumerate(self._forests):
            train, mine = self._fold != fold, self._fold == fold
            usable = np.flatnonzero(train & ~self._last)
            usable = usable[train[usable + 1]]  # its next state is in these folds too
            leaves = forest.apply(of_logged[usable])
            following = forest.apply(of_policy[usable + 1])
            averages = _Leaves(leaves)
            target = self._iterate(averages, following, self._reward[usable])
            state_value[mine] = averages.read(target, forest.apply(of_policy[mine]))
            taken_value[mine] = averages.read(target, forest.apply(of_logged[mine]))
        return state_value, taken_value

    def _iterate(self, leaves: _Leaves, following: NDArray[np.int64], reward: Array) -> Array:
        """Fitted-Q iteration until it stands still; returns the targets."""
        gamma = self._settings.gamma
        target = np.full(len(reward), float(reward.mean()) / (1.0 - gamma))
        while True:
            new = reward + gamma * leaves.read(target, following)
            if np.abs(new - target).max() * (1.0 - gamma) < _CONVERGED:
                return new
            target = new

    def _weights(self, wanted: Actions) -> Array:
        """Importance of the first 1, 2, ... ticks from each, ``(most_ticks, T)``."""
        used = np.arange(wanted.shape[1])[None, :] < 2 * self._slots[:, None]
        used[:, -1] = True
        same = ((wanted == self._actions) | ~used).all(axis=1)
        ratio = np.where(same, 1.0 / np.maximum(self._propensity, 1e-12), 0.0)
        found = np.zeros((self._settings.most_ticks, len(ratio)))
        found[0] = ratio
        for k in range(1, len(found)):
            ahead = np.append(ratio[k:], np.zeros(k))
            ends = np.append(self._last[k - 1 :], np.ones(k - 1, dtype=bool))[: len(ratio)]
            found[k] = np.where(ends, 0.0, found[k - 1] * ahead)
            found[k, found[k - 1] == 0.0] = 0.0
        return found

    def _reach(self, weights: Array) -> tuple[int, float]:
        """How many ticks leave enough effective samples, and how many the first one leaves."""
        total = weights.sum(axis=1)
        ess = total**2 / np.maximum((weights**2).sum(axis=1), 1e-12)
        short = np.flatnonzero(ess < self._settings.least_ess)
        reach = int(short[0]) if len(short) else len(ess)
        return reach, float(ess[0])

    def _corrected(self, weights: Array, state_value: Array, taken_value: Array) -> Array:
        """The doubly robust term of each tick; weights sum to one tick's at each distance."""
        gamma = self._settings.gamma
        following = np.append(state_value[1:], 0.0)
        error = np.where(self._last, 0.0, self._reward + gamma * following - taken_value)
        found = state_value.copy()
        starts = ~self._last
        for k, weight in enumerate(weights):
            ahead = np.append(error[k:], np.zeros(k))
            found += gamma**k * weight / weight[starts].mean() * ahead
        return found


class _Leaves:
    """Means in the leaves of a forest."""

    def __init__(self, leaves: NDArray[np.int64]) -> None:
        trees = leaves.shape[1]
        self._offset = np.arange(trees) * (int(leaves.max()) + 1)
        self._index = leaves + self._offset
        self._size = int(self._index.max()) + 1
        self._count = np.bincount(self._index.ravel(), minlength=self._size)

    def read(self, target: Array, leaves: NDArray[np.int64]) -> Array:
        """The forest's prediction where it was fitted to ``target``.

        A leaf without a row of these folds counts as their mean.
        """
        weights = np.repeat(target, self._index.shape[1])
        sums = np.bincount(self._index.ravel(), weights=weights, minlength=self._size)
        means = np.where(self._count > 0, sums / np.maximum(self._count, 1), target.mean())
        return np.asarray(means[np.minimum(leaves + self._offset, self._size - 1)].mean(axis=1))


def _cut(lengths: Sequence[int], folds: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Fold and block of every tick: each run is cut into as many stretches as there are folds."""
    fold, block = [], []
    blocks = 0
    for length in lengths:
        at = np.arange(length)
        fold.append(np.minimum(at * folds // max(length, 1), folds - 1))
        block.append(blocks + at // _BLOCK)
        blocks += length // _BLOCK + 1
    return np.concatenate(fold), np.concatenate(block)


def _estimate(terms: Array, blocks: NDArray[np.int64], seed: int) -> Estimate:
    """Mean and 95 % interval, blocks resampled."""
    _, index = np.unique(blocks, return_inverse=True)
    sums, counts = np.bincount(index, weights=terms), np.bincount(index)
    rng = np.random.default_rng(seed)
    drawn = rng.integers(len(sums), size=(_DRAWS, len(sums)))
    means = sums[drawn].sum(axis=1) / counts[drawn].sum(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return Estimate(value=float(terms.mean()), low=float(low), high=float(high))
