"""``stallward bench harm``: whether background programs fail because of the daemon."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from stallward.actuator.cli import output
from stallward.actuator.cli.options import Json, Seed

if TYPE_CHECKING:
    from stallward.benchmarks.harm.tally import HarmTally

_HEADERS: Final = ("arm", "jobs", "failed", "killed", "wrong result", "times as long", "p95 ms")
_MIB: Final = 1 << 20
_SCENARIO: Final = "harm"


def harm(
    arms: Annotated[
        str, typer.Option(help="The arms, as for `compare`; `none` is what they are held against.")
    ] = "none,partition,rule,ppo",
    rounds: Annotated[int, typer.Option(min=1, help="Blocks of each arm.")] = 3,
    block_seconds: Annotated[float, typer.Option(min=5.0, help="The length of a block.")] = 60.0,
    swap_mib: Annotated[int, typer.Option(min=0, help="The swap of the sandbox.")] = 0,
    disk_mib_per_s: Annotated[
        int, typer.Option(min=0, help="How slow the disk is; 0 leaves it as it is.")
    ] = 0,
    jobs: Annotated[str, typer.Option(help="Names of jobs; all by default.")] = "",
    seed: Seed = 1,
    as_json: Json = False,
) -> None:
    """Run ordinary programs with known results in the background, under each arm.

    It counts those that fail or have a wrong result, and says how much longer they take than under
    `none`. The exit code is 1 if an arm has more failures than `none`, peers aside; needs root.
    """
    from stallward.benchmarks.harm.bench import HarmRequest, bench_harm  # noqa: PLC0415
    from stallward.benchmarks.harm.tally import HarmTally  # noqa: PLC0415
    from stallward.env.scenario.scenario import DiskLimit  # noqa: PLC0415
    from stallward.evaluation.arms import find_policy_of, parse_arms  # noqa: PLC0415

    chosen = parse_arms(arms)
    request = HarmRequest(
        arms=chosen,
        policies={arm.label: find_policy_of(arm, "default", _SCENARIO) for arm in chosen},
        rounds=rounds,
        block_s=block_seconds,
        swap_bytes=swap_mib * _MIB,
        disk=DiskLimit(bytes_per_s=disk_mib_per_s * _MIB) if disk_mib_per_s else None,
        only=tuple(filter(None, jobs.split(","))),
        seed=seed,
    )
    tally = HarmTally()
    try:
        with output.progress("bench harm") as report:
            bench_harm(tally, request, report=report)
    except BaseException:  # the jobs of an hour must not be lost
        if tally.runs:
            _print(tally, as_json=as_json)
        raise
    _print(tally, as_json=as_json)
    if tally.harms([arm.label for arm in chosen if arm.peer is None]):
        raise typer.Exit(1)


def _print(tally: HarmTally, *, as_json: bool) -> None:
    from dataclasses import asdict  # noqa: PLC0415

    rows = tally.by_arm()
    if as_json:
        output.print_json(
            {
                "arms": [asdict(row) for row in rows],
                "failures": [asdict(run) for run in tally.failures()],
                "left_out": tally.left_out,
            }
        )
        return
    output.table(
        _HEADERS,
        [
            (
                row.arm,
                str(row.jobs),
                str(row.failed),
                str(row.killed),
                str(row.wrong),
                "-" if row.slower is None else f"{row.slower:.2f}",
                "-" if row.p95_ms is None else f"{row.p95_ms:.1f}",
            )
            for row in rows
        ],
    )
    for run in tally.failures():
        output.note(f"{run.arm}: {run.job}: status {run.status}. {run.said}")
    for name, why in tally.left_out.items():
        output.note(f"Left out: {name}: {why}")
