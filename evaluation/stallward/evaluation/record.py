"""``stallward record``: one live run, or the whole shipped set from its plan file.

A plan file is TOML: ``seconds``, ``burn_in_s`` and ``seed`` for all, and one ``[[runs]]`` table
for each group of runs with ``scenario`` and ``arms`` (a list of arms), and optionally
``conditions``, ``seconds`` and ``seeds``.

Runs of one scenario are told one target: that of the recordings of it that lie beside them and
stay, or else one that is measured once, before the first.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, get_args

from stallward.agent.errors import StallwardError
from stallward.agent.toml_text import read_toml
from stallward.env.recording import load_run
from stallward.evaluation.arms import parse_arms
from stallward.evaluation.calibration import calibrate_ms, recorded_ms
from stallward.evaluation.compare import find_policy_of
from stallward.evaluation.errors import ComparisonError, PlanError, UsageError
from stallward.evaluation.progress import Report, part, silent, timed
from stallward.evaluation.runs import Condition, RunRequest

if TYPE_CHECKING:
    from stallward.evaluation.live import LiveSession

_ATTEMPTS: Final = 3
_LONGEST_S: Final = 7 * 86_400.0
_SEEDS: Final = 1 << 32
_PLAN_KEYS: Final = frozenset({"seconds", "burn_in_s", "seed", "policy", "runs"})
_RUN_KEYS: Final = frozenset({"scenario", "arms", "conditions", "seconds", "seeds"})


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

    def __post_init__(self) -> None:
        """Refuse what cannot be run."""
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
        """A directory name that says what it holds."""
        what = self.arm if self.condition == "together" else self.condition
        return re.sub(r"[^A-Za-z0-9.]+", "-", f"{Path(self.scenario).stem}-{what}-s{self.seed}")


def record_one(request: RecordRequest, out: Path, report: Report = silent) -> None:
    """Record one run into ``out``, which must not exist.

    Raises:
        StallwardError: If it exists, or this machine cannot run it.
    """
    if out.exists():
        raise UsageError(f"{out} exists already.", next_step="Name a new directory with --out.")
    _record([(request, out)], report)


def record_all(
    plan: Path | None,
    out: Path,
    report: Report = silent,
    *,
    only: Sequence[str] = (),
    replace: bool = False,
) -> list[Path]:
    """Record the runs of a plan that are not in ``out`` yet.

    Args:
        plan: A plan file; ``None`` takes the shipped one.
        out: Where the recordings go, new or with recordings in it.
        report: Told how far it is.
        only: Patterns of names (``*`` matches anything); others of the plan are left out.
        replace: Record again what exists; an old recording stays until the new one is whole.

    Returns:
        The recordings made.

    Raises:
        StallwardError: If the plan has a mistake, a pattern matches none of it, or this machine
            cannot run it.
    """
    wanted = [(request, out / request.name) for request in choose(load_plan(plan), only)]
    missing = [(request, path) for request, path in wanted if replace or not path.exists()]
    for _, path in missing:
        if path.exists():
            load_run(path)  # only recordings are replaced
    _record(missing, report)
    return [path for _, path in missing]


def choose(runs: Sequence[RecordRequest], only: Sequence[str]) -> list[RecordRequest]:
    """The runs with a name that matches one of the patterns; all of them without a pattern.

    Raises:
        UsageError: If a pattern matches none.
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


def load_plan(path: Path | None) -> list[RecordRequest]:
    """The runs of a plan file; ``None`` takes the shipped one.

    Raises:
        PlanError: If it cannot be read, or a key is unknown, missing or of the wrong type.
    """
    file = (
        path or Path(str(resources.files("stallward.evaluation"))) / "assets" / "recordings.toml"
    )
    try:
        table = read_toml(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise PlanError(f"The plan {file} cannot be read: {error}.") from error
    _refuse_unknown(file, table, _PLAN_KEYS)
    try:
        return [request for run in table["runs"] for request in _runs(file, table, run)]
    except StallwardError as error:
        if str(file) in error.cause:
            raise
        raise PlanError(f"The plan {file}: {error.cause}", next_step=error.next_step) from error
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise PlanError(
            f"The plan {file} lacks a key or has one of the wrong type: {error}.",
            next_step="Each [[runs]] has a scenario and a list of arms.",
        ) from error


def _runs(file: Path, plan: dict[str, Any], run: dict[str, Any]) -> list[RecordRequest]:
    _refuse_unknown(file, run, _RUN_KEYS)
    seeds = run.get("seeds", [plan.get("seed", 1)])
    whats = [(arm, "together") for arm in run.get("arms", [])]
    whats += [("none", condition) for condition in run.get("conditions", [])]
    texts = [run["scenario"], *(text for what in whats for text in what)]
    if not all(isinstance(text, str) for text in texts):
        raise TypeError("scenario, arms and conditions are strings")
    return [
        RecordRequest(
            scenario=run["scenario"],
            arm=arm,
            condition=condition,
            seconds=float(run.get("seconds", plan.get("seconds", 60.0))),
            burn_in_s=float(plan.get("burn_in_s", 8.0)),
            seed=int(seed),
            policy=str(plan.get("policy", "default")),
        )
        for seed in seeds
        for arm, condition in whats
    ]


def _refuse_unknown(file: Path, table: dict[str, Any], known: frozenset[str]) -> None:
    for key in table.keys():  # noqa: SIM118 - what is no table has none
        if key not in known:
            raise PlanError(
                f"The plan {file} has the unknown key {key!r}.",
                next_step=f"Known: {', '.join(sorted(known))}.",
            )


def _record(runs: Sequence[tuple[RecordRequest, Path]], report: Report) -> None:
    """Record runs, one sandbox for all of a scenario; what is in the way is replaced."""
    from stallward.env.scenario_file import load_scenario  # noqa: PLC0415
    from stallward.evaluation.live import open_session  # noqa: PLC0415 - gRPC

    done = 0
    made = {out for _, out in runs}
    for scenario in dict.fromkeys(request.scenario for request, _ in runs):
        report(f"preparing {scenario}", done / len(runs))
        mine = [(request, out) for request, out in runs if request.scenario == scenario]
        with open_session(load_scenario(scenario)) as session:
            beside = {path for _, out in mine for path in out.parent.glob("*")}
            slo_ms = _target_ms(session, sorted(beside - made), mine[0][0].seed)
            for request, out in mine:
                step = part(report, done / len(runs), (done + 1) / len(runs))
                with timed(step, request.name, request.burn_in_s + request.seconds):
                    _record_in(session, request, out, slo_ms)
                done += 1
    report("done", 1.0)


def _record_in(session: LiveSession, request: RecordRequest, out: Path, slo_ms: float) -> None:
    arm = parse_arms(request.arm)[0]
    wanted = RunRequest(
        condition=request.condition,  # type: ignore[arg-type]
        arm=arm,
        policy=find_policy_of(arm, request.policy),
        slo_ms=slo_ms,
        duration_s=request.seconds,
        burn_in_s=request.burn_in_s,
        seed=request.seed,
        even_ticks=True,  # a twin is fitted to every tenth of a second
    )
    building = out.with_name(f".{out.name}.new")
    shutil.rmtree(building, ignore_errors=True)
    try:
        for _ in range(_ATTEMPTS):
            if session.run_block(wanted, building) == 0:
                shutil.rmtree(out, ignore_errors=True)
                building.rename(out)
                return
            shutil.rmtree(building)
    finally:
        shutil.rmtree(building, ignore_errors=True)
    raise ComparisonError(
        f"{request.name} had memory-group OOM kills {_ATTEMPTS} times.",
        next_step="Give the sandbox of the scenario more memory or swap.",
    )


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
    return calibrate_ms(session, seed) if known is None else known
