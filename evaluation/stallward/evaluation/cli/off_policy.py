"""``stallward ope``: off-policy evaluation of candidates before they run live."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stallward.actuator.cli import output
from stallward.actuator.cli.options import Json, Seed

REFUSED = 1


def ope(
    recordings: Annotated[
        list[Path] | None, typer.Argument(help="Recordings, or directories of them.")
    ] = None,
    arms: Annotated[
        str, typer.Option(help="Candidates, separated by commas; see `stallward arms`.")
    ] = "ppo,rule,pi",
    reference: Annotated[
        str,
        typer.Option(
            help="Controller that candidates must not be worse than; by default none, or "
            "partition for policies of set-points."
        ),
    ] = "",
    scenario: Annotated[str, typer.Option(help="Only this scenario.")] = "",
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
    from stallward.evaluation.arms import parse_arms  # noqa: PLC0415
    from stallward.evaluation.results.serialise import to_json  # noqa: PLC0415
    from stallward.training.off_policy.estimators import OffPolicySettings  # noqa: PLC0415
    from stallward.training.off_policy.gate import HEADERS, judge, off_policy_rows  # noqa: PLC0415

    with output.progress("ope") as report:
        judgement = judge(
            recordings or [Path("recordings")],
            [arm.spec for arm in parse_arms(arms)],
            reference=reference,
            scenario=scenario,
            twin=twin_file,
            price=price,
            least_s=least_seconds,
            settings=OffPolicySettings(seed=seed),
            report=report,
        )
    if as_json:
        output.print_json(to_json(judgement))
    else:
        output.table(HEADERS, off_policy_rows(judgement))
        if judgement.held_out:
            output.note(f"Held out, so not used: {', '.join(judgement.held_out)}.")
    if judgement.refused:
        raise typer.Exit(REFUSED)
