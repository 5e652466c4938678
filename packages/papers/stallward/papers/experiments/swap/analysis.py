"""From finished runs to figures with intervals. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.evaluation.results.interval import Interval
from stallward.papers.controllers.contention import MeasuredApplication
from stallward.papers.experiments.figures import (
    mean_over_runs,
    one_minus,
    over_cases,
    ratio_of_means,
)
from stallward.papers.experiments.swap.configurations import Configuration
from stallward.papers.experiments.swap.result import (
    ApplicationFigures,
    ArmFigures,
    ArmSummary,
    BatchRun,
    ConfigurationFigures,
)

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
    unmanaged = _responses(runs[UNMANAGED], names)
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
            arm: _arm(arm_runs, unmanaged, alone_s, names, seed) for arm, arm_runs in runs.items()
        },
    )


def _responses(runs: Sequence[BatchRun], names: Sequence[str]) -> Array:
    """The response times, ``(repeats, applications)``."""
    return np.array([[run.response_s[name] for name in names] for run in runs])


def _arm(
    runs: Sequence[BatchRun],
    unmanaged_s: Array,
    alone_s: Array,
    names: Sequence[str],
    seed: int,
) -> ArmFigures:
    response_s = _responses(runs, names)
    return ArmFigures(
        runs=len(response_s),
        response_s={name: mean_over_runs(response_s[:, i], seed) for i, name in enumerate(names)},
        total_s=mean_over_runs(response_s.sum(axis=1), seed),
        lengthened=mean_over_runs(_lengthened(response_s, alone_s), seed),
        lower=_lower(response_s.sum(axis=1), unmanaged_s.sum(axis=1), seed),
        lower_lengthened=_lower(
            _lengthened(response_s, alone_s), _lengthened(unmanaged_s, alone_s), seed
        ),
        major_faults=_mean_faults(runs, names),
    )


def _mean_faults(runs: Sequence[BatchRun], names: Sequence[str]) -> dict[str, float]:
    counted = {
        name: [run.major_faults[name] for run in runs if name in run.major_faults]
        for name in names
    }
    return {name: float(np.mean(counts)) for name, counts in counted.items() if counts}


def _lengthened(response_s: Array, alone_s: Array) -> Array:
    """The lengthened latency of each repeat, ``(repeats,)``."""
    return np.asarray((response_s / alone_s - 1.0).mean(axis=1))


def _lower(values: Array, unmanaged: Array, seed: int) -> Interval:
    return one_minus(ratio_of_means(values, unmanaged, seed))


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
    ratios = [None if value is None else 1.0 - value for value, _ in found]
    return one_minus(over_cases(ratios, seed))
