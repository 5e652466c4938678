"""From finished runs to figures with intervals. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.agent.sharing.contention import MeasuredApplication
from stallward.evaluation.measures.bootstrap import RESAMPLES, block_counts, bootstrap_ratio
from stallward.evaluation.measures.intervals import Scale, interval
from stallward.evaluation.replication.swap.configurations import Configuration
from stallward.evaluation.replication.swap.result import (
    ApplicationFigures,
    ArmFigures,
    ArmSummary,
    BatchRun,
    ConfigurationFigures,
)
from stallward.evaluation.results.interval import UNKNOWN, Interval

Array = NDArray[np.float64]
UNMANAGED: Final = "none"
"""The arm without management."""


def measured_applications(
    configuration: Configuration, alone: Mapping[str, Sequence[BatchRun]], together: BatchRun
) -> tuple[MeasuredApplication, ...]:
    """The applications of a configuration, as alone and together runs show them.

    Args:
        configuration: The configuration.
        alone: Name of an application -> its runs alone; their mean counts.
        together: The run of all of them, without management.
    """
    return tuple(
        MeasuredApplication(
            name=program.name,
            alone_s=float(np.mean([run.response_s[program.name] for run in alone[program.name]])),
            together_s=together.response_s[program.name],
            subtasks=program.subtasks,
            memory_bytes=max(run.memory_bytes[program.name] for run in alone[program.name]),
        )
        for program in configuration.programs
    )


def configuration_figures(
    configuration: Configuration,
    applications: Sequence[MeasuredApplication],
    runs: Mapping[str, Sequence[BatchRun]],
    seed: int,
) -> ConfigurationFigures:
    """The figures of one configuration.

    Args:
        configuration: The configuration.
        applications: Its applications as measured before.
        runs: Name of an arm -> its runs, one for each repeat, in their order.
        seed: Seeds the resampling.
    """
    names = [application.name for application in applications]
    alone_s = np.array([application.alone_s for application in applications])
    responses = {arm: _responses(arm_runs, names) for arm, arm_runs in runs.items()}
    unmanaged = responses[UNMANAGED]
    return ConfigurationFigures(
        name=configuration.name,
        zone_bytes=configuration.zone_bytes,
        needed_bytes=configuration.needed_bytes,
        applications=tuple(
            ApplicationFigures(
                name=one.name,
                memory_bytes=one.memory_bytes,
                subtasks=one.subtasks,
                alone_s=one.alone_s,
                together_s=one.together_s,
                degree=one.degree,
            )
            for one in applications
        ),
        arms={
            arm: _arm(response_s, unmanaged, alone_s, names, seed)
            for arm, response_s in responses.items()
        },
    )


def _responses(runs: Sequence[BatchRun], names: Sequence[str]) -> Array:
    """The response times, ``(repeats, applications)``."""
    return np.array([[run.response_s[name] for name in names] for run in runs])


def _arm(
    response_s: Array, unmanaged_s: Array, alone_s: Array, names: Sequence[str], seed: int
) -> ArmFigures:
    repeats = len(response_s)
    counts = block_counts(repeats, RESAMPLES, np.random.default_rng(seed)) / repeats
    return ArmFigures(
        runs=repeats,
        response_s={
            name: _mean(response_s[:, i], counts, repeats) for i, name in enumerate(names)
        },
        total_s=_mean(response_s.sum(axis=1), counts, repeats),
        lengthened=_mean(_lengthened(response_s, alone_s), counts, repeats),
        lower=_lower(response_s.sum(axis=1), unmanaged_s.sum(axis=1), seed),
        lower_lengthened=_lower(
            _lengthened(response_s, alone_s), _lengthened(unmanaged_s, alone_s), seed
        ),
    )


def _lengthened(response_s: Array, alone_s: Array) -> Array:
    """The lengthened latency of each repeat, ``(repeats,)``."""
    return np.asarray((response_s / alone_s - 1.0).mean(axis=1))


def _mean(values: Array, counts: Array, repeats: int) -> Interval:
    return interval(float(values.mean()), counts @ values, blocks=repeats, scale=Scale.LOG)


def _lower(values: Array, unmanaged: Array, seed: int) -> Interval:
    """One minus the ratio of the means over the repeats that both have, resampled together."""
    repeats = min(len(values), len(unmanaged))
    values, unmanaged = values[:repeats], unmanaged[:repeats]
    counts = block_counts(repeats, RESAMPLES, np.random.default_rng(seed))
    ratio = interval(
        float(values.mean() / unmanaged.mean()),
        bootstrap_ratio(values, unmanaged, counts),
        blocks=repeats,
        scale=Scale.LOG,
    )
    return _one_minus(ratio)


def _one_minus(ratio: Interval) -> Interval:
    if ratio.value is None:
        return UNKNOWN
    return Interval(
        value=1.0 - ratio.value,
        low=None if ratio.high is None else 1.0 - ratio.high,
        high=None if ratio.low is None else 1.0 - ratio.low,
    )


def summarise(configurations: Sequence[ConfigurationFigures], seed: int) -> dict[str, ArmSummary]:
    """Every arm over all configurations.

    Args:
        configurations: The figures of each.
        seed: Seeds the resampling.
    """
    arms = list(configurations[0].arms) if configurations else []
    return {arm: _summary(configurations, arm, seed) for arm in arms}


def _summary(configurations: Sequence[ConfigurationFigures], arm: str, seed: int) -> ArmSummary:
    lower = [(one.arms[arm].lower.value, one.name) for one in configurations]
    longer = [(one.arms[arm].lower_lengthened.value, one.name) for one in configurations]
    most, most_in = _most(lower)
    most_longer, most_longer_in = _most(longer)
    return ArmSummary(
        lower=_over_configurations(lower, seed),
        most_lower=most,
        most_lower_in=most_in,
        lower_lengthened=_over_configurations(longer, seed),
        most_lower_lengthened=most_longer,
        most_lower_lengthened_in=most_longer_in,
    )


def _most(found: Sequence[tuple[float | None, str]]) -> tuple[float | None, str]:
    known = [(value, name) for value, name in found if value is not None]
    return max(known) if known else (None, "")


def _over_configurations(found: Sequence[tuple[float | None, str]], seed: int) -> Interval:
    """One minus the geometric mean of the ratios; the configurations are resampled."""
    ratios = np.array([1.0 - value for value, _ in found if value is not None])
    if not ratios.size or ratios.min() <= 0.0:
        return UNKNOWN
    counts = block_counts(ratios.size, RESAMPLES, np.random.default_rng(seed)) / ratios.size
    logs = np.log(ratios)
    mean = interval(
        float(np.exp(logs.mean())),
        np.asarray(np.exp(counts @ logs)),
        blocks=int(ratios.size),
        scale=Scale.LOG,
    )
    return _one_minus(mean)
