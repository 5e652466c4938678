"""``stallward ope``: candidates judged by recordings of a randomised arm, before they run live.

A gate, never a proof: it can say that a candidate looks worse than a reference, or that the
recordings hold too little of what the candidate would do to say anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from stallward.agent.registry import make_controller
from stallward.agent.schema.marks import Flat
from stallward.env.recording.recording import load_recording
from stallward.env.recording.split import load_split
from stallward.env.twin.inputs.find import find_twin_of
from stallward.env.twin.inputs.fitted import load_fitted
from stallward.training.errors import TrainingError
from stallward.training.off_policy.dataset import LoggedRecording, ask, check_askable, read_logged
from stallward.training.off_policy.estimators import (
    Estimate,
    OffPolicy,
    OffPolicySettings,
    OffPolicyValue,
)
from stallward.training.pipeline.recordings import recordings_of
from stallward.training.progress import Report, silent

PRICE: Final = 6.0
"""Of every window missing the target by far, in units of full background speed."""
_NEARLY: Final = 0.99
"""Two runs of two minutes are four minutes, whatever the last tick of each was."""
LEAST_S: Final = 240.0
"""Less of the randomised arm refuses good candidates (docs/explanation/off-policy.md)."""
Verdict = Literal["worse", "not worse", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What the recordings of a scenario say of a candidate.

    Attributes:
        scenario, arm: Of what.
        fitted: Value by fitted Q.
        doubly_robust: ``None`` where too little was done as the candidate would.
        difference: From the reference's, by the better estimate of each.
        ess: Effective sample size of one tick's weights.
        agreement: Share of ticks in which the randomised arm did what the candidate would.
        corrected_ticks: How far the doubly robust correction reaches.
        verdict: ``worse`` where the interval of the difference is below zero; ``not worse``
            where it is not and there is a doubly robust estimate; else, and always where too
            little was recorded, ``unknown``.
    """

    scenario: str
    arm: str
    fitted: Estimate
    doubly_robust: Estimate | None
    difference: Estimate
    ess: float
    agreement: float
    corrected_ticks: int
    verdict: Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedArm:
    """The randomised arm in a scenario.

    Attributes:
        estimate: Its value.
        recordings: Names of its recordings.
        ticks, seconds: How much they hold.
    """

    estimate: Flat[Estimate]
    recordings: tuple[str, ...]
    ticks: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GateResult:
    """What the gate says of all candidates.

    Attributes:
        schema: Version of the JSON that is printed.
        reference: Spec of what candidates must not be worse than.
        price: Of every window missing the target by far.
        logged: Scenario -> the randomised arm there.
        candidates: Every candidate in every scenario.
        refused: Arms that are worse somewhere.
        held_out: Scenarios that are only measured at the end, for which no twin is shipped.
    """

    schema: int = 1
    reference: str
    price: float
    logged: Mapping[str, LoggedArm]
    candidates: tuple[Judged, ...]
    refused: tuple[str, ...]
    held_out: tuple[str, ...]


def judge(
    places: Sequence[Path],
    arms: Sequence[str],
    *,
    reference: str = "none",
    twin: str = "default",
    scenario: str = "",
    price: float = PRICE,
    least_s: float = LEAST_S,
    settings: OffPolicySettings | None = None,
    report: Report = silent,
) -> GateResult:
    """Judge candidates by every scenario's recordings with propensities.

    Args:
        places: Recordings, or directories of them.
        arms: Specs of the candidates.
        reference: Spec of what they must not be worse than.
        twin: Fitted twin with the programs' speeds; by default each scenario's shipped one.
        scenario: Only this one; empty for all.
        price: Of every window missing the target by far.
        least_s: Of a scenario's recordings, for any verdict about it.
        settings: How to estimate.
        report: Told how far it is.

    Raises:
        StallwardError: If there are no such recordings, or a candidate cannot be asked.
    """
    for spec in (reference, *arms):
        check_askable(make_controller(spec))
    by_scenario, held_out = _logged_recordings(places, scenario, twin, price)
    judged: list[Judged] = []
    logged: dict[str, LoggedArm] = {}
    for number, (name, recordings) in enumerate(by_scenario.items()):
        report(name, number / len(by_scenario))
        estimator = OffPolicy([one.run for one in recordings], settings)
        seconds = sum(one.seconds for one in recordings)
        logged[name] = LoggedArm(
            estimate=estimator.logged,
            recordings=tuple(one.run.name for one in recordings),
            ticks=sum(len(one.run.reward) for one in recordings),
            seconds=seconds,
        )
        base = _value(estimator, recordings, reference)
        judged += [
            _judged(
                estimator,
                name,
                arm,
                _value(estimator, recordings, arm),
                base,
                enough=seconds >= _NEARLY * least_s,
            )
            for arm in arms
        ]
    report("done", 1.0)
    return GateResult(
        reference=reference,
        price=price,
        logged=logged,
        candidates=tuple(judged),
        refused=tuple(sorted({one.arm for one in judged if one.verdict == "worse"})),
        held_out=tuple(held_out),
    )


def _logged_recordings(
    places: Sequence[Path], scenario: str, twin: str, price: float
) -> tuple[dict[str, list[LoggedRecording]], list[str]]:
    """Those with propensities, by scenario, and the scenarios that are held out."""
    found: dict[str, list[LoggedRecording]] = {}
    held_out: set[str] = set()
    split = load_split()
    for path in recordings_of(places, scenario):
        recording = load_recording(path)
        if recording.run.condition != "together" or "propensity" not in recording.actions:
            continue
        name = recording.run.scenario
        if twin == "default" and not scenario and split.part_of_run(recording.run) == "test":
            held_out.add(name)
            continue
        world = load_fitted(find_twin_of(name, twin)).scenario
        found.setdefault(name, []).append(read_logged(recording, world, price))
    if not found:
        raise TrainingError(
            f"No recording in {', '.join(map(str, places))} has propensities"
            + (f" (held out: {', '.join(sorted(held_out))})." if held_out else "."),
            next_step="Record some with `stallward record SCENARIO --arm excite`.",
        )
    return found, sorted(held_out)


def _value(
    estimator: OffPolicy, recordings: Sequence[LoggedRecording], spec: str
) -> OffPolicyValue:
    return estimator.value([ask(make_controller(spec), one) for one in recordings])


def _judged(
    estimator: OffPolicy,
    scenario: str,
    arm: str,
    value: OffPolicyValue,
    base: OffPolicyValue,
    *,
    enough: bool,
) -> Judged:
    difference = estimator.difference(value, base)
    verdict: Verdict = "unknown"
    if enough and difference.high < 0.0:
        verdict = "worse"
    elif enough and value.doubly_robust is not None:
        verdict = "not worse"
    return Judged(
        scenario=scenario,
        arm=arm,
        fitted=value.fitted,
        doubly_robust=value.doubly_robust,
        difference=difference,
        ess=value.ess,
        agreement=value.agreement,
        corrected_ticks=value.corrected_ticks,
        verdict=verdict,
    )


HEADERS: Final = (
    "scenario", "arm", "fitted Q", "doubly robust", "less reference", "ESS", "agrees", "verdict",
)  # fmt: skip


def off_policy_rows(found: GateResult) -> list[tuple[str, ...]]:
    """The candidates as rows of :data:`HEADERS`."""

    def interval(estimate: Estimate | None) -> str:
        if estimate is None:
            return "-"
        return f"{estimate.value:.2f} [{estimate.low:.2f}..{estimate.high:.2f}]"

    return [
        (
            one.scenario,
            one.arm,
            interval(one.fitted),
            interval(one.doubly_robust),
            interval(one.difference),
            f"{one.ess:.1f}",
            f"{100 * one.agreement:.1f} %",
            one.verdict,
        )
        for one in found.candidates
    ]
