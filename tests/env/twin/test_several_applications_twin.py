"""A twin with several applications: they share memory, CPUs and disk, and none is another's."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from stallward.agent.applications import farthest, joint_latency
from stallward.agent.desired import ApplicationDesire, DesiredState
from stallward.agent.observation.raw import NODE, to_raw
from stallward.agent.sample import Sample
from stallward.env.errors import TwinError
from stallward.env.simulation.nuisance import NO_NUISANCE
from stallward.env.simulation.simulation import Simulation, SimulationSettings
from stallward.env.twin.batch import TwinBatch
from stallward.env.twin.inputs.exogenous import (
    MOST_APPLICATIONS,
    Exogenous,
    OtherApplication,
    ProtectedProgram,
    SlotProgram,
    scenario_from_json,
    scenario_to_json,
)
from stallward.env.twin.inputs.fitted import FittedTwin, twin_from_json, twin_to_json
from stallward.env.twin.inputs.parameters import (
    PARAMETER_NAMES,
    TwinParameters,
    from_unit,
    to_array,
)
from stallward.env.twin.node import TwinNode
from stallward.env.twin.physics.latency import pooled_quantiles
from stallward.env.twin.physics.pages import ANON

Array = NDArray[np.float64]

CACHE = ProtectedProgram(
    request_rate_per_s=300.0, service_s=2e-4, anon_pages=70_000.0, touch_anon_pages=200.0
)
WEB = ProtectedProgram(
    request_rate_per_s=100.0,
    service_s=5e-4,
    anon_pages=500.0,
    file_pages=40_000.0,
    cold_pages=2_000.0,
    touch_anon_pages=30.0,
    touch_file_pages=800.0,
    touch_cold_pages=2.0,
)
HOG = SlotProgram(name="hog", units_per_s=10.0, anon_pages=(100_000.0,))
ALONE = Exogenous(
    name="cache",
    zone_bytes=560 << 20,
    swap_bytes=2 << 30,
    slo_ms=2.0,
    protected=CACHE,
    slots=(HOG,),
)
BOTH = replace(
    ALONE,
    name="cache and web",
    protected_name="cache",
    others=(OtherApplication(name="web", slo_ms=4.0, protected=WEB),),
)
QUIET = TwinParameters(device_sigma=0.0)
"""Without chance that belongs to the node and not to an application."""


def started(
    scenarios: tuple[Exogenous, ...], which: list[int], parameters: Array | None = None
) -> TwinBatch:
    twin = TwinBatch(scenarios, len(which), seed=4)
    values = to_array([QUIET] * len(which)) if parameters is None else parameters
    twin.reset(np.ones(len(which), dtype=bool), np.array(which), values)
    return twin


def run(twin: TwinBatch, ticks: int) -> TwinBatch:
    paused, limits = np.zeros((4, twin.batch), dtype=bool), np.full((4, twin.batch), np.inf)
    for _ in range(ticks):
        twin.set_levers(paused, limits)
        twin.advance()
    return twin


def p95s_ms(scenario: Exogenous, ticks: int = 300) -> list[float]:
    """The p95 of each application over eight nodes."""
    twin = run(started((scenario,), [0] * 8), ticks)
    applications = range(1 + len(scenario.others))
    pooled = (twin.pooled_of(a).sum(axis=1, keepdims=True) for a in applications)
    return [float(pooled_quantiles(histogram, (0.95,))[0, 0]) for histogram in pooled]


def test_pages_are_conserved_over_all_applications_and_groups() -> None:
    rng = np.random.default_rng(1)
    third = OtherApplication(name="second cache", slo_ms=3.0, protected=CACHE)
    scenario = replace(BOTH, swap_bytes=300 << 20, others=(*BOTH.others, third))
    batch = 16
    each = [from_unit(rng.random((len(PARAMETER_NAMES), batch))) for _ in range(MOST_APPLICATIONS)]
    twin = started((scenario,), [0] * batch, np.array(each))
    moved = np.zeros(batch)
    for _ in range(60):
        paused = rng.random((4, batch)) < 0.3
        limits = np.where(rng.random((4, batch)) < 0.5, np.inf, rng.uniform(4e3, 1e5, (4, batch)))
        twin.set_levers(paused, limits, float(rng.choice([0.0, 60.0, 200.0])))
        twin.advance()
        nodes, others = twin.nodes, twin.applications[1:]
        resident = [nodes.resident, *(own.resident[:1] for own in others)]
        wanted = [nodes.wanted, *(own.wanted[:1] for own in others)]
        held = sum(pages.sum(axis=(0, 1)) for pages in resident)
        assert (held <= nodes.zone_pages * (1 + 1e-9)).all(), "more pages than the zone has"
        swapped = sum(
            (owned[:, ANON] - pages[:, ANON]).sum(axis=0)
            for owned, pages in zip(wanted, resident, strict=True)
        )
        assert (swapped <= nodes.swap_pages + 1e-3).all(), "more swapped than swap holds"
        for owned, pages in zip(wanted, resident, strict=True):
            assert (pages >= 0.0).all()
            assert (pages <= owned + 1e-6).all(), "pages in memory without an owner"
        moved = np.maximum(moved, swapped)
        for own in others:
            assert (own.resident[1:] == 0.0).all(), "a further application has no slots"
    assert (moved > 0.0).any(), "nothing was swapped, so nothing was tried"


def test_an_application_alone_is_as_in_the_twin_of_one_bit_by_bit() -> None:
    alone = run(started((ALONE,), [0] * 5), 80)
    beside = run(started((ALONE, BOTH), [0, 0, 0, 1, 0]), 80)
    for name in ("resident", "wanted", "probe_ms", "reported", "psi_some_us", "psi_full_us",
                 "cpu_us", "units", "backlog_s", "cpu_stall_us", "swap_in_pages", "missed"):  # fmt: skip
        mine, other = getattr(alone.nodes, name), getattr(beside.nodes, name)
        for node in (0, 1, 2, 4):
            assert mine[..., node].tobytes() == other[..., node].tobytes(), name
    assert (alone.nodes.resident[..., 3] != beside.nodes.resident[..., 3]).any()


def test_runs_repeat_and_do_not_depend_on_other_nodes() -> None:
    one, other = run(started((BOTH,), [0] * 3), 60), run(started((BOTH,), [0] * 11), 60)
    for mine, theirs in zip(one.applications, other.applications, strict=True):
        for name in ("resident", "probe_ms", "reported", "refault_pages"):
            assert getattr(mine, name).tobytes() == getattr(theirs, name)[..., :3].tobytes()
    copied = started((BOTH,), [0] * 3)
    copied.copy_from(other, np.arange(3))
    copied.world.keys[:] = one.world.keys
    for twin in (one, copied):
        run(twin, 20)
    for mine, theirs in zip(one.applications, copied.applications, strict=True):
        assert mine.probe_ms.tobytes() == theirs.probe_ms.tobytes()


def test_the_order_of_applications_only_permutes_what_they_get() -> None:
    swapped = replace(
        BOTH,
        slo_ms=4.0,
        protected=WEB,
        protected_name="web",
        others=(OtherApplication(name="cache", slo_ms=2.0, protected=CACHE),),
    )
    ours, theirs = started((BOTH,), [0] * 4), started((swapped,), [0] * 4)
    first, second = ours.world.places[:2]
    keys = theirs.world.keys
    keys[first : first + 8] = ours.world.keys[second : second + 8]
    keys[second : second + 8] = ours.world.keys[first : first + 8]
    for twin in (ours, theirs):
        run(twin, 50)
    for mine, other in ((0, 1), (1, 0)):
        one, same = ours.applications[mine], theirs.applications[other]
        for name in ("probe_ms", "refault_pages", "major_faults", "cpu_us", "reported"):
            mine_values, other_values = getattr(one, name), getattr(same, name)
            if mine_values.shape[0] == 5 and name != "reported":  # slots are in the first records
                mine_values, other_values = mine_values[:1], other_values[:1]
            np.testing.assert_allclose(other_values, mine_values, rtol=1e-6, err_msg=name)
        np.testing.assert_allclose(same.resident[0], one.resident[0], rtol=1e-6)
    np.testing.assert_allclose(theirs.nodes.units, ours.nodes.units, rtol=1e-6)
    assert (ours.nodes.resident[0] != ours.applications[1].resident[0]).any()


def test_more_background_never_helps_and_neither_does_another_application() -> None:
    def with_hog(pages: float) -> Exogenous:
        return replace(BOTH, slots=(replace(HOG, anon_pages=(pages,)),))

    none, some, much = (p95s_ms(with_hog(pages)) for pages in (1_000.0, 60_000.0, 120_000.0))
    for application in (0, 1):
        assert none[application] <= 1.02 * some[application]
        assert some[application] <= 1.02 * much[application]
        assert much[application] > 1.1 * none[application]
    small = replace(BOTH, zone_bytes=330 << 20, slots=())
    (alone,) = p95s_ms(replace(small, others=()))
    beside, _ = p95s_ms(small)
    assert beside > 1.1 * alone, "they take memory and disk from each other"


def test_applications_compete_for_cpus() -> None:
    busy = replace(WEB, request_rate_per_s=2_500.0, workers=2.0, touch_file_pages=0.0)
    ample = replace(BOTH, zone_bytes=2 << 30, slots=())
    crowded = replace(ample, others=(OtherApplication(name="busy", slo_ms=4.0, protected=busy),))
    calm, slow = (run(started((scenario,), [0] * 8), 60) for scenario in (ample, crowded))
    assert slow.nodes.probe_ms.mean() > 1.1 * calm.nodes.probe_ms.mean()
    assert (slow.nodes.cpu_stall_us > calm.nodes.cpu_stall_us).all()


def walked(node: TwinNode, ticks: int) -> list[Sample]:
    samples = []
    for _ in range(ticks):
        samples.append(node.sample())
        node.step(DesiredState())
    return samples


@pytest.mark.parametrize(
    ("cache_ms", "web_ms", "behind"), [(2.0, 4.0, "cache"), (2000.0, 0.2, "web")]
)
def test_a_sample_joins_the_applications_as_a_node_does(
    cache_ms: float, web_ms: float, behind: str
) -> None:
    web = replace(BOTH.others[0], slo_ms=web_ms)
    node = TwinNode(replace(BOTH, slo_ms=cache_ms, others=(web,)), QUIET, seed=3)
    samples = walked(node, 120)
    chosen = set()
    for before, sample in pairwise(samples[40:]):
        first, second = sample.applications
        assert [(one.name, one.slo_ms) for one in (first, second)] == [
            ("cache", cache_ms),
            ("web", web_ms),
        ]
        assert sample.latency == joint_latency(sample.applications, cache_ms)
        worst = farthest(sample.applications)
        assert worst is not None
        chosen.add(worst.name)
        held = [one.group.memory_usage_bytes or 0 for one in (first, second)]
        assert sample.protected.memory_usage_bytes == sum(held)
        grown = [
            (after.group.psi.memory_some_us or 0) - (then.group.psi.memory_some_us or 0)
            for then, after in zip(before.applications, sample.applications, strict=True)
        ]
        stalled = (sample.protected.psi.memory_some_us or 0) - (
            before.protected.psi.memory_some_us or 0
        )
        assert stalled == max(grown)
    assert behind in chosen, "the one that is farthest from its target stands for both"
    assert node.sample() == node.sample(), "what grew is counted once"
    assert node.requests(0).ok.any()
    assert len(node.requests(0).ok) > len(node.requests(1).ok) > 0


def test_the_frame_of_policies_is_that_of_the_sample() -> None:
    node = TwinNode(BOTH, QUIET, seed=3)
    first = to_raw(node.sample())
    for _ in range(15):
        walked(node, 7)
        mine, joined = to_raw(node.sample()), node.frame()
        for name, column in NODE.items():
            if "zone_psi" in name:
                continue  # reported in bursts
            value = mine.node[column]
            if "refault" in name or "major" in name or name.startswith("protected_psi"):
                value -= first.node[column]
            assert value == pytest.approx(joined.node[column], rel=1e-3, abs=40, nan_ok=True), name


def test_each_application_gets_its_own_part_of_what_is_guaranteed() -> None:
    node = TwinNode(BOTH, QUIET, seed=3, memory_low=True)
    node.step(
        DesiredState(
            protected_low_bytes=300 << 20,
            applications=(
                ApplicationDesire(low_bytes=200 << 20, swappiness=10),
                ApplicationDesire(low_bytes=100 << 20),
            ),
        )
    )
    cache, web = node._applications
    assert (cache.protected_swappiness[0], web.protected_swappiness[0]) == (10.0, 60.0)
    assert (cache.protected_low_pages[0], web.protected_low_pages[0]) == (51_200, 25_600)


def twin_of(scenario: Exogenous) -> FittedTwin:
    others = tuple((QUIET,) for _ in scenario.others)
    return FittedTwin(scenario=scenario, draws=(QUIET,), weights=(1.0,), others=others)


def test_a_second_is_met_only_when_every_application_meets_its_target() -> None:
    settings = SimulationSettings(ticks_per_action=1, nuisance=NO_NUISANCE, price=6.0)
    easy = replace(BOTH, slots=(), slo_ms=50.0)
    never = replace(easy, others=(replace(easy.others[0], slo_ms=1e-3),))
    missed = {}
    for scenario in (easy, never):
        simulation = Simulation([twin_of(scenario)], 8, settings, seed=1)
        simulation.reset(np.ones(8, dtype=bool))
        idle = np.zeros((8, len(simulation.table.sizes)), dtype=np.int64)
        results = [simulation.step(idle) for _ in range(60)]
        own = [records.missed for records in simulation.twin.applications[:2]]
        assert (results[-1].window_violated == np.maximum(*own)).all()
        assert not own[0].any(), "the first meets its target in both"
        missed[scenario.others[0].slo_ms] = results[-1]
    assert (missed[4.0].window_violated == 0.0).all()
    assert (missed[1e-3].window_violated == 1.0).all()
    assert (missed[1e-3].reward < missed[4.0].reward - 5.0).all(), "its price is paid in full"


def test_files_keep_several_applications_and_those_of_one_are_as_before() -> None:
    assert scenario_from_json(scenario_to_json(BOTH)) == BOTH
    assert {"others", "protected_name"}.isdisjoint(scenario_to_json(ALONE))
    usual = (TwinParameters(), TwinParameters(hiccup_share=0.01))
    twin = FittedTwin(scenario=BOTH, draws=usual, weights=(0.4, 0.6), others=(usual[::-1],))
    assert twin_from_json(twin_to_json(twin), "a twin") == twin
    assert "others" not in twin_to_json(twin_of(ALONE))


def test_what_a_twin_cannot_hold_is_refused() -> None:
    with pytest.raises(
        TwinError, match=f"5 protected applications, the twin holds {MOST_APPLICATIONS}"
    ):
        replace(BOTH, others=BOTH.others * MOST_APPLICATIONS)
    with pytest.raises(TwinError, match="target or service time below"):
        replace(BOTH, others=(replace(BOTH.others[0], slo_ms=0.0),))
    with pytest.raises(TwinError, match="1 further applications and parameters of 0"):
        FittedTwin(scenario=BOTH, draws=(QUIET,), weights=(1.0,))


def play() -> dict[str, Array]:
    """What the applications of some nodes are like after a while.

    Vectors compute a latency for an application that a node has not, too; nothing reads it.
    """
    twin = run(started((ALONE, BOTH), [1, 0, 1]), 60)
    names = ("resident", "probe_ms", "reported", "refault_pages", "cpu_us")
    return {
        f"{name}{a}": getattr(own, name)[..., own.has_application > 0.0]
        for a, own in enumerate(twin.applications)
        for name in names
    }


@pytest.mark.slow
@pytest.mark.timeout(900)  # everything may have to be compiled
@pytest.mark.reaches("env/stallward/env/twin/")
def test_it_has_the_same_numbers_without_vectors(tmp_path: Path) -> None:
    """With several applications a sum may differ by its last bit, as that of a decision may."""
    file = tmp_path / "plain.npz"
    code = (
        "import numba, sys\n"
        "numba.__version__ = '9.1.0'\n"
        "import numpy as np\n"
        f"sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from test_several_applications_twin import play\n"
        f"np.savez({str(file)!r}, **play())\n"
    )
    subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        check=True,
    )
    with np.load(file) as plain:
        for name, values in play().items():
            np.testing.assert_allclose(plain[name], values, rtol=1e-9, atol=1e-9, err_msg=name)
