"""``stallward experiment compile``: makes the runs that are missing, and the result of all."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from stallward.env.recording.run_info import NodeInfo
from stallward.env.sandbox.batch import BatchProgram, BatchResult
from stallward.evaluation.arms import Arm
from stallward.evaluation.errors import PlanError, ReplicationError
from stallward.evaluation.replication.batch_session import (
    BatchConfiguration,
    open_batch_session,
)
from stallward.evaluation.replication.compile.analysis import fits, over_sizes, size_figures
from stallward.evaluation.replication.compile.result import CompileResult, CompileRun
from stallward.evaluation.replication.compile.steps import (
    ARMS,
    JOBS,
    MIB,
    PREPARE,
    SIZES_MIB,
    Compilation,
    MemorySize,
    Step,
    plan_steps,
)
from stallward.evaluation.replication.missing_runs import make_missing
from stallward.evaluation.replication.run_store import ExperimentPlan, RunStore
from stallward.evaluation.results.serialise import save
from stallward.training.progress import Report, silent

RESULT_FILE: Final = "result.json"
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
class CompileRequest:
    """The request of the user.

    Raises:
        PlanError: If a size of memory is out of range, or given twice.
    """

    out: Path
    """The folder of the experiment, new or to be resumed."""
    sizes_mib: tuple[int, ...] = SIZES_MIB
    """The sizes of memory."""
    repeats: int = 5
    """How often each arm runs at each size."""
    minutes: float = 600.0
    """After how long no further run is begun."""
    seed: int = 1
    """Seeds the order of the runs."""

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
    missing = [step for step in steps if store.get(CompileRun, step.key) is None]
    if missing and request.minutes > 0:
        report("preparing programs", 0.0)
        with (opener or (lambda: _open(request)))() as session:

            def make(step: Step) -> None:
                result = session.run(
                    MemorySize(zone_mib=step.zone_mib),
                    {0: Compilation()},
                    arm=step.controller,
                    seed=request.seed,
                )
                store.put(step.key, _as_run(result, session.node))

            make_missing(
                missing,
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
