"""``stallward verdict``: whether the policy beats the rules, live, on held-out scenarios.

For each held-out scenario there is one comparison (``stallward.evaluation.comparison.compare``) of
all controllers and of the arms that hindsight adds. Scenarios take turns, one round each. Finished
blocks are kept, so an interrupted verdict can be resumed, and rounds can be added. The results are
judged in ``stallward.research.verdict.figures``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from stallward.agent.schema.marks import Omitted
from stallward.env.catalogue.find import find_recordings
from stallward.env.recording.stored import Selection
from stallward.env.scenario.file import load_scenario
from stallward.env.twin.inputs.fitted import load_fitted, save_fitted
from stallward.evaluation.arms import make_arms
from stallward.evaluation.comparison.compare import ComparisonOutcome, rounds_done, run_comparison
from stallward.evaluation.comparison.request import ComparisonRequest
from stallward.evaluation.errors import ComparisonError, EvaluationError
from stallward.evaluation.planner import find_planner
from stallward.evaluation.results.comparison import ComparisonResult
from stallward.evaluation.results.serialise import load_if_there, save
from stallward.models.registry import find_policy, load_policy
from stallward.research.hindsight import Hindsight, best_meeting_target
from stallward.research.screening import ScreenedArm, Setting, screen_scenario
from stallward.research.verdict.figures import judge
from stallward.research.verdict.plan import VerdictPlan
from stallward.research.verdict.result import (
    VERDICT_FILE,
    Verdict,
    load_verdict,
    provenance_of,
)
from stallward.research.verdict.scenario_comparison import ScenarioComparison
from stallward.training.pipeline.fit import fit_recordings
from stallward.training.progress import Report, part, silent

STATIC_BEST: Final = "static best"
"""The role of the best static setting of the scenarios that the policy was trained on."""
_ARMS_FILE: Final = "arms.json"
_FIT_S: Final = 300.0
"""Time for fitting the twin of each scenario that hindsight uses."""
_FIT_SHARE: Final = 0.02
"""The share of the progress bar for fitting twins: that takes minutes, comparisons take hours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HindsightArms:
    """The arms that hindsight adds to a scenario, chosen once: the content of ``arms.json``."""

    arms: tuple[str, ...]
    """Labels of the arms."""
    screened: Omitted[tuple[ScreenedArm, ...]] = None
    """The results of the static settings among them on the twin, if they were tried there."""
    oracle: Omitted[str] = None
    """The oracle of another verdict, if that is all that hindsight adds."""


def run_verdict(
    plan: VerdictPlan,
    out: Path,
    *,
    recordings: Path,
    policy: str = "default",
    oracle_of: Path | None = None,
    report: Report = silent,
) -> Verdict:
    """Run the missing blocks of a verdict, live, and judge all blocks.

    Args:
        plan: The scenarios, arms and targets.
        out: Directory of the verdict, new or to be resumed.
        recordings: Directory of the held-out scenarios' recordings, which hindsight uses.
        policy: The policy under test, file or name.
        oracle_of: Directory of another verdict. Its oracles are then the only arms that hindsight
            adds: they were chosen there and are measured here, so luck has no part in the choice.
        report: Called with the progress.

    Raises:
        StallwardError: If no scenario can be run, or ``out`` belongs to another plan.
    """
    scenarios = {load_scenario(one).name: one for one in plan.scenarios}
    slots = {name: max(len(load_scenario(one).background), 1) for name, one in scenarios.items()}
    best_static = static_best(policy) if plan.fixed_setting else None
    fitting = part(report, 0.0, _FIT_SHARE)
    if oracle_of is not None:
        _take_oracles(oracle_of, tuple(scenarios), out)
    oracles = {name: _chosen_oracle(out, name) for name in scenarios}
    roles = {
        name: _roles(
            plan,
            slots[name],
            best_static,
            _hindsight(plan, name, out, recordings, fitting),
        )
        for name in scenarios
    }
    requests = {
        name: ComparisonRequest(
            scenario=scenarios[name],
            arms=tuple(make_arms(list(roles[name].values()))),
            mode="live",
            rounds=plan.rounds,
            block_s=plan.block_seconds,
            burn_in_s=plan.burn_in_seconds,
            seed=plan.seed,
            out=out / name,
            policy=policy,
            target=plan.target,
        )
        for name in scenarios
    }
    # Finished rounds are judged first: a resumed verdict must not show less than before.
    done = {name: rounds_done(request) for name, request in requests.items()}
    compared = {
        name: _scenario_comparison(
            roles[name], run_comparison(replace(requests[name], rounds=rounds)), oracles[name]
        )
        for name, rounds in done.items()
        if rounds > 0
    }
    failed: dict[str, str] = {}
    verdict = _judged(plan, compared, failed, out)
    steps = plan.rounds * len(scenarios)
    for step in range(steps):
        number, name = 1 + step // len(scenarios), tuple(scenarios)[step % len(scenarios)]
        if name in failed or number <= done[name]:
            continue
        share = [_FIT_SHARE + (1.0 - _FIT_SHARE) * (step + k) / steps for k in (0, 1)]
        bar = part(partial(_report_of, report, name), *share)
        try:
            outcome = run_comparison(replace(requests[name], rounds=number), bar)
        except ComparisonError as error:  # the other scenarios go on
            failed[name] = str(error)
            compared.pop(name, None)
            report(f"{name} is left out: {error}", share[1])
        else:
            compared[name] = _scenario_comparison(roles[name], outcome, oracles[name])
        verdict = _judged(plan, compared, failed, out)
    if verdict is None:
        raise EvaluationError(f"No scenario could be run: {failed}.")
    report("done", 1.0)
    return verdict


def _roles(
    plan: VerdictPlan, slots: int, best_static: Setting | None, hindsight: Sequence[str]
) -> dict[str, str]:
    """Role of each arm of a scenario in the verdict -> its label; each label occurs once."""
    labels = {label: label for label in plan.arms}
    if best_static is not None:
        labels[STATIC_BEST] = best_static.for_slots(slots).spec
    for label in hindsight:
        labels["mpc" if label.startswith("mpc:") else label] = label
    unique: dict[str, str] = {}
    for role, label in labels.items():
        if label not in unique.values():
            unique[role] = label
    return unique


def _judged(
    plan: VerdictPlan,
    compared: Mapping[str, ScenarioComparison],
    failed: Mapping[str, str],
    out: Path,
) -> Verdict | None:
    """Judge the scenarios compared so far and save the verdict; ``None`` if there is none yet."""
    if not compared:
        return None
    verdict = judge(compared, plan.targets, failed)
    save(out / VERDICT_FILE, verdict)
    return verdict


def _scenario_comparison(
    roles: Mapping[str, str], outcome: ComparisonOutcome, oracle: str
) -> ScenarioComparison:
    """The comparison of a scenario, as far as it has been run.

    ``oracle`` is the label that another verdict chose; empty to choose from these blocks.
    """
    facts = {label: arm.facts for label, arm in outcome.result.table.arms.items()}
    return ScenarioComparison(
        estimates=outcome.estimates,
        slo_source=outcome.result.table.slo_source,
        roles=roles,
        oracle=_oracle(outcome.result, oracle),
        invalid_blocks={label: one.invalid_blocks for label, one in facts.items()},
        steal_shares={label: one.stolen_share_worst for label, one in facts.items()},
        terminated={label: one.ended_processes for label, one in facts.items()},
        nodes=1 + len(outcome.result.other_nodes),
        provenance=provenance_of(outcome.result),
    )


def _oracle(result: ComparisonResult, chosen: str) -> Hindsight | None:
    try:
        return best_meeting_target(result, chosen=chosen)
    except EvaluationError:
        return None


def _report_of(report: Report, name: str, text: str, share: float) -> None:
    """Report the progress of one scenario."""
    report(f"{name}: {text}", share)


def static_best(policy: str) -> Setting | None:
    """The best static setting of the scenarios that a policy was trained on.

    Returns:
        ``None`` if the policy's metadata does not name one.

    Raises:
        StallwardError: If there is no such policy.
    """
    action = load_policy(find_policy(policy)).metadata.provenance.get("best_static_action")
    return None if action is None else Setting.of_action(action)


def _take_oracles(other: Path, names: Sequence[str], out: Path) -> None:
    """Make the oracles of another verdict the only arms that hindsight adds.

    Raises:
        EvaluationError: If the other verdict names no oracle, or this one has begun with another.
    """
    scenarios = load_verdict(other).scenarios
    oracles: dict[str, str] = {}
    for name in names:
        oracle = scenarios[name].oracle if name in scenarios else None
        if oracle is None:
            raise EvaluationError(f"The verdict in {other} names no oracle for {name}.")
        oracles[name] = oracle.arm
    for name, taken in oracles.items():
        folder = _hindsight_folder(out, name)
        kept = load_if_there(HindsightArms, folder / _ARMS_FILE)
        if kept is None:
            folder.mkdir(parents=True, exist_ok=True)
            save(folder / _ARMS_FILE, HindsightArms(arms=(taken,), oracle=taken))
        elif kept.oracle != taken:
            raise EvaluationError(
                f"The verdict in {out} has begun with another oracle for {name} than that of "
                f"{other}, {taken}.",
                next_step="Go on without --oracle-of, or begin in a new directory.",
            )


def _chosen_oracle(out: Path, name: str) -> str:
    """The label of the oracle that another verdict chose; empty if there is none."""
    kept = load_if_there(HindsightArms, _hindsight_folder(out, name) / _ARMS_FILE)
    return "" if kept is None or kept.oracle is None else kept.oracle


def _hindsight_folder(out: Path, name: str) -> Path:
    return out / "hindsight" / name


def _hindsight(
    plan: VerdictPlan, name: str, out: Path, recordings: Path, report: Report
) -> list[str]:
    """Labels of the arms that hindsight adds to a scenario; they are chosen once and kept."""
    folder = _hindsight_folder(out, name)
    kept = load_if_there(HindsightArms, folder / _ARMS_FILE)
    if kept is not None:
        return list(kept.arms)
    if plan.hindsight_settings == 0:
        return []
    found = find_recordings([recordings], Selection(scenario=name))
    if not found:
        raise EvaluationError(
            f"There is no recording of {name} in {recordings} for hindsight to choose from.",
            next_step="Record it with `stallward record --all`.",
        )
    find_planner("mpc")  # refused now, not after the fit
    twin_file = folder / "twin.json"
    if not twin_file.exists():
        twin = fit_recordings(
            found,
            seconds=_FIT_S,
            seed=plan.seed,
            report=lambda text, share: report(f"hindsight, {text}", share),
        )
        save_fitted(twin_file, twin)
    screened = screen_scenario(
        load_fitted(twin_file), count=plan.hindsight_settings, seed=plan.seed
    )
    candidates = [*(one.arm for one in screened.arms), f"mpc:path={twin_file}"]
    labels = [label for label in candidates if label not in plan.arms]
    save(folder / _ARMS_FILE, HindsightArms(arms=tuple(labels), screened=screened.arms))
    return labels
