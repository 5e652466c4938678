"""``stallward profile``: what an application needs, alone and with less and less memory."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated

import typer

from stallward.actuator.cli import output
from stallward.actuator.cli.options import LONGEST_S, Json, Seed
from stallward.agent.errors import UsageError
from stallward.env.recording.node_facts import node_info
from stallward.env.sandbox.data_cache import default_cache_dir
from stallward.env.scenario.file import load_scenario
from stallward.evaluation.report.experiment_page import write_experiment_page
from stallward.evaluation.results.serialise import save, to_json
from stallward.lens.profile.command_run import command_subject
from stallward.lens.profile.measure import ProfileSettings, measure_profile
from stallward.lens.profile.observed import Subject
from stallward.lens.profile.page import profile_page
from stallward.lens.profile.scenario_run import RunLength, scenario_subject
from stallward.lens.profile.text import headline, profile_table
from stallward.training.pipeline.outputs import check_writable

_MIB = 1 << 20
_DEFAULT_DIR = Path("build/profile")


def profile(
    command: Annotated[
        list[str] | None,
        typer.Argument(help="A program to profile, and its arguments.", metavar="COMMAND"),
    ] = None,
    scenario: Annotated[
        str, typer.Option(help="Profile the application of this scenario under its load instead.")
    ] = "",
    slot: Annotated[
        str | None, typer.Option(help="Profile this background group of the scenario instead.")
    ] = None,
    seconds: Annotated[
        float,
        typer.Option(
            min=2.0, max=LONGEST_S, help="Measured length of a run; of a command the longest."
        ),
    ] = 30.0,
    burn_in_seconds: Annotated[
        float,
        typer.Option(min=0.0, max=LONGEST_S, help="Seconds before that, with --scenario."),
    ] = 5.0,
    limits: Annotated[
        str, typer.Option(help="Limits to try first, as shares of what it uses alone.")
    ] = "0.8,0.6,0.45,0.3",
    refine: Annotated[
        int,
        typer.Option(
            min=0, max=10, help="How often to halve the border between enough and too little."
        ),
    ] = 3,
    slower: Annotated[
        float,
        typer.Option(min=1.0, max=10.0, help="The slowdown that counts as undisturbed."),
    ] = 1.15,
    ample_mib: Annotated[int, typer.Option(min=32, help="Memory enough for COMMAND.")] = 2048,
    out: Annotated[
        Path | None,
        typer.Option(help="The profile, and its page beside it [build/profile/NAME.json]."),
    ] = None,
    seed: Seed = 1,
    as_json: Json = False,
) -> None:
    """Measure what memory an application needs (needs root).

    It runs alone in a sandbox of its own with ample memory, then with less and less, so that
    memory is short only there. The daemon's configuration, the arms `partition` and `swap-assign`
    take numbers from the profile.
    """
    if bool(command) == bool(scenario):
        raise UsageError(
            "There are two programs to profile." if command else "There is nothing to profile.",
            next_step="Give either --scenario NAME or -- and a command.",
        )
    if slot is not None and not scenario:
        raise UsageError("--slot goes with --scenario.", next_step="Name the scenario, too.")
    settings = ProfileSettings(shares=_shares(limits), refinements=refine, tolerance=slower)
    name = (
        Path(command[0]).name if command else "-".join(filter(None, (Path(scenario).stem, slot)))
    )
    path = out or _DEFAULT_DIR / f"{name}.json"
    check_writable(path)
    node = node_info(default_cache_dir())
    words = f"{node.cpu or 'processor unknown'}, {node.cpu_count} CPUs, Linux {node.kernel}"
    with (
        output.progress("profile") as report,
        _subject(
            command, scenario, slot, seconds, burn_in_seconds, ample_mib * _MIB, seed
        ) as subject,
    ):
        found = measure_profile(subject, settings, node=words, report=report)
    path.parent.mkdir(parents=True, exist_ok=True)
    save(path, found)
    write_experiment_page(profile_page(found), path.with_suffix(".html"))
    if as_json:
        output.print_json(to_json(found))
        return
    table = profile_table(found)
    output.table(table.headers, table.rows)
    output.line()
    output.line(headline(found))
    output.line(f"{path}  {path.with_suffix('.html')}")


def _subject(
    command: list[str] | None,
    scenario: str,
    slot: str | None,
    seconds: float,
    burn_in_s: float,
    ample_bytes: int,
    seed: int,
) -> AbstractContextManager[Subject]:
    if command:
        return command_subject(command, ample_bytes=ample_bytes, most_s=seconds)
    length = RunLength(seconds=seconds, burn_in_s=burn_in_s, seed=seed)
    return scenario_subject(load_scenario(scenario), slot, length)


def _shares(text: str) -> tuple[float, ...]:
    """Shares such as ``0.8,0.5``."""
    try:
        shares = tuple(float(part) for part in text.split(",") if part.strip())
    except ValueError:
        shares = ()
    if not shares or not all(0.0 < share < 1.0 for share in shares):
        raise typer.BadParameter(
            f"{text!r} names no shares; write numbers between 0 and 1, such as 0.8,0.5.",
            param_hint="--limits",
        )
    return shares
