"""``stallward bench ab``: an experiment on a node that serves, in a sandbox under real pressure.

The sandbox is the node. One daemon serves it from the start to the end, and compares two
controllers in pairs of blocks, as `stallward ab start --stop-when-certain` does, while the
application is under load and the background runs.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from typing import Final

from stallward.actuator.client.daemon_process import Daemon
from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.config.tables import ControlConfig, ExperimentsConfig
from stallward.actuator.experiments.block_tally import Loss
from stallward.actuator.experiments.plan import Candidate, ExperimentPlan, PrimaryMeasure
from stallward.actuator.experiments.state import Progress
from stallward.actuator.experiments.wire import Experiment
from stallward.actuator.guard.budgets import Budgets
from stallward.agent.errors import StallwardError
from stallward.env.sandbox.block import BlockSite, run_block, site_config
from stallward.env.scenario.file import load_scenario
from stallward.evaluation.blocks.calibration import calibrate_ms
from stallward.evaluation.blocks.live import open_session
from stallward.evaluation.errors import ComparisonError
from stallward.evaluation.experiments.node_report import report_on
from stallward.training.progress import Report, silent

_POLL_S: Final = 0.5
_SLACK_S: Final = 60.0
"""How much longer than its blocks an experiment may take, with its start and lost blocks."""
MEANINGS: Final = {
    "slo_ms": "the target: stated, or 1.5 times the p99 with ample memory",
    "blocks": "blocks that the experiment used until it ended",
    "blocks_lost": "blocks of them that do not count",
    "certain": "1 if it ended because the arms certainly differ, 0 if not",
    "guardrail": "1 if it ended because the treatment certainly misses the target more often",
    "ratio": "treatment over baseline in the primary measure",
    "ratio_low": "lower end of the 95 % interval that holds at every look",
    "ratio_high": "its upper end",
    "attainment_baseline": "share of seconds in which the baseline met the target",
    "attainment_treatment": "the same of the treatment",
    "seconds": "length of the experiment",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeExperiment:
    """What is compared, and where."""

    scenario: str = "detector-anon"
    """The scenario whose programs run on the node."""
    baseline: str = "controller:none"
    treatment: str = "controller:rule"
    measure: PrimaryMeasure = PrimaryMeasure.BLOCK_P99
    pairs: int = 12
    """The most pairs of blocks."""
    block_s: float = 20.0
    burn_in_s: float = 8.0
    seed: int = 1

    @property
    def plan(self) -> ExperimentPlan:
        """The plan that the daemon is given."""
        return ExperimentPlan(
            baseline=Candidate(policy=self.baseline),
            treatment=Candidate(policy=self.treatment),
            pairs=self.pairs,
            block_s=self.block_s,
            burn_in_s=self.burn_in_s,
            seed=self.seed,
            primary=self.measure,
            stop_when_certain=True,
        )

    @property
    def longest_s(self) -> float:
        """How long it may take."""
        return self.plan.blocks * (self.block_s + self.burn_in_s) + _SLACK_S


def bench_experiment(
    wanted: NodeExperiment, *, report: Report = silent
) -> dict[str, float | None]:
    """Run the experiment; a figure that could not be measured is ``None``.

    Raises:
        StallwardError: If this machine cannot have the sandbox, or the daemon fails.
    """
    scenario = load_scenario(wanted.scenario)
    report("preparing programs and data", 0.0)
    with open_session(scenario) as session:
        report("with ample memory", 0.02)
        slo = scenario.protected.slo
        slo_ms = slo.latency_ms or calibrate_ms(
            session, slo.calibration_s, wanted.seed, session.scratch
        )
        running = _Running(wanted=wanted, report=report)
        run_block(
            session.sandbox,
            scenario,
            "together",
            lambda site: _served(site, wanted, slo_ms, running, session.scratch),
            workplace=session.workplace,
            duration_s=wanted.longest_s,
            burn_in_s=wanted.burn_in_s,
            out_dir=session.scratch,
            seed=wanted.seed,
            ended=running.ended,
        )
    report("done", 1.0)
    return _figures(running.experiment(), slo_ms)


class _Running:
    """The experiment that runs, followed by a thread as a client would."""

    def __init__(self, *, wanted: NodeExperiment, report: Report) -> None:
        self.ended: Final = Event()
        self._wanted = wanted
        self._report = report
        self._seen: Experiment | None = None
        self._problem: StallwardError | None = None

    def follow(self, daemon: Daemon) -> None:
        """Start the experiment, and a thread that waits for its end."""
        Thread(target=self._follow, args=(daemon,), daemon=True).start()

    def experiment(self) -> Experiment:
        """The experiment that ended.

        Raises:
            StallwardError: If it could not be started or followed, or did not end in time.
        """
        seen, problem = self._seen, self._problem
        if seen is None and problem is not None:
            raise problem
        if seen is None or seen.progress is Progress.RUNNING:
            raise ComparisonError(
                f"The experiment did not end within {self._wanted.longest_s:.0f} s.",
                next_step="Give it fewer pairs, or shorter blocks.",
            ) from problem
        return seen

    def _follow(self, daemon: Daemon) -> None:
        plan = self._wanted.plan
        try:
            with daemon.client() as client:
                self._seen = client.experiments.start(plan)
                while self._seen.progress is Progress.RUNNING:
                    time.sleep(_POLL_S)
                    self._seen = client.experiments.get() or self._seen
                    done = len(self._seen.blocks)
                    self._report(
                        f"{done} of {plan.blocks} blocks", 0.05 + 0.9 * done / plan.blocks
                    )
        except StallwardError as error:
            self._problem = error
        finally:
            self.ended.set()


@contextmanager
def _served(
    site: BlockSite, wanted: NodeExperiment, slo_ms: float, running: _Running, scratch: Path
) -> Iterator[Daemon]:
    """The daemon of the node, with the experiment on it."""
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        config = _config(site, Path(folder), slo_ms, wanted.seed)
        with Daemon(config, owned=site.sandbox.folder) as daemon:
            running.follow(daemon)
            yield daemon


def _config(site: BlockSite, folder: Path, slo_ms: float, seed: int) -> DaemonConfig:
    return site_config(
        site,
        folder,
        control=ControlConfig(controller="none", slo_ms=slo_ms, seed=seed),
        guard=Budgets(),
        experiments=ExperimentsConfig(dir=folder / "experiments"),
    )


def _figures(experiment: Experiment, slo_ms: float) -> dict[str, float | None]:
    shown = report_on(experiment)
    primary = shown.primary
    always = None if primary is None else primary.always
    ended_s = experiment.ended_s
    return {
        "slo_ms": slo_ms,
        "blocks": float(len(experiment.blocks)),
        "blocks_lost": float(sum(block.loss is not Loss.NONE for block in experiment.blocks)),
        "certain": float(experiment.progress is Progress.CERTAIN),
        "guardrail": float(experiment.progress is Progress.GUARDRAIL),
        "ratio": None if always is None else always.value,
        "ratio_low": None if always is None else always.low,
        "ratio_high": None if always is None else always.high,
        "attainment_baseline": shown.arms[0].attainment,
        "attainment_treatment": shown.arms[1].attainment,
        "seconds": None if ended_s is None else ended_s - experiment.began_s,
    }
