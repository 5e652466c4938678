"""``stallward record``: one live run, or the whole shipped set from its plan file.

A plan file is TOML: ``seconds``, ``burn_in_s`` and ``seed`` for all, and one ``[[runs]]`` table
for each group of runs with ``scenario`` and ``arms`` (a list of arms), and optionally
``conditions``, ``seconds`` and ``seeds``.
"""

from __future__ import annotations

import re
import shutil
import tempfile
import tomllib
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, get_args

from stallward.evaluation.arms import parse_arms
from stallward.evaluation.compare import find_policy_of, target_ms
from stallward.evaluation.errors import ComparisonError, PlanError, UsageError
from stallward.evaluation.progress import Report, silent
from stallward.evaluation.runs import Condition, RunRequest

if TYPE_CHECKING:
    from stallward.evaluation.live import LiveSession

_ATTEMPTS: Final = 3
_CALIBRATION_S: Final = 15.0
_PLAN_KEYS: Final = frozenset({"seconds", "burn_in_s", "seed", "policy", "runs"})
_RUN_KEYS: Final = frozenset({"scenario", "arms", "conditions", "seconds", "seeds"})


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordRequest:
    """One run to be recorded.

    Raises:
        UsageError: If there is no such condition, or several arms are named.
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
    _record([(request, out)], report)


def record_all(plan: Path | None, out: Path, report: Report = silent) -> list[Path]:
    """Record every run of a plan that is not in ``out`` yet.

    Returns:
        The recordings made.

    Raises:
        StallwardError: If the plan has a mistake or this machine cannot run it.
    """
    wanted = [(request, out / request.name) for request in load_plan(plan)]
    missing = [(request, path) for request, path in wanted if not path.exists()]
    _record(missing, report)
    return [path for _, path in missing]


def load_plan(path: Path | None) -> list[RecordRequest]:
    """The runs of a plan file; ``None`` takes the shipped one.

    Raises:
        PlanError: If it cannot be read, or a key is unknown, missing or of the wrong type.
    """
    file = (
        path or Path(str(resources.files("stallward.evaluation"))) / "assets" / "recordings.toml"
    )
    try:
        table = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise PlanError(f"The plan {file} cannot be read: {error}.") from error
    _refuse_unknown(file, table, _PLAN_KEYS)
    try:
        return [request for run in table["runs"] for request in _runs(file, table, run)]
    except (KeyError, TypeError, ValueError) as error:
        raise PlanError(
            f"The plan {file} lacks a key or has one of the wrong type: {error}.",
            next_step="Each [[runs]] has a scenario and a list of arms.",
        ) from error


def _runs(file: Path, plan: dict[str, Any], run: dict[str, Any]) -> list[RecordRequest]:
    _refuse_unknown(file, run, _RUN_KEYS)
    seeds = run.get("seeds", [plan.get("seed", 1)])
    whats = [(arm, "together") for arm in run.get("arms", [])]
    whats += [("none", condition) for condition in run.get("conditions", [])]
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
    for key in table:
        if key not in known:
            raise PlanError(
                f"The plan {file} has the unknown key {key!r}.",
                next_step=f"Known: {', '.join(sorted(known))}.",
            )


def _record(runs: list[tuple[RecordRequest, Path]], report: Report) -> None:
    """Record runs, one sandbox for all of a scenario."""
    from stallward.env.scenario_file import load_scenario  # noqa: PLC0415
    from stallward.evaluation.live import open_session  # noqa: PLC0415 - gRPC

    for _, out in runs:
        if out.exists():
            raise UsageError(
                f"{out} exists already.", next_step="Name a new directory with --out."
            )
    done = 0

    def step(session: LiveSession, request: RecordRequest, out: Path, slo_ms: float) -> None:
        nonlocal done
        report(request.name, done / len(runs))
        _record_in(session, request, out, slo_ms)
        done += 1

    for scenario in dict.fromkeys(request.scenario for request, _ in runs):
        report(f"preparing {scenario}", done / len(runs))
        with open_session(load_scenario(scenario)) as session:
            slo_ms = _target_ms(session)
            for request, out in runs:
                if request.scenario == scenario:
                    step(session, request, out, slo_ms)
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
    )
    for _ in range(_ATTEMPTS):
        if session.run_block(wanted, out) == 0:
            return
        shutil.rmtree(out)
    raise ComparisonError(
        f"{request.name} had memory-group OOM kills {_ATTEMPTS} times.",
        next_step="Give the sandbox of the scenario more memory or swap.",
    )


def _target_ms(session: LiveSession) -> float:
    """The scenario's target, or 1.5 x the p99 of a short block with ample memory."""
    known = session.scenario.protected.slo.latency_ms
    if known is not None:
        return float(known)
    with tempfile.TemporaryDirectory(prefix="stallward-") as folder:
        out = Path(folder) / "ample"
        request = RunRequest(
            condition="ample", slo_ms=100.0, duration_s=_CALIBRATION_S, burn_in_s=3.0, seed=1
        )
        session.run_block(request, out)
        return target_ms(out)
