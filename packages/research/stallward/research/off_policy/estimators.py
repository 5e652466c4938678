"""Off-policy estimators: the value of a policy, estimated from runs of a randomised policy.

The value is the expected discounted reward, times (1 - gamma), of following the policy from a
state that the randomised runs visited: a mean reward over the next seconds. Two estimators:

- **Fitted Q** (FQE). A forest of extra trees is grown once, on the returns under the randomised
  policy. With its leaves fixed, fitted-Q iteration averages within leaves, which is a contraction
  (Ernst, Geurts, Wehenkel 2005; Ormoneit, Sen 2002), and the forest serves every policy. Runs are
  cut into folds; the value of each fold comes from trees and values of the other folds.
- **Doubly robust** (DR), weighted and per decision (Jiang, Li 2016; Thomas, Brunskill 2016): the
  fitted value, corrected by its error where the randomised runs took the policy's actions, and
  weighted by the inverse of their probability. Weights multiply from tick to tick, so the
  correction reaches only as many ticks ahead as leave a sufficient effective sample size; beyond
  them the fitted value stands alone. With no such tick there is no doubly robust estimate.

Confidence intervals resample blocks of 5 s. They cover the variation between blocks, not the error
of the trees: docs/explanation/off-policy.md says how often they held the true value on the twin.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from stallward.agent.desired import SLOTS
from stallward.research.off_policy.dataset import Actions, LoggedRun, features
from stallward.research.raw_rows import Array
from stallward.training.errors import DatasetError

if TYPE_CHECKING:
    from sklearn.ensemble import ExtraTreesRegressor

_BLOCK: Final = 50
"""Ticks in a block of 5 s."""
_DRAWS: Final = 400
_LEAST_TICKS: Final = 300
_CONVERGED: Final = 1e-4


@dataclass(frozen=True, slots=True, kw_only=True)
class OffPolicySettings:
    """How values are estimated."""

    gamma: float = 0.985
    """Discount per tick of 0.1 s: a horizon of some 7 s, a seventh of that in training. Longer
    stretches of a recording hardly ever match the actions of a candidate."""
    folds: int = 3
    """Folds that the runs are cut into."""
    trees: int = 60
    """Trees in each forest."""
    least_leaf: int = 8
    """The fewest ticks in a leaf."""
    least_ess: float = 20.0
    """The smallest effective sample size of the doubly robust correction."""
    most_ticks: int = 30
    """The most ticks ahead that the correction reaches."""
    seed: int = 1
    """The seed of forests and resampling."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A value with its 95 % confidence interval."""

    value: float
    """The point estimate."""
    low: float
    """The lower end of the interval."""
    high: float
    """The upper end of the interval."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffPolicyValue:
    """The estimated value of one policy."""

    fitted: Estimate
    """The estimate by fitted Q."""
    doubly_robust: Estimate | None
    """The doubly robust estimate; ``None`` if too few recorded actions match the policy's."""
    ess: float
    """The effective sample size of the first tick's weights."""
    agreement: float
    """The share of ticks in which the randomised policy took this policy's action."""
    corrected_ticks: int
    """How many ticks ahead the doubly robust correction reaches."""
    terms: Array
    """The term of each start tick in the doubly robust estimate, or without one the fitted one."""


class OffPolicyEstimator:
    """Estimates the values of any number of policies from the same runs.

    Args:
        runs: Runs of randomised policies, all with the same action table.
        settings: How to estimate.

    Raises:
        DatasetError: If the runs are too short.
    """

    def __init__(
        self, runs: Sequence[LoggedRun], settings: OffPolicySettings | None = None
    ) -> None:
        self._settings = settings or OffPolicySettings()
        lengths = [len(run.reward) for run in runs]
        followed = sum(int((~run.last).sum()) for run in runs)
        if followed < _LEAST_TICKS:
            raise DatasetError(
                f"Another tick follows {followed} of those with propensities, fewer than "
                f"{_LEAST_TICKS}.",
                next_step="Record the arm excite for a minute or more.",
            )
        self._fold, self._block = _cut(lengths, self._settings.folds)
        self._observations = np.concatenate([run.observations for run in runs])
        self._actions = np.concatenate([run.actions for run in runs])
        self._propensity = np.concatenate([run.propensity for run in runs])
        self._reward = np.concatenate([run.reward for run in runs])
        self._last = np.concatenate([run.last for run in runs])
        self._slots = np.repeat([run.slots for run in runs], lengths)
        self._table = runs[0].table
        self._forests = [self._grow(fold) for fold in range(self._settings.folds)]

    @property
    def behaviour_value(self) -> Estimate:
        """The value of the randomised policy itself."""
        terms = (1.0 - self._settings.gamma) * self._returns()
        return _estimate(terms, self._block, self._settings.seed)

    def _returns(self) -> Array:
        """The discounted return from each tick; beyond a gap or the end the mean reward counts."""
        gamma = self._settings.gamma
        returns = np.zeros_like(self._reward)
        following = 0.0
        for k in range(len(returns) - 1, -1, -1):
            if self._last[k]:
                following = float(self._reward.mean()) / (1.0 - gamma)
            following = self._reward[k] + gamma * following
            returns[k] = following
        return returns

    def _grow(self, fold: int) -> ExtraTreesRegressor:
        from sklearn.ensemble import ExtraTreesRegressor  # noqa: PLC0415 - takes 2 s, for --help as well

        settings, train = self._settings, self._fold != fold
        forest = ExtraTreesRegressor(
            n_estimators=settings.trees,
            min_samples_leaf=settings.least_leaf,
            max_features=0.5,
            random_state=settings.seed + fold,
        )
        inputs = features(self._observations[train], self._actions[train], self._table)
        return forest.fit(inputs, self._returns()[train])

    def value(self, policy: Sequence[Actions]) -> OffPolicyValue:
        """Estimate the value of a policy.

        Args:
            policy: The policy's action at every tick of each run, in the order of the runs.

        Raises:
            DatasetError: If there is not exactly one action per tick.
        """
        policy_actions = np.concatenate(list(policy))
        if policy_actions.shape != self._actions.shape:
            raise DatasetError("A policy's actions are not those of the recorded ticks.")
        state_value, taken_value = self._fit(policy_actions)
        starts = np.flatnonzero(~self._last)
        scale = 1.0 - self._settings.gamma
        fitted_terms = scale * state_value[starts]
        blocks, seed = self._block[starts], self._settings.seed
        weights = self._weights(policy_actions)
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
        """The value of ``one`` less that of ``other``, from the same states."""
        starts = np.flatnonzero(~self._last)
        return _estimate(one.terms - other.terms, self._block[starts], self._settings.seed)

    def _fit(self, policy_actions: Actions) -> tuple[Array, Array]:
        """The value of every state and of every action taken, each from the other folds."""
        state_value = np.zeros(len(policy_actions))
        taken_value = np.zeros(len(policy_actions))
        policy_inputs = features(self._observations, policy_actions, self._table)
        taken_inputs = features(self._observations, self._actions, self._table)
        for fold, forest in enumerate(self._forests):
            train, test = self._fold != fold, self._fold == fold
            usable = np.flatnonzero(train & ~self._last)
            usable = usable[train[usable + 1]]  # the next state must be in these folds, too
            leaves = forest.apply(taken_inputs[usable])
            following = forest.apply(policy_inputs[usable + 1])
            nodes = max(tree.tree_.node_count for tree in forest.estimators_)
            leaf_means = _LeafMeans(leaves, nodes)
            target = self._iterate(leaf_means, following, self._reward[usable])
            state_value[test] = leaf_means.predict(target, forest.apply(policy_inputs[test]))
            taken_value[test] = leaf_means.predict(target, forest.apply(taken_inputs[test]))
        return state_value, taken_value

    def _iterate(
        self, leaf_means: _LeafMeans, following: NDArray[np.int64], reward: Array
    ) -> Array:
        """Run fitted-Q iteration until it converges, and return the targets."""
        gamma = self._settings.gamma
        target = np.full(len(reward), float(reward.mean()) / (1.0 - gamma))
        while True:
            new = reward + gamma * leaf_means.predict(target, following)
            if np.abs(new - target).max() * (1.0 - gamma) < _CONVERGED:
                return new
            target = new

    def _weights(self, policy_actions: Actions) -> Array:
        """Importance weights of the first 1, 2, ... ticks from each, ``(most_ticks, T)``."""
        each = len(self._table.slot_sizes)
        used = np.arange(policy_actions.shape[1])[None, :] < each * self._slots[:, None]
        used[:, each * SLOTS :] = True
        same = ((policy_actions == self._actions) | ~used).all(axis=1)
        ratio = np.where(same, 1.0 / np.maximum(self._propensity, 1e-12), 0.0)
        weights = np.zeros((self._settings.most_ticks, len(ratio)))
        weights[0] = ratio
        for k in range(1, len(weights)):
            ahead = np.append(ratio[k:], np.zeros(k))
            ends = np.append(self._last[k - 1 :], np.ones(k - 1, dtype=bool))[: len(ratio)]
            weights[k] = np.where(ends, 0.0, weights[k - 1] * ahead)
            weights[k, weights[k - 1] == 0.0] = 0.0
        return weights

    def _reach(self, weights: Array) -> tuple[int, float]:
        """How many ticks have a sufficient effective sample size, and that of the first tick."""
        total = weights.sum(axis=1)
        ess = total**2 / np.maximum((weights**2).sum(axis=1), 1e-12)
        short = np.flatnonzero(ess < self._settings.least_ess)
        reach = int(short[0]) if len(short) else len(ess)
        return reach, float(ess[0])

    def _corrected(self, weights: Array, state_value: Array, taken_value: Array) -> Array:
        """The doubly robust term of each tick, with weights normalised for each tick ahead."""
        gamma = self._settings.gamma
        following = np.append(state_value[1:], 0.0)
        error = np.where(self._last, 0.0, self._reward + gamma * following - taken_value)
        terms = state_value.copy()
        starts = ~self._last
        for k, weight in enumerate(weights):
            ahead = np.append(error[k:], np.zeros(k))
            terms += gamma**k * weight / weight[starts].mean() * ahead
        return terms


class _LeafMeans:
    """The predictions of a forest with fixed leaves, for any targets.

    Args:
        leaves: The leaf of each training row in each tree.
        nodes: The most nodes of a tree. Of its leaves some may hold none of the rows.
    """

    def __init__(self, leaves: NDArray[np.int64], nodes: int) -> None:
        trees = leaves.shape[1]
        self._offset = np.arange(trees) * nodes
        self._index = leaves + self._offset
        self._size = trees * nodes
        self._count = np.bincount(self._index.ravel(), minlength=self._size)

    def predict(self, target: Array, leaves: NDArray[np.int64]) -> Array:
        """The prediction of the forest for ``leaves`` if it were fitted to ``target``.

        A leaf that holds none of the training rows predicts the mean of ``target``.
        """
        weights = np.repeat(target, self._index.shape[1])
        sums = np.bincount(self._index.ravel(), weights=weights, minlength=self._size)
        means = np.where(self._count > 0, sums / np.maximum(self._count, 1), target.mean())
        return np.asarray(means[leaves + self._offset].mean(axis=1))


def _cut(lengths: Sequence[int], folds: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The fold and the block of every tick; each run is cut into one stretch per fold."""
    fold, block = [], []
    blocks = 0
    for length in lengths:
        at = np.arange(length)
        fold.append(np.minimum(at * folds // max(length, 1), folds - 1))
        block.append(blocks + at // _BLOCK)
        blocks += length // _BLOCK + 1
    return np.concatenate(fold), np.concatenate(block)


def _estimate(terms: Array, blocks: NDArray[np.int64], seed: int) -> Estimate:
    """The mean of ``terms`` and its 95 % confidence interval, from resampled blocks."""
    _, index = np.unique(blocks, return_inverse=True)
    sums, counts = np.bincount(index, weights=terms), np.bincount(index)
    rng = np.random.default_rng(seed)
    drawn = rng.integers(len(sums), size=(_DRAWS, len(sums)))
    means = sums[drawn].sum(axis=1) / counts[drawn].sum(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return Estimate(value=float(terms.mean()), low=float(low), high=float(high))
