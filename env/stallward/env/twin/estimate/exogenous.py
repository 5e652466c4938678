"""The exogenous description of a scenario, estimated from its recordings.

Working sets and full-speed work rates come from the runs with ample memory, or without such runs
from the largest values seen. The longest run shows when programs come and go. The service time
comes from runs without background.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.agent.desired import DEFAULT_FLOOR_BYTES, SLOTS
from stallward.env.errors import RecordingError, ScenarioError
from stallward.env.recording.recording import Recording
from stallward.env.recording.run_info import RunInfo
from stallward.env.scenario.file import scenario_from
from stallward.env.scenario.scenario import Scenario
from stallward.env.twin.estimate.background import background_slot, growth_per_s, largest
from stallward.env.twin.inputs.exogenous import (
    PAGE_BYTES,
    Exogenous,
    ProtectedProgram,
)

Array = NDArray[np.float64]

_SLO_FACTOR: Final = 1.5
_POISSON_SPREAD: Final = 0.5
_CYCLES_S: Final = 60
"""Request rates are cut to whole minutes, so that waves of a minute or a fraction are complete."""
_MORE_THAN_CHANCE: Final = 4.0
"""The variance from which a request rate counts as varying, relative to that of chance."""
_INACTIVE_SHARE: Final = 0.5
"""The share of inactive file pages if no full zone was recorded."""
_FULL_RATIO: Final = 0.99
"""A zone counts as full above this share of its memory."""
_SHARES: Final = 41
"""The number of quantiles of the share of inactive file pages."""
_LEAST_TICKS: Final = 20
_LEAST_GROWTH: Final = 0.01
"""Share of its file pages that an application must add over a run for some to count as cold."""
_LONGEST_FILL: Final = 4.0
"""The longest time constant with which cold pages fill, in lengths of the run."""
_USUAL_SWAP_BYTES: Final = 2 << 30
_AMPLE_CONDITIONS: Final = ("alone", "ample")
"""The conditions in which the application has all the memory it needs."""


def estimate_exogenous(name: str, recordings: Sequence[Recording]) -> Exogenous:
    """Estimate the exogenous description of a scenario from its recordings.

    Without runs under pressure, runs with ample memory are used in their place.

    Raises:
        RecordingError: If there is no run of the application together with the background.
    """
    ample = [r for r in recordings if r.run.condition == "ample"]
    together = [r for r in recordings if r.run.condition == "together"] or ample
    if not together:
        raise RecordingError(
            f"There is no run of {name} with everything together.",
            next_step="Record it with `stallward record`.",
        )
    unpressured = ample + [r for r in recordings if r.run.condition == "background"]
    alone = [r for r in recordings if r.run.condition == "alone"] or ample or together
    run = together[0].run
    most_slots = max((r.run for r in recordings), key=lambda run: len(run.slot_names))
    recorded_scenario = _recorded_scenario(run)
    names = most_slots.slot_names[:SLOTS]
    floors = _floors_bytes(most_slots, recorded_scenario)
    return Exogenous(
        name=name,
        zone_bytes=run.sandbox_bytes,
        swap_bytes=_swap_bytes(run, recorded_scenario),
        slo_ms=_slo_ms(run.slo_ms, ample or alone),
        cores=float(max(run.node.cpu_count, 1)),
        slo_quantile=run.slo_quantile,
        memory_bytes=run.node.memory_total_bytes,
        inactive_file_shares=_inactive_file_shares(together),
        protected=replace(
            _protected(alone, ample or alone, together),
            workers=float(recorded_scenario.protected.workers) if recorded_scenario else 1.0,
            idle_loss_pages_per_s=_idle_loss_per_s(recordings),
        ),
        slots=tuple(
            replace(
                background_slot(i, slot_name, unpressured or together, together),
                floor_bytes=floors[i],
                restarts=_restarts(recorded_scenario, i),
            )
            for i, slot_name in enumerate(names)
        ),
    )


def _restarts(scenario: Scenario | None, slot: int) -> bool:
    """Whether a terminated program of a slot starts again; ``False`` if that is unknown."""
    groups = () if scenario is None else scenario.background
    return slot < len(groups) and groups[slot].restarts


def _inactive_file_shares(runs: Sequence[Recording]) -> tuple[float, ...]:
    """Quantiles, over the time in which the zone is full, of the share of inactive file pages.

    A full zone has no other available memory, and rules terminate programs by available memory.
    A daemon reads more often under pressure, so ticks are no measure of time.
    """
    shares, held_s = [], []
    for run in runs:
        file, inactive = run.tick("zone_file_bytes"), run.tick("zone_inactive_file_bytes")
        full = run.tick("zone_memory_usage_bytes") > _FULL_RATIO * run.run.sandbox_bytes
        known = np.isfinite(inactive) & (file > 0.0) & full
        shares.append(inactive[known] / file[known])
        held_s.append(run.held_s(run.run.start_s, run.run.end_s)[known])
    pooled, weights = np.concatenate(shares), np.concatenate(held_s)
    if not weights.any():
        return (_INACTIVE_SHARE,)
    levels = np.linspace(0.0, 1.0, _SHARES)
    quantiles = np.quantile(pooled, levels, weights=weights, method="inverted_cdf")
    return tuple(np.clip(quantiles, 0.0, 1.0).round(4).tolist())


def _recorded_scenario(run: RunInfo) -> Scenario | None:
    """The scenario that a run was recorded with.

    Returns:
        ``None`` if it was recorded outside a sandbox, or with a scenario file of an older format.
    """
    try:
        return scenario_from(run.scenario_parameters, Path(f"{run.scenario}.toml"))
    except ScenarioError:
        return None


def _swap_bytes(run: RunInfo, recorded_scenario: Scenario | None) -> int:
    """The swap that the programs could use. Recordings from elsewhere may not say."""
    if recorded_scenario is not None and recorded_scenario.sandbox.swap_bytes == 0:
        return 0
    return run.swap_bytes or _USUAL_SWAP_BYTES


def _floors_bytes(run: RunInfo, recorded_scenario: Scenario | None) -> tuple[int, ...]:
    """The floor of each slot; ticks show it only if a limit went as low as that."""
    if run.slot_floors_bytes:
        return run.slot_floors_bytes
    floors = (
        {group.name: group.floor_bytes for group in recorded_scenario.background}
        if recorded_scenario
        else {}
    )
    return tuple(floors.get(name, DEFAULT_FLOOR_BYTES) for name in run.slot_names)


def measured_ms(recording: Recording) -> Array:
    """Sojourn times of the requests scheduled after the burn-in, including unfinished ones."""
    requests = recording.requests
    measured = requests.scheduled_s >= recording.run.measured_from_s
    return np.asarray(requests.sojourn_ms[measured])


def _slo_ms(stated: float, runs: Sequence[Recording]) -> float:
    if np.isfinite(stated) and stated > 0.0:
        return float(stated)
    pooled = np.concatenate([measured_ms(r) for r in runs])
    return _SLO_FACTOR * float(np.quantile(pooled, 0.99))


def _protected(
    alone: Sequence[Recording], unpressured: Sequence[Recording], together: Sequence[Recording]
) -> ProtectedProgram:
    pooled = np.concatenate([measured_ms(r) for r in alone])
    if not len(pooled):
        raise RecordingError(f"{alone[0].path} has no requests after its burn-in.")
    gaps = np.concatenate([np.diff(r.requests.scheduled_s) for r in together])
    if not len(gaps):
        raise RecordingError(
            f"{together[0].path} has no two requests, so their rate is not known.",
            next_step="Record it for longer, while the application answers requests.",
        )
    rate = 1.0 / max(float(gaps.mean()), 1e-9)
    anon = largest(alone, "protected_anon_bytes") / PAGE_BYTES
    hot, cold, cold_per_s = _hot_and_cold(unpressured)
    service_s = float(np.median(pooled)) * 1e-3
    # A fitted factor scales the touched pages. The search starts at a tenth of the anonymous
    # pages, and no request can touch more than it has time to read from memory.
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
    """The rate of file refaults without memory pressure, which is the rate of idle reclaim.

    It is the highest rate of any run, because pages may not become idle within a short run.
    """
    rates = [
        growth_per_s(run, "protected_refault_file_pages", since_s=run.run.measured_from_s)
        for run in runs
        if run.run.condition in _AMPLE_CONDITIONS
    ]
    return round(max((rate for rate in rates if rate is not None), default=0.0), 2)


def _rate_factors(runs: Sequence[Recording]) -> tuple[float, ...]:
    """The relative request rate in each second after the start, averaged over runs and 3 s.

    Returns:
        Factors with a mean of 1; a single 1 if the rate varies no more than by chance.
    """
    seconds = int(min(r.run.end_s - r.run.start_s for r in runs) / _CYCLES_S) * _CYCLES_S
    if seconds == 0:
        return (1.0,)
    edges = np.arange(seconds + 1)
    counts = np.array(
        [np.histogram(r.requests.scheduled_s - r.run.start_s, edges)[0] for r in runs]
    ).astype(np.float64)
    mean = counts.mean(axis=0)
    # The mean of Poisson arrivals has this variance by chance; runs of one seed have the same
    # arrivals.
    if mean.var() < _MORE_THAN_CHANCE * mean.mean() / len({r.run.seed for r in runs}):
        return (1.0,)
    mean = np.convolve(np.concatenate([mean[-1:], mean, mean[:1]]), np.full(3, 1 / 3), "valid")
    return tuple(round(float(v), 3) for v in mean / mean.mean())


def _hot_and_cold(runs: Sequence[Recording]) -> tuple[float, float, float]:
    """Estimate the application's hot and cold file pages.

    Without memory pressure, the page cache grows as ``hot + cold (1 - exp(-t / tau))`` after the
    start, because each request reads a part of the cold files.

    Returns:
        Hot pages, cold pages, and cold pages read per second.
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
        error = float(np.square(shape @ (hot, cold) - file).sum())
        if error < best[0] and hot >= 0.0:
            best = (error, float(hot), float(cold), float(tau_s))
    _, hot, cold, tau_s = best
    return hot, cold, cold / tau_s
