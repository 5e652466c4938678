"""``stallward ope``, ``explain`` and ``minari``: what can be learned from recordings alone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stallward.actuator.cli import output
from stallward.actuator.cli.options import Json, Seed
from stallward.agent.controllers.onnx import OnnxController
from stallward.env.recording.recording import load_recording
from stallward.evaluation.arms import parse_arms
from stallward.evaluation.cli.catalogue.options import (
    OfArm,
    OfDays,
    OfNode,
    OfScenario,
    Places,
    selection_of,
)
from stallward.evaluation.results.serialise import to_json
from stallward.models.registry import find_policy
from stallward.research.off_policy.estimators import OffPolicySettings
from stallward.research.off_policy.explanation import explain as explained_by
from stallward.research.off_policy.gate import HEADERS, judge, off_policy_rows

REFUSED = 1


def ope(
    recordings: Places = None,
    arms: Annotated[
        str, typer.Option(help="Candidates, separated by commas; see `stallward arms`.")
    ] = "rule,pi",
    reference: Annotated[
        str,
        typer.Option(
            help="Controller that candidates must not be worse than; by default none, or "
            "partition for policies of set-points."
        ),
    ] = "",
    scenario: OfScenario = "",
    recorded_arm: OfArm = "",
    node: OfNode = "",
    days: OfDays = "",
    most: Annotated[
        int,
        typer.Option(
            min=1,
            max=100_000,
            help="Most recordings of a scenario, evenly over time: all their ticks are held.",
        ),
    ] = 32,
    twin_file: Annotated[
        str, typer.Option("--twin-file", help="Fitted twin, for the programs' speeds.")
    ] = "default",
    price: Annotated[
        float, typer.Option(min=0.0, help="Price of every window that misses the target by far.")
    ] = 6.0,
    least_seconds: Annotated[
        float, typer.Option(min=0.0, help="Least length of a scenario's recordings to judge it.")
    ] = 240.0,
    seed: Seed = 1,
    as_json: Json = False,
) -> None:
    """Estimate candidates from recordings of a randomised arm.

    The value of each candidate is estimated off-policy: nothing is run. The exit code is 1 if a
    candidate looks worse than the reference; a pass proves nothing.
    """
    with output.progress("ope") as report:
        judgement = judge(
            recordings or ["recordings"],
            [arm.spec for arm in parse_arms(arms)],
            reference=reference,
            selection=selection_of(scenario, recorded_arm, node, days),
            twin=twin_file,
            price=price,
            least_s=least_seconds,
            most=most,
            settings=OffPolicySettings(seed=seed),
            report=report,
        )
    if as_json:
        output.print_json(to_json(judgement))
    else:
        output.table(HEADERS, off_policy_rows(judgement))
        if judgement.held_out:
            output.note(f"Held out, so not used: {', '.join(judgement.held_out)}.")
        if judgement.not_used:
            output.note(f"Beyond --most, so not used: {judgement.not_used} recordings.")
        for name, why in judgement.too_short.items():
            output.note(f"Too short, so not used: {name}. {why}")
    if judgement.refused:
        raise typer.Exit(REFUSED)


def explain(
    policy: Annotated[str, typer.Argument(help="A policy: its name, or an ONNX file.")],
    recording: Annotated[Path, typer.Argument(help="A recording.")],
    at_s: Annotated[
        float | None,
        typer.Option("--at", min=0.0, help="Only the decision so many seconds after the start."),
    ] = None,
    most: Annotated[int, typer.Option(min=1, max=128, help="Features that are named.")] = 5,
    as_json: Json = False,
) -> None:
    """Say which features a policy's choices come from.

    What it would have chosen in a recording is compared with what it chooses for the recording's
    median. Each feature has a share of the difference (integrated gradients); a negative one spoke
    against the choice. The policy need not be the one that was recorded. Why the guard changed a
    decision is in the tick: `stallward top`, `ctl watch`.
    """
    controller = OnnxController(find_policy(policy))
    with output.progress("explain") as report:
        explained = explained_by(
            controller, load_recording(recording), at_s=at_s, most_causes=most, report=report
        )
    if as_json:
        output.print_json([to_json(one) for one in explained])
        return
    if not explained:
        output.note("It chooses the same as for the recording's median.")
    for one in explained:
        ticks = "1 tick" if one.ticks == 1 else f"{one.ticks} ticks"
        output.line(f"{one.entry} {one.chosen} (usually {one.usual}), {ticks}")
        output.table(
            ("feature", "value", "usual", "share"),
            [
                (cause.feature, f"{cause.value:.3g}", f"{cause.usual:.3g}", f"{cause.share:.0%}")
                for cause in one.causes
            ],
        )


def minari(
    recordings: Annotated[list[Path], typer.Argument(help="Recordings of the arm excite.")],
    name: Annotated[
        str, typer.Option(help="Id of the dataset, such as stallward/detector-anon/excite-v0.")
    ],
    price: Annotated[
        float, typer.Option(min=0.0, help="Price of every window that misses the target by far.")
    ] = 6.0,
    continuous: Annotated[
        bool, typer.Option("--continuous", help="Write actions as numbers from -1 to 1.")
    ] = False,
) -> None:
    """Write recordings of a randomised arm as a Minari dataset.

    Libraries for offline learning read it. Minari keeps it in the folder that
    MINARI_DATASETS_PATH names.
    """
    from stallward.research.off_policy.minari_dataset import write_dataset  # noqa: PLC0415

    dataset = write_dataset(recordings, name, price, continuous=continuous)
    output.line(f"{name}: episodes {dataset.total_episodes}, steps {dataset.total_steps}")
