"""``stallward bench kills``: what the daemon leaves when its processes are killed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Final

import typer

from stallward.actuator.cli import output
from stallward.actuator.cli.options import Json, Seed
from stallward.benchmarks.cli.text import print_figures

if TYPE_CHECKING:
    from stallward.benchmarks.kills.arms import KilledArm
    from stallward.benchmarks.kills.tally import ArmKills, Tally

_HEADERS: Final = (
    "arm", "kills", "held", "left", "loop lost", "longest ms", "restart ms", "ended",
)  # fmt: skip


def kills(
    count: Annotated[int, typer.Option("--kills", min=1, help="Number of kills.")] = 1000,
    arms: Annotated[
        str, typer.Option(help="Arms that take turns, as for `compare`; `all` for every one.")
    ] = "",
    controller: Annotated[
        str, typer.Option(help="The daemon's controller [one that moves every lever].")
    ] = "",
    ends: Annotated[
        bool, typer.Option("--ends", help="The controller may end programs of the background.")
    ] = False,
    faults: Annotated[
        bool,
        typer.Option("--faults", help="Let the daemon's system calls fail around each kill."),
    ] = False,
    seed: Seed = 1,
    as_json: Json = False,
) -> None:
    """Kill the daemon's processes at random, and check what they leave.

    It kills at random instants under pressure; a kill takes about 3.5 s, and twice as long where
    arms take turns; needs root. Settings that are not restored are printed on standard error for
    each kill; the exit code is 1 if there are any. If it is interrupted, it prints the figures of
    the finished kills and says so.
    """
    from stallward.benchmarks.kills.bench import bench_kills  # noqa: PLC0415
    from stallward.benchmarks.kills.campaign import IN_TURN, Instants  # noqa: PLC0415
    from stallward.benchmarks.kills.tally import Tally  # noqa: PLC0415

    chosen, left_out = _arms(arms, controller, ends=ends)
    tally = Tally(left_out=dict(left_out))
    try:
        with output.progress("bench kills") as report:
            bench_kills(
                tally,
                kills=count,
                arms=chosen,
                instants=IN_TURN if arms else Instants(),
                all_groups=bool(arms),
                faults=faults,
                seed=seed,
                report=report,
            )
    except BaseException:  # the kills of an hour must not be lost
        if tally.kills:
            _print_kills(tally, as_json=as_json, interrupted=True)
        raise
    _print_kills(tally, as_json=as_json, interrupted=False)
    if any(kill.problems for kill in tally.kills):
        raise typer.Exit(1)


def _arms(
    arms: str, controller: str, *, ends: bool
) -> tuple[tuple[KilledArm, ...], Mapping[str, str]]:
    """The arms that the options mean, and why others are left out."""
    from stallward.agent.errors import UsageError  # noqa: PLC0415
    from stallward.benchmarks.kills.arms import (  # noqa: PLC0415
        ENDING_STORM,
        STORM,
        choose_arms,
        one_controller,
    )
    from stallward.benchmarks.kills.bench import campaign_node  # noqa: PLC0415

    if not arms:
        return (one_controller(controller or (ENDING_STORM if ends else STORM), ends=ends),), {}
    if controller or ends:
        raise UsageError(
            "--arms names the controllers, and each may do what it is for.",
            next_step="Leave out --controller and --ends.",
        )
    return choose_arms(arms, campaign_node())


def _print_kills(tally: Tally, *, as_json: bool, interrupted: bool) -> None:
    from dataclasses import asdict  # noqa: PLC0415

    from stallward.benchmarks.kills.tally import MEANINGS  # noqa: PLC0415
    from stallward.benchmarks.overhead import figure_rows  # noqa: PLC0415

    for number, kill in enumerate(tally.kills):
        for line in kill.problems:
            output.note(f"kill {number} ({kill.arm}, {kill.target}): {line}")
    figures, rows = tally.figures(), tally.by_arm()
    if as_json:
        output.print_json(
            {
                "interrupted": interrupted,
                **figures,
                "arms": [asdict(row) for row in rows],
                "left_out": dict(tally.left_out),
            }
        )
        return
    if interrupted:
        output.line(f"Interrupted after {len(tally.kills)} kills.")
    print_figures(figures, figure_rows(figures, MEANINGS), as_json=False)
    if len(rows) > 1:
        output.line()
        output.table(_HEADERS, [_cells(row) for row in rows])
        idle = [row.arm for row in rows if not row.found_held]
        if idle:
            output.line(f"Held nothing when they were killed: {', '.join(idle)}.")
    for label, reason in tally.left_out.items():
        output.note(f"Left out: {label}: {reason}")


def _cells(row: ArmKills) -> tuple[str, ...]:
    times_ms = (row.restore_max_ms, row.restart_max_ms)
    return (
        row.arm,
        str(row.kills),
        str(row.found_held),
        str(row.left_after_1_s),
        str(row.loop_lost),
        *("-" if time_ms is None else f"{time_ms:.0f}" for time_ms in times_ms),
        str(row.programs_ended),
    )
