"""``stallward verdict``: is the policy better than the rules, live, where none of them was tuned?

One comparison (``stallward.evaluation.comparison.compare``) for each held-out scenario, of all
controllers and of what could be known in hindsight. Scenarios take turns, a round of each; what is
done is kept, so that an interrupted verdict goes on, and more rounds may be added. What comes of
it is judged in ``stallward.evaluation.verdict.figures``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from stallward.agent.schema.marks import Omitted
from stallward.env.scenario.file import load_scenario
from stallward.env.twin.inputs.fitted import load_fitted, save_fitted
from stallward.evaluation.arms import make_arms
from stallward.evaluation.comparison.compare import Compared, rounds_done, run_comparison
from stallward.evaluation.comparison.oracle import Setting, best_meeting_target, screen_scenario
from stallward.evaluation.comparison.request import ComparisonRequest
from stallward.evaluation.errors import ComparisonError, EvaluationError
from stallward.evaluation.results.comparison import ComparisonResult
from stallward.evaluation.results.oracle import Hindsight, ScreenedArm
from stallward.evaluation.results.serialise import load_if_there, save
from stallward.evaluation.verdict.figures import Scene, judge
from stallward.evaluation.verdict.plan import VerdictPlan
from stallward.evaluation.verdict.result import (
    VERDICT_FILE,
    Verdict,
    load_verdict,
    what_was_run,
)
from stallward.models.registry import find_policy, load_policy
from stallward.training.pipeline.recordings import fit_recordings, recordings_of
from stallward.training.progress import Report, part, silent

STATIC_BEST: Final = "static best"
"""The role of the static setting that did best in training."""
_ARMS_FILE: Final = "arms.json"
_FIT_SHARE: Final = 0.02
"""Of the bar; fitting in hindsight takes minutes, the comparisons hours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HindsightArms:
    """What hindsight adds to the arms of a scenario, decided once.

    Attributes:
        arms: Labels of the arms.
        screened: What the static settings among them did on the twin, where they were tried there.
        oracle: The oracle of another verdict, where that is all that hindsight adds.
    """

    arms: tuple[str, ...]
    screened: Omitted[tuple[ScreenedArm, ...]] = None
    oracle: Omitted[str] = None


def run_verdict(
    plan: VerdictPlan,
    out: Path,
    *,
    recordings: Path,
    policy: str = "default",
    oracle_of: Path | None = None,
    fit_seconds: float = 300.0,
    report: Report = silent,
) -> Verdict:
    """Run what is missing of a verdict, live, and judge what is there.

    Args:
        plan: What is run.
        out: Directory, new or resumable.
        recordings: Where the held-out scenarios' recordings are, for what hindsight may know.
        policy: The policy under test, file or name.
        oracle_of: Another verdict, whose oracles are all that is known in hindsight: chosen there,
            they are measured here, and owe nothing to having been lucky.
        fit_seconds: For the twin of each scenario that hindsight takes.
        report: Told how far it is.

    Raises:
        StallwardError: If a scenario cannot be run, or ``out`` is of another plan.
    """
    fixed = static_best(policy)
    fitting = part(report, 0.0, _FIT_SHARE)
    if oracle_of is not None:
        _take_oracles(oracle_of, plan, out)
    oracles = {name: _chosen_oracle(out, name) for name in plan.scenarios}
    casts = {
        name: _cast(
            plan, name, fixed, _hindsight(plan, name, out, recordings, fit_seconds, fitting)
        )
        for name in plan.scenarios
    }
    whole = {
        name: ComparisonRequest(
            scenario=name,
            arms=tuple(make_arms(list(casts[name].values()))),
            mode="live",
            rounds=plan.rounds,
            block_s=plan.block_seconds,
            burn_in_s=plan.burn_in_seconds,
            seed=plan.seed,
            out=out / name,
            policy=policy,
        )
        for name in plan.scenarios
    }
    # What is there is judged as it is: going on must not show less than there was.
    done = {name: rounds_done(request) for name, request in whole.items()}
    scenes = {
        name: _scene(
            casts[name], run_comparison(replace(whole[name], rounds=rounds)), oracles[name]
        )
        for name, rounds in done.items()
        if rounds > 0
    }
    failed: dict[str, str] = {}
    verdict = _judged(plan, scenes, failed, out)
    steps = plan.rounds * len(plan.scenarios)
    for step in range(steps):
        number, name = 1 + step // len(plan.scenarios), plan.scenarios[step % len(plan.scenarios)]
        if name in failed or number <= done[name]:
            continue
        share = [_FIT_SHARE + (1.0 - _FIT_SHARE) * (step + k) / steps for k in (0, 1)]
        bar = part(partial(_say, report, name), *share)
        try:
            compared = run_comparison(replace(whole[name], rounds=number), bar)
        except ComparisonError as error:  # the other scenarios need not suffer for it
            failed[name] = str(error)
            scenes.pop(name, None)
            report(f"{name} is left out: {error}", share[1])
        else:
            scenes[name] = _scene(casts[name], compared, oracles[name])
        verdict = _judged(plan, scenes, failed, out)
    if verdict is None:
        raise EvaluationError(f"No scenario could be run: {failed}.")
    report("done", 1.0)
    return verdict


def _cast(
    plan: VerdictPlan, name: str, fixed: Setting | None, hindsight: Sequence[str]
) -> dict[str, str]:
    """What each arm of a scenario is to the verdict, and its label; each label once."""
    cast = {label: label for label in plan.arms}
    if fixed is not None:
        slots = max(len(load_scenario(name).background), 1)
        cast[STATIC_BEST] = fixed.for_slots(slots).spec
    for label in hindsight:
        cast["mpc" if label.startswith("mpc:") else label] = label
    found: dict[str, str] = {}
    for role, label in cast.items():
        if label not in found.values():
            found[role] = label
    return found


def _judged(
    plan: VerdictPlan, scenes: Mapping[str, Scene], failed: Mapping[str, str], out: Path
) -> Verdict | None:
    """The verdict on what there is, which is written down; nothing without a scenario."""
    if not scenes:
        return None
    verdict = judge(scenes, plan.targets, failed)
    save(out / VERDICT_FILE, verdict)
    return verdict


def _scene(cast: Mapping[str, str], compared: Compared, oracle: str) -> Scene:
    """A scenario's comparison, as far as it has come, for the judge.

    ``oracle`` is the label that another verdict chose; empty to choose by what is measured here.
    """
    facts = {label: arm.facts for label, arm in compared.result.table.arms.items()}
    return Scene(
        found=compared.found,
        roles=cast,
        oracle=_oracle(compared.result, oracle),
        spoiled={label: one.invalid_blocks for label, one in facts.items()},
        stolen={label: one.stolen_share_worst for label, one in facts.items()},
        ended={label: one.terminated_processes for label, one in facts.items()},
        nodes=1 + len(compared.result.other_nodes),
        run=what_was_run(compared.result),
    )


def _oracle(result: ComparisonResult, chosen: str) -> Hindsight | None:
    try:
        return best_meeting_target(result, chosen=chosen)
    except EvaluationError:
        return None


def _say(report: Report, name: str, said: str, share: float) -> None:
    report(f"{name}: {said}", share)


def static_best(policy: str) -> Setting | None:
    """The static setting that did best on what a policy was trained on.

    Returns:
        ``None`` where the policy does not say.

    Raises:
        StallwardError: If there is no such policy.
    """
    action = load_policy(find_policy(policy)).metadata.provenance.get("best_static_action")
    return None if action is None else Setting.of_action(action)


def _take_oracles(other: Path, plan: VerdictPlan, out: Path) -> None:
    """Decide that hindsight adds what another verdict had for an oracle, and nothing else.

    Raises:
        EvaluationError: If the other verdict names none, or this one has begun with another.
    """
    scenarios = load_verdict(other).scenarios
    oracles: dict[str, str] = {}
    for name in plan.scenarios:
        oracle = scenarios[name].oracle if name in scenarios else None
        if oracle is None:
            raise EvaluationError(f"The verdict in {other} names no oracle for {name}.")
        oracles[name] = oracle.arm
    for name, taken in oracles.items():
        place = _hindsight_place(out, name)
        kept = load_if_there(HindsightArms, place / _ARMS_FILE)
        if kept is None:
            place.mkdir(parents=True, exist_ok=True)
            save(place / _ARMS_FILE, HindsightArms(arms=(taken,), oracle=taken))
        elif kept.oracle != taken:
            raise EvaluationError(
                f"The verdict in {out} has begun with another oracle for {name} than that of "
                f"{other}, {taken}.",
                next_step="Go on without --oracle-of, or begin in a new directory.",
            )


def _chosen_oracle(out: Path, name: str) -> str:
    """The label of the oracle that another verdict chose; empty if none did."""
    kept = load_if_there(HindsightArms, _hindsight_place(out, name) / _ARMS_FILE)
    return "" if kept is None or kept.oracle is None else kept.oracle


def _hindsight_place(out: Path, name: str) -> Path:
    return out / "hindsight" / name


def _hindsight(
    plan: VerdictPlan, name: str, out: Path, recordings: Path, fit_seconds: float, report: Report
) -> list[str]:
    """The arms of a scenario that hindsight adds; decided once."""
    place = _hindsight_place(out, name)
    kept = load_if_there(HindsightArms, place / _ARMS_FILE)
    if kept is not None:
        return list(kept.arms)
    if plan.hindsight_settings == 0:
        return []
    found = recordings_of([recordings], name)
    if not found:
        raise EvaluationError(
            f"There is no recording of {name} in {recordings}, from which hindsight could be had.",
            next_step="Record it with `stallward record --all`.",
        )
    twin_file = place / "twin.json"
    if not twin_file.exists():
        twin = fit_recordings(
            found,
            seconds=fit_seconds,
            seed=plan.seed,
            report=lambda said, share: report(f"hindsight, {said}", share),
        )
        save_fitted(twin_file, twin)
    screened = screen_scenario(
        load_fitted(twin_file), count=plan.hindsight_settings, seed=plan.seed
    )
    added = [*(one.arm for one in screened.arms), f"mpc:path={twin_file}"]
    labels = [label for label in added if label not in plan.arms]
    save(place / _ARMS_FILE, HindsightArms(arms=tuple(labels), screened=screened.arms))
    return labels
