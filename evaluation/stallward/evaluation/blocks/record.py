"""``stallward record``: one live run, or all of a plan (see ``record_plan``).

A plan can be interrupted and taken up again: runs that are there and whole, of the scenario as
it is now, are kept. The order is drawn from the plan's seed and each run is noted in
``order.jsonl`` beside the recordings when it is done.

Runs of one scenario are told one target: that of the recordings of it that lie beside them and
stay, or else one that is measured once, before the first.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from stallward.agent.errors import UsageError
from stallward.env.errors import RecordingError
from stallward.env.recording.recording import load_recording
from stallward.env.recording.run_info import load_run
from stallward.env.scenario.file import load_scenario
from stallward.evaluation.arms import find_policy_of, parse_arms
from stallward.evaluation.blocks.calibration import calibrate_ms, recorded_ms
from stallward.evaluation.blocks.record_plan import RecordRequest, choose, in_blocks, load_plan
from stallward.evaluation.blocks.request import RunRequest
from stallward.evaluation.blocks.rerun import run_undisturbed
from stallward.training.progress import Report, part, silent, timed

if TYPE_CHECKING:
    from stallward.evaluation.blocks.live import LiveSession

ORDER_NAME: Final = "order.jsonl"
_OVERHEAD_S: Final = 8.0
"""What a run takes beside burn-in and measurement, until that is known: start, load, writing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """A run to be made, with where it goes and what its order came from."""

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
    """Record the runs of a plan that are not in ``out``, or not as they would be made now.

    Args:
        plan: A plan file; ``None`` takes the shipped one.
        out: Where the recordings go, new or with recordings in it.
        report: Told how far it is.
        only: Patterns of names (``*`` matches anything); others of the plan are left out.
        replace: Record again what exists; an old recording stays until the new one is whole.

    Returns:
        The recordings made, in their order.

    Raises:
        StallwardError: If the plan has a mistake, a pattern matches none of it, or this machine
            cannot run it.
    """
    wanted = load_plan(plan)
    jobs = [
        _Job(request=request, out=out / request.name, order_seed=wanted.order_seed, position=place)
        for place, request in enumerate(in_blocks(wanted.runs, wanted.order_seed))
    ]
    chosen = set(choose(wanted.runs, only))
    missing = [
        job
        for job in jobs
        if job.request in chosen and (not _is_current(job.request, job.out) or replace)
    ]
    _record(missing, report)
    return [job.out for job in missing]


def _is_current(request: RecordRequest, path: Path) -> bool:
    """Whether a recording is there, whole, as long as planned, and of the scenario as it is now.

    Raises:
        RecordingError: If something else is in its place, which is never replaced.
    """
    if not path.exists():
        return False
    run = load_run(path)
    if run.scenario_parameters != load_scenario(request.scenario).content:
        return False
    if run.end_s - run.measured_from_s < request.seconds - 1.0:
        return False
    try:
        load_recording(path)
    except RecordingError:  # torn, as a copy can be
        return False
    return True


def _record(jobs: Sequence[_Job], report: Report) -> None:
    """Record runs, one sandbox for all of a scenario; what is in the way is replaced."""
    from stallward.evaluation.blocks.live import open_session  # noqa: PLC0415 - gRPC

    left = _TimeLeft(jobs)
    done = 0
    made = {job.out for job in jobs}
    for scenario in dict.fromkeys(job.request.scenario for job in jobs):
        report(f"preparing {scenario}", done / len(jobs))
        mine = [job for job in jobs if job.request.scenario == scenario]
        with open_session(load_scenario(scenario)) as session:
            beside = {path for job in mine for path in job.out.parent.glob("*")}
            report(f"looking for the target of {scenario}", done / len(jobs))
            slo_ms = _target_ms(session, sorted(beside - made), mine[0].request.seed)
            for job in mine:
                step = part(report, done / len(jobs), (done + 1) / len(jobs))
                with timed(step, f"{job.request.name}, {left.text(done)}", job.nominal_s):
                    _record_in(session, job, slo_ms)
                done += 1
    report("done", 1.0)


class _TimeLeft:
    """How long the rest of some runs will take, from how long those before took."""

    def __init__(self, jobs: Sequence[_Job]) -> None:
        self._nominal_s = [job.nominal_s for job in jobs]
        self._began_s = time.monotonic()

    def text(self, done: int) -> str:
        """``3 of 80, about 65 min left`` once so many are done."""
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
    wanted = RunRequest(
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
        run_undisturbed(session, wanted, building, request.name)
        shutil.rmtree(out, ignore_errors=True)
        building.rename(out)
        _note_order(job)
    finally:
        shutil.rmtree(building, ignore_errors=True)


def _note_order(job: _Job) -> None:
    """Append when and in which place of which order a run was made."""
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
    """The scenario's target, that of recordings ``beside``, or a measured one."""
    scenario = session.scenario
    known = scenario.protected.slo.latency_ms
    if known is None:
        known = recorded_ms(
            beside,
            scenario=scenario.name,
            parameters=scenario.content,
            node=session.node,
        )
    if known is None:
        known = calibrate_ms(session, scenario.protected.slo.calibration_s, seed, session.scratch)
    return known
