"""Plans of recordings: the runs and their order.

A plan file is TOML: ``seconds``, ``burn_in_s`` and ``seed`` for all, ``order_seed``, and one
``[[runs]]`` table for each group of runs with ``scenarios`` and ``arms`` (lists), and optionally
``conditions``, ``seconds`` and ``seeds``.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
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
from stallward.env.scenario.scenario import Target
from stallward.evaluation.arms import parse_arms
from stallward.evaluation.blocks.request import Condition
from stallward.evaluation.errors import PlanError

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
        PlanError: If it cannot be read, or a key is unknown, missing or of the wrong type.
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
        return Plan(
            runs=tuple(request for runs in plan.runs for request in _requests(plan, runs)),
            order_seed=plan.order_seed,
        )
    except SchemaError as error:
        raise PlanError(
            f"The plan {file} lacks a key or has a wrong one: {error}",
            next_step="Each [[runs]] has a list of scenarios and a list of arms.",
        ) from error
    except StallwardError as error:
        raise PlanError(f"The plan {file}: {error.cause}", next_step=error.next_step) from error


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
