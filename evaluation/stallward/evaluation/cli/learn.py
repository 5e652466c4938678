"""``stallward fit``, ``train``, ``tune`` and ``export``: from recordings to a policy or a rule."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from stallward.actuator.cli import output
from stallward.actuator.cli.options import LONGEST_S, Seed
from stallward.evaluation.cli.catalogue.options import (
    OfArm,
    OfDays,
    OfNode,
    OfScenario,
    Places,
    selection_of,
)
from stallward.evaluation.cli.cluster_options import Ray, Storage
from stallward.training.export.card import good_for, standing_headers, standing_rows, standings
from stallward.training.parallel.choose import open_executor
from stallward.training.pipeline.fit import fit_twin, transfer_twins
from stallward.training.pipeline.train import export_policy, load_twins, train_policy, tune_rule


def fit(
    recordings: Places = None,
    out: Annotated[
        Path, typer.Option(help="Directory for one twin per scenario, or a .json file for one.")
    ] = Path("build/twins"),
    seconds: Annotated[
        float | None,
        typer.Option(
            min=1.0, max=LONGEST_S, help="Time for the search [120, no limit with --generations]."
        ),
    ] = None,
    generations: Annotated[
        int | None,
        typer.Option(
            min=1, help="Generations of each fit: the same twin on any machine [340 at most]."
        ),
    ] = None,
    leave_out: Annotated[str, typer.Option(help="Arm to leave out, to check the fit.")] = "",
    held_out: Annotated[
        bool,
        typer.Option("--held-out", help="Also fit to held-out scenarios; never train on these."),
    ] = False,
    unseen: Annotated[
        bool,
        typer.Option(
            "--unseen",
            help="Fit nothing: sizes of the references, parameters of other scenarios' twins.",
        ),
    ] = False,
    start: Annotated[
        str, typer.Option(help="Fitted twin, file or name, from which the search begins.")
    ] = "",
    scenario: OfScenario = "",
    recorded_arm: OfArm = "",
    node: OfNode = "",
    days: OfDays = "",
    again: Annotated[
        bool, typer.Option("--again", help="Also fit those twins again that could be kept.")
    ] = False,
    ray: Ray = None,
    storage: Storage = None,
    seed: Seed = 1,
) -> None:
    """Fit the twin to recordings.

    The result is a distribution of parameters for each scenario. Recordings that are held out for
    the test are ignored. After an interruption the same command goes on: twins in --out that are
    fitted to the same recordings with the same settings and version are kept.

    With --unseen the twin of any scenario is made without its runs under pressure, as `stallward
    fidelity` does for scenarios that no fit has seen.
    """
    places = recordings or ["recordings"]
    selection = selection_of(scenario, recorded_arm, node, days)
    with open_executor(ray, storage, out) as executor, output.progress("fit") as report:
        kept: tuple[Path, ...] = ()
        if unseen:
            fitted = load_twins(("default",))
            files = transfer_twins(
                places, selection=selection, out=out, fitted=fitted, report=report
            )
        else:
            written = fit_twin(
                places,
                selection=selection,
                out=out,
                seconds=seconds or (120.0 if generations is None else math.inf),
                generations=generations,
                leave_out=leave_out,
                held_out=held_out,
                seed=seed,
                start=load_twins((start,))[0] if start else None,
                again=again,
                executor=executor,
                report=report,
            )
            files, kept = list(written.files), written.kept
    for path in kept:
        output.note(
            f"{path} is kept: it was fitted to these recordings in this way before. --again fits "
            "it again."
        )
    for path in files:
        output.line(f"{path}")


Synthetic = Annotated[
    int,
    typer.Option(
        min=0,
        max=20,
        help="Synthetic scenarios for each twin: its application beside programs of other twins.",
    ),
]

Decisions = Annotated[int, typer.Option(min=1, help="Decisions on the twins, for each seed.")]
Seconds = Annotated[
    float | None,
    typer.Option(min=1.0, max=LONGEST_S, help="Time limit in seconds [no limit]."),
]
Seeds = Annotated[int, typer.Option(min=1, help="Number of trainings; the best is kept.")]
TrainedOn = Annotated[
    list[str] | None,
    typer.Option(help="Fitted twin, file, name or directory; may be repeated [all shipped ones]."),
]
JudgedOn = Annotated[
    list[str] | None,
    typer.Option(help="Twin by which the seed is chosen, like --twin [shipped, held out]."),
]
Features = Literal["basic", "phases"]
"""What a policy reads of an observation; ``FEATURE_SETS`` in the agent has what it means."""


def train(
    twin: TrainedOn = None,
    out: Annotated[Path, typer.Option(help="Directory of the run, new or interrupted.")] = Path(
        "build/run"
    ),
    decisions: Decisions = 4_000_000,
    seconds: Seconds = None,
    seeds: Seeds = 5,
    judged_on: JudgedOn = None,
    thresholds: Annotated[
        list[Path] | None,
        typer.Option(help="rule.toml or pi.toml to show on the card [the shipped ones]."),
    ] = None,
    recipe: Annotated[
        Path | None, typer.Option(help="Recipe that `stallward search` found [the shipped one].")
    ] = None,
    features: Annotated[
        Features,
        typer.Option(help="What the policy reads; `phases` adds phases of the groups' sizes."),
    ] = "basic",
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            help="Policy that is trained further: a run, its policy.zip, an ONNX file or a name.",
        ),
    ] = None,
    composed: Synthetic = 3,
    ray: Ray = None,
    storage: Storage = None,
    seed: Seed = 1,
) -> None:
    """Train a PPO policy on fitted twins (torch, on the CPU).

    It prints how the policy stands beside the rule that decides by default, on each twin. The same seed gives the same policy, unless a time limit ends the training. An interrupted run
    is resumed with the same command. Curves: tensorboard --logdir OUT/tensorboard.

    OUT/policy.zip is the policy as a model of stable-baselines3. With --from the training begins
    with another policy, which is kept unless what comes of it is judged better.
    """
    with open_executor(ray, storage, out) as executor, output.progress("train") as report:
        facts = train_policy(
            twin or ["default"],
            out=out,
            decisions=decisions,
            seconds=seconds,
            seeds=seeds,
            judged_on=judged_on or ["default"],
            thresholds=thresholds or [],
            recipe=recipe,
            features=features,
            synthetic=composed,
            start=start,
            executor=executor,
            seed=seed,
            report=report,
        )
    compared = standings(facts)
    output.table(standing_headers(compared), standing_rows(compared))
    _say_purpose(facts)
    output.line(f"next: stallward export {out}")


def _say_purpose(facts: Mapping[str, Any]) -> None:
    """Print what a policy is good for, a sentence on each line.

    Args:
        facts: The facts of its training.
    """
    for sentence in good_for(facts):
        output.line(sentence)


def tune(
    rule: Annotated[str, typer.Argument(help="rule or pi.")] = "rule",
    twin: TrainedOn = None,
    out: Annotated[
        Path | None, typer.Option(help="The file of thresholds [build/RULE.toml].")
    ] = None,
    decisions: Decisions = 30_000_000,
    seconds: Seconds = None,
    seeds: Seeds = 5,
    judged_on: JudgedOn = None,
    composed: Synthetic = 3,
    ray: Ray = None,
    storage: Storage = None,
    seed: Seed = 1,
) -> None:
    """Search the thresholds of a rule on fitted twins (CMA-ES).

    Thresholds are scored and chosen like policies. Use them as the arm RULE:path=FILE. An
    interrupted command goes on when it is repeated: finished searches are kept in OUT.parts.
    """
    file = out or Path("build") / f"{rule}.toml"
    with open_executor(ray, storage, file) as executor, output.progress("tune") as report:
        tune_rule(
            rule,
            twin or ["default"],
            out=file,
            decisions=decisions,
            seconds=seconds,
            seeds=seeds,
            judged_on=judged_on or ["default"],
            synthetic=composed,
            executor=executor,
            seed=seed,
            report=report,
        )
    output.line(f"{file}")


def export(
    run: Annotated[Path, typer.Argument(help="A directory that `stallward train` wrote.")],
    out: Annotated[Path, typer.Option(help="The policy file.")] = Path("build/policy.onnx"),
) -> None:
    """Export a trained policy as one ONNX file.

    It prints what the policy is good for. The card, which has that as well, is written beside the
    file, with the ending .md.
    """
    facts = export_policy(run, out=out)
    output.line(f"{out}  {out.with_suffix('.md')}")
    _say_purpose(facts)
    output.line(f"next: stallward compare SCENARIO --arms none,partition,onnx:path={out}")
    output.line(f"or, on a node that serves: stallward ctl push {out}")
