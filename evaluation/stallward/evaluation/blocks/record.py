"""``stallward record``: one live run, or all runs of a plan (see ``record_plan``).

A plan can be interrupted and resumed: complete runs of the scenario as it is now are kept. The
order is drawn from the plan's seed. Each finished run is noted in ``order.jsonl`` beside the
recordings.

All runs of one scenario have one target. It is taken from recordings of the scenario that are
kept in the same directory, or else measured once before the first run.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stallward.agent.errors import UsageError
from stallward.env.errors import RecordingError
from stallward.env.recording.recording import load_recording
from stallward.env.recording.run_info import load_run
from stallward.env.scenario.file import load_scenario
from stallward.env.scenario.scenario import workload_of
from stallward.evaluation.arms import find_policy_of, parse_arms
from stallward.evaluation.blocks.calibration import calibrate_ms, recorded_ms
from stallward.evaluation.blocks.live import LiveSession, open_session
from stallward.evaluation.blocks.record_plan import RecordRequest, choose, in_blocks, load_plan
from stallward.evaluation.blocks.request import RunRequest
from stallward.evaluation.blocks.rerun import run_undisturbed
from stallward.training.progress import Report, part, silent, timed

ORDER_NAME: Final = "order.jsonl"
_OVERHEAD_S: Final = 8.0
"""A first guess of the time that a run takes besides burn-in and measurement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """A run to be made, with its directory and its position in the order."""

    request: RecordRequest
    out: Path
    order_seed: int | None = None
    position: int = 0

    @property
    def nominal_s(self) -> float:
        return self.request.burn_in_s + self.request.seconds


def record_one(request: RecordRequest, out: Path, report: Report = silent) -> None:
    """Record one run into ``out``, which must not exist.

    Raises:
        StallwardError: If it exists, or this machine cannot run it.
    """
    if out.exists():
        raise UsageError(f"{out} exists already.", next_step="Name a new directory with --out.")
    _record([_Job(request=request, out=out)], report)


def record_all(
    plan: Path | None,
    out: Path,
    report: Report = silent,
    *,
    only: Sequence[str] = (),
    replace: bool = False,
) -> list[Path]:
    """Record the runs of a plan that are missing in ``out``, or no longer current.

    Args:
        plan: A plan file; ``None`` takes the shipped one.
        out: Directory of the recordings, new or with recordings in it.
        report: Called with the progress.
        only: Patterns of names (``*`` matches anything); other runs of the plan are left out.
        replace: Whether to record existing runs again; an old recording stays until the new one
            is complete.

    Returns:
        The recordings made, in the order of their runs.

    Raises:
        StallwardError: If the plan has a mistake, a pattern matches no run, or this machine
            cannot run them.
    """
    loaded = load_plan(plan)
    jobs = [
        _Job(request=request, out=out / request.name, order_seed=loaded.order_seed, position=i)
        for i, request in enumerate(in_blocks(loaded.runs, loaded.order_seed))
    ]
    chosen = set(choose(loaded.runs, only))
    missing = [
        job
        for job in jobs
        if job.request in chosen and (not _is_current(job.request, job.out) or replace)
    ]
    _record(missing, report)
    return [job.out for job in missing]


def _is_current(request: RecordRequest, path: Path) -> bool:
    """Whether a recording exists, complete, as long as planned, and of the scenario as it is now.

    Raises:
        RecordingError: If the path holds anything else, which is never replaced.
    """
    if not path.exists():
        return False
    run = load_run(path)
    now = load_scenario(request.scenario).content
    if workload_of(run.scenario_parameters) != workload_of(now):
        return False
    if run.end_s - run.measured_from_s < request.seconds - 1.0:
        return False
    try:
        load_recording(path)
    except RecordingError:  # incomplete, as a copy can be
        return False
    return True


def _record(jobs: Sequence[_Job], report: Report) -> None:
    """Record runs, with one sandbox for each scenario; existing recordings are replaced."""
    time_left = _TimeLeft(jobs)
    done = 0
    made = {job.out for job in jobs}
    for scenario, target in dict.fromkeys((j.request.scenario, j.request.target) for j in jobs):
        report(f"preparing {scenario}", done / len(jobs))
        of_scenario = [
            job for job in jobs if (job.request.scenario, job.request.target) == (scenario, target)
        ]
        with open_session(load_scenario(scenario).with_target(target)) as session:
            beside = {path for job in of_scenario for path in job.out.parent.glob("*")}
            report(f"looking for the target of {scenario}", done / len(jobs))
            slo_ms = _target_ms(session, sorted(beside - made), of_scenario[0].request.seed)
            for job in of_scenario:
                step = part(report, done / len(jobs), (done + 1) / len(jobs))
                with timed(step, f"{job.request.name}, {time_left.text(done)}", job.nominal_s):
                    _record_in(session, job, slo_ms)
                done += 1
    report("done", 1.0)


class _TimeLeft:
    """The time that the remaining runs will take, estimated from the finished ones."""

    def __init__(self, jobs: Sequence[_Job]) -> None:
        self._nominal_s = [job.nominal_s for job in jobs]
        self._began_s = time.monotonic()

    def text(self, done: int) -> str:
        """The text ``3 of 80, about 65 min left``, after ``done`` runs."""
        extra_s = _OVERHEAD_S
        if done:
            spent_s = time.monotonic() - self._began_s
            extra_s = max(0.0, spent_s - sum(self._nominal_s[:done])) / done
        rest = self._nominal_s[done:]
        minutes = (sum(rest) + extra_s * len(rest)) / 60.0
        return f"{done + 1} of {len(self._nominal_s)}, about {minutes:.0f} min left"


def _record_in(session: LiveSession, job: _Job, slo_ms: float) -> None:
    request, out = job.request, job.out
    arm = parse_arms(request.arm)[0]
    block = RunRequest(
        condition=request.condition,  # type: ignore[arg-type]
        arm=arm,
        policy=find_policy_of(arm, request.policy, session.scenario.name),
        slo_ms=slo_ms,
        duration_s=request.seconds,
        burn_in_s=request.burn_in_s,
        seed=request.seed,
        for_training=True,  # a twin is fitted to every tenth of a second
    )
    building = out.with_name(f".{out.name}.new")
    shutil.rmtree(building, ignore_errors=True)
    try:
        run_undisturbed(session, block, building, request.name)
        shutil.rmtree(out, ignore_errors=True)
        building.rename(out)
        _note_order(job)
    finally:
        shutil.rmtree(building, ignore_errors=True)


def _note_order(job: _Job) -> None:
    """Append to ``order.jsonl`` when a run was made, and its position in the order."""
    if job.order_seed is None:
        return
    line = {
        "name": job.out.name,
        "order_seed": job.order_seed,
        "position": job.position,
        "ended": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    with (job.out.parent / ORDER_NAME).open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def _target_ms(session: LiveSession, beside: Iterable[Path], seed: int) -> float:
    """The target: the scenario's, that of the recordings ``beside``, or a measured one."""
    scenario = session.scenario
    slo_ms = scenario.protected.slo.latency_ms
    if slo_ms is None:
        slo_ms = recorded_ms(
            beside,
            scenario=scenario.name,
            content=scenario.content,
            node=session.node,
        )
    if slo_ms is None:
        slo_ms = calibrate_ms(session, scenario.protected.slo.calibration_s, seed, session.scratch)
    return slo_ms
