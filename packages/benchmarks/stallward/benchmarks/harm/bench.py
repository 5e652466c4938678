"""``stallward bench harm``: whether ordinary background programs fail because of the daemon.

Ordinary programs with known results run one after another in a group of the background, beside a
server and a program whose memory swells. Every arm has a block in each round, in a random order.
What counts is how the programs end and whether their results are right, against the arm ``none``;
and how much longer they take.
"""

from __future__ import annotations

import random
import shutil
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from stallward.actuator.kernel.paths import DEFAULT_PATHS, Paths
from stallward.agent.errors import StallwardError
from stallward.benchmarks.harm.tally import HarmTally, parse_runs
from stallward.env.scenario.file import scenario_from
from stallward.env.scenario.scenario import DiskLimit, Scenario
from stallward.env.workloads.jobs.checked import JOBS, served
from stallward.evaluation.arms import Arm
from stallward.evaluation.blocks.live import LiveSession, open_session
from stallward.evaluation.blocks.request import RunRequest
from stallward.training.progress import Report, silent

_FILE: Final = Path(__file__).with_name("harm.toml")
_REPORT: Final = "jobs.report"
TARGET_MS: Final = 8.0
"""The latency target. The server misses it under pressure."""


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
        BenchError: If no job ended under one of the arms.
    """
    for job in JOBS:
        if shutil.which(job.program) is None:
            tally.left_out[job.name] = f"There is no program {job.program} here."
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
