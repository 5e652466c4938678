"""What a comparison depends on, hashed: a directory is resumed with nothing else."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from stallward.env.scenario import Scenario
from stallward.evaluation.plan import Settings

if TYPE_CHECKING:
    from stallward.evaluation.compare import ComparisonRequest


def settings_of(
    request: ComparisonRequest, scenario: Scenario, policies: Mapping[str, Path | None]
) -> Settings:
    """The settings of a comparison.

    Args:
        request: What the user asked for.
        scenario: What it runs.
        policies: The policy file of each arm.

    Raises:
        StallwardError: If its twin is not there.
    """
    digest = hashlib.sha256()
    for label, path in sorted(policies.items()):
        if path is not None:
            digest.update(label.encode() + path.read_bytes())
    return Settings(
        scenario=scenario.name,
        scenario_sha256=_digest(json.dumps(scenario.content, sort_keys=True).encode()),
        mode=request.mode,
        arms=tuple(arm.label for arm in request.arms),
        block_s=request.block_s,
        burn_in_s=request.burn_in_s,
        seed=request.seed,
        policy_sha256=digest.hexdigest() if any(policies.values()) else "",
        twin_sha256=_twin_sha256(request, scenario),
    )


def _twin_sha256(request: ComparisonRequest, scenario: Scenario) -> str:
    if request.mode == "live":
        return ""
    from stallward.evaluation.simulate import find_twin_of  # noqa: PLC0415 - needs no node

    return _digest(find_twin_of(scenario.name, request.twin).read_bytes())


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
