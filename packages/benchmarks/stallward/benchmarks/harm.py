"""``stallward bench harm``: whether ordinary background programs fail because of the daemon.

Ordinary programs with known results run one after another in a group of the background, beside a
server and a program whose memory swells. Every arm has a block in each round, in a random order.
What counts is how the programs end and whether their results are right, against the arm ``none``;
and how much longer they take.
"""

from __future__ import annotations

import json
import random
import shutil
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import geometric_mean
from typing import Any, Final

import numpy as np

from stallward.actuator.kernel.paths import DEFAULT_PATHS, Paths
from stallward.agent.errors import StallwardError
from stallward.benchmarks.checked_jobs import JOBS, served
from stallward.benchmarks.errors import BenchError
from stallward.env.scenario.file import scenario_from
from stallward.env.scenario.scenario import DiskLimit, Scenario
from stallward.evaluation.arms import Arm
from stallward.evaluation.blocks.live import LiveSession, open_session
from stallward.evaluation.blocks.request import RunRequest
from stallward.training.progress import Report, silent

_FILE: Final = Path(__file__).with_name("harm.toml")
_REPORT: Final = "jobs.report"
TARGET_MS: Final = 8.0
"""The latency target. The server misses it under pressure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRun:
    """One run of one job."""

    arm: str
    job: str
    took_s: float
    status: int
    """The exit status; negative for the signal that ended it."""
    right: bool
    """Whether it ended with 0 and its result was the known one."""
    said: str = ""
    """The end of what it wrote on standard error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmHarm:
    """What one arm did to the jobs."""

    arm: str
    jobs: int
    failed: int
    """Jobs with another exit status than 0, ended by signals included."""
    killed: int
    """Those among them that a signal ended."""
    wrong: int
    """Jobs that ended with 0 and a wrong result, or none."""
    p95_ms: float | None
    """The p95 of the server's latency: the median of those of the blocks."""
    slower: float | None
    """The time that a job took, as a multiple of that under ``none``: the geometric mean over the
    kinds of job, of the medians of each; ``None`` where there is nothing to compare."""


@dataclass(slots=True, kw_only=True)
class HarmTally:
    """The jobs so far."""

    runs: list[JobRun] = field(default_factory=list)
    p95_ms: dict[str, list[float]] = field(default_factory=dict)
    """Label of an arm -> the p95 of the server's latency in each of its blocks."""
    left_out: dict[str, str] = field(default_factory=dict)
    """What is left out -> why: arms that do not run here, jobs whose program is missing."""

    def by_arm(self) -> tuple[ArmHarm, ...]:
        """The figures of each arm, in the order of their first jobs."""
        arms = tuple(dict.fromkeys(run.arm for run in self.runs))
        base = _medians_s(run for run in self.runs if run.arm.partition("#")[0] == "none")
        return tuple(
            _of_arm(
                arm,
                [run for run in self.runs if run.arm == arm],
                base,
                self.p95_ms.get(arm, ()),
            )
            for arm in arms
        )

    def harms(self, arms: Sequence[str]) -> tuple[str, ...]:
        """Those of ``arms`` under which a larger share of jobs failed or were wrong than of none."""
        shares = {row.arm: (row.failed + row.wrong) / row.jobs for row in self.by_arm()}
        of_none = max(
            (shares[arm] for arm in shares if arm.partition("#")[0] == "none"), default=0
        )
        return tuple(arm for arm in arms if shares.get(arm, 0.0) > of_none)

    def require_jobs(self, arms: Sequence[str]) -> None:
        """Check that jobs ended under all of ``arms``: none that failed out of none proves nothing.

        Raises:
            BenchError: If none did under one of them.
        """
        ran = {run.arm for run in self.runs}
        for arm in arms:
            if arm not in ran:
                why = self.left_out.get(f"a block of {arm}")
                raise BenchError(
                    f"No job ended under {arm}." if why is None else f"{arm} did not run: {why}",
                    next_step="Try longer blocks." if why is None else "",
                )

    def failures(self) -> tuple[JobRun, ...]:
        """The jobs that failed or were wrong."""
        return tuple(run for run in self.runs if not run.right)


def _of_arm(
    arm: str, runs: Sequence[JobRun], base_s: dict[str, float], p95_ms: Sequence[float]
) -> ArmHarm:
    medians_s = _medians_s(runs)
    ratios = [medians_s[job] / base_s[job] for job in medians_s if base_s.get(job)]
    return ArmHarm(
        arm=arm,
        jobs=len(runs),
        failed=sum(run.status != 0 for run in runs),
        killed=sum(run.status < 0 or run.status > 128 for run in runs),
        wrong=sum(run.status == 0 and not run.right for run in runs),
        p95_ms=float(np.median(p95_ms)) if p95_ms else None,
        slower=geometric_mean(ratios) if ratios else None,
    )


def _medians_s(runs: Iterable[JobRun]) -> dict[str, float]:
    times_s: dict[str, list[float]] = {}
    for run in runs:
        if run.right:
            times_s.setdefault(run.job, []).append(run.took_s)
    return {job: float(np.median(values)) for job, values in times_s.items()}


def parse_runs(text: str, arm: str, until_s: float) -> tuple[JobRun, ...]:
    """Read the lines that the jobs' runner wrote in one block.

    Args:
        text: The lines. A last one that was cut short by the end of the block is left out.
        arm: The arm of the block.
        until_s: The end of the block, CLOCK_MONOTONIC. A job that ended later was ended with it.
    """
    runs = []
    for line in text.splitlines():
        try:
            values = json.loads(line)
        except ValueError:
            continue
        if values["ended_s"] < until_s:
            runs.append(
                JobRun(
                    arm=arm,
                    job=values["job"],
                    took_s=values["took_s"],
                    status=values["status"],
                    right=values["right"],
                    said=values["said"],
                )
            )
    return tuple(runs)


@dataclass(frozen=True, slots=True, kw_only=True)
class HarmRequest:
    """What to measure."""

    arms: Sequence[Arm]
    """The arms; ``none`` should be one of them."""
    policies: Mapping[str, Path | None]
    """The policy file of each arm that runs one."""
    rounds: int
    block_s: float
    """The length of a block."""
    swap_bytes: int = 0
    """The swap of the sandbox; 0 for none."""
    disk: DiskLimit | None = None
    """How slow the disk is."""
    only: Sequence[str] = ()
    """The names of the jobs; all if there are none."""
    seed: int = 1


def bench_harm(
    tally: HarmTally, request: HarmRequest, paths: Paths = DEFAULT_PATHS, report: Report = silent
) -> None:
    """Run the jobs under every arm.

    Args:
        tally: The runs are added to it after each block.
        request: What to measure.
        paths: The kernel's files.
        report: Called with the progress.

    Raises:
        StallwardError: If this machine cannot have the sandbox.
        BenchError: If there is no such job, none can run here, or none ended under one of the arms.
    """
    names = [job.name for job in JOBS]
    if unknown := [name for name in request.only if name not in names]:
        raise BenchError(
            f"There is no job {unknown[0]!r}.", next_step=f"The jobs are: {', '.join(names)}."
        )
    chosen = [job for job in JOBS if not request.only or job.name in request.only]
    missing = {job.name: job.program for job in chosen if shutil.which(job.program) is None}
    if len(missing) == len(chosen):
        raise BenchError(f"The programs of all jobs are missing: {', '.join(missing.values())}.")
    tally.left_out |= {k: f"There is no program {v} here." for k, v in missing.items()}
    rng = random.Random(request.seed)  # noqa: S311 - the order of blocks
    arms, total = list(request.arms), request.rounds * len(request.arms)
    with open_session(_scenario(request, ""), paths=paths) as session:
        inputs = session.workplace.data / "jobs"
        with served(inputs) as url:
            lines = session.scratch / _REPORT
            ready = replace(session, scenario=_scenario(request, url, lines))
            for number in range(request.rounds):
                rng.shuffle(arms)
                for place, arm in enumerate(arms):
                    done = number * len(arms) + place
                    report(f"{len(tally.runs)} jobs", done / total)
                    try:
                        _block(ready, arm, request, number, lines, tally)
                    except StallwardError as error:  # its next block may run
                        tally.left_out[f"a block of {arm.label}"] = error.cause
    report("done", 1.0)
    tally.require_jobs([arm.label for arm in request.arms if arm.peer is None])


def _block(
    session: LiveSession,
    arm: Arm,
    request: HarmRequest,
    number: int,
    lines: Path,
    tally: HarmTally,
) -> None:
    lines.write_text("")
    out = session.scratch / f"harm-{number}-{arm.label.replace('/', '-')}"
    run = RunRequest(
        condition="together",
        arm=arm,
        policy=request.policies.get(arm.label),
        slo_ms=TARGET_MS,
        duration_s=request.block_s,
        burn_in_s=0.0,
        seed=request.seed * 1000 + number,
        probes=False,
    )
    result = session.run(run, out)
    shutil.rmtree(out, ignore_errors=True)
    asked = result.measured
    if asked.ok.any():
        latencies_ms = 1e3 * (asked.end_s - asked.scheduled_s)[asked.ok]
        tally.p95_ms.setdefault(arm.label, []).append(float(np.quantile(latencies_ms, 0.95)))
    tally.runs += parse_runs(lines.read_text(encoding="utf-8"), arm.label, result.end_s)


def _scenario(request: HarmRequest, url: str, report: Path = Path(_REPORT)) -> Scenario:
    """The scenario; the blocks of one session differ in nothing but the seed."""
    text = _FILE.read_text(encoding="utf-8")
    for name, value in (("REPORT", report), ("URL", url), ("ONLY", ",".join(request.only))):
        text = text.replace(f'"{name}"', f'"{value}"')
    values: dict[str, Any] = tomllib.loads(text)
    scenario = scenario_from(values, _FILE)
    sandbox = replace(scenario.sandbox, swap_bytes=request.swap_bytes, disk=request.disk)
    return replace(scenario, sandbox=sandbox)
