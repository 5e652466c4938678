"""``stallward experiment dasec``: makes the runs that are missing, and the result of all."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Protocol

import numpy as np

from stallward.actuator.kernel.hierarchies import require
from stallward.actuator.kernel.paths import DEFAULT_PATHS, Paths
from stallward.env.recording.node_facts import node_info
from stallward.env.recording.recording import load_recording
from stallward.env.recording.run_info import NodeInfo
from stallward.env.sandbox.block import make_workplace
from stallward.env.sandbox.data_cache import default_cache_dir
from stallward.env.sandbox.sandbox import Sandbox, open_sandbox
from stallward.evaluation.blocks.live import LiveSession
from stallward.evaluation.blocks.request import RunRequest
from stallward.evaluation.results.interval import Interval
from stallward.evaluation.results.serialise import save
from stallward.papers.errors import ReplicationError
from stallward.papers.experiments.dasec.applications import (
    APPLICATIONS,
    BURN_IN_S,
    MEASURED_S,
    SLO_MS,
    Application,
    Division,
    dasec_scenario,
)
from stallward.papers.experiments.dasec.reduce import P50, P99, reduce_run
from stallward.papers.experiments.dasec.result import (
    ArmSummary,
    CellFigures,
    DasecExperimentResult,
    DasecRun,
    RatioFigures,
    ThreadFigures,
)
from stallward.papers.experiments.dasec.sandbox import divide_cpu
from stallward.papers.experiments.dasec.steps import (
    ARMS,
    RATIOS,
    UNMANAGED,
    Setting,
    settings_of,
)
from stallward.papers.experiments.dasec.threads import ThreadWatch
from stallward.papers.experiments.figures import one_minus, over_cases
from stallward.papers.experiments.runs import (
    RESULT_FILE,
    ExperimentPlan,
    ExperimentRequest,
    Repeat,
    RunStore,
    make_missing,
    plan_repeats,
)
from stallward.training.progress import Report, silent

# ---------- From finished runs to figures with intervals.

Runs = Mapping[int, DasecRun]
"""Number of a repeat -> its run. Runs of the same repeat have the same arrivals."""


def cell_figures(runs: Runs, alone: Runs, unmanaged: Runs, seed: int) -> CellFigures:
    """The figures of one application at one consolidation ratio under one controller.

    Latencies and ratios are geometric means over the repeats, because latencies vary by factors.

    Args:
        runs: Its runs, one at least.
        alone: Those of the application alone.
        unmanaged: Those at the same ratio without control.
        seed: Seeds the resampling.
    """

    def over(of: Callable[[DasecRun], float | None], base: Runs | None = None) -> Interval:
        if base is runs:
            return Interval(value=1.0, low=None, high=None)
        pairs = [(of(run), 1.0 if base is None else of(base[i])) for i, run in _shared(runs, base)]
        return over_cases([a / b if a and b else None for a, b in pairs], seed)

    served = [run.answered_per_s for run in alone.values()]
    return CellFigures(
        runs=len(runs),
        mean_ms=over(_mean_ms),
        p50_ms=over(lambda run: run.quantiles_ms[P50]),
        p99_ms=over(_p99_ms),
        mean_times_alone=over(_mean_ms, alone),
        p99_times_alone=over(_p99_ms, alone),
        mean_ratio=over(_mean_ms, unmanaged),
        p99_ratio=over(_p99_ms, unmanaged),
        answered_share=(
            float(np.mean([run.answered_per_s for run in runs.values()]) / np.mean(served))
            if served
            else 0.0
        ),
        batch_ratio=over(lambda run: run.batch_per_s, unmanaged),
        threads=_mean_threads([run.threads for run in runs.values() if run.threads is not None]),
    )


def _shared(runs: Runs, base: Runs | None) -> list[tuple[int, DasecRun]]:
    return [(i, run) for i, run in sorted(runs.items()) if base is None or i in base]


def _mean_ms(run: DasecRun) -> float:
    return run.mean_ms


def _p99_ms(run: DasecRun) -> float:
    return run.quantiles_ms[P99]


def _mean_threads(found: Sequence[ThreadFigures]) -> ThreadFigures | None:
    if not found:
        return None
    means = {
        field.name: float(np.mean([getattr(one, field.name) for one in found]))
        for field in fields(ThreadFigures)
    }
    return ThreadFigures(**means)


def summarise(beside: Mapping[str, Sequence[RatioFigures]], seed: int) -> dict[str, ArmSummary]:
    """Each controller over all applications and ratios that it ran in.

    Args:
        beside: Name of an application -> its figures at each ratio.
        seed: Seeds the resampling.
    """
    cells: dict[str, list[CellFigures]] = {}
    for by_ratio in beside.values():
        for at in by_ratio:
            for arm, figures in at.arms.items():
                if arm != UNMANAGED and figures.mean_ratio.value is not None:
                    cells.setdefault(arm, []).append(figures)

    def lower(found: Sequence[CellFigures], of: Callable[[CellFigures], Interval]) -> Interval:
        return one_minus(over_cases([of(one).value for one in found], seed))

    return {
        arm: ArmSummary(
            cases=len(found),
            mean_lower=lower(found, lambda one: one.mean_ratio),
            p99_lower=lower(found, lambda one: one.p99_ratio),
            batch_lower=lower(found, lambda one: one.batch_ratio),
        )
        for arm, found in cells.items()
    }


# ---------- A sandbox in which one application after another runs beside batch jobs


@dataclass(frozen=True, slots=True, kw_only=True)
class DasecSession:
    """A sandbox, and everything that it takes to run an application in it."""

    sandbox: Sandbox
    node: NodeInfo
    cache_dir: Path
    cpus: int
    """How many threads a batch job has."""
    measured_s: float = MEASURED_S
    """How long a run is measured."""
    slo_ms: float = SLO_MS
    """The latency target, for controllers that look at one."""

    def prepare(self, application: Application) -> None:
        """Make the data and programs of an application, unless that has been done.

        Raises:
            WorkloadError: If that fails, or a program that it needs is not installed.
        """
        make_workplace(dasec_scenario(application, max(RATIOS), self.cpus), self.cache_dir)

    def run(self, setting: Setting, seed: int) -> DasecRun:
        """Make one run.

        Args:
            setting: What runs.
            seed: The seed of the arrivals.

        Raises:
            StallwardError: If the sandbox, the daemon or a program fails.
        """
        scenario = dasec_scenario(setting.application, setting.ratio, self.cpus)
        sandbox = replace(self.sandbox, slots=self.sandbox.slots[: setting.ratio])
        live = LiveSession(
            scenario=scenario,
            sandbox=sandbox,
            workplace=make_workplace(scenario, self.cache_dir),
            node=self.node,
        )
        request = RunRequest(
            condition="together" if setting.ratio else "alone",
            arm=setting.arm,
            slo_ms=self.slo_ms,
            duration_s=self.measured_s,
            burn_in_s=BURN_IN_S,
            seed=seed,
            probes=False,
        )
        with TemporaryDirectory(dir=live.scratch) as folder:
            out = Path(folder) / "recording"
            with ThreadWatch(sandbox.protected, sandbox.paths.proc) as watch:
                live.run(request, out)
            return reduce_run(load_recording(out), watch.readings)


@contextmanager
def open_dasec_session(
    *,
    division: Division,
    cpus: int,
    cache_dir: Path | None = None,
    paths: Paths = DEFAULT_PATHS,
) -> Iterator[DasecSession]:
    """Make a sandbox whose programs share the CPU thread by thread, or group by group.

    Args:
        division: How the CPU is divided.
        cpus: How many threads a batch job has.
        cache_dir: The folder for data and builds; by default the user's cache.
        paths: The roots of the kernel's files.

    Raises:
        StallwardError: If this user or machine cannot have the sandbox; the message says why.
    """
    require(paths)
    cache_dir = cache_dir or default_cache_dir()
    memory = dasec_scenario("memcached", 0, cpus).sandbox
    with open_sandbox(
        slots=max(RATIOS),
        limit_bytes=memory.limit_bytes,
        swap_bytes=memory.swap_bytes,
        cache_dir=cache_dir,
        paths=paths,
    ) as sandbox:
        yield DasecSession(
            sandbox=divide_cpu(sandbox, division),
            node=node_info(cache_dir, paths),
            cache_dir=cache_dir,
            cpus=cpus,
        )


_EXPERIMENT: Final = "dasec"


class ApplicationRunner(Protocol):
    """Runs an application beside batch jobs, under a controller."""

    def prepare(self, application: Application) -> None:
        """Make what the application needs."""

    def run(self, setting: Setting, seed: int) -> DasecRun:
        """Make one run and measure it."""


OpenSession = Callable[[], AbstractContextManager[ApplicationRunner]]


@dataclass(frozen=True, slots=True, kw_only=True)
class DasecExperimentRequest(ExperimentRequest):
    """The request of the user."""

    applications: tuple[Application, ...] = APPLICATIONS
    """Which applications."""
    division: Division = "thread"
    """How the CPU is divided."""
    cpus: int = os.cpu_count() or 1
    """How many threads a batch job has: one for each processor."""


def run_dasec_experiment(
    request: DasecExperimentRequest,
    report: Report = silent,
    opener: OpenSession | None = None,
) -> DasecExperimentResult:
    """Make the missing runs as far as there is time, and the result of all that are finished.

    Args:
        request: The request.
        report: Told about progress.
        opener: Opens what runs the programs; a sandbox of its own by default.

    Raises:
        StallwardError: If it cannot be run or resumed here. Finished runs are kept.
    """
    store = RunStore(request.out, _plan(request))
    steps = plan_repeats(settings_of(request.applications), request.repeats, request.seed)

    def opened() -> AbstractContextManager[ApplicationRunner]:
        return open_dasec_session(division=request.division, cpus=request.cpus)

    def prepare(session: ApplicationRunner, missing: Sequence[Repeat[Setting]]) -> None:
        for application in sorted({step.setting.application for step in missing}):
            session.prepare(application)

    make_missing(
        store,
        DasecRun,
        steps,
        opener or opened,
        lambda session, step: session.run(step.setting, request.seed + step.repeat),
        minutes=request.minutes,
        report=report,
        describe=lambda step: step.words,
        prepare=prepare,
    )
    result = _result(request, store)
    save(request.out / RESULT_FILE, result)
    return result


def _plan(request: DasecExperimentRequest) -> ExperimentPlan:
    scenarios = [
        dasec_scenario(application, max(RATIOS), request.cpus) for application in APPLICATIONS
    ]
    settings = (scenarios, BURN_IN_S, MEASURED_S, request.division)
    return ExperimentPlan.of(_EXPERIMENT, settings, request.seed)


def _result(request: DasecExperimentRequest, store: RunStore) -> DasecExperimentResult:
    """The result of all finished runs of the request.

    Raises:
        ReplicationError: If there is none.
    """
    runs = {
        setting: {
            repeat: run
            for repeat in range(1, request.repeats + 1)
            if (run := store.get(DasecRun, Repeat(setting=setting, repeat=repeat).key)) is not None
        }
        for setting in settings_of(request.applications)
    }
    finished = [run for of_setting in runs.values() for run in of_setting.values()]
    if not finished:
        raise ReplicationError("No run is finished.", next_step="Give it more --minutes.")

    def cell(setting: Setting) -> CellFigures:
        alone: Runs = runs[Setting(application=setting.application)]
        unmanaged = runs[Setting(application=setting.application, ratio=setting.ratio)]
        return cell_figures(runs[setting], alone, unmanaged, request.seed)

    def at(application: Application, ratio: int) -> RatioFigures:
        settings = {
            arm: Setting(application=application, ratio=ratio, controller=arm) for arm in ARMS
        }
        found = {arm: cell(setting) for arm, setting in settings.items() if runs[setting]}
        return RatioFigures(ratio=ratio, arms=found)

    beside: dict[str, tuple[RatioFigures, ...]] = {
        application: tuple(at(application, ratio) for ratio in RATIOS)
        for application in request.applications
    }
    alone: dict[str, CellFigures] = {
        application: cell(setting)
        for application in request.applications
        if runs[setting := Setting(application=application)]
    }
    return DasecExperimentResult(
        node=finished[-1].node,
        seed=request.seed,
        division=request.division,
        done_runs=len(finished),
        planned_runs=request.repeats * len(runs),
        alone=alone,
        beside=beside,
        summary=summarise(beside, request.seed),
        stolen_share_worst=max(run.stolen_share for run in finished),
    )
