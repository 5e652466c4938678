"""``stallward demo``: the whole way once, in a fixed time: fit, train, export, compare, report."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from stallward.actuator.errors import ActuatorError
from stallward.actuator.kernel.hierarchies import require
from stallward.actuator.kernel.paths import DEFAULT_PATHS, Paths
from stallward.agent.errors import StallwardError
from stallward.env.recording.node_facts import node_info
from stallward.evaluation.arms import parse_arms
from stallward.evaluation.blocks.store import PLAN_FILE
from stallward.evaluation.comparison.compare import run_comparison
from stallward.evaluation.comparison.request import ComparisonRequest
from stallward.evaluation.errors import EvaluationError
from stallward.evaluation.report.html import REPORT_FILE
from stallward.evaluation.report.text import headline, result_rows
from stallward.evaluation.results.comparison import RESULT_FILE, ComparisonResult
from stallward.models.registry import twin_names
from stallward.training.progress import Report

DEMO_SCENARIO: Final = "detector-anon"
DEMO_ARMS: Final = "none,latd,ppo"
_CONDITIONS: Final = 6
"""Three references and three arms in every round."""
_FIT_SHARE: Final = 0.08
_TRAIN_SHARE: Final = 0.30
CALIBRATION_S: Final = 30.0
"""Shorter than the scenario's own: a demonstration's target may be rough."""
_BURN_IN_S: Final = 4.0
_SWITCH_S: Final = 3.5
"""Starting and stopping the programs of a block."""
_ROUNDS: Final = 4
_MIN_BLOCK_S: Final = 6.0
_SEEDS: Final = 2
"""Policies trained side by side where there are processors for them; the better one runs."""
_SPARE_S: Final = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoSettings:
    """What the user asked for.

    Args:
        out: Where everything it makes goes.
        scenario: Scenario to run; empty takes the one that degrades steepest.
        minutes: Time for all stages together.
        twin: Compare on the twin even where a live comparison is possible.
        seed: Seeds training, plan and load.
        recordings: What the twin is fitted to; ``None`` takes the shipped ones.
    """

    out: Path
    scenario: str = ""
    minutes: float = 10.5
    twin: bool = False
    seed: int = 1
    recordings: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Seconds for each stage; pure."""

    fit_s: float
    train_s: float
    rounds: int
    block_s: float


def plan_budget(total_s: float, *, live: bool) -> Budget:
    """Divide the time: fitting and training take fixed shares, blocks what is left.

    Args:
        total_s: All of it.
        live: Whether blocks take as long as they measure (they do not on the twin).
    """
    fit_s, train_s = _FIT_SHARE * total_s, _TRAIN_SHARE * total_s
    if not live:
        return Budget(fit_s=fit_s, train_s=train_s, rounds=4, block_s=30.0)
    left_s = total_s - fit_s - train_s - _SPARE_S
    rounds = _ROUNDS
    around_s = _BURN_IN_S + _SWITCH_S
    while True:
        blocks = _CONDITIONS * rounds
        # The block that finds the target is as long as the others, but not under its minimum.
        each_s = min(left_s / (blocks + 1), (left_s - CALIBRATION_S - around_s) / blocks)
        block_s = each_s - around_s
        if block_s >= _MIN_BLOCK_S or rounds == 1:
            return Budget(
                fit_s=fit_s, train_s=train_s, rounds=rounds, block_s=max(block_s, _MIN_BLOCK_S)
            )
        rounds -= 1


def why_not_live(paths: Paths = DEFAULT_PATHS) -> str:
    """Why this user or node cannot run live blocks; empty if they can."""
    if os.geteuid() != 0:
        return "not root"
    try:
        require(paths)
    except ActuatorError as error:
        return error.cause.rstrip(".")
    return ""


Say = Callable[[str], None]
OpenProgress = Callable[[str], AbstractContextManager[Report]]


@dataclass(slots=True)
class _Stages:
    """Numbers the stages and gives each its progress bar."""

    progress: OpenProgress
    total: int = 4
    done: int = field(default=0)

    def next(self, name: str) -> AbstractContextManager[Report]:
        self.done += 1
        return self.progress(f"{self.done}/{self.total} {name}")


def run_demo(settings: DemoSettings, *, say: Say, progress: OpenProgress) -> ComparisonResult:
    """Run the demo; returns the comparison's result.

    Raises:
        StallwardError: If a stage fails; nothing but files in ``out`` is left.
    """
    start_s = time.monotonic()
    scenario = settings.scenario or DEMO_SCENARIO
    why = "as asked with --twin" if settings.twin else why_not_live()
    say(_first_line(settings.out, why))
    recordings = settings.recordings or shipped_recordings()
    _clear(settings.out)
    settings.out.mkdir(parents=True, exist_ok=True)
    budget = plan_budget(60.0 * settings.minutes, live=not why)
    stages = _Stages(progress)
    policy = _make_policy(settings, scenario, recordings, budget, stages)
    if not why:  # what stages before took less or more goes to the blocks
        spent_s = time.monotonic() - start_s
        left_s = 60.0 * settings.minutes - spent_s
        budget = plan_budget(left_s / (1.0 - _FIT_SHARE - _TRAIN_SHARE), live=True)
    with stages.next("compare") as report:
        result = run_comparison(
            ComparisonRequest(
                scenario=scenario,
                arms=parse_arms(DEMO_ARMS),
                mode="twin" if why else "live",
                rounds=budget.rounds,
                block_s=budget.block_s,
                burn_in_s=_BURN_IN_S,
                seed=settings.seed,
                out=settings.out / "compare",
                policy=str(policy),
                twin=str(settings.out / "twin.json"),
                calibration_s=CALIBRATION_S,
            ),
            report,
        ).result
    for name in (RESULT_FILE, REPORT_FILE):
        shutil.copy2(settings.out / "compare" / name, settings.out / name)
    _conclude(settings.out, result, say, time.monotonic() - start_s)
    return result


def _first_line(out: Path, why: str) -> str:
    node = node_info(out)
    what = (
        f"{node.kind} node, Linux {node.kernel}, {node.cpu_count} CPUs, "
        f"{node.memory_total_bytes / 2**30:.1f} GiB"
    )
    if why:
        return f"Comparing on the twin, not live ({why}). This is a {what}."
    return f"Comparing live, in a sandbox of its own. This is a {what}."


def shipped_recordings() -> Path:
    """The recordings that come with the project.

    Raises:
        EvaluationError: If they are not there.
    """
    import stallward.env as package  # noqa: PLC0415 - only its place is wanted

    root = Path(next(iter(package.__path__))).parents[2]
    for place in (Path("recordings"), root / "recordings"):
        if any(place.glob("**/run.json")):
            return place
    raise EvaluationError(
        "The shipped recordings are not here.",
        next_step="Run the demo in a checkout of the project, or `stallward record --all` first.",
    )


def _clear(out: Path) -> None:
    """Remove what an earlier demo left in ``out``, and nothing else.

    Raises:
        EvaluationError: If ``out`` is a file.
    """
    if out.is_file():
        raise EvaluationError(f"{out} is a file.", next_step="Name a directory with --out.")
    if (out / "compare" / PLAN_FILE).is_file():
        shutil.rmtree(out / "compare")
    shutil.rmtree(out / "run", ignore_errors=True)
    for name in ("twin.json", "policy.onnx", "policy.md", RESULT_FILE, REPORT_FILE):
        (out / name).unlink(missing_ok=True)


def _make_policy(
    settings: DemoSettings, scenario: str, recordings: Path, budget: Budget, stages: _Stages
) -> Path:
    """Fit, train and export; returns the policy's file."""
    from stallward.training.parallel import worker_count  # noqa: PLC0415
    from stallward.training.pipeline.fit import fit_twin  # noqa: PLC0415 - torch takes seconds
    from stallward.training.pipeline.recordings import recordings_of  # noqa: PLC0415 - torch takes seconds
    from stallward.training.pipeline.train import export_policy, load_twins, train_policy  # noqa: PLC0415 - torch takes seconds

    twin, run, policy = (settings.out / name for name in ("twin.json", "run", "policy.onnx"))
    chosen = recordings_of([recordings], scenario)
    if not chosen:
        raise StallwardError(
            f"There is no recording of {scenario} in {recordings}.",
            next_step="Record some with `stallward record`, or choose another --scenario.",
        )
    # The shipped fit took minutes; from there, the time here is enough to fit this node's.
    start = load_twins((scenario,))[0] if scenario in twin_names() else None
    with stages.next(f"fit the twin to {len(chosen)} recordings") as report:
        fit_twin(
            chosen,
            out=twin,
            seconds=budget.fit_s,
            seed=settings.seed,
            start=start,
            report=report,
        )
    with stages.next("train PPO on the twin") as report:
        train_policy(
            (str(twin),),
            out=run,
            seconds=budget.train_s,
            seeds=worker_count(_SEEDS),
            judged_on=(),
            synthetic=0,
            seed=settings.seed,
            report=report,
        )
    with stages.next("export to ONNX") as report:
        report("", 0.0)
        export_policy(run, out=policy)
    return policy


def _conclude(out: Path, result: ComparisonResult, say: Say, took_s: float) -> None:
    from stallward.actuator.cli import output  # noqa: PLC0415 - prints the same table

    say("")
    output.table(*result_rows(result))
    say("")
    say(headline(result))
    say(f"{out / REPORT_FILE}  {out / RESULT_FILE}  ({took_s / 60:.1f} minutes)")
