"""From finished compilations to figures with intervals, and the fit of the thesis. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

from stallward.evaluation.replication.compile.published import POWER
from stallward.evaluation.replication.compile.result import (
    ArmFigures,
    CompileRun,
    PowerFit,
    SizeFigures,
)
from stallward.evaluation.replication.compile.steps import UNPATCHED
from stallward.evaluation.replication.figures import mean_over_runs, over_cases, ratio_of_means
from stallward.evaluation.results.interval import Interval

Array = NDArray[np.float64]
_LEAST_RUNS: Final = 5
_POWERS: Final = (0.1, 60.0)
_MIB: Final = 1 << 20


def size_figures(
    zone_mib: int, runs: Mapping[str, Sequence[CompileRun]], seed: int
) -> SizeFigures:
    """The figures of one size of memory.

    Args:
        zone_mib: The size.
        runs: Name of an arm -> its runs, one for each repeat, in their order.
        seed: Seeds the resampling.
    """
    unpatched = np.array([run.seconds for run in runs[UNPATCHED]])
    return SizeFigures(
        zone_mib=zone_mib,
        arms={arm: _arm(ours, unpatched, seed) for arm, ours in runs.items()},
    )


def _arm(runs: Sequence[CompileRun], unpatched: Array, seed: int) -> ArmFigures:
    seconds = np.array([run.seconds for run in runs])
    return ArmFigures(
        seconds=tuple(float(one) for one in seconds),
        mean_s=mean_over_runs(seconds, seed),
        ratio=ratio_of_means(seconds, unpatched, seed),
        idle_share=float(np.mean([run.idle_share for run in runs])),
        major_faults=float(np.mean([run.major_faults for run in runs])),
        disk_requests=float(np.mean([run.disk_requests for run in runs])),
        disk_mib=float(np.mean([run.disk_bytes for run in runs])) / _MIB,
    )


def over_sizes(sizes: Sequence[SizeFigures], seed: int) -> dict[str, Interval]:
    """The time of each arm over that of the unpatched kernel: the geometric mean over the sizes.

    Args:
        sizes: The figures of each size.
        seed: Seeds the resampling of sizes.
    """
    arms = list(sizes[0].arms) if sizes else []
    return {arm: over_cases([one.arms[arm].ratio.value for one in sizes], seed) for arm in arms}


def fits(sizes: Sequence[SizeFigures]) -> tuple[PowerFit | None, PowerFit | None]:
    """Fit ``T = k / M^4 + c`` to the runs of the unpatched kernel, and the same with any power.

    As in the thesis, the most extreme measurement at either end is left out.

    Args:
        sizes: The figures of each size.

    Returns:
        Both fits; ``None`` for fewer than five runs, or for one size only.
    """
    pairs = sorted(
        (second, float(one.zone_mib)) for one in sizes for second in one.arms[UNPATCHED].seconds
    )[1:-1]
    if len(pairs) < _LEAST_RUNS - 2 or len({mib for _, mib in pairs}) < 2:
        return None, None
    seconds, mib = np.array(pairs).T
    best = minimize_scalar(
        lambda power: 1.0 - _fit(seconds, mib, power).explained_share,
        bounds=_POWERS,
        method="bounded",
    )
    return _fit(seconds, mib, POWER), _fit(seconds, mib, float(best.x))


def _fit(seconds: Array, mib: Array, power: float) -> PowerFit:
    # Relative to the smallest size, as M^-power alone may be below what a float can add up.
    scale = (mib / mib.min()) ** -power
    basis = np.stack([scale, np.ones_like(scale)], axis=1)
    (k, c), *_ = np.linalg.lstsq(basis, seconds, rcond=None)
    rest = seconds - basis @ np.array([k, c])
    spread = float(((seconds - seconds.mean()) ** 2).sum())
    explained = 1.0 - float((rest**2).sum()) / spread if spread > 0.0 else 0.0
    return PowerFit(
        k=float(k * mib.min() ** power), c_s=float(c), power=power, explained_share=explained
    )
