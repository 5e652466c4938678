"""``stallward experiment swap-assign``: makes the runs that are missing, and the result of all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, Protocol, TypeVar

from stallward.env.recording.run_info import NodeInfo
from stallward.env.workloads.native.subtasks import SubtaskProgram
from stallward.evaluation.arms import Arm
from stallward.evaluation.results.serialise import save
from stallward.papers.controllers.contention import ContentionFile, MeasuredApplication
from stallward.papers.errors import ReplicationError
from stallward.papers.experiments.batch import BatchResult
from stallward.papers.experiments.batch_session import open_batch_session
from stallward.papers.experiments.runs import (
    RESULT_FILE,
    ExperimentPlan,
    ExperimentRequest,
    RunStore,
    make_missing,
)
from stallward.papers.experiments.swap.analysis import (
    configuration_figures,
    measured_applications,
    summarise,
)
from stallward.papers.experiments.swap.configurations import (
    CASE_STUDIES,
    CASE_STUDY,
    LARGER,
    Configuration,
)
from stallward.papers.experiments.swap.result import (
    BatchRun,
    ConfigurationFigures,
    SwapExperimentResult,
)
from stallward.papers.experiments.swap.steps import (
    ALONE_RUNS,
    ALPHA_ARMS,
    ARMS,
    Step,
    alone_slots,
    plan_steps,
    stands_for,
)
from stallward.training.progress import Report, silent

Part = Literal["all", "case-study", "case-study-random", "case-study-zipf", "larger", "alpha"]
T = TypeVar("T")
_EXPERIMENT: Final = "swap-assign"


class BatchRunner(Protocol):
    """Runs applications of a configuration under a controller."""

    @property
    def node(self) -> NodeInfo:
        """The node that they run on."""

    def run(
        self,
        configuration: Configuration,
        programs: Mapping[int, SubtaskProgram],
        *,
        arm: Arm,
        seed: int,
    ) -> BatchResult:
        """Run ``programs`` (slot -> application) and measure them."""


OpenSession = Callable[[], AbstractContextManager[BatchRunner]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SwapExperimentRequest(ExperimentRequest):
    """The request of the user."""

    part: Part = "all"
    """Which of the experiments."""
    repeats: int = 5
    """How often each arm runs in each configuration."""

    @property
    def configurations(self) -> tuple[Configuration, ...]:
        """What runs."""
        if self.part in CASE_STUDIES:
            return (CASE_STUDIES[self.part],)
        if self.part == "alpha":
            return tuple(CASE_STUDIES.values())
        return LARGER if self.part == "larger" else (CASE_STUDY, *LARGER)

    @property
    def arms(self) -> Mapping[str, str]:
        """Name of an arm that runs in each of them -> its controller."""
        return ALPHA_ARMS if self.part == "alpha" else ARMS


def run_swap_experiment(
    request: SwapExperimentRequest,
    report: Report = silent,
    opener: OpenSession | None = None,
) -> SwapExperimentResult:
    """Make the missing runs as far as there is time, and the result of all that are finished.

    Args:
        request: The request.
        report: Told about progress.
        opener: Opens what runs the applications; a sandbox of its own by default.

    Raises:
        StallwardError: If it cannot be run or resumed here. Finished runs are kept.
    """
    experiment = _Experiment(request)
    steps = plan_steps(request.configurations, request.arms, request.repeats, request.seed)
    experiment.run(steps, opener or _open, report)
    result = experiment.result(steps)
    save(request.out / RESULT_FILE, result)
    return result


def _open() -> AbstractContextManager[BatchRunner]:
    everything = (CASE_STUDY, *LARGER)
    return open_batch_session(
        slots=max(len(one.programs) for one in everything),
        zone_bytes=max(one.zone_bytes for one in everything),
    )


class _Experiment:
    """The runs of a request, and what follows from them."""

    def __init__(self, request: SwapExperimentRequest) -> None:
        self._request = request
        self._store = RunStore(request.out, _plan(request))

    def stored(self, step: Step) -> BatchRun | None:
        """The finished run of a step."""
        return self._store.get(BatchRun, step.key)

    def run(self, steps: Sequence[Step], opener: OpenSession, report: Report) -> None:
        """Make runs until none is missing, or the time is over."""
        make_missing(
            self._store,
            BatchRun,
            steps,
            opener,
            self._make,
            minutes=self._request.minutes,
            report=report,
            describe=_describe,
        )

    def _make(self, session: BatchRunner, step: Step) -> BatchRun:
        """Make one run."""
        programs = dict(enumerate(step.configuration.programs))
        if step.slot is not None:
            programs = {step.slot: programs[step.slot]}
        arm = step.controller(self._contention_path(step.configuration))
        if "{contention}" in step.spec:
            self._write_contention(step.configuration)
        result = session.run(
            step.configuration, programs, arm=arm, seed=self._request.seed + step.repeat
        )
        return _as_run(result, programs, session.node)

    def _contention_path(self, configuration: Configuration) -> Path:
        return (self._request.out / f"contention-{configuration.name}.json").absolute()

    def _write_contention(self, configuration: Configuration) -> None:
        path = self._contention_path(configuration)
        if path.exists():
            return
        applications = self._applications(configuration)
        if applications is None:
            raise ReplicationError(f"{configuration.name} has no contention degrees yet.")
        save(path, ContentionFile(applications=applications))

    def _applications(
        self, configuration: Configuration
    ) -> tuple[MeasuredApplication, ...] | None:
        """The applications as measured; ``None`` while a run for that is missing."""
        together = self.stored(Step(configuration=configuration, arm="none"))
        alone: dict[int, list[BatchRun]] = {}
        for slot in alone_slots(configuration):
            steps = (
                Step(configuration=configuration, arm="none", slot=slot, repeat=number)
                for number in range(ALONE_RUNS)
            )
            alone[slot] = [run for run in map(self.stored, steps) if run is not None]
        if together is None or any(len(runs) < ALONE_RUNS for runs in alone.values()):
            return None
        return measured_applications(
            configuration,
            {
                program.name: [
                    _renamed(run, program.name) for run in alone[stands_for(configuration, slot)]
                ]
                for slot, program in enumerate(configuration.programs)
            },
            together,
        )

    def result(self, steps: Sequence[Step]) -> SwapExperimentResult:
        """The result of all finished runs.

        Raises:
            ReplicationError: If there is none.
        """
        runs = [run for run in map(self.stored, steps) if run is not None]
        if not runs:
            raise ReplicationError("No run is finished.", next_step="Give it more --minutes.")
        figures = {
            one.name: found
            for one in self._request.configurations
            if (found := self._figures(one)) is not None
        }
        studies = tuple(found for name, found in figures.items() if name in CASE_STUDIES)
        alpha = self._request.part == "alpha"
        larger = tuple(found for name, found in figures.items() if name not in CASE_STUDIES)
        return SwapExperimentResult(
            node=runs[-1].node,
            seed=self._request.seed,
            done_runs=len(runs),
            planned_runs=len(steps),
            case_study=studies[0] if studies and not alpha else None,
            larger=larger,
            larger_summary=summarise(larger, self._request.seed),
            alpha=studies if alpha else (),
            stolen_share_worst=max(run.stolen_share for run in runs),
        )

    def _figures(self, configuration: Configuration) -> ConfigurationFigures | None:
        """The figures of a configuration; ``None`` before one repeat of every arm is finished."""
        applications = self._applications(configuration)
        runs = {arm: self._repeats(configuration, arm) for arm in self._request.arms}
        if applications is None or not all(runs.values()):
            return None
        return configuration_figures(configuration, applications, runs, self._request.seed)

    def _repeats(self, configuration: Configuration, arm: str) -> list[BatchRun]:
        steps = (
            Step(configuration=configuration, arm=arm, repeat=repeat)
            for repeat in range(1, self._request.repeats + 1)
        )
        return [run for run in map(self.stored, steps) if run is not None]


def _describe(step: Step) -> str:
    what = "alone" if step.slot is not None else step.arm
    return f"{step.configuration.name}: {what}"


def _as_run(
    result: BatchResult, programs: Mapping[int, SubtaskProgram], node: NodeInfo
) -> BatchRun:
    return BatchRun(
        response_s={program.name: result.response_s[slot] for slot, program in programs.items()},
        memory_bytes={p.name: result.peaks[slot].memory_bytes for slot, p in programs.items()},
        threads={p.name: result.peaks[slot].threads for slot, p in programs.items()},
        major_faults={programs[slot].name: count for slot, count in result.major_faults.items()},
        stolen_share=result.stolen_share,
        node=node,
    )


def _renamed(run: BatchRun, name: str) -> BatchRun:
    """A run of one application as that of another one that is alike."""
    return BatchRun(
        response_s=_under(name, run.response_s),
        memory_bytes=_under(name, run.memory_bytes),
        threads=_under(name, run.threads),
        major_faults=_under(name, run.major_faults),
        stolen_share=run.stolen_share,
        node=run.node,
    )


def _under(name: str, values: Mapping[str, T]) -> dict[str, T]:
    """What was measured of the only application, if it was, under another name."""
    return dict(zip((name,), values.values(), strict=False))


def _plan(request: SwapExperimentRequest) -> ExperimentPlan:
    settings = (ARMS, CASE_STUDY, LARGER, ALONE_RUNS)
    return ExperimentPlan.of(_EXPERIMENT, settings, request.seed)
