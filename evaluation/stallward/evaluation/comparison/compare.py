"""Comparisons: they run the blocks of a plan, live or on a twin, and write ``result.json``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final

from stallward.actuator.kernel.paths import DEFAULT_PATHS, Paths
from stallward.actuator.runtime.temporary_folders import temporary_folder
from stallward.agent.controller import Need, NodeContext, check_node
from stallward.agent.errors import ControllerError
from stallward.agent.registry import make_controller
from stallward.env.errors import RecordingError
from stallward.env.recording.run_info import load_run
from stallward.env.sandbox.lacks import sandbox_lacks
from stallward.env.sandbox.peers.programs import Peer, why_not
from stallward.env.scenario.scenario import Scenario
from stallward.env.twin.inputs.find import load_twin_of
from stallward.env.twin.inputs.lacks import twin_lacks
from stallward.evaluation.arms import ALONE, AMPLE, BACKGROUND, REFERENCES, Arm, find_policy_of
from stallward.evaluation.blocks.calibration import UNCALIBRATED_SLO_MS, target_ms
from stallward.evaluation.blocks.live import open_session
from stallward.evaluation.blocks.request import (
    ATTEMPTS,
    NO_ARM,
    Attempts,
    Condition,
    Runner,
    RunRequest,
    file_sha256,
    never_valid,
)
from stallward.evaluation.blocks.store import (
    CALIBRATION_ROUND,
    BlockStore,
    PlannedBlock,
    plan_blocks,
)
from stallward.evaluation.comparison.request import ComparisonRequest, arm_files, settings_of
from stallward.evaluation.comparison.summary import tabulate
from stallward.evaluation.errors import PlanError
from stallward.evaluation.measures.block_measures import BlockMeasures, measure_recording
from stallward.evaluation.measures.estimates import ComparisonEstimates, Target, estimate
from stallward.evaluation.report.html import write_report
from stallward.evaluation.results.comparison import RESULT_FILE, ArmFacts, ComparisonResult, Method
from stallward.evaluation.results.serialise import PLAN_FILE, save
from stallward.models.errors import RegistryError
from stallward.training.parallel.executor import Executor, Job
from stallward.training.progress import Report, part, silent, timed

# ---------- What runs the blocks of a comparison: this machine, or a scenario's twin

OpenRunner = Callable[[], AbstractContextManager[Runner]]
"""A function that opens a :class:`Runner` for the time of a context."""


@contextmanager
def open_runner(request: ComparisonRequest, scenario: Scenario) -> Iterator[Runner]:
    """Open the runner for the blocks of a comparison."""
    if request.mode == "live":
        with open_session(scenario) as session:
            yield session
    else:
        from stallward.evaluation.blocks.twin import open_twin  # noqa: PLC0415 - numba takes 90 MiB

        yield open_twin(scenario, request.twin)


def twin_fitted(request: ComparisonRequest, scenario: Scenario) -> bool | None:
    """Whether the twin of a comparison was fitted to recordings of the scenario."""
    if request.mode == "live":
        return None
    return load_twin_of(scenario, request.twin).saw_its_scenario


# ---------- Arms that the node of a comparison cannot support: they are left out, with the reason


def leave_out(
    request: ComparisonRequest, scenario: Scenario, paths: Paths = DEFAULT_PATHS
) -> tuple[ComparisonRequest, Mapping[str, str]]:
    """Take out the arms that need what the node of the comparison has not.

    Args:
        request: The request of the user.
        scenario: The scenario that it names.
        paths: The kernel's files, for a comparison on this machine.

    Returns:
        The request with the other arms, and label of an arm -> why it was taken out.

    Raises:
        PlanError: If no arm is left.
    """
    context = NodeContext(
        zone_limit_bytes=scenario.sandbox.limit_bytes,
        slot_names=tuple(group.name for group in scenario.background),
        lacks=_lacks(request, scenario, paths),
    )
    reasons: dict[str, str] = {}
    for arm in request.arms:
        if arm.peer is not None:
            if why := _why_no_peer(request, arm.peer):
                reasons[arm.label] = why
            continue
        if arm.controller == "mpc":
            reasons.update(_without_twin(arm, scenario))
        if arm.runs_policy:  # it does what it can with the levers that there are
            continue
        try:
            check_node(make_controller(arm.spec), context)
        except ControllerError as error:
            reasons[arm.label] = error.cause
    if len(reasons) == len(request.arms):
        raise PlanError(
            " ".join(reasons.values()), next_step="Choose other arms, or another scenario."
        )
    kept = tuple(arm for arm in request.arms if arm.label not in reasons)
    return replace(request, arms=kept), reasons


def _why_no_peer(request: ComparisonRequest, peer: Peer) -> str:
    """Why a peer cannot run; empty if it can."""
    if request.mode == "twin":
        return f"The peer {peer.name!r} is a program, and a twin has no processes."
    return why_not(peer)


def _without_twin(arm: Arm, scenario: Scenario) -> dict[str, str]:
    """Why ``mpc`` cannot plan for a scenario: it has no fitted twin."""
    try:
        find_policy_of(arm, "", scenario.name)
    except RegistryError as error:
        return {arm.label: f"{arm.label!r} plans on a fitted twin. {error.cause}"}
    return {}


def _lacks(request: ComparisonRequest, scenario: Scenario, paths: Paths) -> dict[Need, str]:
    """What the node of the comparison lacks."""
    swap_bytes = scenario.sandbox.swap_bytes
    return twin_lacks(swap_bytes) if request.mode == "twin" else sandbox_lacks(swap_bytes, paths)


# ---------- Blocks of a comparison on a twin, many at once

_Files = dict[str, bytes]
"""The files of a recording: name -> content."""


def run_blocks(
    runner: Runner,
    planned: Sequence[tuple[PlannedBlock, RunRequest]],
    store: BlockStore,
    executor: Executor,
    *,
    reads: Sequence[Path],
    report: Report,
) -> None:
    """Run blocks on a twin; each is committed as soon as it is done.

    Nothing disturbs a twin, so no block is run again.

    Args:
        runner: The twin.
        planned: The blocks.
        store: Where they are kept.
        executor: Runs them.
        reads: The files that arms decide by.
        report: Called with the progress.

    Raises:
        StallwardError: If a block cannot be run. The finished ones are kept.
    """

    def keep(number: int, files: _Files) -> None:
        block, _ = planned[number]
        folder = store.open(block)
        folder.mkdir()
        for name, content in files.items():
            (folder / name).write_bytes(content)
        store.commit(block, runner.facts)

    executor.run(
        [
            Job(block.directory, partial(_run, runner, request, block.directory), tuple(reads))
            for block, request in planned
        ],
        report,
        keep=keep,
    )


def _run(runner: Runner, request: RunRequest, name: str, report: Report) -> _Files:
    report(name, 0.0)
    with temporary_folder("block") as folder:
        runner.run_block(request, folder / "recording")
        files = {file.name: file.read_bytes() for file in (folder / "recording").iterdir()}
    report(name, 1.0)
    return files


# ---------- The comparison itself

_CONDITIONS: Final[Mapping[str, Condition]] = {
    ALONE: "alone",
    AMPLE: "ample",
    BACKGROUND: "background",
}


def run_comparison(
    request: ComparisonRequest, report: Report = silent, *, executor: Executor | None = None
) -> ComparisonOutcome:
    """Run the missing blocks of a comparison, and write its result and report.

    Args:
        request: The request of the user.
        report: Called with the progress.
        executor: Runs the blocks on a twin side by side; without one, and live, they run one
            after the other in this process.

    Raises:
        StallwardError: If it cannot be planned, resumed or run. Finished blocks are kept.
    """
    scenario = request.load()
    comparison = _open(request, scenario)
    running = part(report, 0.0, 0.98)
    try:
        if executor is not None and request.mode == "twin":
            comparison.run_side_by_side(executor, scenario, running)
        else:
            comparison.run(lambda: open_runner(request, scenario), scenario, running)
    finally:
        # A comparison that could not begin must not block the directory for the next one.
        comparison.store.forget_if_empty()
    outcome = comparison.outcome(scenario)
    save(request.out / RESULT_FILE, outcome.result)
    report("report", 0.98)
    write_report(request.out)
    report("done", 1.0)
    return outcome


def rounds_done(request: ComparisonRequest) -> int:
    """How many of the requested rounds are finished, counted from the first without a gap.

    Raises:
        StallwardError: As :func:`run_comparison`.
    """
    if not (request.out / PLAN_FILE).exists():
        return 0
    comparison = _open(request, request.load())
    missing = [b.round for b in comparison.blocks if not comparison.store.done(b)]
    return min(missing, default=request.rounds + 1) - 1


def _open(request: ComparisonRequest, scenario: Scenario) -> Comparison:
    """Open a comparison in its directory, which is new or has the same settings."""
    request, left_out = leave_out(request, scenario)
    policies = {
        arm.label: find_policy_of(arm, request.policy, scenario.name) for arm in request.arms
    }
    references = REFERENCES if scenario.background else (ALONE, AMPLE)
    # Checked before the directory is made.
    blocks = plan_blocks(request.arms, request.rounds, request.seed, references)
    store = BlockStore(request.out, settings_of(request, scenario, policies))
    return Comparison(
        request=request, store=store, blocks=blocks, policies=policies, left_out=left_out
    )


def _targets(scenario: Scenario) -> tuple[Target, ...]:
    """The targets of several applications, which are stated; none where there is one."""
    return tuple(
        Target(ms=one.slo.latency_ms, quantile=one.slo.quantile, application=one.name)
        for one in scenario.applications
        if scenario.others and one.slo.latency_ms is not None
    )


@contextmanager
def _finished(path: Path) -> Iterator[Path]:
    """Read a finished block; if it is damaged, say how to have it measured again."""
    try:
        yield path
    except RecordingError as error:
        next_step = f"Remove {path} and repeat the command, which measures this block again."
        raise RecordingError(error.cause, next_step=next_step) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonOutcome:
    """The outcome of a comparison."""

    result: ComparisonResult
    """The content of ``result.json``."""
    estimates: ComparisonEstimates
    """The estimates behind the result, with their resamples."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A planned comparison with the directory of its blocks."""

    request: ComparisonRequest
    store: BlockStore
    blocks: Sequence[PlannedBlock]
    policies: Mapping[str, Path | None]
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Label of an arm that this node cannot support -> why."""

    def run(self, opener: OpenRunner, scenario: Scenario, report: Report) -> None:
        """Run every block that is not finished yet."""
        planned = (*self._calibration(scenario), *self.blocks)
        missing = [block for block in planned if not self.store.done(block)]
        if not missing:
            return
        report("preparing programs and data", 0.0)
        with opener() as runner:
            for number, block in enumerate(missing):
                step = part(report, number / len(missing), (number + 1) / len(missing))
                what = f"round {block.round}/{self.request.rounds}: {block.condition}"
                with timed(step, what, self.request.burn_in_s + self._block_s(block, scenario)):
                    self._run_block(runner, block, scenario)

    def run_side_by_side(self, executor: Executor, scenario: Scenario, report: Report) -> None:
        """Run every block on the twin that is not finished yet, many at once."""
        reads = tuple(arm_files(self.request.arms, self.policies).values())
        with open_runner(self.request, scenario) as runner:
            # Without its target no other block can run.
            for blocks in (self._calibration(scenario), self.blocks):
                missing = [block for block in blocks if not self.store.done(block)]
                requests = [(block, self._request_of(block, scenario)) for block in missing]
                running = silent if blocks != self.blocks else report
                run_blocks(runner, requests, self.store, executor, reads=reads, report=running)

    def _calibration(self, scenario: Scenario) -> tuple[PlannedBlock, ...]:
        """A first block with ample memory that measures the target, if the scenario states none.

        It belongs to no round, and is long enough for its p99 even if other blocks are short.
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
        """The target that controllers are given and judged by: stated, or of the calibration."""
        slo_ms = scenario.protected.slo.latency_ms
        if slo_ms is not None:
            return slo_ms
        block = self._calibration(scenario)[0]
        if not self.store.done(block):
            return UNCALIBRATED_SLO_MS
        with _finished(self.store.path(block)) as path:
            return target_ms(path)

    def _block_s(self, block: PlannedBlock, scenario: Scenario) -> float:
        if block.round != CALIBRATION_ROUND:
            return self.request.block_s
        least_s = self.request.calibration_s or scenario.protected.slo.calibration_s
        return max(self.request.block_s, least_s)

    def _request_of(self, block: PlannedBlock, scenario: Scenario) -> RunRequest:
        arms = {arm.label: arm for arm in self.request.arms}
        reference = block.condition in REFERENCES
        return RunRequest(
            condition=_CONDITIONS[block.condition] if reference else "together",
            arm=NO_ARM if reference else arms[block.condition],
            policy=None if reference else self.policies[block.condition],
            slo_ms=self.controller_slo_ms(scenario),
            duration_s=self._block_s(block, scenario),
            burn_in_s=self.request.burn_in_s,
            seed=block.seed,
            probes=self.request.repeat_disturbed,
        )

    def _run_block(self, runner: Runner, block: PlannedBlock, scenario: Scenario) -> None:
        run_request = self._request_of(block, scenario)
        kept = [b for b in self.blocks if b.condition == block.condition and self.store.done(b)]
        attempts = Attempts(
            (load_run(self.store.path(b)).stolen_share for b in kept),
            repeat_disturbed=self.request.repeat_disturbed,
        )
        while (invalid := self.store.invalid_runs(block)) < ATTEMPTS:
            try:
                disturbances = runner.run_block(run_request, self.store.open(block))
            except BaseException:
                self.store.discard(block)  # on Ctrl-C, too, so that the directory can be resumed
                raise
            if not attempts.is_invalid(disturbances, invalid + 1):
                self.store.commit(block, runner.facts)
                return
            self.store.note_invalid(block)
        raise never_valid(f"The block {block.directory}")

    def measures(self) -> dict[str, list[BlockMeasures]]:
        """The measures of all blocks, by condition, in the order of rounds."""
        measures: dict[str, list[BlockMeasures]] = {}
        for block in self.blocks:
            with _finished(self.store.path(block)) as path:
                measures.setdefault(block.condition, []).append(measure_recording(path))
        measures.setdefault(BACKGROUND, measures[ALONE])  # without a background, nothing is done
        return measures

    def outcome(self, scenario: Scenario) -> ComparisonOutcome:
        """The outcome of the finished blocks."""
        measures = self.measures()
        estimates = estimate(
            measures,
            [arm.label for arm in self.request.arms],
            slo_ms=self.controller_slo_ms(scenario),
            slo_quantile=scenario.protected.slo.quantile,
            seed=self.request.seed,
            targets=_targets(scenario),
        )
        facts = {arm.label: self._facts(arm, measures[arm.label]) for arm in self.request.arms}
        nodes = list(dict.fromkeys(self.store.node(block) for block in self.blocks))
        return ComparisonOutcome(
            result=ComparisonResult(
                mode=self.request.mode,
                scenario=scenario.name,
                node=nodes[0],
                other_nodes=tuple(nodes[1:]),
                table=tabulate(
                    estimates,
                    facts,
                    target_stated=scenario.protected.slo.latency_ms is not None,
                ),
                method=self._method(scenario),
            ),
            estimates=estimates,
        )

    def _facts(self, arm: Arm, measures: Sequence[BlockMeasures]) -> ArmFacts:
        blocks = [block for block in self.blocks if block.condition == arm.label]
        runs = [load_run(self.store.path(block)) for block in blocks]
        return ArmFacts(
            controller=arm.spec,
            budgets_lifted=arm.lifts_budgets,
            invalid_blocks=sum(self.store.invalid_runs(block) for block in blocks),
            terminated_processes=sum(one.terminated for one in measures),
            limit_kills=sum(run.limit_kills for run in runs),
            requests=sum(one.latency_ms.size for one in measures),
            stolen_share_worst=max(run.stolen_share for run in runs),
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
            twin_fitted=twin_fitted(self.request, scenario),
            left_out=self.left_out,
            files_sha256={
                label: file_sha256(path)
                for label, path in arm_files(self.request.arms, self.policies).items()
            },
        )
