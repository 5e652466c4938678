"""The gate of ``stallward ope``: candidates judged by recordings of a randomised arm.

It is a gate, never a proof. It can say that a candidate looks worse than a reference, or that the
recordings contain too few of the candidate's actions to say anything.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Literal, NamedTuple

from stallward.agent.action_table import ActionTable, ActionTableName
from stallward.agent.registry import make_controller
from stallward.agent.schema.marks import Flat
from stallward.env.catalogue.find import find_recordings
from stallward.env.recording.split import load_split
from stallward.env.recording.stored import MOST_HELD, Selection, StoredRecording, spread
from stallward.env.twin.estimate.exogenous import estimate_exogenous
from stallward.env.twin.inputs.exogenous import Exogenous
from stallward.env.twin.inputs.find import find_twin_of
from stallward.env.twin.inputs.fitted import load_fitted
from stallward.models.registry import twin_names
from stallward.research.off_policy.action_tables import common_table
from stallward.research.off_policy.dataset import (
    LoggedRecording,
    check_replayable,
    controller_actions,
    read_logged,
)
from stallward.research.off_policy.estimators import (
    Estimate,
    OffPolicyEstimator,
    OffPolicySettings,
    OffPolicyValue,
)
from stallward.training.errors import DatasetError, TrainingError
from stallward.training.progress import Report, silent

# ---------- Finds the recordings of a randomised arm that candidates are judged by

_NAMES: Final[dict[ActionTableName, str]] = {"levels": "limit levels", "set-points": "set-points"}
_ARMS: Final[dict[ActionTableName, str]] = {
    "levels": "excite",
    "set-points": "excite:table=set-points",
}


class Chosen(NamedTuple):
    """The recordings to judge by, of each scenario."""

    with_propensities: dict[str, list[StoredRecording]]
    references: dict[str, list[StoredRecording]]
    """All of its recordings, which say how fast its programs are."""


def with_propensities(
    places: Sequence[str | Path], selection: Selection, twin: str, table: ActionTable
) -> tuple[Chosen, list[str]]:
    """The recordings with propensities of a table, and the scenarios held out.

    Args:
        places: Recordings, directories of them, or catalogues.
        selection: Which of them are used.
        twin: The fitted twin; only with another than ``default`` held-out scenarios are used.
        table: The action table.

    Raises:
        TrainingError: If there is none.
    """
    chosen = Chosen(defaultdict(list), defaultdict(list))
    held_out: set[str] = set()
    split = load_split()
    # References have other arms than the recordings to judge by.
    for one in find_recordings(places, replace(selection, arm="")):
        chosen.references[one.scenario].append(one)
        if one.condition != "together" or selection.arm not in ("", one.arm):
            continue
        if one.choices() != len(table.sizes):
            continue
        if twin == "default" and not selection.scenario and split.part_of_run(one.run()) == "test":
            held_out.add(one.scenario)
            continue
        chosen.with_propensities[one.scenario].append(one)
    if not chosen.with_propensities:
        raise TrainingError(
            f"No recording in {', '.join(map(str, places))} has propensities of "
            + _NAMES[table.name]
            + (f" (held out: {', '.join(sorted(held_out))})." if held_out else "."),
            next_step=f"Record some with `stallward record SCENARIO --arm {_ARMS[table.name]}`.",
        )
    return chosen, sorted(held_out)


def full_speeds(scenario: str, twin: str, recordings: Sequence[StoredRecording]) -> Exogenous:
    """The description of a scenario, with the full speed of each program.

    Raises:
        RegistryError: If it has neither a twin nor a reference with ample memory among its
            recordings.
    """
    ample = any(one.condition == "ample" for one in recordings)
    if twin == "default" and scenario not in twin_names() and ample:
        loaded = [one.load() for one in spread(recordings, MOST_HELD)]
        return estimate_exogenous(scenario, loaded)
    return load_fitted(find_twin_of(scenario, twin)).scenario


PRICE: Final = 6.0
"""The price of a window that misses the target by far, in units of full background speed."""
_LENGTH_TOLERANCE: Final = 0.99
"""Two runs of two minutes count as four minutes, although the last tick of each may be early."""
LEAST_S: Final = 240.0
"""Recordings shorter than this give no verdict: they would refuse good candidates, too
(docs/explanation/off-policy.md)."""
Verdict = Literal["worse", "not worse", "unknown"]
_REFERENCES: Final[dict[ActionTableName, str]] = {"levels": "none", "set-points": "partition"}
"""What candidates are compared with by default, for each action table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateResult:
    """The result for one candidate in one scenario."""

    scenario: str
    """The scenario of the recordings."""
    arm: str
    """The spec of the candidate."""
    fitted: Estimate
    """The value by fitted Q."""
    doubly_robust: Estimate | None
    """The doubly robust value; ``None`` if too few recorded actions match the candidate's."""
    difference: Estimate
    """The value less the reference's; each is the doubly robust one where that exists."""
    ess: float
    """The effective sample size of the first tick's weights."""
    agreement: float
    """The share of ticks in which the randomised arm took the candidate's action."""
    corrected_ticks: int
    """How many ticks ahead the doubly robust correction reaches."""
    verdict: Verdict
    """``worse`` if the interval of the difference is below zero; ``not worse`` if it is not and
    there is a doubly robust value; otherwise, and always if too little was recorded,
    ``unknown``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedArm:
    """The randomised arm in one scenario."""

    estimate: Flat[Estimate]
    """The value of the arm itself."""
    recordings: tuple[str, ...]
    """The names of its recordings."""
    ticks: int
    """The number of ticks with propensities."""
    seconds: float
    """The length of the measured parts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateResult:
    """The result of the gate for all candidates."""

    schema: int = 1
    """The version of the printed JSON."""
    reference: str
    """The spec of the arm that candidates must not be worse than."""
    price: float
    """The price of a window that misses the target by far."""
    logged: Mapping[str, LoggedArm]
    """The randomised arm, by scenario."""
    candidates: tuple[CandidateResult, ...]
    """The result of every candidate in every scenario."""
    refused: tuple[str, ...]
    """The arms that are worse in some scenario."""
    held_out: tuple[str, ...]
    """Scenarios left out because they are held out for tests."""
    not_used: int = 0
    """How many recordings were beyond the most of a scenario."""
    too_short: Mapping[str, str] = field(default_factory=dict)
    """Scenario whose recordings are too short for any estimate -> why."""


def judge(
    places: Sequence[str | Path],
    arms: Sequence[str],
    *,
    selection: Selection | None = None,
    reference: str = "",
    twin: str = "default",
    price: float = PRICE,
    least_s: float = LEAST_S,
    most: int = MOST_HELD,
    settings: OffPolicySettings | None = None,
    report: Report = silent,
) -> GateResult:
    """Judge candidates by every scenario's recordings with propensities.

    Args:
        places: Recordings, directories of them, or catalogues.
        arms: The specs of the candidates.
        selection: Which of the recordings are used; a scenario that is named is judged in even if
            it is held out for tests. By default all.
        reference: The spec of the arm that they must not be worse than; by default ``none``, or
            ``partition`` where the candidates choose set-points.
        twin: The fitted twin with the programs' speeds, by default each scenario's shipped one;
            without one, they are estimated from its recordings in ``places``.
        price: The price of a window that misses the target by far.
        least_s: The least length of a scenario's recordings for a verdict.
        most: The most recordings of a scenario with propensities that are used, chosen evenly over
            their time: an estimate holds all their ticks.
        settings: How to estimate.
        report: Called with the progress.

    Raises:
        StallwardError: If there are no such recordings, or a candidate cannot run on them.
    """
    controllers = [make_controller(spec) for spec in (*arms, *((reference,) if reference else ()))]
    for controller in controllers:
        check_replayable(controller)
    table = common_table(controllers)
    reference = reference or _REFERENCES[table.name]
    chosen, held_out = with_propensities(places, selection or Selection(), twin, table)
    candidates: list[CandidateResult] = []
    logged: dict[str, LoggedArm] = {}
    too_short: dict[str, DatasetError] = {}
    for number, (name, every) in enumerate(chosen.with_propensities.items()):
        report(name, number / len(chosen.with_propensities))
        described = full_speeds(name, twin, chosen.references[name])
        recordings = [read_logged(one.load(), described, price) for one in spread(every, most)]
        try:
            estimator = OffPolicyEstimator([one.run for one in recordings], settings)
        except DatasetError as error:
            too_short[name] = error
            continue
        seconds = sum(one.seconds for one in recordings)
        logged[name] = LoggedArm(
            estimate=estimator.behaviour_value,
            recordings=tuple(one.run.name for one in recordings),
            ticks=sum(len(one.run.reward) for one in recordings),
            seconds=seconds,
        )
        reference_value = _value(estimator, recordings, reference)
        candidates += [
            _candidate_result(
                estimator,
                name,
                arm,
                _value(estimator, recordings, arm),
                reference_value,
                enough=seconds >= _LENGTH_TOLERANCE * least_s,
            )
            for arm in arms
        ]
    if not logged:
        raise next(iter(too_short.values()))
    report("done", 1.0)
    return GateResult(
        reference=reference,
        price=price,
        logged=logged,
        candidates=tuple(candidates),
        refused=tuple(sorted({one.arm for one in candidates if one.verdict == "worse"})),
        held_out=tuple(held_out),
        not_used=sum(max(len(every) - most, 0) for every in chosen.with_propensities.values()),
        too_short={name: error.cause for name, error in too_short.items()},
    )


def _value(
    estimator: OffPolicyEstimator, recordings: Sequence[LoggedRecording], spec: str
) -> OffPolicyValue:
    return estimator.value([controller_actions(make_controller(spec), one) for one in recordings])


def _candidate_result(
    estimator: OffPolicyEstimator,
    scenario: str,
    arm: str,
    value: OffPolicyValue,
    reference_value: OffPolicyValue,
    *,
    enough: bool,
) -> CandidateResult:
    difference = estimator.difference(value, reference_value)
    verdict: Verdict = "unknown"
    if enough and difference.high < 0.0:
        verdict = "worse"
    elif enough and value.doubly_robust is not None:
        verdict = "not worse"
    return CandidateResult(
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


def off_policy_rows(result: GateResult) -> list[tuple[str, ...]]:
    """The candidates as table rows with the columns :data:`HEADERS`."""

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
        for one in result.candidates
    ]
