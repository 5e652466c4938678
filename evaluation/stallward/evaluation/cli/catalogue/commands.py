"""``stallward catalogue``: many recordings as one Parquet dataset."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stallward.actuator.cli import output
from stallward.actuator.cli.options import Json
from stallward.agent.errors import UsageError
from stallward.env.catalogue.add import add_recordings
from stallward.env.catalogue.find import recording_folders
from stallward.env.catalogue.read import HEADERS, summarise, summary_rows
from stallward.env.recording.stored import days_of
from stallward.evaluation.cli.catalogue.options import (
    OfArm,
    OfDays,
    OfNode,
    OfScenario,
    selection_of,
)
from stallward.evaluation.results.serialise import to_json

_REFUSED = 1


def add(
    recordings: Annotated[list[Path], typer.Argument(help="Recordings, or directories of them.")],
    to: Annotated[str, typer.Option(help="The catalogue, new or not: a path, or a URL.")],
    node: Annotated[str, typer.Option(help="Node of recordings that do not say theirs.")] = "",
    day: Annotated[
        str, typer.Option(help="Day (2026-11-27) of recordings whose ticks have no wall time.")
    ] = "",
) -> None:
    """Add recordings to a catalogue.

    A recording that is in it already is left as it is. The exit code is 1 if some could not be
    added: each is named, and the others are in the catalogue. The recordings stay where they are.
    """
    found = recording_folders(recordings)
    if not found:
        raise UsageError(
            f"There is no recording in {', '.join(map(str, recordings))}.",
            next_step="Record some with `stallward record`.",
        )
    with output.progress("catalogue") as report:
        added = add_recordings(
            found, to, node=node, day=days_of(day)[0] if day else None, report=report
        )
    for _, why in added.refused:
        output.note(why)
    output.line(
        f"{len(added.added)} added ({added.stored_bytes / 1e6:.1f} MB), {added.known} were there, "
        f"{len(added.refused)} refused"
    )
    if added.refused:
        raise typer.Exit(_REFUSED)


def show(
    catalogue: Annotated[str, typer.Argument(help="The catalogue: a path, or a URL.")],
    scenario: OfScenario = "",
    recorded_arm: OfArm = "",
    node: OfNode = "",
    days: OfDays = "",
    as_json: Json = False,
) -> None:
    """Show what is in a catalogue, by node, scenario, condition and arm."""
    kinds = summarise(catalogue, selection_of(scenario, recorded_arm, node, days))
    if as_json:
        output.print_json([to_json(kind) for kind in kinds])
    else:
        output.table(HEADERS, summary_rows(kinds))
