"""Measures how much memory a node needs under each arm to serve as if there were plenty.

A zone *serves* if the target is met in nearly all seconds and the background does nearly all the
work that it does with ample memory. The smallest such zone is found by bisection, live. Arms take
turns, in a random order, so that changes of the machine over time favour none of them.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import geometric_mean
from typing import Final

import numpy as np

from stallward.agent.desired import MIB
from stallward.agent.errors import UsageError
from stallward.env.recording.recording import Recording, load_recording
from stallward.env.recording.run_info import RunInfo, load_run
from stallward.env.scenario.file import load_scenario
from stallward.env.scenario.scenario import Scenario, Target
from stallward.evaluation.arms import Arm, find_policy_of
from stallward.evaluation.blocks.calibration import calibrate_ms
from stallward.evaluation.blocks.live import LiveSession, open_session
from stallward.evaluation.blocks.request import NO_ARM, Condition, RunRequest
from stallward.evaluation.measures.block_measures import (
    BlockMeasures,
    measure_recording,
    slo_windows_met,
)
from stallward.training.progress import Report, silent

# ---------- Finds the smallest zone that serves, by halving the interval in which it lies.
# What one block says is subject to chance, so the size that was found is measured once more. If it
# does not serve then, the next larger one is measured, and so on.


class Bisection:
    """The search of one arm. Sizes are whole numbers of steps.

    Args:
        least: A size that is taken not to serve.
        most: A size that is taken to serve, because nobody lacks memory there.
    """

    def __init__(self, least: int, most: int) -> None:
        self._low, self._most = least, most
        self._confirming, self._done = False, most - least <= 1
        self.found = most
        """The smallest size that served."""

    @property
    def next_size(self) -> int | None:
        """The size to measure next; ``None`` when the search is over."""
        if self._done:
            return None
        return self.found if self._confirming else (self._low + self.found) // 2

    def note(self, *, serves: bool) -> None:
        """Note what the block of the next size said."""
        size = self.next_size
        if size is None:
            return
        if self._confirming:
            self.found += 0 if serves else 1
            self._done = serves or self.found == self._most
            return
        if serves:
            self.found = size
        else:
            self._low = size
        if self.found - self._low <= 1:
            self._confirming = True
            self._done = self.found == self._most


STEPS: Final = 24
"""The memory that is wanted is divided into so many steps, by which sizes are told apart."""
LEAST_STEPS: Final = 6
"""A quarter of it is taken to be too little."""
RESULT_FILE: Final = "capacity.json"
_AMPLE: Final = "ample"
_NO_WORK: Final = 1e-9
"""Units a second that count as none, since a mean of ratios has no use for 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityRequest:
    """What to measure."""

    scenario: str
    arms: tuple[Arm, ...]
    out: Path
    """A directory, new or to be resumed."""
    block_s: float = 60.0
    burn_in_s: float = 30.0
    seed: int = 1
    target: Target = "stated"
    policy: str = "default"
    least_met: float = 0.99
    """The share of the seconds in which the target must be met."""
    least_work: float = 0.9
    """The share of the work with ample memory that must be done: a geometric mean over groups."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """What one block said."""

    size_bytes: int
    met_ratio: float
    work_ratio: float
    serves: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmCapacity:
    """What one arm needs."""

    arm: str
    zone_bytes: int
    """The smallest zone that served, twice where it was measured."""
    saved_ratio: float
    """How much less that is than everybody wants, as a share of it."""
    blocks: tuple[Block, ...]
    """All blocks, in the order in which they ran."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityResult:
    """The memory that each arm needs."""

    scenario: str
    target_ms: float
    target: Target
    wanted_bytes: int
    """The most that the zone held in memory and swap with ample memory: what everybody wants."""
    step_bytes: int
    """Sizes are told apart by this."""
    arms: tuple[ArmCapacity, ...]


RunSize = Callable[[Arm, int], Block]
"""Runs one block of an arm in a zone of so many steps."""
OpenSession = Callable[[Scenario], AbstractContextManager[LiveSession]]


def search_all(
    arms: Sequence[Arm], run: RunSize, *, seed: int, report: Report = silent
) -> dict[str, tuple[int, tuple[Block, ...]]]:
    """Search the smallest zone of every arm: label -> its steps, and the blocks that ran.

    Args:
        arms: The arms.
        run: Runs one block.
        seed: Seeds the order in which arms take turns.
        report: Called with the progress.
    """
    order = random.Random(seed)  # noqa: S311 - not for secrets
    searches = {arm.label: Bisection(LEAST_STEPS, STEPS) for arm in arms}
    blocks: dict[str, list[Block]] = {arm.label: [] for arm in arms}
    usual = len(arms) * (np.ceil(np.log2(STEPS - LEAST_STEPS)) + 1)
    while waiting := [arm for arm in arms if searches[arm.label].next_size is not None]:
        order.shuffle(waiting)
        for arm in waiting:
            search = searches[arm.label]
            size = search.next_size
            if size is None:
                continue
            done = sum(len(ran) for ran in blocks.values())
            report(f"{arm.label} in {size} of {STEPS} steps", min(done / usual, 0.99))
            block = run(arm, size)
            blocks[arm.label].append(block)
            search.note(serves=block.serves)
    return {label: (searches[label].found, tuple(ran)) for label, ran in blocks.items()}


def measure_capacity(
    request: CapacityRequest, report: Report = silent, *, opener: OpenSession = open_session
) -> CapacityResult:
    """Measure, and write ``capacity.json``; blocks that ``out`` has are not run again.

    Raises:
        StallwardError: If there is no such scenario or policy, this machine cannot run it, or
            ``out`` has blocks of another measurement.
    """
    scenario = load_scenario(request.scenario).with_target(request.target)
    policies = {
        arm.label: find_policy_of(arm, request.policy, scenario.name) for arm in request.arms
    }
    request.out.mkdir(parents=True, exist_ok=True)
    report(f"preparing {scenario.name}", 0.0)
    with opener(scenario) as session:
        blocks = _Blocks(request, session)
        report("with ample memory", 0.0)
        ample = blocks.get(_AMPLE, _AMPLE, NO_ARM, None)
        reference = measure_recording(ample)
        wanted = wanted_bytes(load_recording(ample))
        step = wanted // STEPS
        counts: dict[tuple[str, int], int] = {}

        def run(arm: Arm, size: int) -> Block:
            number = counts[arm.label, size] = counts.get((arm.label, size), 0) + 1
            name = f"{request.arms.index(arm)}-{size}-{number}"
            path = blocks.get(name, "together", arm, policies[arm.label], size * step)
            killed = load_run(path)
            return judge(
                measure_recording(path),
                reference,
                killed=killed.oom_kills > killed.limit_kills,
                size_bytes=size * step,
                slo_ms=blocks.slo_ms,
                quantile=scenario.protected.slo.quantile,
                least_met=request.least_met,
                least_work=request.least_work,
            )

        found = search_all(request.arms, run, seed=request.seed, report=report)
    result = CapacityResult(
        scenario=scenario.name,
        target_ms=blocks.slo_ms,
        target="tight" if scenario.protected.slo.latency_ms is None else "stated",
        wanted_bytes=wanted,
        step_bytes=step,
        arms=tuple(
            ArmCapacity(
                arm=label,
                zone_bytes=steps * step,
                saved_ratio=1.0 - steps / STEPS,
                blocks=ran,
            )
            for label, (steps, ran) in found.items()
        ),
    )
    (request.out / RESULT_FILE).write_text(json.dumps(asdict(result), indent=1) + "\n", "utf-8")
    report("done", 1.0)
    return result


class _Blocks:
    """Runs blocks, unless they are there."""

    def __init__(self, request: CapacityRequest, session: LiveSession) -> None:
        self._request, self._session = request, session
        stated_ms = session.scenario.protected.slo.latency_ms
        self.slo_ms = self._measured_ms() if stated_ms is None else stated_ms

    def get(
        self,
        name: str,
        condition: Condition,
        arm: Arm,
        policy: Path | None,
        zone_bytes: int | None = None,
    ) -> Path:
        """The recording of a block."""
        out = self._request.out / name
        block = RunRequest(
            condition=condition,
            arm=arm,
            policy=policy,
            slo_ms=self.slo_ms,
            duration_s=self._request.block_s,
            burn_in_s=self._request.burn_in_s,
            seed=self._request.seed,
        )
        if out.exists():
            self._check(load_run(out), block, zone_bytes)
            return out
        session = self._session
        if zone_bytes is not None:
            sandbox = replace(session.scenario.sandbox, limit_bytes=zone_bytes)
            session = replace(session, scenario=replace(session.scenario, sandbox=sandbox))
        building = out.with_name(f".{name}.new")
        shutil.rmtree(building, ignore_errors=True)
        session.run_block(block, building)
        building.rename(out)
        return out

    def _check(self, run: RunInfo, block: RunRequest, zone_bytes: int | None) -> None:
        """Refuse a block of another measurement, whose figures would not be those asked for.

        Raises:
            UsageError: If it is one.
        """
        asked = (
            self._session.scenario.name,
            block.arm.label,
            block.policy_sha256,
            block.seed,
            block.slo_ms,
            block.burn_in_s,
        )
        found = (run.scenario, run.arm, run.policy_sha256, run.seed, run.slo_ms, run.burn_in_s)
        short = run.end_s - run.measured_from_s < block.duration_s - 1.0
        edited = run.scenario_parameters != self._session.scenario.content
        if found != asked or short or edited or zone_bytes not in {None, run.sandbox_bytes}:
            raise UsageError(
                f"{self._request.out} has blocks of another measurement.",
                next_step="Name a new directory with --out, or repeat that command.",
            )

    def _measured_ms(self) -> float:
        file = self._request.out / "target_ms"
        if not file.exists():
            scenario, seed = self._session.scenario, self._request.seed
            measured_ms = calibrate_ms(
                self._session, scenario.protected.slo.calibration_s, seed, self._session.scratch
            )
            file.write_text(f"{measured_ms}\n", "utf-8")
        return float(file.read_text("utf-8"))


def wanted_bytes(ample: Recording) -> int:
    """The most that the zone held in memory and swap, after the burn-in."""
    seconds = np.arange(ample.run.measured_from_s, ample.run.end_s)
    swap = np.nan_to_num(ample.tick_at("zone_swap_bytes", seconds))
    held = ample.tick_at("zone_memory_usage_bytes", seconds) + swap
    # A short peak is not what it needs: kernels reclaim what is idle.
    return int(np.nanquantile(held, 0.95)) // MIB * MIB


def judge(
    block: BlockMeasures,
    ample: BlockMeasures,
    *,
    killed: bool,
    size_bytes: int,
    slo_ms: float,
    quantile: float,
    least_met: float,
    least_work: float,
) -> Block:
    """Whether a block served as one with ample memory.

    Args:
        block: The block.
        ample: One with ample memory, to whose work that of the block is compared.
        killed: Whether the kernel killed for lack of memory: then it did not serve.
        size_bytes: The memory of its zone.
        slo_ms: The latency target.
        quantile: The quantile that the target is for.
        least_met: The share of the seconds in which it must be met.
        least_work: The share of the work that must be done.
    """
    met = slo_windows_met(
        block.scheduled_s,
        block.latency_ms,
        block.ok,
        start_s=0.0,
        end_s=block.duration_s,
        slo_ms=slo_ms,
        quantile=quantile,
    )
    done = block.units.sum(axis=0) / block.duration_s
    wanted = ample.units.sum(axis=0) / ample.duration_s
    ratios = np.maximum(done[wanted > 0.0], _NO_WORK) / wanted[wanted > 0.0]
    work_ratio = geometric_mean(ratios) if ratios.size else 1.0
    met_ratio = float(met.mean()) if met.size else 0.0
    return Block(
        size_bytes=size_bytes,
        met_ratio=met_ratio,
        work_ratio=work_ratio,
        serves=not killed and met_ratio >= least_met and work_ratio >= least_work,
    )
