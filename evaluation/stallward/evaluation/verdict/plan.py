"""What the live verdict runs: scenarios, arms, and how many blocks of which length."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Final

from stallward.agent.schema.toml_file import read_toml
from stallward.evaluation.arms import make_arms
from stallward.evaluation.errors import PlanError

_KEYS: Final[dict[str, type | tuple[type, ...]]] = {
    "scenarios": list,
    "arms": list,
    "hindsight_settings": int,
    "rounds": int,
    "block_seconds": (int, float),
    "burn_in_seconds": (int, float),
    "seed": int,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictPlan:
    """A plan of comparisons, one for each scenario.

    Args:
        scenarios: Their names.
        arms: Labels of the arms that every scenario has.
        hindsight_settings: How many static settings are added to them; 0 also leaves ``mpc`` out.
        rounds: Blocks of each arm.
        block_seconds: Measured length of a block.
        burn_in_seconds: Its length before that.
        seed: Of order, load and resampling.
    """

    scenarios: tuple[str, ...]
    arms: tuple[str, ...]
    hindsight_settings: int
    rounds: int
    block_seconds: float
    burn_in_seconds: float
    seed: int


def load_verdict_plan(path: Path | None = None) -> VerdictPlan:
    """Read a plan; without a path the shipped one.

    Raises:
        PlanError: If it cannot be read, a key is missing, unknown or of the wrong type, or
            nothing would be run.
    """
    file = path or Path(str(resources.files("stallward.evaluation.verdict"))) / "verdict.toml"
    try:
        data = read_toml(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise PlanError(f"The plan {file} cannot be read: {error}.") from error
    _check(file, data)
    plan = VerdictPlan(
        **{**data, "scenarios": tuple(data["scenarios"]), "arms": tuple(data["arms"])}
    )
    make_arms(list(plan.arms))
    if not plan.scenarios or plan.rounds < 1 or plan.hindsight_settings < 0:
        raise PlanError(f"{file} runs nothing.", next_step="Give scenarios, and rounds above 0.")
    return plan


def _check(file: Path, data: dict[str, Any]) -> None:
    for key in sorted(set(data) ^ set(_KEYS)):
        what = "lacks the key" if key in _KEYS else "has the unknown key"
        raise PlanError(
            f"The plan {file} {what} {key!r:.80}.", next_step=f"Known: {', '.join(_KEYS)}."
        )
    for key, kind in _KEYS.items():
        value = data[key]
        listed = not isinstance(value, list) or all(isinstance(item, str) for item in value)
        if not isinstance(value, kind) or isinstance(value, bool) or not listed:
            raise PlanError(f"The plan {file} has a {key} of the wrong type.")
