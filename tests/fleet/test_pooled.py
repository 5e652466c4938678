"""What paired blocks on many nodes show together: as often wrong as promised, whatever differs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import alexandergovern, binomtest, ttest_1samp

from stallward.evaluation.errors import MeasureError
from stallward.fleet.pooled import pooled_ratio, same_mean_p, unevenly_lost_p

Nodes = list[np.ndarray]


def nodes(
    rng: np.random.Generator, *, count: int = 12, effect: float = 0.0, spread: float = 0.0
) -> Nodes:
    """Log-ratios of pairs; nodes differ in their noise and in how many pairs they have."""
    noise = np.exp(rng.normal(-2.0, 0.7, count))
    pairs = rng.integers(3, 15, count)
    true = effect + spread * rng.standard_normal(count)
    return [
        mean + sd * rng.standard_normal(n) for mean, sd, n in zip(true, noise, pairs, strict=True)
    ]


@pytest.mark.slow
@pytest.mark.reaches("docs/", "models/", "recordings/")
def test_the_interval_over_nodes_holds_what_an_interval_over_pairs_does_not() -> None:
    """The treatment helps on some nodes and harms on others, and does nothing on average."""
    rng = np.random.default_rng(5)
    wrong = naive = 0
    for _ in range(300):
        drawn = nodes(rng, spread=0.3)
        ratio = pooled_ratio(drawn, labellings=1)
        wrong += ratio.ratio.excludes(1.0)
        naive += ttest_1samp(np.concatenate(drawn), 0.0).pvalue <= 0.05
    assert wrong <= 25  # 5 % are 15; more come by chance once in 100
    assert naive > 60


@pytest.mark.slow
@pytest.mark.reaches("docs/", "models/", "recordings/")
def test_the_same_controller_twice_is_found_to_differ_as_seldom_as_promised() -> None:
    """Labels are drawn, so with equal arms each pair is as likely to have either sign."""
    rng = np.random.default_rng(6)
    p_values, ever = [], 0
    for _ in range(300):
        drawn = nodes(rng, count=6)
        # Load that drifts within a pair: skewed, and of one sign for the whole node before.
        drifts = [np.abs(one) * rng.choice([-1.0, 1.0], one.size) for one in drawn]
        ratio = pooled_ratio(drifts, labellings=199)
        assert ratio.p_value is not None
        p_values.append(ratio.p_value)
        looks = (pooled_ratio(drifts, rounds=k, labellings=1) for k in (3, 6, 12))
        ever += any(look.always.excludes(1.0) for look in looks)
    assert np.mean(np.array(p_values) <= 0.05) <= 0.085
    assert ever / 300 <= 0.085


def test_an_effect_that_all_nodes_share_is_found_and_stated() -> None:
    ratio = pooled_ratio(nodes(np.random.default_rng(7), count=20, effect=math.log(0.8)))
    assert ratio.ratio.value == pytest.approx(0.8, rel=0.05)
    assert ratio.ratio.excludes(1.0)
    assert ratio.p_value is not None
    assert ratio.p_value < 0.001
    assert ratio.nodes == 20
    assert ratio.nodes_differ is not None
    assert ratio.nodes_differ.spread < 0.05


@pytest.mark.slow
@pytest.mark.reaches("docs/", "models/", "recordings/")
def test_nodes_that_differ_are_said_to_and_alike_ones_seldom() -> None:
    rng = np.random.default_rng(8)
    said = {0.0: 0, 0.3: 0}
    spreads = []
    for spread in said:
        for _ in range(100):
            differ = pooled_ratio(nodes(rng, spread=spread), labellings=1).nodes_differ
            assert differ is not None
            said[spread] += differ.p_value <= 0.05
            spreads.append((spread, differ.spread))
    assert said[0.0] <= 14
    assert said[0.3] >= 95
    assert np.median([found for true, found in spreads if true]) == pytest.approx(0.3, rel=0.2)


@pytest.mark.slow
@pytest.mark.reaches("docs/", "models/", "recordings/")
def test_a_further_node_is_where_it_is_said_to_be() -> None:
    rng = np.random.default_rng(9)
    held = 0
    for _ in range(200):
        drawn = nodes(rng, count=21, effect=0.1, spread=0.2)
        differ = pooled_ratio(drawn[:20], labellings=1).nodes_differ
        assert differ is not None
        held += not differ.another.excludes(math.exp(0.1 + 0.2 * rng.standard_normal()))
    assert 0.9 <= held / 200 <= 0.99


_LOGS = st.lists(st.floats(-2.0, 2.0), min_size=1, max_size=6)


@given(st.lists(_LOGS, min_size=1, max_size=6))
def test_the_order_of_nodes_and_the_names_of_arms_do_not_matter(
    drawn: list[list[float]],
) -> None:
    one = pooled_ratio(drawn, labellings=512)
    swapped = pooled_ratio([[-x for x in pairs] for pairs in reversed(drawn)], labellings=512)
    assert one.ratio.value is not None
    assert swapped.ratio.value == pytest.approx(1.0 / one.ratio.value)
    assert (one.nodes, one.pairs) == (swapped.nodes, swapped.pairs)
    if one.p_value is not None and one.pairs <= 8:  # all labellings are tried
        assert swapped.p_value == pytest.approx(one.p_value)


def test_one_node_or_one_pair_gives_no_interval_over_nodes() -> None:
    one = pooled_ratio([[0.1, 0.2, 0.3]])
    assert one.ratio.low is None
    assert one.nodes_differ is None
    assert one.p_value == pytest.approx(0.25)
    single = pooled_ratio([[0.2], []])
    assert single.p_value is single.ratio.low is None
    assert single.nodes == 1
    assert pooled_ratio([[0.1, 0.1], [0.1, 0.1]]).nodes_differ is None
    with pytest.raises(MeasureError, match="No node has a pair"):
        pooled_ratio([[], []])


def test_while_nodes_run_only_the_pairs_that_all_of_them_have_count_for_the_look() -> None:
    drawn = [[0.1, 0.1, 5.0], [0.1, 0.1]]
    assert pooled_ratio(drawn, rounds=2).always.value == pytest.approx(math.exp(0.1))
    assert pooled_ratio(drawn, rounds=0).always.value is None


def test_an_arm_that_loses_more_blocks_is_noticed() -> None:
    assert unevenly_lost_p(0, 0) == 1.0
    assert unevenly_lost_p(20, 22) > 0.5
    assert unevenly_lost_p(3, 25) < 0.001


@pytest.mark.parametrize("lost", [1, 2, 9, 30])
def test_the_chance_of_uneven_losses_is_that_of_the_exact_binomial_test(lost: int) -> None:
    for of_one in range(lost + 1):
        expected = binomtest(of_one, lost).pvalue
        assert unevenly_lost_p(lost - of_one, of_one) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("count", [2, 3, 12, 61])
@pytest.mark.parametrize("spread", [0.0, 0.2, 3.0])
def test_whether_nodes_differ_is_what_alexander_and_govern_say(count: int, spread: float) -> None:
    drawn = nodes(np.random.default_rng(count), count=count, spread=spread)
    assert same_mean_p(drawn) == pytest.approx(alexandergovern(*drawn).pvalue, abs=1e-12)
    assert same_mean_p([np.array([1.0, 3.0]), np.array([3.0, 1.0, 2.0])]) == 1.0
