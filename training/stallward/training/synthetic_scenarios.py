"""Scenarios that nobody recorded, put together from those that were.

A policy that has seen seven applications and their neighbours knows these seven. Here each
application meets neighbours of others, in other numbers and in zones of other sizes: domain
randomisation over the make-up of a node, beside that over fitted parameters and nuisance. The
parameters of an application or of a background program are what was fitted with it; both come
half to twice as large, the application with shorter or longer service, and a program with other
habits: how much of its memory it touches, and whether what it lacks is what it needs.
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
"""Of all programs together: more would slow the application down with any memory."""
_LEAST_PAGES: Final = 100 * 256
"""Programs that together want less are no pressure."""
_TRIES: Final = 1000
_MARK: Final = "application_of"
"""Only composed twins say this of where they come from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Composing:
    """How scenarios are put together."""

    per_twin: int = 3
    """For each twin; 0 for none."""
    zone_ratio: tuple[float, float] = (0.58, 0.8)
    """Memory of a zone, over what all in it want at most; shipped scenarios have 0.60 to 0.76."""
    target_ratio: tuple[float, float] = (1.1, 3.5)
    """The target, over the twin's p99 with ample memory; 1.1 to 3.7 with shipped scenarios: a
    node's p99 has stalls in it that no memory explains."""
    size_ratio: tuple[float, float] = (0.5, 2.0)
    """Memory of the application and of each program, times what was fitted: another version, or
    other data, of the same."""
    touch_ratio: tuple[float, float] = (0.1, 10.0)
    """Pages a program touches at full speed, times what was fitted. One gets on at its floor,
    another stands still there and keeps the disk busy: that can only be tried."""
    miss_ratio: tuple[float, float] = (0.5, 2.5)
    """Exponent of a program's misses, times what was fitted: whether what it lacks is what it
    seldom needs."""
    refiled_share: float = 0.3
    """Chance that an application keeps another part of its memory in files: what one maps another
    allocates, and the two are lost and won back in other ways."""
    idle_loss_chance: float = 0.3
    """Chance that the kernel takes what nobody has touched for a while, so that an application
    reads files now and then whatever is decided, and waits where others read much."""
    idle_loss_share: tuple[float, float] = (0.05, 0.4)
    """Pages lost then, over those touched of the seldom ones."""
    tail_share: tuple[float, float] = (0.02, 0.2)
    """Seldom pages of an application that is not known to have some, over all its files'."""
    tail_every_s: tuple[float, float] = (5.0, 40.0)
    """How often each of these is touched."""
    rate_ratio: tuple[float, float] = (0.7, 1.3)
    """Requests, times what was fitted."""
    service_ratio: tuple[float, float] = (0.5, 2.0)
    """Service time of the application, times what was fitted, at the same utilisation."""


def compose(
    twins: Sequence[FittedTwin], composing: Composing, settings: SimulationSettings, *, seed: int
) -> tuple[FittedTwin, ...]:
    """New twins: the application of one, programs of any.

    Args:
        twins: What they are put together from; their applications take turns.
        composing: How.
        settings: Of the simulation in which their targets are measured.
        seed: Everything random follows from it.

    Returns:
        None where there are no programs that press on memory and leave the processors alone.
    """
    rng = np.random.default_rng(seed)
    made = []
    for number in range(composing.per_twin * len(twins)):
        chosen = _programs(twins, rng)
        if chosen:
            made.append(_one(twins[number % len(twins)], number, chosen, composing, rng))
    if not made:
        return ()
    ample = measure_ample(made, replace(settings, nuisance=NO_NUISANCE), seed=seed)
    low, high = np.log(composing.target_ratio)
    targets_ms = ample.p99_ms * np.exp(rng.uniform(low, high, len(made)))
    return tuple(
        replace(twin, scenario=replace(twin.scenario, slo_ms=float(target_ms)))
        for twin, target_ms in zip(made, targets_ms, strict=True)
    )


def is_synthetic(twin: FittedTwin) -> bool:
    """Whether nobody recorded its scenario."""
    return _MARK in twin.provenance


def _one(
    twin: FittedTwin,
    number: int,
    chosen: Sequence[tuple[FittedTwin, int]],
    composing: Composing,
    rng: np.random.Generator,
) -> FittedTwin:
    protected = _resized(twin.scenario.protected, composing, rng)
    programs = tuple(
        _of_size(source.scenario.slots[slot], _between(composing.size_ratio, rng))
        for source, slot in chosen
    )
    habits = [
        {
            "miss_exponent": _between(composing.miss_ratio, rng),
            "touch_scale": _between(composing.touch_ratio, rng),
        }
        for _ in chosen
    ]
    wanted_pages = _pages(protected) + sum(_peak_pages(p) for p in programs)
    ratio = rng.uniform(*composing.zone_ratio)
    return FittedTwin(
        scenario=replace(
            twin.scenario,
            name=f"composed-{number + 1}",
            protected=protected,
            slots=programs,
            zone_bytes=round(ratio * wanted_pages) * PAGE_BYTES,
        ),
        draws=tuple(_draw(draw, chosen, habits, rng) for draw in twin.draws),
        weights=twin.weights,
        provenance={
            _MARK: twin.scenario.name,
            "programs_of": [
                f"{source.scenario.name}/{program.name}"
                for (source, _), program in zip(chosen, programs, strict=True)
            ],
        },
    )


def _between(bounds: tuple[float, float], rng: np.random.Generator) -> float:
    """A number between two, evenly over the logarithm."""
    return float(np.exp(rng.uniform(*np.log(bounds))))


def _resized(
    protected: ProtectedProgram, composing: Composing, rng: np.random.Generator
) -> ProtectedProgram:
    """An application with more or less memory and work for a request."""
    size, service = _between(composing.size_ratio, rng), _between(composing.service_ratio, rng)
    rate = rng.uniform(*composing.rate_ratio) / service
    share = float(rng.random()) if rng.random() < composing.refiled_share else None
    pages = _refiled(protected.anon_pages, protected.file_pages, share)
    touch = _refiled(protected.touch_anon_pages, protected.touch_file_pages, share)
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
        _losing(resized, composing, rng) if rng.random() < composing.idle_loss_chance else resized
    )


def _losing(
    protected: ProtectedProgram, composing: Composing, rng: np.random.Generator
) -> ProtectedProgram:
    """An application that loses some of what it seldom touches, though nothing presses."""
    rate_per_s = protected.request_rate_per_s
    cold, touch, file = protected.cold_pages, protected.touch_cold_pages, protected.file_pages
    if cold == 0.0:
        cold = _between(composing.tail_share, rng) * file
        touch = cold / (_between(composing.tail_every_s, rng) * rate_per_s)
        file -= cold
    return replace(
        protected,
        file_pages=file,
        cold_pages=cold,
        touch_cold_pages=touch,
        idle_loss_pages_per_s=_between(composing.idle_loss_share, rng) * touch * rate_per_s,
    )


def _refiled(anon: float, file: float, share: float | None) -> tuple[float, float]:
    """The same pages, of which a share is files; as they are for ``None``."""
    if share is None:
        return anon, file
    return (1.0 - share) * (anon + file), share * (anon + file)


def _of_size(program: SlotProgram, size: float) -> SlotProgram:
    """A program with more or less memory."""
    return replace(
        program,
        anon_pages=tuple(pages * size for pages in program.anon_pages),
        file_pages=tuple(pages * size for pages in program.file_pages),
    )


def _programs(
    twins: Sequence[FittedTwin], rng: np.random.Generator
) -> list[tuple[FittedTwin, int]]:
    """Some programs, each by its twin and slot; none where no choice of them will do."""
    pool = [(twin, slot) for twin in twins for slot in range(len(twin.scenario.slots))]
    for _ in range(_TRIES):
        count = int(rng.integers(1, min(SLOTS, len(pool)) + 1))
        chosen = [pool[i] for i in rng.choice(len(pool), count, replace=False)]
        programs = [twin.scenario.slots[slot] for twin, slot in chosen]
        presses = sum(_peak_pages(p) for p in programs) >= _LEAST_PAGES
        if presses and sum(p.cores for p in programs) <= _MOST_CORES:
            return chosen
    return []


def _draw(
    draw: TwinParameters,
    chosen: Sequence[tuple[FittedTwin, int]],
    habits: Sequence[Mapping[str, float]],
    rng: np.random.Generator,
) -> TwinParameters:
    """An application's parameters, with those of each program from where it was fitted."""
    own = {}
    for place, ((twin, slot), ratios) in enumerate(zip(chosen, habits, strict=True)):
        source = twin.draws[int(twin.choose(rng, 1)[0])]
        for what, ratio in ratios.items():
            name = f"slot{place}_{what}"
            value = ratio * getattr(source, f"slot{slot}_{what}")
            own[name] = min(max(value, RANGES[name].low), RANGES[name].high)
    return replace(draw, **own)


def _pages(protected: ProtectedProgram) -> float:
    return protected.anon_pages + protected.file_pages + protected.cold_pages


def _peak_pages(program: SlotProgram) -> float:
    files = program.file_pages or (0.0,) * len(program.anon_pages)
    return max(anon + file for anon, file in zip(program.anon_pages, files, strict=True))
