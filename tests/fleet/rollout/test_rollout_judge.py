"""Whether a wave is bad: by what changed on its nodes beside what changed on the others."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from scipy import stats

from stallward.fleet.rollout.contrast import Tally, t_quantile
from stallward.fleet.rollout.judge import Watched, judge, verdict_text
from stallward.fleet.rollout.plan import WaveRules

RULES = WaveRules()


def tallies(shares: dict[str, float], looks: int = 60, **changes: int) -> dict[str, Tally]:
    return {
        name: Tally(looks=looks, met=round(share * looks), ticks=looks, **changes)
        for name, share in shares.items()
    }


def names(prefix: str, count: int, share: float) -> dict[str, float]:
    return {f"{prefix}{k}": share for k in range(count)}


def watched(
    wave: float, others: float, *, before: float = 1.0, size: int = 1, rest: int = 20
) -> Watched:
    ours, theirs = names("w", size, wave), names("o", rest, others)
    return Watched(
        wave=tallies(ours),
        others=tallies(theirs),
        before=tallies(dict.fromkeys(ours | theirs, before)),
        failed={},
    )


@pytest.mark.parametrize("size", [1, 5])
@pytest.mark.parametrize("rest", [0, 3, 20])
def test_a_wave_that_misses_the_target_more_often_is_bad(size: int, rest: int) -> None:
    verdict = judge(watched(0.5, 1.0, size=size, rest=rest), RULES, last=False)
    assert len(verdict.bad) == 1
    assert verdict.bad[0].startswith("the target was kept at 50% of the looks, before at 100%")
    assert not judge(watched(1.0, 1.0, size=size, rest=rest), RULES, last=True).bad


def test_what_happens_to_all_nodes_is_no_fault_of_the_policy() -> None:
    assert not judge(watched(0.5, 0.5), RULES, last=True).bad
    without_others = judge(watched(0.5, 0.5, rest=0), RULES, last=True)
    assert without_others.bad  # nobody else says that it happened to all


def test_a_policy_that_does_as_well_while_all_others_get_better_is_bad() -> None:
    assert judge(watched(0.5, 1.0, before=0.5), RULES, last=True).bad


def test_more_interventions_of_the_guard_are_bad() -> None:
    seen = watched(1.0, 1.0)
    often = Watched(
        wave=tallies({"w0": 1.0}, intervened=50),
        others=seen.others,
        before=seen.before,
        failed={},
    )
    (why,) = judge(often, RULES, last=False).bad
    assert why.startswith("the guard intervened at 83% of the looks, before at 0%")


def test_nodes_on_which_it_fails_may_be_few() -> None:
    seen = watched(1.0, 1.0, size=40)
    few = Watched(wave=seen.wave, others={}, before=seen.before, failed={"w0": "off", "w1": "off"})
    assert judge(few, RULES, last=True).failed == 2
    assert not judge(few, RULES, last=True).bad
    more = Watched(
        wave=dict(seen.wave) | tallies({"w2": 1.0}, fallen=31),
        others={},
        before=seen.before,
        failed=few.failed,
    )
    (why,) = judge(more, RULES, last=True).bad
    assert why == "the policy fails on 3 of 40 nodes (w0: off)"


def test_a_wave_of_which_nothing_is_known_is_bad_only_at_the_end_and_unless_allowed() -> None:
    idle = {"w0": Tally(ticks=60), "w1": Tally(ticks=60)}
    seen = Watched(wave=idle, others={}, before=idle, failed={})
    assert not judge(seen, RULES, last=False).bad
    (why,) = judge(seen, RULES, last=True).bad
    assert why == "whether the target is kept is known of 0 of its 2 nodes only"
    assert not judge(seen, WaveRules(need_requests=False), last=True).bad


def test_a_good_wave_says_how_much_could_have_gone_unnoticed() -> None:
    text = verdict_text(judge(watched(1.0, 1.0), RULES, last=True))
    assert text.startswith("good: the target was kept at 100% of the looks, before at 100%, while")
    assert re.search(r"; up to \d points may be chance$", text)
    unknown = Watched(wave={"w0": Tally()}, others={}, before={}, failed={})
    assert "too few looks" in verdict_text(judge(unknown, RULES, last=False))


def test_few_looks_say_nothing() -> None:
    short = tallies({"w0": 0.0}, looks=5)
    seen = Watched(wave=short, others={}, before=tallies({"w0": 1.0}), failed={})
    assert judge(seen, RULES, last=False).attainment is None


@pytest.mark.parametrize(("size", "rest"), [(1, 0), (1, 4), (1, 40), (20, 40), (30, 0)])
def test_a_policy_that_is_as_good_is_seldom_stopped(size: int, rest: int) -> None:
    """Nodes differ from each other, and in how their load changes from one hour to the next."""
    rng, wrong = np.random.default_rng(3), 0
    runs = 400
    for _ in range(runs):
        groups = {"w": size, "o": rest}
        found: dict[str, dict[str, Tally]] = {}
        before: dict[str, Tally] = {}
        for prefix, count in groups.items():
            found[prefix] = {}
            for k in range(count):
                base = rng.beta(18, 2)
                spread = 0.05 if size + rest > 5 else 0.0
                now = np.clip(base + rng.normal(0.0, spread), 0.0, 1.0)
                before[f"{prefix}{k}"] = Tally(looks=180, met=int(rng.binomial(180, base)))
                found[prefix][f"{prefix}{k}"] = Tally(looks=180, met=int(rng.binomial(180, now)))
        seen = Watched(wave=found["w"], others=found["o"], before=before, failed={})
        wrong += bool(judge(seen, RULES, last=True).bad)
    assert wrong <= 0.01 * runs


def correlated(rng: np.random.Generator, share: float, stay: float, looks: int) -> list[bool]:
    """Looks of which each is as the one before with the chance ``stay``, and else drawn anew."""
    series = [bool(rng.random() < share)]
    while len(series) < looks:
        series.append(series[-1] if rng.random() < stay else bool(rng.random() < share))
    return series


def counted(series: list[bool]) -> Tally:
    changes = sum(a != b for a, b in pairwise(series))
    looks = len(series)
    return Tally(looks=looks, met=sum(series), met_changes=changes, ticks=looks)


@pytest.mark.parametrize(("size", "rest"), [(1, 0), (1, 4), (4, 0)])
def test_looks_that_share_their_luck_stop_no_policy_that_is_as_good(size: int, rest: int) -> None:
    """Each look is as the one before with a chance of 0.7: the factor is 1.7 / 0.3."""
    rng, runs = np.random.default_rng(5), 300
    wrong = {True: 0, False: 0}
    for _ in range(runs):
        names = [f"w{k}" for k in range(size)] + [f"o{k}" for k in range(rest)]
        before, since = (
            {name: counted(correlated(rng, 0.9, 0.7, 40)) for name in names} for _ in range(2)
        )
        for known in wrong:
            then, now = (
                {
                    name: tally if known else replace(tally, met_changes=None)
                    for name, tally in some.items()
                }
                for some in (before, since)
            )
            seen = Watched(
                wave={name: now[name] for name in names[:size]},
                others={name: now[name] for name in names[size:]},
                before=then,
                failed={},
            )
            wrong[known] += bool(judge(seen, RULES, last=True).bad)
    assert wrong[True] <= 0.01 * runs
    assert wrong[False] > 0.02 * runs, "without the correlation the test would prove nothing"


def test_a_wave_that_misses_the_target_for_long_is_bad_although_looks_share_their_luck() -> None:
    rng = np.random.default_rng(6)
    before = {f"w{k}": counted(correlated(rng, 0.95, 0.7, 40)) for k in range(4)}
    since = {name: counted(correlated(rng, 0.2, 0.7, 40)) for name in before}
    assert judge(Watched(wave=since, others={}, before=before, failed={}), RULES, last=False).bad


@pytest.mark.parametrize("freedom", [4, 5, 8, 20, 200])
@pytest.mark.parametrize("alpha", [0.05, 0.01, 0.00125])
def test_quantiles_of_students_t(alpha: float, freedom: int) -> None:
    assert t_quantile(alpha, freedom) == pytest.approx(stats.t.isf(alpha, freedom), rel=0.015)
