"""Several protected applications, seen as one and given their parts."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallward.actuator.engine.engine import Engine
from stallward.actuator.engine.interface import EngineSettings
from stallward.actuator.guard.budgets import Budgets
from stallward.agent.applications import (
    LEAST_PART,
    SMOOTHING_S,
    Shares,
    distance,
    farthest,
    joint_latency,
    lives_on_anon,
)
from stallward.agent.controller import NodeContext
from stallward.agent.desired import (
    FLUSH,
    KEEP_ANON,
    KEEP_CACHE,
    MIB,
    RELEASED,
    ApplicationDesire,
    DesiredState,
)
from stallward.agent.registry import make_controller
from stallward.agent.sample import (
    UNBOUND,
    ApplicationSample,
    GroupSample,
    LatencySample,
    NodeSample,
    Sample,
)


def application(
    name: str,
    *,
    p95_ms: float | None = 1.0,
    slo_ms: float = 10.0,
    held_mib: int = 100,
    anon_mib: int | None = None,
    swap_mib: int = 0,
) -> ApplicationSample:
    latency = None if p95_ms is None else LatencySample(p95_ms=p95_ms, completed=5)
    group = GroupSample(
        name=name,
        memory_usage_bytes=held_mib * MIB,
        anon_bytes=None if anon_mib is None else anon_mib * MIB,
        swap_bytes=swap_mib * MIB,
    )
    return ApplicationSample(name=name, slo_ms=slo_ms, group=group, latency=latency)


def sample(*applications: ApplicationSample, time_s: float = 0.0) -> Sample:
    return Sample(
        sequence=0,
        time_s=time_s,
        node=NodeSample(),
        zone=GroupSample(name="zone"),
        protected=GroupSample(name="applications"),
        applications=applications,
    )


def after_a_minute(shares: Shares, *applications: ApplicationSample) -> Sample:
    """Let the shares follow the applications until nothing moves any more."""
    for second in range(60):
        shares.divide(sample(*applications, time_s=float(second)), RELEASED)
    return sample(*applications, time_s=60.0)


def test_the_latency_is_that_of_the_application_farthest_from_its_target() -> None:
    near = application("near", p95_ms=40.0, slo_ms=100.0)
    far = application("far", p95_ms=3.0, slo_ms=2.0)
    assert farthest([near, far]) is far
    joint = joint_latency([near, far], slo_ms=50.0)
    assert joint is not None
    assert joint.p95_ms == pytest.approx(75.0), "1.5 times the node's target, as 3 of 2 ms are"
    assert joint.completed == 10


def test_an_application_without_requests_says_nothing() -> None:
    idle = replace(application("idle"), latency=LatencySample())
    busy = application("busy", p95_ms=2.0, slo_ms=4.0)
    silent = application("silent", p95_ms=None)
    assert distance(idle) is None
    joint = joint_latency([idle, busy, silent], slo_ms=10.0)
    assert joint is not None
    assert joint.p95_ms == pytest.approx(5.0)
    assert joint_latency([silent], slo_ms=10.0) is None
    nothing = joint_latency([idle], slo_ms=10.0)
    assert nothing is not None
    assert nothing.p95_ms is None


def test_with_one_application_nothing_is_divided() -> None:
    granted = DesiredState(protected_low_bytes=7, tuning=KEEP_ANON)
    assert Shares().divide(sample(), granted) is granted
    assert granted.application(0) == ApplicationDesire(low_bytes=7, swappiness=1)


def test_each_gets_its_demand_where_the_guarantee_suffices() -> None:
    shares = Shares()
    now = after_a_minute(shares, application("a", held_mib=100), application("b", held_mib=300))
    granted = shares.divide(now, DesiredState(protected_low_bytes=400 * MIB))
    lows = [part.low_bytes or 0 for part in granted.applications]
    assert lows == pytest.approx([100 * MIB, 300 * MIB], rel=0.01)


def test_a_loan_is_taken_from_the_application_with_slack() -> None:
    shares = Shares()
    slack = application("slack", p95_ms=1.0, slo_ms=100.0, held_mib=200)
    tight = application("tight", p95_ms=1.9, slo_ms=2.0, held_mib=200)
    now = after_a_minute(shares, slack, tight)
    granted = shares.divide(now, DesiredState(protected_low_bytes=320 * MIB))
    given_slack, given_tight = (part.low_bytes or 0 for part in granted.applications)
    assert given_tight == pytest.approx(200 * MIB, rel=0.02), "what it needs"
    assert given_slack == pytest.approx(120 * MIB, rel=0.03), "it lends all 80 MiB"


def test_a_short_moment_of_danger_moves_no_guarantee() -> None:
    shares = Shares()
    calm = application("a", p95_ms=5.0), application("b", p95_ms=5.0)
    wish = DesiredState(protected_low_bytes=100 * MIB)
    before = shares.divide(after_a_minute(shares, *calm), wish).applications
    worse = sample(application("a", p95_ms=6.0), application("b", p95_ms=5.0), time_s=60.1)
    assert shares.divide(worse, wish).applications == before


def test_an_application_that_falls_idle_while_it_is_far_does_not_stay_far() -> None:
    shares = Shares()
    far, near = application("far", p95_ms=200.0), application("near", p95_ms=9.0)
    now = after_a_minute(shares, far, near)
    wish = DesiredState(protected_low_bytes=120 * MIB)
    first, second = (part.low_bytes or 0 for part in shares.divide(now, wish).applications)
    assert first > second
    idle = replace(far, latency=LatencySample())
    shares.divide(sample(idle, near, time_s=61.0), wish)
    briefly = shares.divide(sample(idle, near, time_s=62.0), wish).applications
    assert (briefly[0].low_bytes or 0) > (briefly[1].low_bytes or 0), "it may only stand still"
    for k in range(600):
        later = shares.divide(sample(idle, near, time_s=63.0 + k), wish).applications
    assert later[0].low_bytes == pytest.approx(later[1].low_bytes, rel=0.2)


@given(
    held=st.lists(st.integers(0, 4000), min_size=2, max_size=5),
    far=st.lists(st.floats(0.0, 1e6), min_size=5, max_size=5),
    low_mib=st.integers(0, 20_000),
)
def test_the_parts_never_exceed_what_is_granted(
    held: list[int], far: list[float], low_mib: int
) -> None:
    each = [
        application(f"{i}", held_mib=mib, p95_ms=far[i], slo_ms=1.0) for i, mib in enumerate(held)
    ]
    shares = Shares()
    for second in range(3):
        now = sample(*each, time_s=second * SMOOTHING_S)
        granted = shares.divide(now, DesiredState(protected_low_bytes=low_mib * MIB))
    lows = [part.low_bytes or 0 for part in granted.applications]
    total = low_mib * MIB
    assert sum(lows) <= total
    for mib, low in zip(held, lows, strict=True):
        part = LEAST_PART * total * mib / max(sum(held), 1)
        assert low <= max(mib * MIB, total // len(held)) + 1
        # The floors of others and rounding may take a little of it.
        assert low >= min(part, mib * MIB) * 0.6 - MIB


def test_only_an_application_of_anonymous_memory_has_its_pages_kept() -> None:
    shares = Shares()
    redis = application("redis", held_mib=100, anon_mib=95)
    nginx = application("nginx", held_mib=300, anon_mib=10)
    now = after_a_minute(shares, redis, nginx)
    assert lives_on_anon(now, 0.26, 0.75) == pytest.approx(0.95), "one of them lives on it"
    assert lives_on_anon(sample(), 0.26, 0.75) == 0.26
    kept = shares.divide(now, DesiredState(tuning=KEEP_ANON))
    assert [part.swappiness for part in kept.applications] == [1, None]
    cache = shares.divide(now, DesiredState(tuning=KEEP_CACHE))
    assert [part.swappiness for part in cache.applications] == [90, 90]
    assert shares.divide(now, DesiredState(tuning=FLUSH)).applications == ()


def test_an_application_that_is_not_there_gets_nothing() -> None:
    shares = Shares()
    here = application("here", held_mib=100)
    after_a_minute(shares, here, application("gone", held_mib=300))
    gone = ApplicationSample(
        name="gone", slo_ms=10.0, group=GroupSample(name=f"{UNBOUND}gone"), latency=None
    )
    now = sample(here, gone, time_s=61.0)
    granted = shares.divide(now, DesiredState(protected_low_bytes=100 * MIB, tuning=KEEP_CACHE))
    assert granted.applications == (
        ApplicationDesire(low_bytes=100 * MIB, swappiness=90),
        ApplicationDesire(),
    )


def test_the_guarantee_of_one_that_has_ended_goes_to_the_others() -> None:
    shares = Shares()
    here, ended = application("here", held_mib=100), application("ended", held_mib=300)
    after_a_minute(shares, here, ended)
    gone = replace(ended, group=GroupSample(name="ended"), latency=None)
    now = sample(here, gone, time_s=61.0)
    granted = shares.divide(now, DesiredState(protected_low_bytes=100 * MIB))
    assert [part.low_bytes for part in granted.applications] == [100 * MIB, 0]


def test_nonsense_divides_nothing_and_raises_nothing_in_the_engine() -> None:
    context = NodeContext(zone_limit_bytes=1 << 30, slot_names=())
    engine = Engine(
        settings=EngineSettings(context=context, budgets=Budgets()),
        configured=make_controller("none"),
        default=make_controller("none"),
    )
    wish = DesiredState(protected_low_bytes=100 * MIB)
    huge = replace(application("huge").group, memory_usage_bytes=1 << 2000)
    odd = replace(application("odd"), group=huge)
    for strange in (
        sample(odd, application("b"), time_s=1.0),
        sample(application("a", p95_ms=math.nan), application("b"), time_s=math.nan),
    ):
        granted = engine.step(strange, remote=wish).granted
        assert granted.protected_low_bytes is None or len(granted.applications) == 2
        divided = engine._divided(strange, wish).applications
        assert len(divided) == 2, "none gets all of it"
        assert sum(part.low_bytes or 0 for part in divided) <= 100 * MIB
