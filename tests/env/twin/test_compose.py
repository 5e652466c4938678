"""Twins of several applications are composed of the fitted twins of single ones."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stallward.agent.errors import StallwardError
from stallward.env.errors import TwinError
from stallward.env.scenario.file import load_scenario
from stallward.env.scenario.scenario import Scenario
from stallward.env.twin.inputs.compose import compose
from stallward.env.twin.inputs.find import load_named, load_twin_of
from stallward.env.twin.inputs.fitted import FittedTwin, load_fitted
from stallward.models.registry import find_twin
from stallward.research.mpc.entry import MPC
from stallward.training.pipeline.train import load_twins


def scenario_of(name: str) -> Scenario:
    return load_scenario(name, several=True)


@pytest.fixture(scope="module")
def web_and_cache() -> FittedTwin:
    return compose(scenario_of("web-and-cache"))


def test_applications_and_programs_are_those_of_their_own_twins(
    web_and_cache: FittedTwin,
) -> None:
    nginx, memcached = (load_fitted(find_twin(name)) for name in ("nginx-hogs", "memcached-gcc"))
    own, scenario = web_and_cache.scenario, scenario_of("web-and-cache")
    assert own.protected == nginx.scenario.protected
    assert (own.protected_name, own.slo_ms, own.zone_bytes) == ("nginx", 2.0, 720 << 20)
    (cache,) = own.others
    assert (cache.name, cache.slo_ms) == ("memcached", 1.0)
    assert cache.protected.anon_pages == memcached.scenario.protected.anon_pages
    assert cache.protected.request_rate_per_s == pytest.approx(2000, rel=0.02), "as its load says"
    touched = memcached.scenario.protected.touch_anon_pages
    assert cache.protected.touch_anon_pages == pytest.approx(touched * 2 / 10), "two keys of ten"
    for mine, its, group in zip(own.slots, nginx.scenario.slots, scenario.background, strict=True):
        assert mine == replace(its, floor_bytes=group.floor_bytes, restarts=group.restarts)
    seen = {draw.protected_miss_exponent for draw in nginx.draws}
    assert {draw.protected_miss_exponent for draw in web_and_cache.draws} <= seen
    (others,) = web_and_cache.others
    assert {draw.touch_scale for draw in others} <= {draw.touch_scale for draw in memcached.draws}
    assert [d.read_latency_s for d in others] == [d.read_latency_s for d in web_and_cache.draws], (
        "there is one disk"
    )


def test_it_says_what_it_is_composed_of(web_and_cache: FittedTwin) -> None:
    assert not web_and_cache.saw_its_scenario
    said = web_and_cache.provenance["composed_of"]
    assert said["nginx"] == "nginx-hogs"
    assert said["memcached"].startswith("memcached-gcc with 2000 requests of 2 keys a second")


def test_the_order_of_applications_makes_no_difference(web_and_cache: FittedTwin) -> None:
    scenario = scenario_of("web-and-cache")
    turned = compose(replace(scenario, protected=scenario.others[0], others=(scenario.protected,)))
    assert turned.scenario.others[0].protected == web_and_cache.scenario.protected
    assert turned.scenario.protected == web_and_cache.scenario.others[0].protected
    for mine, other in zip(turned.draws, web_and_cache.draws, strict=True):
        assert mine.read_pages_per_s == pytest.approx(other.read_pages_per_s)
    assert [d.touch_scale for d in turned.others[0]] == [
        d.touch_scale for d in web_and_cache.draws
    ]


def test_a_program_that_no_twin_has_is_described_by_its_manual() -> None:
    twin = load_twin_of(scenario_of("two-caches"), "default")
    (xz,) = twin.scenario.slots
    assert xz.anon_pages == (186 * 256.0,)
    assert xz.floor_bytes == 48 << 20
    assert xz.restarts
    assert load_named("two-caches") == twin


def test_without_background_there_is_none() -> None:
    twin = load_named("detector-and-cache-alone")
    assert twin.scenario.slots == ()
    assert twin.provenance["composed_of"] == {"detector": "detector-anon", "redis": "redis-sort"}


def test_an_application_of_which_no_twin_is_known_is_refused() -> None:
    with pytest.raises(TwinError, match="No fitted twin has the application 'sqlite'") as caught:
        load_named("web-and-store-alone")
    assert "compare --live" in caught.value.next_step


def test_targets_of_different_quantiles_are_refused() -> None:
    scenario = scenario_of("web-and-cache")
    own = replace(scenario.protected, slo=replace(scenario.protected.slo, quantile=0.9))
    with pytest.raises(TwinError, match="different quantiles"):
        compose(replace(scenario, protected=own))


def test_who_takes_only_one_application_refuses_such_a_twin(web_and_cache: FittedTwin) -> None:
    with pytest.raises(TwinError, match="several applications, and here there can be only one"):
        MPC.on_twin(web_and_cache)
    with pytest.raises(StallwardError, match="no fitted twin 'web-and-cache'"):
        load_twins(["web-and-cache"])
