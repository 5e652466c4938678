"""``stallward demo``: the whole way once, in a fixed time: fit, train, export, compare, report."""

from __future__ import annotations

import os
import re
import shutil
import textwrap
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Literal

import stallward.env as package
from stallward.actuator.cli import output
from stallward.actuator.cli.output import duration
from stallward.actuator.errors import ActuatorError
from stallward.actuator.kernel.hierarchies import require
from stallward.actuator.kernel.paths import DEFAULT_PATHS
from stallward.agent.errors import StallwardError
from stallward.env.catalogue.find import recording_folders
from stallward.env.recording.node_facts import node_info
from stallward.env.scenario.file import load_scenario
from stallward.env.scenario.scenario import Scenario
from stallward.evaluation.arms import Arm, parse_arms
from stallward.evaluation.comparison.compare import run_comparison
from stallward.evaluation.comparison.request import ComparisonRequest
from stallward.evaluation.errors import EvaluationError
from stallward.evaluation.report.html import REPORT_FILE, write_report
from stallward.evaluation.report.text import Opening, cell, number, short_names, target
from stallward.evaluation.results.comparison import (
    RESULT_FILE,
    ComparisonResult,
    Contrast,
    Metrics,
    Table,
)
from stallward.evaluation.results.interval import UNKNOWN, Interval
from stallward.evaluation.results.serialise import PLAN_FILE
from stallward.models.registry import twin_names
from stallward.training.pipeline.fit import fit_twin
from stallward.training.pipeline.train import export_policy, load_twins, train_policy
from stallward.training.progress import Report, part

# ---------- What the demo shows first: a small table, and what a user gains, in words. Pure

WIDTH: Final = 100
"""Columns of the terminal that everything has to fit."""
DEFAULT: Final = "partition"
"""The arm of the controller that decides by default."""
FRESH: Final = "fresh"
"""The arm of the policy that the demo trains."""
_NOTICEABLE: Final = 1.02
"""A certain difference by a smaller factor makes no controller the better one."""
HEADERS: Final = ("arm", "", "p95 ms", "target met", "work done", "killed")

_MEANINGS: Final = {
    "none": "no control",
    "latd": "published rule",
    DEFAULT: "shares, default",
    "ppo": "shipped policy",
    FRESH: "trained just now",
}
_SEEN: Final = (
    "The numbers of partition were chosen and the shipped policy was trained with this scenario, "
    "among others; "
    "docs/results.md has measurements of scenarios that neither had seen."
)
_WHOLE_FROM: Final = 9.95
_TWO_DECIMALS_BELOW: Final = 1.095
_MANY: Final = 1000.0
"""Factors above it say no more than that there are too few blocks."""

Change = Literal["lower", "higher", "unclear"]
"""Whether a figure is certainly lower or higher than another."""


def first_screen(result: ComparisonResult, *, trained_s: float, seen: bool) -> Opening:
    """The table of the demo, the sentence under it, and the notes under that.

    Args:
        result: A comparison of the arms of the demo.
        trained_s: How long the fresh policy was trained.
        seen: Whether what ships was chosen and trained with this scenario.
    """
    table = result.table
    return Opening(
        headline=gain(result),
        headers=HEADERS,
        rows=demo_rows(table),
        target=f"Target: {target(table)} ({table.slo_source}). "
        "Work is relative to having the node alone. Brackets are 95 % intervals.",
        notes=(
            _policy_note(table),
            # It is left out where the settings that it writes cannot be written, as in containers.
            *((_latd_note(table),) if "latd" in table.arms else ()),
            _fresh_note(table, trained_s),
            *((_SEEN,) if seen else ()),
        ),
    )


def wrap(text: str) -> list[str]:
    """The lines of a text on the terminal, without a break between a number and its unit."""
    joined = re.sub(r"(?<=\d) (?=%|ms|s\b)", "\N{NO-BREAK SPACE}", text)
    return [one.replace("\N{NO-BREAK SPACE}", " ") for one in textwrap.wrap(joined, WIDTH)]


def demo_rows(table: Table) -> tuple[tuple[str, ...], ...]:
    """A row for each condition, references first; with the headers within ``WIDTH`` columns."""
    alone, ample = table.references.alone, table.references.ample
    names = short_names(table.arms)
    return (
        # There is no background to do work.
        ("alone", "no background", *_cells(alone)[:2], "", ""),
        ("ample", "enough memory", *_cells(ample), ""),
        *(
            (
                names[label],
                _MEANINGS.get(label, ""),
                *_cells(arm.metrics),
                str(arm.facts.ended_processes),
            )
            for label, arm in table.arms.items()
        ),
    )


def _cells(metrics: Metrics) -> tuple[str, str, str]:
    return (
        cell(metrics.p95_ms, "ms"),
        _share_cell(metrics.slo_attainment),
        _share_cell(metrics.background_work),
    )


def gain(result: ComparisonResult) -> str:
    """What a user gains by the default controller and by the shipped policy over no control.

    It says so where p95 is certainly higher, or not certainly different, and it names the price.
    """
    table = result.table
    none, rule, policy = (table.arms[arm].metrics for arm in ("none", DEFAULT, "ppo"))
    where = "On the twin, without" if result.mode == "twin" else "Without"
    return (
        f"{where} control, p95 is {_ms(none)}. The rule partition, which decides by default, "
        f"{_effect(table, DEFAULT)}; the shipped policy {_effect(table, 'ppo')}. "
        f"The target is met {_share(rule.slo_attainment)} of the time with the rule and "
        f"{_share(policy.slo_attainment)} with the policy, instead of "
        f"{_share(none.slo_attainment)}. The background then does "
        f"{_share(rule.background_work)} and {_share(policy.background_work)} of the work that "
        f"it does alone, instead of {_share(none.background_work)}."
    )


def _effect(table: Table, arm: str) -> str:
    """What an arm does to p95, as far as it is certain."""
    p95 = _ms(table.arms[arm].metrics)
    ratio = _p95_ratio(table, arm, "none")
    change = _change(ratio)
    if change == "unclear":
        return f"has {p95}, which is not certainly different"
    return f"{'lowers' if change == 'lower' else 'raises'} it {_factors(ratio)} times, to {p95}"


def _policy_note(table: Table) -> str:
    """Whether the shipped policy is better than the rule, in latency and in work."""
    latency = _change(_p95_ratio(table, "ppo", DEFAULT), least=_NOTICEABLE)
    work = _change(_work_ratio(table, "ppo", DEFAULT), least=_NOTICEABLE)
    gains = (latency == "lower") + (work == "higher")
    losses = (latency == "higher") + (work == "lower")
    differences = _against(table, "ppo", DEFAULT)
    if not gains and not losses:
        return f"This run cannot say whether the policy or the rule is better: {differences}."
    if gains and losses:
        verdict = "Neither the policy nor the rule is better in both"
    else:
        verdict = f"The {'policy' if gains else 'rule'} is the better of the two here"
    return f"{verdict}. The policy against the rule: {differences}."


def _latd_note(table: Table) -> str:
    """What the published rule kills, and whether what ships is better."""
    killed = table.arms["latd"].facts.terminated_processes
    count = f"{killed or 'no'} background process{'es' * (killed != 1)}"
    rule, policy = (_against(table, arm, "latd") for arm in (DEFAULT, "ppo"))
    differences = f"{rule}. The policy against latd: {policy}"
    return (
        f"latd, the published rule, killed {count}. The rule partition "
        f"{'and the policy ' if rule == policy else ''}against latd: "
        f"{rule if rule == policy else differences}."
    )


def _fresh_note(table: Table, trained_s: float) -> str:
    """How the policy that was just trained does beside the shipped one."""
    return (
        f"The fresh policy was trained by this demo in {duration(trained_s)}, to show the whole "
        "way; the shipped one was trained for longer, on many scenarios. "
        f"Fresh against shipped: {_against(table, FRESH, 'ppo')}."
    )


def _against(table: Table, arm: str, other: str) -> str:
    """What is certainly different between two arms."""
    ratios = {"p95": _p95_ratio(table, arm, other), "work": _work_ratio(table, arm, other)}
    if all(_change(ratio) == "unclear" for ratio in ratios.values()):
        return "neither p95 nor work is certainly different"
    return ", ".join(
        f"{name} not certainly different"
        if _change(ratio) == "unclear"
        else f"{name} {_times(ratio)}"
        for name, ratio in ratios.items()
    )


def _p95_ratio(table: Table, arm: str, other: str) -> Interval:
    return _ratio(table, arm, other, lambda pair: pair.p95_ratio)


def _work_ratio(table: Table, arm: str, other: str) -> Interval:
    return _ratio(table, arm, other, lambda pair: pair.background_work_ratio)


def _ratio(table: Table, arm: str, other: str, of: Callable[[Contrast], Interval]) -> Interval:
    """A figure of one arm over that of another, whichever way round the contrast stands."""
    for pair in table.contrasts:
        if (pair.arm, pair.against) == (arm, other):
            return of(pair)
        if (pair.arm, pair.against) == (other, arm):
            return _inverse(of(pair))
    return UNKNOWN


def _change(ratio: Interval, least: float = 1.0) -> Change:
    """Whether a ratio is certainly below or above 1 by its interval, by the factor ``least``."""
    if ratio.low is None or ratio.high is None:
        return "unclear"
    if ratio.high < 1.0 / least:
        return "lower"
    return "higher" if ratio.low > least else "unclear"


def _inverse(ratio: Interval) -> Interval:
    def inverse(value: float | None) -> float | None:
        return None if value is None else 1.0 / value if value else float("inf")

    return Interval(value=inverse(ratio.value), low=inverse(ratio.high), high=inverse(ratio.low))


def _times(ratio: Interval) -> str:
    """A ratio that is certainly not 1 in words, as ``33 to 151 times lower``."""
    return f"{_factors(ratio)} times {_change(ratio)}"


def _factors(ratio: Interval) -> str:
    """By how much a ratio is certainly not 1, in either direction."""
    factor = _inverse(ratio) if _change(ratio) == "lower" else ratio
    return " to ".join(_factor(end) for end in (factor.low, factor.high) if end is not None)


def _factor(value: float) -> str:
    if value >= _WHOLE_FROM:
        return f"{value:.0f}" if value < _MANY else f"over {_MANY:.0f}"
    return f"{value:.2f}" if value < _TWO_DECIMALS_BELOW else f"{value:.1f}"


def _ms(metrics: Metrics) -> str:
    return f"{number(metrics.p95_ms.value, 'ms')} ms"


def _share(figure: Interval) -> str:
    return "0 %" if figure.value == 0.0 else number(figure.value, "share")


def _share_cell(figure: Interval) -> str:
    if figure.low is None or figure.high is None:
        return _share(figure)
    low, high = (number(end, "share").removesuffix(" %") for end in (figure.low, figure.high))
    return f"{_share(figure)} [{low}..{high}]"


# ---------- How the demo divides its time between its stages.

CALIBRATION_S: Final = 30.0
"""Shorter than the scenario's own: the target of a demonstration may be rough."""
BURN_IN_S: Final = 10.0
"""Controllers act on what they have seen: ``partition`` needs seconds until a program that
thrashes waits for its turn, and blocks that begin sooner show only that."""
SWITCH_S: Final = 2.8
"""Starting and stopping the programs of a block."""
SPARE_S: Final = 15.0
"""Kept for the report."""
CONDITIONS: Final = 8
"""Three references and five arms in every round."""
MIN_BLOCK_S: Final = 7.0
_FIT_SHARE: Final = 0.04
_TRAIN_SHARE: Final = 0.07
"""Enough to show the stage, not to train a policy as good as the shipped one."""
_MOST_ROUNDS: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class StageBudget:
    """Seconds for the stages before the comparison."""

    fit_s: float
    train_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocks:
    """The blocks of a comparison."""

    rounds: int
    block_s: float

    @property
    def calibration_s(self) -> float:
        """How long the block takes that finds the target, before the first round."""
        return max(self.block_s, CALIBRATION_S) + BURN_IN_S + SWITCH_S


TWIN_BLOCKS: Final = Blocks(rounds=4, block_s=30.0)
"""Blocks of the twin take less time than they simulate."""


def plan_stages(total_s: float) -> StageBudget:
    """Divide the time of the whole demo; what is left is for the comparison."""
    return StageBudget(fit_s=_FIT_SHARE * total_s, train_s=_TRAIN_SHARE * total_s)


def plan_live_blocks(left_s: float) -> Blocks:
    """Choose the live blocks that fit into the time left: many rounds before long blocks.

    More rounds narrow the intervals more than longer blocks do. There is at least one round of
    blocks of the least length, even where that takes longer than ``left_s``.
    """
    around_s = BURN_IN_S + SWITCH_S
    usable_s = left_s - SPARE_S
    for rounds in range(_MOST_ROUNDS, 0, -1):
        count = CONDITIONS * rounds
        # The block that finds the target is as long as the others, but not under its minimum.
        each_s = min(usable_s / (count + 1), (usable_s - CALIBRATION_S - around_s) / count)
        if each_s - around_s >= MIN_BLOCK_S:
            return Blocks(rounds=rounds, block_s=each_s - around_s)
    return Blocks(rounds=1, block_s=MIN_BLOCK_S)


DEMO_SCENARIO: Final = "detector-anon"
_STAGES: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoSettings:
    """What the user asked for."""

    out: Path
    """Where everything it makes goes."""
    minutes: float
    """Time for all stages together."""
    scenario: str = ""
    """Scenario to run; empty takes the one that degrades steepest."""
    twin: bool = False
    """Whether to compare on the twin even where a live comparison is possible."""
    seed: int = 1
    """Seeds training, plan and load."""
    recordings: Path | None = None
    """What the twin is fitted to; ``None`` takes the shipped ones."""


def why_not_live() -> str:
    """Why this user or node cannot run live blocks; empty if they can."""
    if os.geteuid() != 0:
        return "not root"
    try:
        require(DEFAULT_PATHS)
    except ActuatorError as error:
        return error.cause.rstrip(".")
    return ""


Say = Callable[[str], None]
OpenProgress = Callable[[str], AbstractContextManager[Report]]


@dataclass(slots=True)
class _Stages:
    """Numbers the stages and gives each its own progress."""

    open_progress: OpenProgress
    begun: int = field(default=0)

    def next(self, name: str) -> AbstractContextManager[Report]:
        self.begun += 1
        return self.open_progress(f"{self.begun}/{_STAGES} {name}")


def run_demo(settings: DemoSettings, *, say: Say, progress: OpenProgress) -> ComparisonResult:
    """Run the demo; returns the comparison's result.

    Raises:
        StallwardError: If a stage fails; nothing but files in ``out`` is left.
    """
    start_s = time.monotonic()
    scenario = load_scenario(settings.scenario or DEMO_SCENARIO)
    why = "as asked with --twin" if settings.twin else why_not_live()
    recordings = settings.recordings or shipped_recordings()
    for text in _first_lines(settings, scenario, why):
        _say_lines(text, say)
    say("")
    _clear(settings.out)
    settings.out.mkdir(parents=True, exist_ok=True)
    (settings.out / _MARK).touch()
    total_s = 60.0 * settings.minutes
    stages = _Stages(progress)
    budget = plan_stages(total_s)
    policy, trained_s = _make_policy(settings, recordings, budget, stages)
    blocks = TWIN_BLOCKS
    if not why:  # what the stages before took less or more goes to the blocks
        blocks = plan_live_blocks(total_s - (time.monotonic() - start_s))
    request = _request(settings, policy, "twin" if why else "live", blocks)
    with stages.next(f"compare {'on the twin' if why else 'live'}") as report:
        once_s = 0.0 if why else blocks.calibration_s
        result = _compare(request, start_s + total_s, once_s, report)
        seen = scenario.name in twin_names()
        opening = first_screen(result, trained_s=trained_s, seen=seen)
        write_report(request.out, opening)
    for name in (RESULT_FILE, REPORT_FILE):
        shutil.copy2(request.out / name, settings.out / name)
    _conclude(settings.out, opening, say, time.monotonic() - start_s)
    return result


def _compare(
    request: ComparisonRequest, deadline_s: float, once_s: float, report: Report
) -> ComparisonResult:
    """Run the rounds that are planned, but begin none that would probably end after the deadline.

    Blocks may take longer than planned: on a slow disk the programs of a scenario need longer to
    start and to end. The first round is always run.

    Args:
        request: The comparison, with the rounds that are planned.
        deadline_s: When the demo is to end, CLOCK_MONOTONIC.
        once_s: How much of the first round is for finding the target, which later ones need not.
        report: Is told the progress.
    """
    number, round_s = 0, 0.0
    while number == 0 or (
        number < request.rounds and time.monotonic() + round_s + SPARE_S <= deadline_s
    ):
        begin_s = time.monotonic()
        share = number / request.rounds
        number += 1
        bar = part(report, share, number / request.rounds)
        result = run_comparison(replace(request, rounds=number), bar).result
        round_s = time.monotonic() - begin_s - (once_s if number == 1 else 0.0)
    report("done", 1.0)
    return result


def _request(
    settings: DemoSettings, policy: Path, mode: Literal["live", "twin"], blocks: Blocks
) -> ComparisonRequest:
    """The comparison of what ships with no control, a published rule and the fresh policy."""
    arms = (
        *parse_arms(f"none,latd,{DEFAULT}"),
        Arm(label="ppo", spec="ppo:path=default"),
        Arm(label=FRESH, spec="ppo"),
    )
    return ComparisonRequest(
        scenario=settings.scenario or DEMO_SCENARIO,
        arms=arms,
        mode=mode,
        rounds=blocks.rounds,
        block_s=blocks.block_s,
        burn_in_s=BURN_IN_S,
        seed=settings.seed,
        out=settings.out / "compare",
        policy=str(policy),
        twin=str(settings.out / "twin.json"),
        calibration_s=CALIBRATION_S,
        repeat_disturbed=False,
    )


def _first_lines(settings: DemoSettings, scenario: Scenario, why: str) -> tuple[str, str]:
    """Where the demo compares, what, and how long it takes."""
    node = node_info(settings.out)
    what = (
        f"{node.kind} node, Linux {node.kernel}, {node.cpu_count} CPUs, "
        f"{node.memory_total_bytes / 2**30:.1f} GiB"
    )
    where = f"on the twin, not live ({why})" if why else "live, in a sandbox of its own"
    memory = f"{scenario.sandbox.limit_bytes / 2**20:.0f} MiB"
    # Blocks on the twin are not waited for.
    time_needed = "a few minutes" if why else f"at most {settings.minutes:g} minutes"
    return (
        f"Comparing {where}; {what}.",
        f"{scenario.name}: {scenario.summary}, in {memory}. It takes {time_needed}.",
    )


def shipped_recordings() -> Path:
    """The recordings that come with the project.

    Raises:
        EvaluationError: If they are not there.
    """
    root = Path(next(iter(package.__path__))).parents[2]
    for place in (Path("recordings"), root / "recordings"):
        if any(place.glob("**/run.json")):
            return place
    raise EvaluationError(
        "The shipped recordings are not here.",
        next_step="Run the demo in a checkout of the project, or `stallward record --all` first.",
    )


_MARK: Final = ".demo"
"""The file that says that a directory is a demo's; one that was finished has a comparison as well."""
_MADE: Final = ("run", "twin.json", "policy.onnx", "policy.md", RESULT_FILE, REPORT_FILE)


def _clear(out: Path) -> None:
    """Remove what an earlier demo left in ``out``, and nothing else.

    Raises:
        EvaluationError: If ``out`` is a file, or has what another command made by a name of ours.
    """
    if out.is_file():
        raise EvaluationError(f"{out} is a file.", next_step="Name a directory with --out.")
    compared = (out / "compare" / PLAN_FILE).is_file()
    there = [out / name for name in _MADE if (out / name).exists()]
    if there and not (compared or (out / _MARK).is_file()):
        raise EvaluationError(
            f"{there[0]} exists, and no demo made it.",
            next_step="Name a new directory with --out.",
        )
    if compared:
        shutil.rmtree(out / "compare")
    for path in there:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def _make_policy(
    settings: DemoSettings, recordings: Path, budget: StageBudget, stages: _Stages
) -> tuple[Path, float]:
    """Fit, train and export; returns the policy's file, and how long the training took."""
    scenario = load_scenario(settings.scenario or DEMO_SCENARIO).name
    twin, run, policy = (settings.out / name for name in ("twin.json", "run", "policy.onnx"))
    chosen = recording_folders([recordings], scenario)
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
    begin_s = time.monotonic()
    with stages.next("train PPO on the twin") as report:
        train_policy(
            (str(twin),),
            out=run,
            seconds=budget.train_s,
            judged_on=(),
            synthetic=0,
            seed=settings.seed,
            report=report,
        )
    trained_s = time.monotonic() - begin_s
    with stages.next("export to ONNX"):
        export_policy(run, out=policy)
    return policy, trained_s


def _say_lines(text: str, say: Say) -> None:
    for one in wrap(text):
        say(one)


def _conclude(out: Path, opening: Opening, say: Say, took_s: float) -> None:
    say("")
    output.table(opening.headers, opening.rows)
    say("")
    _say_lines(opening.target, say)
    for text in (opening.headline, *opening.notes):
        say("")
        _say_lines(text, say)
    say("")
    say(f"{out / REPORT_FILE}  {out / RESULT_FILE}  ({took_s / 60:.1f} minutes)")
