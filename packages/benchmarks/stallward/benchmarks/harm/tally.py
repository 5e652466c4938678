"""Jobs that ran under an arm: how many, how they ended, and how long they took."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import geometric_mean

import numpy as np

from stallward.benchmarks.errors import BenchError


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
