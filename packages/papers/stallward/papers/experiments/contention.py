"""``stallward experiment contention``: how much the groups of a scenario suffer from each other.

Each background group runs alone, and then everything together. Programs of a scenario have no end,
so the time for a unit of their work stands for the response time; only its growth counts. For the
protected application it is the mean latency. Alone a group has memory enough.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from stallward.env.recording.run_info import Condition
from stallward.env.sandbox.block import BlockSite, run_block
from stallward.env.sandbox.watch import GroupPeak, GroupWatch
from stallward.env.scenario.scenario import Scenario
from stallward.env.workloads.native.subtasks import SubtaskProgram
from stallward.evaluation.blocks.live import LiveSession, open_session
from stallward.evaluation.blocks.request import NO_ARM
from stallward.evaluation.measures.bootstrap import RESAMPLES, block_counts
from stallward.evaluation.measures.intervals import Scale, interval
from stallward.evaluation.results.interval import Interval
from stallward.papers.controllers.contention import MeasuredApplication
from stallward.papers.errors import ReplicationError
from stallward.papers.experiments.batch_session import open_batch_session
from stallward.papers.experiments.swap.configurations import Configuration
from stallward.training.progress import Report, silent

BURN_IN_S: Final = 4.0
APPLICATION: Final = "application"
"""The name of the protected application in results."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """One application in one run."""

    response_s: float
    """Its response time, or its time for a unit of work."""
    memory_bytes: int
    threads: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentionFigures:
    """One application over all repeats; controllers read its first five fields."""

    name: str
    alone_s: float
    together_s: float
    subtasks: int
    memory_bytes: int
    degree: Interval
    """Its contention degree, with the 95 % interval over repeats."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentionResult:
    """What was measured: the content of ``contention.json``."""

    schema: int = 1
    workload: str
    """The scenario, or the configuration of ``experiment swap-assign``."""
    repeats: int
    applications: tuple[ContentionFigures, ...]
    """Those with the highest degree first."""


def contention_of(
    workload: str,
    alone: Sequence[Mapping[str, Observed]],
    together: Sequence[Mapping[str, Observed]],
) -> ContentionResult:
    """The contention degrees that some repeats show. Pure.

    Args:
        workload: The name of what ran.
        alone: For each repeat, name of an application -> what it did alone.
        together: The same beside the others.
    """
    figures = [_figures(name, alone, together) for name in alone[0]]
    return ContentionResult(
        workload=workload,
        repeats=len(alone),
        applications=tuple(sorted(figures, key=lambda one: -(one.degree.value or 0.0))),
    )


def _figures(
    name: str, alone: Sequence[Mapping[str, Observed]], together: Sequence[Mapping[str, Observed]]
) -> ContentionFigures:
    alone_s = np.array([run[name].response_s for run in alone])
    together_s = np.array([run[name].response_s for run in together])
    subtasks = max(run[name].threads for run in (*alone, *together))
    one = MeasuredApplication(
        name=name,
        alone_s=float(alone_s.mean()),
        together_s=float(together_s.mean()),
        subtasks=max(subtasks, 1),
        memory_bytes=max(run[name].memory_bytes for run in alone),
    )
    repeats = len(alone_s)
    counts = block_counts(repeats, RESAMPLES, np.random.default_rng(1)) / repeats
    draws = ((counts @ together_s) / (counts @ alone_s) - 1.0) / one.subtasks
    return ContentionFigures(
        name=name,
        alone_s=one.alone_s,
        together_s=one.together_s,
        subtasks=one.subtasks,
        memory_bytes=one.memory_bytes,
        degree=interval(one.degree, draws, blocks=repeats, scale=Scale.LINEAR),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioContention:
    """Runs a scenario's groups alone and together in a session.

    Args:
        session: The sandbox with the scenario's programs.
        seconds: The measured length of each run.
        burn_in_s: The length of the burn-in before it.
    """

    session: LiveSession
    seconds: float
    burn_in_s: float

    def alone(self, seed: int) -> Iterator[tuple[str, Observed]]:
        """Run the application alone, then each group; generates what each did."""
        scenario = self.session.scenario
        yield APPLICATION, self._run(scenario, "alone", seed)[APPLICATION]
        for spec in scenario.background:
            one = replace(scenario, background=(spec,))
            yield spec.name, self._run(one, "background", seed)[spec.name]

    def together(self, seed: int) -> dict[str, Observed]:
        """Run everything under the memory limit of the scenario."""
        return self._run(self.session.scenario, "together", seed)

    def _run(self, scenario: Scenario, condition: Condition, seed: int) -> dict[str, Observed]:
        sandbox = self.session.sandbox
        watches: list[GroupWatch] = []

        def watch(site: BlockSite) -> AbstractContextManager[object]:
            groups = (site.sandbox.protected, *site.sandbox.slots)
            watches.append(GroupWatch(groups, site.sandbox.paths.proc))
            return watches[0]

        with tempfile.TemporaryDirectory(dir=sandbox.folder) as folder:
            result = run_block(
                sandbox,
                scenario,
                condition,
                watch,
                workplace=self.session.workplace,
                duration_s=self.seconds,
                burn_in_s=self.burn_in_s,
                out_dir=Path(folder),
                seed=seed,
            )
        peaks = watches[0].peaks
        found = {}
        if condition != "background":
            latencies_ms = result.measured.sojourn_ms
            found[APPLICATION] = _observed(
                APPLICATION, float(np.mean(latencies_ms)) / 1e3, peaks[0]
            )
        if condition != "alone":
            for slot, spec in enumerate(scenario.background):
                rate_per_s = result.units_per_s(slot)
                if not rate_per_s:
                    raise ReplicationError(
                        f"{spec.name} did no work in {self.seconds:g} s, condition {condition!r}.",
                        next_step="Give it more --seconds.",
                    )
                found[spec.name] = _observed(spec.name, 1.0 / rate_per_s, peaks[1 + slot])
        return found


def _observed(name: str, response_s: float, peak: GroupPeak) -> Observed:
    if not np.isfinite(response_s):
        raise ReplicationError(
            f"{name} answered nothing, so that it has no response time.",
            next_step="Give it more --seconds.",
        )
    return Observed(response_s=response_s, memory_bytes=peak.memory_bytes, threads=peak.threads)


def measure_scenario(
    scenario: Scenario,
    *,
    repeats: int,
    seconds: float,
    burn_in_s: float = BURN_IN_S,
    seed: int = 1,
    report: Report = silent,
) -> ContentionResult:
    """Measure the contention degrees of a scenario's groups in a sandbox of its own.

    Args:
        scenario: The scenario.
        repeats: How often everything runs.
        seconds: The measured length of each run.
        burn_in_s: The length of the burn-in before it.
        seed: Seeds arrivals and background; each repeat has another one.
        report: Told about progress.

    Raises:
        StallwardError: If this machine cannot have the sandbox, or a program fails.
    """
    alone, together = [], []
    report("preparing programs and data", 0.0)
    with open_session(scenario) as session:
        runs = ScenarioContention(session=session, seconds=seconds, burn_in_s=burn_in_s)
        steps = repeats * (2 + len(scenario.background))
        for repeat in range(repeats):
            found: dict[str, Observed] = {}
            names = (APPLICATION, *(spec.name for spec in scenario.background))
            observed = runs.alone(seed + repeat)
            for number, name in enumerate(names):
                report(f"{name} alone", (repeat * steps / repeats + number) / steps)
                key, one = next(observed)
                found[key] = one
            alone.append(found)
            report("together", (repeat * steps / repeats + len(names)) / steps)
            together.append(runs.together(seed + repeat))
    return contention_of(scenario.name, alone, together)


def measure_configuration(
    configuration: Configuration, *, repeats: int, seed: int = 1, report: Report = silent
) -> ContentionResult:
    """Measure the contention degrees of applications that end, in a sandbox of its own.

    Args:
        configuration: The applications and their memory.
        repeats: How often everything runs.
        seed: Seeds their data; each repeat has another one.
        report: Told about progress.

    Raises:
        StallwardError: If this machine cannot have the sandbox, or a program fails.
    """
    programs = dict(enumerate(configuration.programs))
    alone, together = [], []
    report("preparing programs", 0.0)
    with open_batch_session(slots=len(programs), zone_bytes=configuration.zone_bytes) as session:

        def run(running: Mapping[int, SubtaskProgram], number: int) -> dict[str, Observed]:
            result = session.run(configuration, running, arm=NO_ARM, seed=seed + number)
            return {
                program.name: Observed(
                    response_s=result.response_s[slot],
                    memory_bytes=result.peaks[slot].memory_bytes,
                    threads=program.subtasks,
                )
                for slot, program in running.items()
            }

        for repeat in range(repeats):
            found: dict[str, Observed] = {}
            for slot, program in programs.items():
                share = (repeat + slot / (1 + len(programs))) / repeats
                report(f"{program.name} alone", share)
                found |= run({slot: program}, repeat)
            alone.append(found)
            report("together", (repeat + len(programs) / (1 + len(programs))) / repeats)
            together.append(run(programs, repeat))
    return contention_of(configuration.name, alone, together)


# ---------- Contention degrees as a table


def contention_rows(
    result: ContentionResult,
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """The headers and a row for each application, the highest degree first."""
    headers = ("application", "needs MiB", "sub-tasks", "alone s", "together s", "degree")
    rows: list[tuple[str, ...]] = [
        (
            one.name,
            f"{one.memory_bytes / 2**20:.0f}",
            str(one.subtasks),
            f"{one.alone_s:.4g}",
            f"{one.together_s:.4g}",
            _degree(one),
        )
        for one in result.applications
    ]
    return headers, rows


def _degree(one: ContentionFigures) -> str:
    figure = one.degree
    if figure.value is None:
        return "-"
    if figure.low is None or figure.high is None:
        return f"{figure.value:.3f}"
    return f"{figure.value:.3f} ({figure.low:.3f} to {figure.high:.3f})"
