"""Synthetic scenarios for training, put together from the fitted twins of recorded scenarios.

A policy trained on a few recorded scenarios alone learns them by heart. Here each application runs
beside background programs of other scenarios, in other numbers and in zones of other sizes. This
is domain randomisation over what runs on a node, in addition to that over fitted parameters and
nuisance. An application and a background program keep the parameters that were fitted with them.
Both are scaled to between half and twice their size. The application gets a shorter or longer
service time; a program touches more or less of its memory, and misses more or less of what it
lacks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from stallward.agent.desired import SLOTS
from stallward.env.simulation.constraints import measure_ample
from stallward.env.simulation.nuisance import NO_NUISANCE
from stallward.env.simulation.simulation import SimulationSettings
from stallward.env.twin.inputs.exogenous import PAGE_BYTES, ProtectedProgram, SlotProgram
from stallward.env.twin.inputs.fitted import FittedTwin
from stallward.env.twin.inputs.parameters import RANGES, TwinParameters

_MOST_CORES: Final = 1.5
"""The most cores that all programs may use together.

More would slow the application down even with ample memory.
"""
_LEAST_PAGES: Final = 100 * 256
"""Programs that together need fewer pages cause no memory pressure."""
_TRIES: Final = 1000
_SYNTHETIC_KEY: Final = "application_of"
"""A key in the provenance of synthetic twins only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyntheticScenarioSettings:
    """The number of synthetic scenarios and the ranges that they are drawn from."""

    per_twin: int = 3
    """Synthetic scenarios per twin; 0 for none."""
    zone_ratio: tuple[float, float] = (0.58, 0.8)
    """Memory of the zone, relative to the peak demand of everything in it. Shipped scenarios have
    0.60 to 0.76."""
    target_ratio: tuple[float, float] = (1.1, 3.5)
    """The latency target, relative to the twin's p99 with ample memory. Shipped scenarios have 1.1
    to 3.7, because the p99 of a real node contains stalls that memory does not explain."""
    size_ratio: tuple[float, float] = (0.5, 2.0)
    """Memory of the application and of each program, relative to the fitted size: the same
    program in another version or with other data."""
    touch_ratio: tuple[float, float] = (0.1, 10.0)
    """Pages that a program touches at full speed, relative to the fitted number. At its floor one
    program makes progress, and another stalls and keeps the disk busy; a policy can find out only
    by trying."""
    miss_ratio: tuple[float, float] = (0.5, 2.5)
    """Exponent of a program's misses, relative to the fitted one: how often it needs the pages
    that it lacks."""
    refiled_share: float = 0.3
    """Probability that another share of the application's memory is file pages. Anonymous and file
    pages are reclaimed and read back in different ways."""
    idle_loss_chance: float = 0.3
    """Probability that the kernel reclaims pages that were idle for a while. The application then
    reads files now and then under every action, and waits where other programs read much."""
    idle_loss_share: tuple[float, float] = (0.05, 0.4)
    """Pages reclaimed that way, relative to the cold pages touched."""
    tail_share: tuple[float, float] = (0.02, 0.2)
    """Cold pages given to an application that was fitted with none, as a share of its file
    pages."""
    tail_every_s: tuple[float, float] = (5.0, 40.0)
    """The interval at which each of these cold pages is touched."""
    rate_ratio: tuple[float, float] = (0.7, 1.3)
    """The request rate, relative to the fitted one."""
    service_ratio: tuple[float, float] = (0.5, 2.0)
    """Service time of the application, relative to the fitted one, at the same utilisation."""


def make_synthetic_scenarios(
    twins: Sequence[FittedTwin],
    settings: SyntheticScenarioSettings,
    simulation: SimulationSettings,
    *,
    seed: int,
) -> tuple[FittedTwin, ...]:
    """Make twins of synthetic scenarios: the application of one twin, programs of any twins.

    Args:
        twins: The fitted twins to take applications and programs from; applications are taken in
            turn.
        settings: How many scenarios to make, and from which ranges.
        simulation: The settings of the simulation in which the latency targets are measured.
        seed: The seed of everything random.

    Returns:
        The twins; empty if no choice of programs presses on memory without overloading the CPUs.
    """
    rng = np.random.default_rng(seed)
    synthetic = []
    for number in range(settings.per_twin * len(twins)):
        programs = _choose_programs(twins, rng)
        if programs:
            application = twins[number % len(twins)]
            synthetic.append(_synthetic_twin(application, number, programs, settings, rng))
    if not synthetic:
        return ()
    ample = measure_ample(synthetic, replace(simulation, nuisance=NO_NUISANCE), seed=seed)
    low, high = np.log(settings.target_ratio)
    targets_ms = ample.p99_ms * np.exp(rng.uniform(low, high, len(synthetic)))
    return tuple(
        replace(twin, scenario=replace(twin.scenario, slo_ms=float(target_ms)))
        for twin, target_ms in zip(synthetic, targets_ms, strict=True)
    )


def is_synthetic(twin: FittedTwin) -> bool:
    """Whether the scenario of a twin is synthetic, not recorded."""
    return _SYNTHETIC_KEY in twin.provenance


def _synthetic_twin(
    twin: FittedTwin,
    number: int,
    chosen: Sequence[tuple[FittedTwin, int]],
    settings: SyntheticScenarioSettings,
    rng: np.random.Generator,
) -> FittedTwin:
    protected = _resize_application(twin.scenario.protected, settings, rng)
    programs = tuple(
        _resize_program(source.scenario.slots[slot], _between(settings.size_ratio, rng))
        for source, slot in chosen
    )
    parameter_ratios = [
        {
            "miss_exponent": _between(settings.miss_ratio, rng),
            "touch_scale": _between(settings.touch_ratio, rng),
        }
        for _ in chosen
    ]
    needed_pages = _pages(protected) + sum(_peak_pages(p) for p in programs)
    ratio = rng.uniform(*settings.zone_ratio)
    return FittedTwin(
        scenario=replace(
            twin.scenario,
            name=f"composed-{number + 1}",
            protected=protected,
            slots=programs,
            zone_bytes=round(ratio * needed_pages) * PAGE_BYTES,
        ),
        draws=tuple(_draw(draw, chosen, parameter_ratios, rng) for draw in twin.draws),
        weights=twin.weights,
        provenance={
            _SYNTHETIC_KEY: twin.scenario.name,
            "programs_of": [
                f"{source.scenario.name}/{program.name}"
                for (source, _), program in zip(chosen, programs, strict=True)
            ],
        },
    )


def _between(bounds: tuple[float, float], rng: np.random.Generator) -> float:
    """Draw a number between two bounds, uniformly in the logarithm."""
    return float(np.exp(rng.uniform(*np.log(bounds))))


def _resize_application(
    protected: ProtectedProgram, settings: SyntheticScenarioSettings, rng: np.random.Generator
) -> ProtectedProgram:
    """Change the memory, the request rate and the service time of an application."""
    size, service = _between(settings.size_ratio, rng), _between(settings.service_ratio, rng)
    rate = rng.uniform(*settings.rate_ratio) / service
    share = float(rng.random()) if rng.random() < settings.refiled_share else None
    pages = _split_pages(protected.anon_pages, protected.file_pages, share)
    touch = _split_pages(protected.touch_anon_pages, protected.touch_file_pages, share)
    resized = replace(
        protected,
        request_rate_per_s=protected.request_rate_per_s * rate,
        service_s=protected.service_s * service,
        anon_pages=pages[0] * size,
        file_pages=pages[1] * size,
        cold_pages=protected.cold_pages * size,
        touch_anon_pages=touch[0] * size,
        touch_file_pages=touch[1] * size,
        touch_cold_pages=protected.touch_cold_pages * size,
        idle_loss_pages_per_s=protected.idle_loss_pages_per_s * size,
    )
    return (
        _add_idle_loss(resized, settings, rng)
        if rng.random() < settings.idle_loss_chance
        else resized
    )


def _add_idle_loss(
    protected: ProtectedProgram, settings: SyntheticScenarioSettings, rng: np.random.Generator
) -> ProtectedProgram:
    """Make an application lose some of its cold pages even without memory pressure."""
    rate_per_s = protected.request_rate_per_s
    cold, touch, file = protected.cold_pages, protected.touch_cold_pages, protected.file_pages
    if cold == 0.0:
        cold = _between(settings.tail_share, rng) * file
        touch = cold / (_between(settings.tail_every_s, rng) * rate_per_s)
        file -= cold
    return replace(
        protected,
        file_pages=file,
        cold_pages=cold,
        touch_cold_pages=touch,
        idle_loss_pages_per_s=_between(settings.idle_loss_share, rng) * touch * rate_per_s,
    )


def _split_pages(anon: float, file: float, share: float | None) -> tuple[float, float]:
    """Split pages again, with ``share`` of them file pages; ``None`` leaves them as they are."""
    if share is None:
        return anon, file
    return (1.0 - share) * (anon + file), share * (anon + file)


def _resize_program(program: SlotProgram, size: float) -> SlotProgram:
    """Multiply the memory of a program by ``size``."""
    return replace(
        program,
        anon_pages=tuple(pages * size for pages in program.anon_pages),
        file_pages=tuple(pages * size for pages in program.file_pages),
    )


def _choose_programs(
    twins: Sequence[FittedTwin], rng: np.random.Generator
) -> list[tuple[FittedTwin, int]]:
    """Choose programs, each as its twin and slot; empty if no choice meets the conditions."""
    pool = [(twin, slot) for twin in twins for slot in range(len(twin.scenario.slots))]
    for _ in range(_TRIES):
        count = int(rng.integers(1, min(SLOTS, len(pool)) + 1))
        chosen = [pool[i] for i in rng.choice(len(pool), count, replace=False)]
        programs = [twin.scenario.slots[slot] for twin, slot in chosen]
        presses_on_memory = sum(_peak_pages(p) for p in programs) >= _LEAST_PAGES
        if presses_on_memory and sum(p.cores for p in programs) <= _MOST_CORES:
            return chosen
    return []


def _draw(
    draw: TwinParameters,
    chosen: Sequence[tuple[FittedTwin, int]],
    parameter_ratios: Sequence[Mapping[str, float]],
    rng: np.random.Generator,
) -> TwinParameters:
    """Take the application's parameters, and those of each program from its own twin."""
    slot_parameters = {}
    for place, ((twin, slot), ratios) in enumerate(zip(chosen, parameter_ratios, strict=True)):
        source = twin.draws[int(twin.choose(rng, 1)[0])]
        for parameter, ratio in ratios.items():
            name = f"slot{place}_{parameter}"
            value = ratio * getattr(source, f"slot{slot}_{parameter}")
            slot_parameters[name] = min(max(value, RANGES[name].low), RANGES[name].high)
    return replace(draw, **slot_parameters)


def _pages(protected: ProtectedProgram) -> float:
    return protected.anon_pages + protected.file_pages + protected.cold_pages


def _peak_pages(program: SlotProgram) -> float:
    files = program.file_pages or (0.0,) * len(program.anon_pages)
    return max(anon + file for anon, file in zip(program.anon_pages, files, strict=True))
