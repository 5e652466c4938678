"""``stallward record``: one live run, or all runs of a plan.

A plan can be interrupted and resumed: complete runs of the scenario as it is now are kept. The
order is drawn from the plan's seed. Each finished run is noted in ``order.jsonl`` beside the
recordings.

All runs of one scenario have one target. It is taken from recordings of the scenario that are
kept in the same directory, or else measured once before the first run.
"""

from __future__ import annotations

import json
import random
import re
import shutil
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib import resources
from pathlib import Path
from typing import Annotated, Final, get_args

from stallward.agent.errors import SchemaError, StallwardError, UsageError
from stallward.agent.schema.describe import Expect
from stallward.agent.schema.file_kinds import next_step_of
from stallward.agent.schema.read import read
from stallward.agent.schema.toml_file import read_toml_file
from stallward.env.errors import RecordingError
from stallward.env.recording.recording import load_recording
from stallward.env.recording.run_info import load_run
from stallward.env.scenario.file import load_scenario
from stallward.env.scenario.scenario import Target, workload_of
from stallward.evaluation.arms import find_policy_of, parse_arms
from stallward.evaluation.blocks.calibration import calibrate_ms, recorded_ms
from stallward.evaluation.blocks.live import LiveSession, open_session
from stallward.evaluation.blocks.request import Condition, RunRequest, run_undisturbed
from stallward.evaluation.errors import PlanError
from stallward.training.progress import Report, part, silent, timed

# ---------- Plans of recordings: the runs and their order.
# A plan file is TOML: ``seconds``, ``burn_in_s`` and ``seed`` for all, ``order_seed``, and one
# ``[[runs]]`` table for each group of runs with ``scenarios`` and ``arms`` (lists), and optionally
# ``conditions``, ``seconds`` and ``seeds``.

_LONGEST_S: Final = 7 * 86_400.0
_SEEDS: Final = 1 << 32


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordRequest:
    """One run to be recorded.

    Raises:
        UsageError: If there is no such condition, several arms are named, or a number is out of
            range.
    """

    scenario: str
    arm: str = "none"
    condition: str = "together"
    seconds: float = 60.0
    burn_in_s: float = 8.0
    seed: int = 1
    policy: str = "default"
    target: Target = "stated"

    def __post_init__(self) -> None:
        """Refuse a run that cannot be made."""
        if self.condition not in get_args(Condition):
            raise UsageError(
                f"There is no condition {self.condition!r}.",
                next_step=f"Choose one of: {', '.join(get_args(Condition))}.",
            )
        if len(parse_arms(self.arm)) != 1:
            raise UsageError(
                f"{self.arm!r} names several arms.", next_step="Record them one by one."
            )
        if not (0.0 < self.seconds <= _LONGEST_S and 0.0 <= self.burn_in_s <= _LONGEST_S):
            raise UsageError(
                f"A run of {self.seconds:g} s after {self.burn_in_s:g} s cannot be recorded.",
                next_step=f"Give seconds above 0 and at most {_LONGEST_S:g}.",
            )
        if not 0 <= self.seed < _SEEDS:
            raise UsageError(f"The seed is outside 0..{_SEEDS - 1}.")

    @property
    def name(self) -> str:
        """The name of the recording's directory, made from the request."""
        what = self.arm if self.condition == "together" else self.condition
        if self.target != "stated":
            what = f"{what}-{self.target}"
        return re.sub(r"[^A-Za-z0-9.]+", "-", f"{Path(self.scenario).stem}-{what}-s{self.seed}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The runs to be recorded."""

    runs: tuple[RecordRequest, ...]
    """The runs, as the file lists them."""
    order_seed: int = 1
    """Seeds the order in which they are made."""


def in_blocks(runs: Sequence[RecordRequest], seed: int) -> list[RecordRequest]:
    """The runs in the order in which they are made.

    Scenarios follow one another in a random order. The runs of one scenario with one seed are a
    block. Within it, arms and conditions are in a random order, so that changes of the machine
    over time favour none of them.
    """
    rng = random.Random(seed)  # noqa: S311 - not for secrets
    scenarios = sorted({run.scenario for run in runs})
    rng.shuffle(scenarios)
    ordered: list[RecordRequest] = []
    for scenario in scenarios:
        for block in sorted({run.seed for run in runs if run.scenario == scenario}):
            in_block = [run for run in runs if (run.scenario, run.seed) == (scenario, block)]
            rng.shuffle(in_block)
            ordered += in_block
    return ordered


def choose(runs: Sequence[RecordRequest], only: Sequence[str]) -> list[RecordRequest]:
    """The runs whose names match one of the patterns; without patterns, all runs.

    Raises:
        UsageError: If a pattern matches no run.
    """
    for pattern in only:
        if not any(fnmatchcase(run.name, pattern) for run in runs):
            raise UsageError(
                f"No recording of the plan is called {pattern!r}.",
                next_step=f"Names look like {runs[0].name}; * matches anything."
                if runs
                else "The plan is empty.",
            )
    return [run for run in runs if not only or any(fnmatchcase(run.name, p) for p in only)]


def load_plan(path: Path | None) -> Plan:
    """Read a plan file; ``None`` takes the shipped one.

    Raises:
        PlanError: If it cannot be read, a key is unknown, missing or of the wrong type, or two
            runs would be recorded into one directory.
    """
    file = path or Path(str(resources.files("stallward.evaluation.blocks"))) / "recordings.toml"
    try:
        table = read_toml_file(file)
    except (OSError, ValueError) as error:
        raise PlanError(
            f"The plan {file} cannot be read: {error}.", next_step=next_step_of(error, "")
        ) from error
    try:
        plan = read(_PlanTable, table)
        requests = tuple(request for runs in plan.runs for request in _requests(plan, runs))
    except SchemaError as error:
        raise PlanError(
            f"The plan {file} lacks a key or has a wrong one: {error}",
            next_step="Each [[runs]] has a list of scenarios and a list of arms.",
        ) from error
    except StallwardError as error:
        raise PlanError(f"The plan {file}: {error.cause}", next_step=error.next_step) from error
    named: dict[str, RecordRequest] = {}
    for request in requests:
        other = named.setdefault(request.name, request)
        if other is not request:
            raise PlanError(
                f"The plan {file}: {other.scenario} for {other.seconds:g} s and {request.scenario} "
                f"for {request.seconds:g} s are both {request.name}.",
                next_step="Leave one out, or give it other seeds or a scenario file of another "
                "name.",
            )
    return Plan(runs=requests, order_seed=plan.order_seed)


@dataclass(frozen=True, slots=True, kw_only=True)
class _RunsTable:
    """One group of runs; ``None`` stands for the value that the plan gives for all groups."""

    scenarios: tuple[str, ...]
    arms: tuple[str, ...] = ()
    conditions: tuple[str, ...] = ()
    seconds: float | None = None
    seeds: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _PlanTable:
    """The content of a plan file."""

    runs: tuple[_RunsTable, ...]
    seconds: float = 60.0
    burn_in_s: float = 8.0
    seed: int = 1
    order_seed: Annotated[int, Expect(low=0, high=_SEEDS - 1)] = 1
    policy: str = "default"


def _requests(plan: _PlanTable, runs: _RunsTable) -> list[RecordRequest]:
    whats = [(arm, "together") for arm in runs.arms]
    whats += [("none", condition) for condition in runs.conditions]
    return [
        RecordRequest(
            scenario=scenario,
            arm=arm,
            condition=condition,
            seconds=plan.seconds if runs.seconds is None else runs.seconds,
            burn_in_s=plan.burn_in_s,
            seed=seed,
            policy=plan.policy,
        )
        for scenario in runs.scenarios
        for seed in ((plan.seed,) if runs.seeds is None else runs.seeds)
        for arm, condition in whats
    ]


# ---------- The runs of a plan, one after the other

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
