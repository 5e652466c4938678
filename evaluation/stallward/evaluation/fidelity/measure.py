"""``stallward fidelity``: how far the twin is off from live runs that no fit has seen.

*Arms left out*: for every scenario and arm that was recorded, a twin is fitted to the scenario's
other recordings. *Scenarios left out*: for every scenario that policies are not trained on (to
choose by, or held out for the end, ``stallward.env.recording.split``), a twin gets the sizes and
full speeds from its references, and the parameters from the fits of others, of those most like it
first (:mod:`stallward.training.twin_fit.transfer`), none its own.

That twin runs the arm (the controller itself, closed loop, not a replay), and what came of it is
laid beside the recordings (``stallward.evaluation.fidelity.distances``). Beside each figure stands
the noise floor: the same between two live recordings of the arm, or the halves of the only one.

*Twins as they are*: the same for twins that were fitted before, each beside all recordings of its
scenario. What a policy that was trained on them does live shows whether they agree with the node
where it goes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np

from stallward.actuator.runtime.temporary_folders import temporary_folder
from stallward.agent.errors import StallwardError
from stallward.env.recording.node_facts import node_info
from stallward.env.recording.recording import load_recording
from stallward.env.recording.run_info import RunInfo, load_run
from stallward.env.scenario.file import scenario_from
from stallward.env.twin.inputs.fitted import FittedTwin
from stallward.evaluation.arms import Arm, find_policy_of, make_arms
from stallward.evaluation.blocks.request import NO_ARM, Condition, RunRequest, file_sha256
from stallward.evaluation.blocks.twin import TwinRunner
from stallward.evaluation.errors import EvaluationError
from stallward.evaluation.fidelity.distances import ArmFidelity, summarise_fidelity
from stallward.evaluation.fidelity.fits import USUAL_FITS, Fits
from stallward.evaluation.fidelity.observed import Observed
from stallward.evaluation.fidelity.recorded import (
    ByScenario,
    Recorded,
    _divided,
    _recorded,
    load_recorded,
)
from stallward.evaluation.fidelity.result import FidelityResult, FidelityTable
from stallward.evaluation.fidelity.signals import pooled, scales_of
from stallward.evaluation.fidelity.targets import load_fidelity_targets
from stallward.evaluation.measures.block_measures import Array, BlockMeasures
from stallward.training.parallel import run_in_parallel
from stallward.training.progress import Report, part, silent
from stallward.training.twin_fit.exogenous import estimate_exogenous
from stallward.training.twin_fit.transfer import transfer

_TWIN_BLOCKS: Final = 12
"""Twin blocks per arm: so many draws of parameters and arrivals."""
_REPLAYED: Final = "none"
"""Naive replay plays back what was recorded under this arm."""
_OWN_BLOCKS: Final = 2
"""Of the background by itself, which varies little."""


def measure_fidelity(
    recordings: Path,
    *,
    fits: Fits = USUAL_FITS,
    scenario: str = "",
    arm: str = "",
    twins: Sequence[FittedTwin] = (),
    workers: int | None = None,
    report: Report = silent,
) -> FidelityResult:
    """Measure the fidelity of twins fitted to ``recordings``, or of twins as they are.

    Args:
        recordings: Directory of them.
        fits: How they are fitted, and where they are kept until all is measured. Its seed
            seeds the twins' runs, too.
        scenario: Only this one; empty for all.
        arm: Only this one is left out and predicted; empty for each in turn.
        twins: Take these, each for its scenario, and fit none; without any, fit.
        workers: Fits at once, as many as there are processors by default.
        report: Told how far it is.

    Raises:
        EvaluationError: If there are not two arms of any scenario, or none of a twin's.
        RecordingError: If a recording cannot be opened.
    """
    by_scenario: dict[str, list[Recorded]] = {}
    for recorded in load_recorded(recordings, scenario):
        by_scenario.setdefault(recorded.run.scenario, []).append(recorded)
    if twins:
        return _of_twins(by_scenario, twins, arm, fits.seed, workers=workers, report=report)
    learned, strange = _divided(by_scenario)
    arms = {name: _arms(mine) for name, mine in learned.items()}
    jobs = [
        (name, one)
        for name, all_arms in arms.items()
        for one in all_arms
        if len(all_arms) >= 2 and arm in ("", one)
    ]
    if not jobs:
        raise EvaluationError(
            f"{recordings} holds no scenario with two arms or more"
            + (f", one of them {arm!r}," if arm else "")
            + " that a twin may be fitted to.",
            next_step="Record some with `stallward record`, or name another directory.",
        )
    rows = run_in_parallel(
        [partial(_left_out, learned[name], one, fits) for name, one in jobs],
        part(report, 0.0, 0.9),
        workers=workers,
    )
    others = _scenarios_left_out(
        learned, strange, arm, fits, workers=workers, report=part(report, 0.9, 1.0)
    )
    report("done", 1.0)
    return FidelityResult(
        twins="fitted without the arm",
        table=_table(rows, _not_run(learned, arm)),
        left_out_scenarios=_table(others, _not_run(strange, arm)) if others else None,
    )


def _of_twins(
    by_scenario: ByScenario,
    twins: Sequence[FittedTwin],
    arm: str,
    seed: int,
    *,
    workers: int | None,
    report: Report,
) -> FidelityResult:
    """Lay twins as they are beside all recorded arms of their scenarios."""
    jobs = [
        (mine, one, twin)
        for twin in twins
        for mine in [by_scenario.get(twin.scenario.name, ())]
        for one in _arms(mine)
        if arm in ("", one)
    ]
    if not jobs:
        names = ", ".join(twin.scenario.name for twin in twins)
        raise EvaluationError(
            f"No recording{f' of {arm!r}' if arm else ''} can be laid beside the twins of {names}:"
            " none is of their scenarios, or of an arm that can still be run.",
            next_step="Record some with `stallward record`, or name other twins.",
        )
    rows = run_in_parallel(
        [partial(_as_it_is, mine, one, twin, seed) for mine, one, twin in jobs],
        report,
        workers=workers,
    )
    report("done", 1.0)
    mine = {twin.scenario.name: by_scenario.get(twin.scenario.name, ()) for twin in twins}
    return FidelityResult(
        twins="as they are", table=_table(rows, _not_run(mine, arm)), left_out_scenarios=None
    )


def _table(arms: Sequence[ArmFidelity], not_run: Sequence[str]) -> FidelityTable:
    summary = summarise_fidelity(arms)
    return FidelityTable(
        arms=tuple(arm.row() for arm in arms),
        not_run=tuple(not_run),
        summary=summary,
        targets=load_fidelity_targets().judge(summary),
    )


def _not_run(by_scenario: ByScenario, arm: str) -> list[str]:
    """Recorded arms that cannot be run any more, each with its scenario."""
    return [
        f"{name} {one}"
        for name, mine in by_scenario.items()
        for one in _together(mine)
        if arm in ("", one) and one not in _arms(mine)
    ]


def _as_it_is(
    mine: Sequence[Recorded], arm: str, twin: FittedTwin, seed: int, report: Report
) -> ArmFidelity:
    report(f"{twin.scenario.name}, {arm}", 0.0)
    return _compared(mine, arm, twin, seed)


def _arms(mine: Sequence[Recorded]) -> list[str]:
    """Arms of a scenario that ran together with the background and can be run on the twin."""
    return [name for name, run in _together(mine).items() if _can_run(run)]


def _together(mine: Sequence[Recorded]) -> dict[str, RunInfo]:
    """Arms of a scenario that ran together with the background, and the last run of each."""
    return {r.run.arm: r.run for r in mine if r.run.condition == "together"}


def _can_run(run: RunInfo) -> bool:
    """Whether the arm of a recording can be run: not a policy that has been replaced since."""
    try:
        arm = make_arms([run.arm])[0]
        policy = find_policy_of(arm, "default", run.scenario)
    except StallwardError:
        return False
    if policy is None:
        return not arm.runs_policy
    return run.policy_sha256 in ("", file_sha256(policy))


def _left_out(mine: Sequence[Recorded], arm: str, fits: Fits, report: Report) -> ArmFidelity:
    """Fit a scenario's twin without ``arm`` and run it there."""
    rest = [r.path for r in mine if r.run.arm != arm or r.run.condition != "together"]
    twin = fits.fit(rest, lambda message, share: report(f"without {arm}, {message}", share))
    return _compared(mine, arm, twin, fits.seed)


def _compared(mine: Sequence[Recorded], arm: str, twin: FittedTwin, seed: int) -> ArmFidelity:
    """Run an arm on a twin and lay it beside the recordings of its scenario."""
    together = [r for r in mine if r.run.condition == "together"]
    live = [r for r in together if r.run.arm == arm]
    own = [r for r in mine if r.run.condition == "background"]
    run = live[0].run
    simulated = run_on_twin(twin, run, make_arms([arm])[0], blocks=_TWIN_BLOCKS, seed=seed)
    own_simulated = (
        run_on_twin(
            twin, own[0].run, NO_ARM, condition="background", blocks=_OWN_BLOCKS, seed=seed
        )
        if own
        else []
    )
    replayed = [r.signals for r in together if r.run.arm == _REPLAYED]
    return ArmFidelity(
        scenario=run.scenario,
        arm=arm,
        live=_observed(live, own),
        twin=_observed(simulated, own_simulated),
        replay=pooled(replayed) if replayed and arm != _REPLAYED else None,
        scales=scales_of([r.signals for r in together]),
    )


def _observed(blocks: Sequence[Recorded], own: Sequence[Recorded]) -> Observed:
    return Observed(
        blocks=tuple(r.measures for r in blocks),
        own_units_per_s=_units_per_s([r.measures for r in own]),
        signals=tuple(r.signals for r in blocks),
    )


def _scenarios_left_out(
    learned: ByScenario,
    strange: ByScenario,
    arm: str,
    fits: Fits,
    *,
    workers: int | None,
    report: Report,
) -> list[ArmFidelity]:
    """Run the arms of held-out scenarios on twins whose parameters others were fitted for."""
    jobs = [
        (name, one) for name, mine in strange.items() for one in _arms(mine) if arm in ("", one)
    ]
    if not jobs:
        return []
    fitted = run_in_parallel(
        [partial(fits.fit, [r.path for r in mine]) for mine in learned.values()],
        part(report, 0.0, 0.6),
        workers=workers,
    )
    return run_in_parallel(
        [partial(_transferred, strange[name], one, fitted, fits.seed) for name, one in jobs],
        part(report, 0.6, 1.0),
        workers=workers,
    )


def _transferred(
    mine: Sequence[Recorded], arm: str, fitted: Sequence[FittedTwin], seed: int, _report: Report
) -> ArmFidelity:
    """Run an arm of a scenario that no fit has seen."""
    references = [load_recording(r.path) for r in mine if r.run.condition != "together"]
    pressed = next(r.run for r in mine if r.run.condition == "together")
    described = estimate_exogenous(pressed.scenario, references)
    twin = transfer(replace(described, zone_bytes=pressed.sandbox_bytes), fitted)
    return _compared(mine, arm, twin, seed)


def _units_per_s(blocks: Sequence[BlockMeasures]) -> Array | None:
    """Each group's rate; ``None`` without blocks."""
    if not blocks:
        return None
    return np.asarray(np.concatenate([block.units for block in blocks]).mean(axis=0))


def run_on_twin(
    twin: FittedTwin,
    run: RunInfo,
    arm: Arm,
    *,
    blocks: int,
    seed: int,
    condition: Condition = "together",
) -> list[Recorded]:
    """Run an arm on a twin as it was run live: same target, same length, ``blocks`` times."""
    scenario = scenario_from(run.scenario_parameters, Path(f"{run.scenario}.toml"))
    runner = TwinRunner(twin=twin, scenario=scenario, node=node_info(Path.cwd()))
    policy = find_policy_of(arm, "default", run.scenario)
    found = []
    with temporary_folder("twin") as folder:
        for block in range(blocks):
            out = folder / f"{block}"
            request = RunRequest(
                condition=condition,
                arm=arm,
                policy=policy,
                slo_ms=run.slo_ms,
                duration_s=run.end_s - run.measured_from_s,
                burn_in_s=run.burn_in_s,
                seed=seed + block,
            )
            runner.run_block(request, out)
            found.append(_recorded(out, load_run(out)))
    return found
