"""Synthetic scenarios combine applications and programs of fitted twins in other sizes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from stallward.env.simulation.constraints import measure_ample
from stallward.env.simulation.nuisance import NO_NUISANCE
from stallward.env.simulation.simulation import SimulationSettings
from stallward.env.testing import HOG, small_twin
from stallward.env.twin.inputs.exogenous import PAGE_BYTES, SlotProgram
from stallward.env.twin.inputs.fitted import FittedTwin
from stallward.env.twin.inputs.parameters import RANGES, TwinParameters
from stallward.training.synthetic_scenarios import (
    SyntheticScenarioSettings,
    is_synthetic,
    make_synthetic_scenarios,
)

SETTINGS = SimulationSettings(nuisance=NO_NUISANCE)
COMPOSING = SyntheticScenarioSettings(
    per_twin=6,
    size_ratio=(1.0, 1.0),
    rate_ratio=(1.0, 1.0),
    service_ratio=(1.0, 1.0),
    touch_ratio=(1.0, 1.0),
    miss_ratio=(1.0, 1.0),
    refiled_share=0.0,
    idle_loss_chance=0.0,
)


def named(name: str, touch_scale: float, read_latency_s: float, service_s: float) -> FittedTwin:
    programs = (replace(HOG, name=f"{name}-{k}", cores=0.1) for k in "ab")
    twin = small_twin(*programs)
    protected = replace(twin.scenario.protected, service_s=service_s)
    draw = TwinParameters(
        read_latency_s=read_latency_s,
        slot0_touch_scale=touch_scale,
        slot1_touch_scale=2.0 * touch_scale,
    )
    scenario = replace(twin.scenario, name=name, protected=protected)
    return replace(twin, scenario=scenario, draws=(draw,))


ONE, TWO = named("one", 1.0, 1e-4, 0.005), named("two", 3.0, 2e-4, 0.01)


@pytest.fixture(scope="module")
def synthetic() -> tuple[FittedTwin, ...]:
    """The scenarios that are made from two twins with one seed."""
    return make_synthetic_scenarios([ONE, TWO], COMPOSING, SETTINGS, seed=1)


def test_programs_and_applications_keep_their_fitted_parameters(
    synthetic: tuple[FittedTwin, ...],
) -> None:
    expected = {"one-a": 1.0, "one-b": 2.0, "two-a": 3.0, "two-b": 6.0}
    assert len(synthetic) == 12
    for number, twin in enumerate(synthetic):
        source = (ONE, TWO)[number % 2]
        assert twin.scenario.protected == source.scenario.protected
        assert twin.draws[0].read_latency_s == source.draws[0].read_latency_s
        assert twin.provenance["application_of"] == source.scenario.name
        for place, program in enumerate(twin.scenario.slots):
            scale = getattr(twin.draws[0], f"slot{place}_touch_scale")
            assert scale == expected[program.name]
    assert len({len(twin.scenario.slots) for twin in synthetic}) > 2
    assert len({twin.scenario.name for twin in synthetic}) == 12
    assert all(is_synthetic(twin) for twin in synthetic)
    assert not is_synthetic(ONE)


@pytest.mark.slow
@pytest.mark.reaches("docs/", "models/", "recordings/")
def test_zones_are_as_tight_as_asked_for_and_targets_follow_from_ample_memory() -> None:
    synthetic = make_synthetic_scenarios([ONE, TWO], COMPOSING, SETTINGS, seed=2)
    low, high = COMPOSING.zone_ratio
    for twin in synthetic:
        demand_pages = 40_000 + 90_000 * len(twin.scenario.slots)
        assert low - 1e-3 <= twin.scenario.zone_bytes / PAGE_BYTES / demand_pages <= high + 1e-3
    p99_ms = measure_ample(synthetic, SETTINGS, seed=5).p99_ms
    ratios = np.array([twin.scenario.slo_ms for twin in synthetic]) / p99_ms
    least, most = COMPOSING.target_ratio
    assert 0.85 * least < ratios.min() < 2.0 < ratios.max() < 1.15 * most


def test_applications_and_programs_come_in_other_sizes_at_the_same_utilisation() -> None:
    varied = replace(COMPOSING, size_ratio=(0.5, 2.0), service_ratio=(0.25, 4.0))
    own = ONE.scenario.protected
    sizes, services, programs = [], [], []
    for twin in make_synthetic_scenarios([ONE, TWO], varied, SETTINGS, seed=1)[::2]:
        protected = twin.scenario.protected
        size, service = protected.file_pages / own.file_pages, protected.service_s / own.service_s
        for pages in ("anon_pages", "touch_anon_pages", "touch_file_pages"):
            assert getattr(protected, pages) == pytest.approx(size * getattr(own, pages))
        busy = protected.request_rate_per_s * protected.service_s
        assert busy == pytest.approx(own.request_rate_per_s * own.service_s)
        sizes.append(size)
        services.append(service)
        programs += [slot.anon_pages[0] / HOG.anon_pages[0] for slot in twin.scenario.slots]
        demand_pages = (
            protected.anon_pages
            + protected.file_pages
            + sum(max(slot.anon_pages) for slot in twin.scenario.slots)
        )
        low, high = varied.zone_ratio
        assert low - 1e-3 <= twin.scenario.zone_bytes / PAGE_BYTES / demand_pages <= high + 1e-3
    for ratios, (least, most) in (
        (sizes, varied.size_ratio),
        (programs, varied.size_ratio),
        (services, varied.service_ratio),
    ):
        assert least <= min(ratios) < 1.0 < max(ratios) <= most
        assert len(set(ratios)) == len(ratios), "two ratios are equal"


@pytest.mark.slow
@pytest.mark.reaches("docs/", "models/", "recordings/")
def test_touch_scales_and_miss_exponents_vary_within_their_ranges() -> None:
    varied = replace(COMPOSING, per_twin=40, touch_ratio=(0.1, 10.0), miss_ratio=(0.5, 2.5))
    fitted = {"one-a": 1.0, "one-b": 2.0}
    touched, missed = [], []
    for twin in make_synthetic_scenarios([ONE], varied, SETTINGS, seed=3):
        for place, program in enumerate(twin.scenario.slots):
            draw = twin.draws[0]
            touched.append(getattr(draw, f"slot{place}_touch_scale") / fitted[program.name])
            missed.append(getattr(draw, f"slot{place}_miss_exponent") / 0.8)
    for ratios, (least, most) in ((touched, varied.touch_ratio), (missed, varied.miss_ratio)):
        assert least <= min(ratios) < 1.3 * least
        assert most / 1.3 < max(ratios) <= most
        assert len(set(ratios)) == len(ratios), "two ratios are equal"
    lean = make_synthetic_scenarios(
        [ONE], replace(COMPOSING, touch_ratio=(1e-3, 1e-3)), SETTINGS, seed=3
    )
    assert lean[0].draws[0].slot0_touch_scale == RANGES["slot0_touch_scale"].low


@pytest.mark.slow
@pytest.mark.reaches("docs/", "models/", "recordings/")
def test_request_rates_and_shares_of_file_pages_vary_within_their_ranges() -> None:
    varied = replace(COMPOSING, per_twin=40, rate_ratio=(0.7, 1.3), refiled_share=0.5)
    own = ONE.scenario.protected
    rates, refiled = [], []
    for twin in make_synthetic_scenarios([ONE], varied, SETTINGS, seed=3):
        protected = twin.scenario.protected
        rates.append(protected.request_rate_per_s / own.request_rate_per_s)
        for anon, file in (("anon_pages", "file_pages"), ("touch_anon_pages", "touch_file_pages")):
            together = getattr(protected, anon) + getattr(protected, file)
            assert together == pytest.approx(getattr(own, anon) + getattr(own, file))
        if protected.file_pages != own.file_pages:
            refiled.append(protected.file_pages / (protected.anon_pages + protected.file_pages))
            touched = protected.touch_file_pages + protected.touch_anon_pages
            assert protected.touch_file_pages / touched == pytest.approx(refiled[-1])
        assert protected.cold_pages == own.cold_pages
    assert 0.7 <= min(rates) < 0.85
    assert 1.15 < max(rates) <= 1.3
    assert 8 < len(refiled) < 32
    assert min(refiled) < 0.2
    assert max(refiled) > 0.7


@pytest.mark.slow
@pytest.mark.reaches("docs/", "models/", "recordings/")
def test_some_applications_lose_pages_that_they_seldom_touch() -> None:
    varied = replace(COMPOSING, per_twin=40, idle_loss_chance=0.5)
    own = ONE.scenario.protected
    assert own.cold_pages == 0.0
    losing = []
    for twin in make_synthetic_scenarios([ONE], varied, SETTINGS, seed=3):
        protected = twin.scenario.protected
        assert protected.file_pages + protected.cold_pages == pytest.approx(own.file_pages)
        touched_per_s = protected.touch_cold_pages * protected.request_rate_per_s
        if protected.idle_loss_pages_per_s == 0.0:
            assert protected == own
            continue
        losing.append(protected.idle_loss_pages_per_s / touched_per_s)
        assert 0.02 <= protected.cold_pages / own.file_pages <= 0.2
        assert 5.0 <= protected.cold_pages / touched_per_s <= 40.0
    assert 10 < len(losing) < 30
    assert 0.05 <= min(losing) < 0.1
    assert 0.3 < max(losing) <= 0.4


@pytest.mark.slow
@pytest.mark.reaches("docs/", "models/", "recordings/")
def test_the_same_seed_makes_the_same_scenarios(synthetic: tuple[FittedTwin, ...]) -> None:
    again, other = (
        make_synthetic_scenarios([ONE, TWO], COMPOSING, SETTINGS, seed=seed) for seed in (1, 2)
    )
    assert again == synthetic
    assert other != synthetic


@pytest.mark.parametrize(
    "program",
    [replace(HOG, cores=1.9), replace(HOG, anon_pages=(1000.0,))],
    ids=["uses all processors", "needs hardly any memory"],
)
def test_programs_that_do_not_press_on_memory_are_left_out(program: SlotProgram) -> None:
    assert make_synthetic_scenarios([small_twin(program)], COMPOSING, SETTINGS, seed=1) == ()
