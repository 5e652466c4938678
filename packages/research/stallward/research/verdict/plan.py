"""The plan of a live verdict: which comparisons are run, and the targets of figures."""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path

from stallward.agent.errors import SchemaError
from stallward.agent.schema.file_kinds import next_step_of
from stallward.agent.schema.read import read
from stallward.agent.schema.toml_file import read_toml_file
from stallward.env.scenario.scenario import Target as LatencyTarget
from stallward.evaluation.arms import make_arms
from stallward.evaluation.errors import PlanError
from stallward.research.verdict.targets import BY_NAME, POLICY, Target


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictPlan:
    """A plan of comparisons, one for each scenario."""

    scenarios: tuple[str, ...]
    """The scenarios' names or files."""
    arms: tuple[str, ...]
    """Labels of the arms that are run in every scenario."""
    fixed_setting: bool
    """Whether the best static setting of the scenarios that the policy was trained on is an arm,
    if the policy's metadata names one."""
    hindsight_settings: int
    """How many static settings are added to them as candidates for the oracle; with 0, ``mpc`` is
    left out, too."""
    rounds: int
    """Number of blocks of each arm."""
    block_seconds: float
    """Measured length of a block."""
    burn_in_seconds: float
    """Length of the burn-in before each block."""
    seed: int
    """Seeds the order, the load and the resampling."""
    targets: tuple[Target, ...]
    """The targets of figures; a figure without one is only shown."""
    target: LatencyTarget = "stated"
    """Which latency target the arms are given and judged by."""


def load_verdict_plan(path: Path | None = None) -> VerdictPlan:
    """Read a plan file; without a path, the shipped one.

    Files of scenarios are found from its folder.

    Raises:
        PlanError: If it cannot be read, a key is missing, unknown or of the wrong type, a target
            has no bound, or nothing would be run.
    """
    file = path or Path(str(resources.files("stallward.research.verdict"))) / "verdict.toml"
    try:
        plan = read(VerdictPlan, read_toml_file(file))
    except (OSError, ValueError) as error:
        raise PlanError(
            f"The plan {file} cannot be read: {error}.", next_step=next_step_of(error, "")
        ) from error
    except SchemaError as error:
        raise PlanError(f"{file}: {error.cause}", next_step=error.next_step) from error
    files = (str(file.parent / one) if one.endswith(".toml") else one for one in plan.scenarios)
    plan = replace(plan, scenarios=tuple(files))
    make_arms(list(plan.arms))
    if not plan.scenarios or plan.rounds < 1 or plan.hindsight_settings < 0:
        raise PlanError(f"{file} runs nothing.", next_step="Give scenarios, and rounds above 0.")
    if POLICY not in plan.arms:
        raise PlanError(
            f"{file} has no arm {POLICY!r}, which is what a verdict is about.",
            next_step="Add it, or use `stallward compare`.",
        )
    _check_targets(file, plan.targets)
    return plan


def _check_targets(file: Path, targets: tuple[Target, ...]) -> None:
    named = [target.figure for target in targets]
    for target in targets:
        where = f"{file}: The target of {target.figure!r:.80}"
        if target.figure not in BY_NAME:
            raise PlanError(
                f"{where} is about no figure of the verdict.",
                next_step=f"Choose one of: {', '.join(BY_NAME)}.",
            )
        if named.count(target.figure) > 1:
            raise PlanError(f"{where} stands there twice.", next_step="Keep one of them.")
        if target.at_least is None and target.at_most is None:
            raise PlanError(f"{where} has no bound.", next_step="Give it at_least or at_most.")
        if target.where_met is not None and target.where_met not in named:
            raise PlanError(
                f"{where} depends on {target.where_met!r:.80}, which has no target.",
                next_step="Name a figure that has a target as where_met, or leave it out.",
            )
