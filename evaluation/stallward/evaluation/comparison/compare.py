"""Comparisons: run the blocks of a plan, live or on the twin, and write ``result.json``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stallward.env.recording.run_info import load_run
from stallward.env.scenario.file import load_scenario
from stallward.env.scenario.scenario import Scenario
from stallward.evaluation.arms import ALONE, AMPLE, BACKGROUND, REFERENCES, Arm, find_policy_of
from stallward.evaluation.blocks.calibration import UNCALIBRATED_SLO_MS, target_ms
from stallward.evaluation.blocks.plan import CALIBRATION_ROUND, PlannedBlock, plan_blocks
from stallward.evaluation.blocks.request import NO_ARM, Condition, Runner, RunRequest, file_sha256
from stallward.evaluation.blocks.rerun import ATTEMPTS, given_up, is_spoiled
from stallward.evaluation.blocks.store import PLAN_FILE, BlockStore
from stallward.evaluation.comparison.request import ComparisonRequest, arm_files, settings_of
from stallward.evaluation.comparison.summary import tabulate
from stallward.evaluation.measures.block_measures import BlockMeasures, measure_recording
from stallward.evaluation.measures.estimates import Estimated, estimate
from stallward.evaluation.results.comparison import (
    RESULT_FILE,
    ArmFacts,
    ComparisonResult,
    Method,
)
from stallward.evaluation.results.serialise import save
from stallward.training.progress import Report, part, silent, timed

_CONDITIONS: Final[Mapping[str, Condition]] = {
    ALONE: "alone",
    AMPLE: "ample",
    BACKGROUND: "background",
}


OpenRunner = Callable[[], AbstractContextManager[Runner]]
"""Makes the context manager of a :class:`Runner`."""


def run_comparison(request: ComparisonRequest, report: Report = silent) -> Compared:
    """Run what is missing of a comparison and write its result and report.

    Raises:
        StallwardError: If it cannot be planned, resumed or run; finished blocks are kept.
    """
    scenario = load_scenario(request.scenario)
    comparison = _open(request, scenario)
    try:
        comparison.run(lambda: open_runner(request, scenario), scenario, part(report, 0.0, 0.98))
    finally:
        # What could not begin must not stand in the way of another try.
        comparison.store.forget_if_empty()
    compared = comparison.compared(scenario)
    save(request.out / RESULT_FILE, compared.result)
    from stallward.evaluation.report.html import write_report  # noqa: PLC0415 - only here

    report("report", 0.98)
    write_report(request.out)
    report("done", 1.0)
    return compared


def rounds_done(request: ComparisonRequest) -> int:
    """How many rounds from the first on are there already, of those asked for.

    Raises:
        StallwardError: As :func:`run_comparison`.
    """
    if not (request.out / PLAN_FILE).exists():
        return 0
    comparison = _open(request, load_scenario(request.scenario))
    missing = [b.round for b in comparison.blocks if not comparison.store.done(b)]
    return min(missing, default=request.rounds + 1) - 1


def _open(request: ComparisonRequest, scenario: Scenario) -> Comparison:
    """A comparison and its directory, new or of the same settings."""
    policies = {
        arm.label: find_policy_of(arm, request.policy, scenario.name) for arm in request.arms
    }
    blocks = plan_blocks(request.arms, request.rounds, request.seed)  # before there is a directory
    store = BlockStore(request.out, settings_of(request, scenario, policies))
    return Comparison(request=request, store=store, blocks=blocks, policies=policies)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """What a comparison came to."""

    result: ComparisonResult
    """What is written to ``result.json``."""
    found: Estimated
    """The estimates that it was made of, with their resamples."""


@contextmanager
def open_runner(request: ComparisonRequest, scenario: Scenario) -> Iterator[Runner]:
    """What runs the blocks of a comparison."""
    if request.mode == "live":
        from stallward.evaluation.blocks.live import open_session  # noqa: PLC0415 - needs grpc

        with open_session(scenario) as session:
            yield session
    else:
        from stallward.evaluation.blocks.twin import open_twin  # noqa: PLC0415 - needs no node

        yield open_twin(scenario, request.twin)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A planned comparison and where its blocks go."""

    request: ComparisonRequest
    store: BlockStore
    blocks: Sequence[PlannedBlock]
    policies: Mapping[str, Path | None]

    def run(self, opened: OpenRunner, scenario: Scenario, report: Report) -> None:
        """Run every block that is not done yet."""
        wanted = (*self._calibration(scenario), *self.blocks)
        missing = [block for block in wanted if not self.store.done(block)]
        if not missing:
            return
        report("preparing programs and data", 0.0)
        with opened() as runner:
            for number, block in enumerate(missing):
                step = part(report, number / len(missing), (number + 1) / len(missing))
                what = f"round {block.round}/{self.request.rounds} {block.condition}"
                with timed(step, what, self.request.burn_in_s + self._block_s(block, scenario)):
                    self._run_block(runner, block, scenario)

    def _calibration(self, scenario: Scenario) -> tuple[PlannedBlock, ...]:
        """A first block with ample memory, where controllers need to be told a target.

        It is no part of any round, and lasts long enough for its p99 however short those are.
        """
        if scenario.protected.slo.latency_ms is not None:
            return ()
        return (
            PlannedBlock(
                round=CALIBRATION_ROUND,
                position=0,
                condition=AMPLE,
                slug=AMPLE,
                seed=self.request.seed,
            ),
        )

    def controller_slo_ms(self, scenario: Scenario) -> float:
        """The target that controllers are told: the scenario's, or from the first ample block."""
        known = scenario.protected.slo.latency_ms
        if known is not None:
            return known
        block = self._calibration(scenario)[0]
        if not self.store.done(block):
            return UNCALIBRATED_SLO_MS
        return target_ms(self.store.path(block))

    def _block_s(self, block: PlannedBlock, scenario: Scenario) -> float:
        if block.round != CALIBRATION_ROUND:
            return self.request.block_s
        least_s = self.request.calibration_s or scenario.protected.slo.calibration_s
        return max(self.request.block_s, least_s)

    def _run_block(self, runner: Runner, block: PlannedBlock, scenario: Scenario) -> None:
        arms = {arm.label: arm for arm in self.request.arms}
        reference = block.condition in REFERENCES
        wanted = RunRequest(
            condition=_CONDITIONS[block.condition] if reference else "together",
            arm=NO_ARM if reference else arms[block.condition],
            policy=None if reference else self.policies[block.condition],
            slo_ms=self.controller_slo_ms(scenario),
            duration_s=self._block_s(block, scenario),
            burn_in_s=self.request.burn_in_s,
            seed=block.seed,
        )
        while (before := self.store.spoiled(block)) < ATTEMPTS:
            try:
                troubles = runner.run_block(wanted, self.store.open(block))
            except BaseException:
                self.store.discard(block)  # Ctrl-C too: the directory stays resumable
                raise
            if not is_spoiled(troubles, before + 1):
                self.store.commit(block, runner.facts)
                return
            self.store.note_spoiled(block)
        raise given_up(f"The block {block.directory}")

    def measures(self) -> dict[str, list[BlockMeasures]]:
        """Every block, by condition, in the order of rounds."""
        found: dict[str, list[BlockMeasures]] = {}
        for block in self.blocks:
            found.setdefault(block.condition, []).append(measure_recording(self.store.path(block)))
        return found

    def compared(self, scenario: Scenario) -> Compared:
        """What the blocks come to."""
        measures = self.measures()
        found = estimate(
            measures,
            [arm.label for arm in self.request.arms],
            slo_ms=scenario.protected.slo.latency_ms,
            slo_quantile=scenario.protected.slo.quantile,
            seed=self.request.seed,
        )
        facts = {arm.label: self._facts(arm, measures[arm.label]) for arm in self.request.arms}
        nodes = list(dict.fromkeys(self.store.node(block) for block in self.blocks))
        return Compared(
            result=ComparisonResult(
                mode=self.request.mode,
                scenario=scenario.name,
                node=nodes[0],
                other_nodes=tuple(nodes[1:]),
                table=tabulate(
                    found,
                    facts,
                    told=scenario.protected.slo.latency_ms is not None,
                ),
                method=self._method(scenario),
            ),
            found=found,
        )

    def _facts(self, arm: Arm, measures: Sequence[BlockMeasures]) -> ArmFacts:
        blocks = [block for block in self.blocks if block.condition == arm.label]
        return ArmFacts(
            controller=arm.spec,
            budgets_lifted=arm.lifts_budgets,
            invalid_blocks=sum(self.store.spoiled(block) for block in blocks),
            terminated_processes=sum(one.terminated for one in measures),
            requests=sum(one.latency_ms.size for one in measures),
            stolen_share_worst=max(
                load_run(self.store.path(block)).stolen_share for block in blocks
            ),
            fallback_share_worst=max(one.fallback_share for one in measures),
        )

    def _method(self, scenario: Scenario) -> Method:
        return Method(
            summary=scenario.summary,
            rounds=self.request.rounds,
            block_s=self.request.block_s,
            burn_in_s=self.request.burn_in_s,
            seed=self.request.seed,
            controller_slo_ms=self.controller_slo_ms(scenario),
            groups=tuple(group.name for group in scenario.background),
            units=tuple(group.units.name for group in scenario.background),
            sandbox_limit_bytes=scenario.sandbox.limit_bytes,
            policies={k: str(v) for k, v in self.policies.items() if v is not None},
            files_sha256={
                label: file_sha256(path)
                for label, path in arm_files(self.request.arms, self.policies).items()
            },
        )
