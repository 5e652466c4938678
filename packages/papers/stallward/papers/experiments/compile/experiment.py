"""``stallward experiment compile``: makes the runs that are missing, and the result of all."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from stallward.env.recording.run_info import NodeInfo
from stallward.evaluation.arms import Arm
from stallward.evaluation.errors import PlanError
from stallward.evaluation.results.interval import Interval
from stallward.evaluation.results.serialise import save
from stallward.papers.errors import ReplicationError
from stallward.papers.experiments.batch import BatchProgram, BatchResult
from stallward.papers.experiments.batch_session import BatchConfiguration, open_batch_session
from stallward.papers.experiments.compile.published import POWER
from stallward.papers.experiments.compile.result import (
    ArmFigures,
    CompileResult,
    CompileRun,
    PowerFit,
    SizeFigures,
)
from stallward.papers.experiments.compile.steps import (
    ARMS,
    JOBS,
    MIB,
    PREPARE,
    SIZES_MIB,
    UNPATCHED,
    Compilation,
    MemorySize,
    Step,
    plan_steps,
)
from stallward.papers.experiments.figures import mean_over_runs, over_cases, ratio_of_means
from stallward.papers.experiments.runs import (
    RESULT_FILE,
    ExperimentPlan,
    ExperimentRequest,
    RunStore,
    make_missing,
)
from stallward.training.progress import Report, silent

# ---------- From finished compilations to figures with intervals, and the fit of the thesis.

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
    from scipy.optimize import minimize_scalar  # noqa: PLC0415 - takes 1 s, for --help as well

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


LEAST_MIB: Final = 32
"""Below that the programs of a sandbox cannot even start."""
MOST_MIB: Final = 4096


class CompileRunner(Protocol):
    """Compiles in a given amount of memory, under a controller."""

    @property
    def node(self) -> NodeInfo:
        """The node that it runs on."""

    def run(
        self,
        configuration: BatchConfiguration,
        programs: Mapping[int, BatchProgram],
        *,
        arm: Arm,
        seed: int,
    ) -> BatchResult:
        """Run ``programs`` (slot -> application) and measure them."""


OpenSession = Callable[[], AbstractContextManager[CompileRunner]]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileRequest(ExperimentRequest):
    """The request of the user.

    Raises:
        PlanError: If a size of memory is out of range, or given twice.
    """

    sizes_mib: tuple[int, ...] = SIZES_MIB
    """The sizes of memory."""
    repeats: int = 5
    """How often each arm runs at each size."""

    def __post_init__(self) -> None:
        """Refuse what cannot run."""
        if not self.sizes_mib or len(set(self.sizes_mib)) < len(self.sizes_mib):
            raise PlanError("A size of memory is given twice, or none is.")
        for size in self.sizes_mib:
            if not LEAST_MIB <= size <= MOST_MIB:
                raise PlanError(
                    f"A compilation in {size} MiB is not tried.",
                    next_step=f"Use sizes from {LEAST_MIB} to {MOST_MIB}.",
                )


def run_compile_experiment(
    request: CompileRequest,
    report: Report = silent,
    opener: OpenSession | None = None,
) -> CompileResult:
    """Make the missing runs as far as there is time, and the result of all that are finished.

    Args:
        request: The request.
        report: Told about progress.
        opener: Opens what compiles; a sandbox of its own by default.

    Raises:
        StallwardError: If it cannot be run or resumed here. Finished runs are kept.
    """
    store = RunStore(request.out, _plan(request))
    steps = plan_steps(request.sizes_mib, request.repeats, request.seed)

    def make(session: CompileRunner, step: Step) -> CompileRun:
        size = MemorySize(zone_mib=step.zone_mib)
        result = session.run(size, {0: Compilation()}, arm=step.controller, seed=request.seed)
        return _as_run(result, session.node)

    make_missing(
        store,
        CompileRun,
        steps,
        opener or (lambda: _open(request)),
        make,
        minutes=request.minutes,
        report=report,
        describe=lambda step: f"{step.zone_mib} MiB: {step.arm}",
    )
    result = _result(store, steps, request)
    save(request.out / RESULT_FILE, result)
    return result


def _open(request: CompileRequest) -> AbstractContextManager[CompileRunner]:
    for program in ("gcc", "make"):
        if shutil.which(program) is None:
            raise ReplicationError(
                f"There is no {program}.", next_step="Install it, e.g. `apt-get install gcc make`."
            )
    return open_batch_session(slots=1, zone_bytes=max(request.sizes_mib) * MIB, prepare=PREPARE)


def _as_run(result: BatchResult, node: NodeInfo) -> CompileRun:
    seconds, machine = result.response_s[0], result.machine
    return CompileRun(
        seconds=seconds,
        peak_bytes=result.peaks[0].memory_bytes,
        idle_share=min(machine.idle_s / (seconds * node.cpu_count), 1.0),
        major_faults=machine.major_faults,
        disk_requests=machine.disk_requests,
        disk_bytes=machine.disk_bytes,
        stolen_share=result.stolen_share,
        node=node,
    )


def _result(store: RunStore, steps: Sequence[Step], request: CompileRequest) -> CompileResult:
    found: dict[int, dict[str, list[CompileRun]]] = {}
    runs: list[CompileRun] = []
    for step in sorted(steps, key=lambda step: step.repeat):
        run = store.get(CompileRun, step.key)
        if run is not None:
            found.setdefault(step.zone_mib, {}).setdefault(step.arm, []).append(run)
            runs.append(run)
    if not runs:
        raise ReplicationError("No run is finished.", next_step="Give it more --minutes.")
    sizes = tuple(
        size_figures(size, {arm: arms[arm] for arm in ARMS}, request.seed)
        for size, arms in sorted(found.items())
        if len(arms) == len(ARMS)
    )
    fit, free_fit = fits(sizes)
    return CompileResult(
        node=runs[-1].node,
        seed=request.seed,
        done_runs=len(runs),
        planned_runs=len(steps),
        peak_bytes=max(run.peak_bytes for run in runs),
        sizes=sizes,
        ratios=over_sizes(sizes, request.seed),
        fit=fit,
        free_fit=free_fit,
        stolen_share_worst=max(run.stolen_share for run in runs),
    )


def _plan(request: CompileRequest) -> ExperimentPlan:
    settings = (ARMS, PREPARE, JOBS, request.sizes_mib)
    return ExperimentPlan.of("compile", settings, request.seed)
