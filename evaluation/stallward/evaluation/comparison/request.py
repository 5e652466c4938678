"""The request for a comparison, and its settings with hashes of all files it depends on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from stallward.env.scenario.file import load_scenario
from stallward.env.scenario.scenario import Scenario, Target
from stallward.env.twin.inputs.find import find_twin_of, load_twin_of
from stallward.env.twin.inputs.fitted import twin_to_json
from stallward.evaluation.arms import Arm, file_of
from stallward.evaluation.blocks.request import file_sha256
from stallward.evaluation.blocks.store import Settings
from stallward.evaluation.errors import PlanError


def settings_of(
    request: ComparisonRequest, scenario: Scenario, policies: Mapping[str, Path | None]
) -> Settings:
    """The settings of a comparison.

    Args:
        request: The request of the user.
        scenario: The scenario that it names.
        policies: Label of an arm -> its policy file.

    Raises:
        StallwardError: If there is no such twin.
    """
    content = json.dumps(scenario.content, sort_keys=True)
    files = arm_files(request.arms, policies)
    digest = hashlib.sha256()
    for label, path in sorted(files.items()):
        digest.update(label.encode() + path.read_bytes())
    return Settings(
        scenario=scenario.name,
        scenario_sha256=hashlib.sha256(content.encode()).hexdigest(),
        mode=request.mode,
        arms=tuple(arm.label for arm in request.arms),
        block_s=request.block_s,
        burn_in_s=request.burn_in_s,
        seed=request.seed,
        policy_sha256=digest.hexdigest() if files else "",
        twin_sha256=_twin_sha256(request, scenario),
    )


def arm_files(arms: Sequence[Arm], policies: Mapping[str, Path | None]) -> dict[str, Path]:
    """Label of an arm -> the file that it decides by.

    Args:
        arms: All arms.
        policies: Label of an arm -> its policy file, or its twin.

    Raises:
        RegistryError: If there are no such thresholds.
    """
    files = {arm.label: file_of(arm, policies.get(arm.label)) for arm in arms}
    return {label: path for label, path in files.items() if path is not None}


def _twin_sha256(request: ComparisonRequest, scenario: Scenario) -> str:
    if request.mode == "live":
        return ""
    if scenario.others and request.twin == "default":  # it has no file
        content = json.dumps(twin_to_json(load_twin_of(scenario, request.twin)))
        return hashlib.sha256(content.encode()).hexdigest()
    return file_sha256(find_twin_of(scenario.name, request.twin))


_DAY_S: Final = 86400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonRequest:
    """The request of the user."""

    scenario: str
    """Name or file of the scenario."""
    arms: tuple[Arm, ...]
    """The controllers to compare."""
    mode: Literal["live", "twin"]
    """Whether blocks run on this machine or on its twin."""
    rounds: int
    """Number of blocks of each condition."""
    block_s: float
    """Measured length of a block."""
    burn_in_s: float
    """Length of the burn-in before each block."""
    seed: int
    """Seeds the order, the load and the resampling."""
    out: Path
    """Directory of the comparison, new or to be resumed."""
    policy: str = "default"
    """File or name of the policy for arms that run one and name none."""
    twin: str = "default"
    """Fitted twin, file or name."""
    calibration_s: float | None = None
    """Least length of the block that measures the target; ``None`` means the scenario's."""
    target: Target = "stated"
    """Which latency target controllers are given and judged by."""
    repeat_disturbed: bool = True
    """Whether blocks with much steal time are run again."""

    def __post_init__(self) -> None:
        """Refuse lengths that cannot be measured.

        Raises:
            PlanError: If a length is out of range.
        """
        if not 2.0 <= self.block_s <= _DAY_S or not 0.0 <= self.burn_in_s <= _DAY_S:
            raise PlanError(
                f"Blocks of {self.block_s:g} s after {self.burn_in_s:g} s cannot be measured.",
                next_step="Use --block-seconds 2 or more and --burn-in-seconds 0 or more, "
                "both at most a day.",
            )

    def load(self) -> Scenario:
        """The scenario, with the target that was asked for.

        Raises:
            ScenarioError: If there is no such scenario, its file has a mistake, or it protects
                several applications and is to run by a measured target.
        """
        scenario = load_scenario(self.scenario, several=True)
        return scenario.with_target(self.target)
