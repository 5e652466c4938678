"""The exogenous description of a scenario, taken from its recordings.

Working sets and full-speed work rates come from the runs with memory for all (or, without one,
from the largest use seen), when programs come and go from the longest of them; the service time
from the runs without background.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from stallward.agent.desired import DEFAULT_FLOOR_BYTES, SLOTS
from stallward.env.errors import ScenarioError
from stallward.env.recording.recording import Recording
from stallward.env.recording.run_info import RunInfo
from stallward.env.scenario.file import scenario_from
from stallward.env.scenario.scenario import Scenario
from stallward.env.twin.inputs.exogenous import (
    PAGE_BYTES,
    Exogenous,
    ProtectedProgram,
)
from stallward.env.twin.physics.latency import Array
from stallward.training.errors import DatasetError
from stallward.training.twin_fit.exogenous_background import background_slot, growth_per_s, largest

_SLO_FACTOR: Final = 1.5
_POISSON_SPREAD: Final = 0.5
_CYCLES_S: Final = 60
"""Waves of a minute or a part of it come out whole."""
_MORE_THAN_CHANCE: Final = 4.0
_INACTIVE_SHARE: Final = 0.5
"""Where no file pages were seen."""
_FULL_RATIO: Final = 0.99
"""Of a zone's memory, from which it is full."""
_SHARES: Final = 41
"""Quantiles."""
_LEAST_TICKS: Final = 20
_LEAST_GROWTH: Final = 0.01
"""Share of its file pages that an application must add over a run for some to count as cold."""
_LONGEST_FILL: Final = 4.0
"""The cold set fills within so many lengths of a run at most."""
_UNPRESSED: Final = ("alone", "ample")
"""Conditions in which the application has all the memory it wants."""


def describe(name: str, recordings: Sequence[Recording]) -> Exogenous:
    """The twin's scenario of the recordings of one scenario.

    Without runs under pressure the ones with ample memory have to do.

    Raises:
        DatasetError: If there is no run of the application beside the background.
    """
    ample = [r for r in recordings if r.run.condition == "ample"]
    together = [r for r in recordings if r.run.condition == "together"] or ample
    if not together:
        raise DatasetError(
            f"There is no run of {name} with everything together.",
            next_step="Record it with `stallward record`.",
        )
    unpressed = ample + [r for r in recordings if r.run.condition == "background"]
    quiet = [r for r in recordings if r.run.condition == "alone"] or ample or together
    run = together[0].run
    largest = max((r.run for r in recordings), key=lambda run: len(run.slot_names))
    made_with = _made_with(run)
    names, floors = largest.slot_names[:SLOTS], _floors_bytes(largest, made_with)
    return Exogenous(
        name=name,
        zone_bytes=run.sandbox_bytes,
        swap_bytes=run.swap_bytes or 2 << 30,
        slo_ms=_slo_ms(run.slo_ms, ample or quiet),
        cores=float(max(run.node.cpu_count, 1)),
        slo_quantile=run.slo_quantile,
        memory_bytes=run.node.memory_total_bytes,
        inactive_file_shares=_inactive_file_shares(together),
        protected=replace(
            _protected(quiet, ample or quiet, together),
            workers=float(made_with.protected.workers) if made_with else 1.0,
            idle_loss_pages_per_s=_idle_loss_per_s(recordings),
        ),
        slots=tuple(
            replace(
                background_slot(i, slot_name, unpressed or together, together),
                floor_bytes=floors[i],
                restarts=_restarts(made_with, i),
            )
            for i, slot_name in enumerate(names)
        ),
    )


def _restarts(scenario: Scenario | None, slot: int) -> bool:
    """Whether what is terminated in a slot begins anew; not that anybody knew of."""
    groups = () if scenario is None else scenario.background
    return slot < len(groups) and groups[slot].restarts


def _inactive_file_shares(runs: Sequence[Recording]) -> tuple[float, ...]:
    """Quantiles of the share of the zone's file pages on its inactive list while it is full.

    They are all that a full zone has available, by which rules terminate.
    """
    shares = []
    for run in runs:
        file, inactive = run.tick("zone_file_bytes"), run.tick("zone_inactive_file_bytes")
        full = run.tick("zone_memory_usage_bytes") > _FULL_RATIO * run.run.sandbox_bytes
        known = np.isfinite(inactive) & (file > 0.0) & full
        shares.append(inactive[known] / file[known])
    found = np.concatenate(shares)
    if not len(found):
        return (_INACTIVE_SHARE,)
    levels = np.linspace(0.0, 1.0, _SHARES)
    return tuple(np.clip(np.quantile(found, levels), 0.0, 1.0).round(4).tolist())


def _made_with(run: RunInfo) -> Scenario | None:
    """The scenario that a run was recorded with.

    Returns:
        ``None`` if it was recorded on a node of its own, or with a file of an older kind.
    """
    try:
        return scenario_from(run.scenario_parameters, Path(f"{run.scenario}.toml"))
    except ScenarioError:
        return None


def _floors_bytes(run: RunInfo, made_with: Scenario | None) -> tuple[int, ...]:
    """The least limit of each slot, which no tick shows where nobody went so low."""
    if run.slot_floors_bytes:
        return run.slot_floors_bytes
    found = {group.name: group.floor_bytes for group in made_with.background} if made_with else {}
    return tuple(found.get(name, DEFAULT_FLOOR_BYTES) for name in run.slot_names)


def measured_ms(recording: Recording) -> Array:
    """Sojourn times of the requests scheduled after the burn-in; unfinished ones as they stand."""
    requests = recording.requests
    mine = requests.scheduled_s >= recording.run.measured_from_s
    return np.asarray(requests.sojourn_ms[mine])


def _slo_ms(stated: float, runs: Sequence[Recording]) -> float:
    if np.isfinite(stated) and stated > 0.0:
        return float(stated)
    pooled = np.concatenate([measured_ms(r) for r in runs])
    return _SLO_FACTOR * float(np.quantile(pooled, 0.99))


def _protected(
    quiet: Sequence[Recording], unpressed: Sequence[Recording], together: Sequence[Recording]
) -> ProtectedProgram:
    pooled = np.concatenate([measured_ms(r) for r in quiet])
    if not len(pooled):
        raise DatasetError(f"{quiet[0].path} has no requests after its burn-in.")
    gaps = np.concatenate([np.diff(r.requests.scheduled_s) for r in together])
    rate = 1.0 / max(float(gaps.mean()), 1e-9)
    anon = largest(quiet, "protected_anon_bytes") / PAGE_BYTES
    hot, cold, cold_per_s = _hot_and_cold(unpressed)
    service_s = float(np.median(pooled)) * 1e-3
    # Touches are scaled by a fitted factor; a tenth of the set is where the search starts, and
    # no request can touch more than it has time to read from memory.
    most = max(service_s * 10e9 / PAGE_BYTES, 1.0)
    return ProtectedProgram(
        request_rate_per_s=rate,
        rate_factors=_rate_factors(together),
        service_s=service_s,
        poisson=bool(gaps.std() > _POISSON_SPREAD * gaps.mean()),
        anon_pages=anon,
        file_pages=hot,
        cold_pages=cold,
        touch_anon_pages=min(0.1 * anon, most),
        touch_file_pages=min(0.5 * hot, most),
        touch_cold_pages=cold_per_s / rate,
    )


def _idle_loss_per_s(runs: Sequence[Recording]) -> float:
    """File pages that the application reads again though nothing presses: as many are taken.

    The most that a run shows: what counts as idle takes longer than a short run to become so.
    """
    found = [
        growth_per_s(run, "protected_refault_file_pages", since_s=run.run.measured_from_s)
        for run in runs
        if run.run.condition in _UNPRESSED
    ]
    return round(max((rate for rate in found if rate is not None), default=0.0), 2)


def _rate_factors(runs: Sequence[Recording]) -> tuple[float, ...]:
    """How the request rate goes, second by second after the start, on average over runs and 3 s.

    Returns:
        Factors of 1 on average; a single one where it varies no more than by chance.
    """
    seconds = int(min(r.run.end_s - r.run.start_s for r in runs) / _CYCLES_S) * _CYCLES_S
    if seconds == 0:
        return (1.0,)
    edges = np.arange(seconds + 1)
    counts = np.array(
        [np.histogram(r.requests.scheduled_s - r.run.start_s, edges)[0] for r in runs]
    ).astype(np.float64)
    mean = counts.mean(axis=0)
    # Of Poisson arrivals the mean has this variance by chance; runs of one seed share theirs.
    if mean.var() < _MORE_THAN_CHANCE * mean.mean() / len({r.run.seed for r in runs}):
        return (1.0,)
    mean = np.convolve(np.concatenate([mean[-1:], mean, mean[:1]]), np.full(3, 1 / 3), "valid")
    return tuple(round(float(v), 3) for v in mean / mean.mean())


def _hot_and_cold(runs: Sequence[Recording]) -> tuple[float, float, float]:
    """The application's file pages: the hot ones, the cold ones, how fast it reads those.

    Where nothing presses, files that each request reads a part of fill the cache along
    ``hot + cold (1 - exp(-t / tau))`` after the start.

    Returns:
        Hot pages, cold pages and cold pages read per second.
    """
    run = max(runs, key=lambda r: len(r.ticks["time_s"]))
    time_s, file = run.tick("time_s"), run.tick("protected_file_bytes") / PAGE_BYTES
    known = np.isfinite(file)
    if known.sum() < _LEAST_TICKS:
        return largest(runs, "protected_file_bytes") / PAGE_BYTES, 0.0, 0.0
    time_s, file = time_s[known] - time_s[known][0], file[known]
    grown = float(file[-1] - file[0])
    if grown < _LEAST_GROWTH * file[-1]:
        return float(file.max()), 0.0, 0.0
    best = (np.inf, 0.0, 0.0, 1.0)
    for tau_s in np.geomspace(1.0, _LONGEST_FILL * time_s[-1], 40):
        shape = np.stack([np.ones_like(time_s), 1.0 - np.exp(-time_s / tau_s)], axis=1)
        (hot, cold), *_ = np.linalg.lstsq(shape, file, rcond=None)
        off = float(np.square(shape @ (hot, cold) - file).sum())
        if off < best[0] and hot >= 0.0:
            best = (off, float(hot), float(cold), float(tau_s))
    _, hot, cold, tau_s = best
    return hot, cold, cold / tau_s
