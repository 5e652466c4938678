"""``stallward assess``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from stallward.actuator.cli import output
from stallward.actuator.cli.options import DEFAULT_CONFIG, ConfigFile, Json, check_config
from stallward.actuator.config.load import load_config
from stallward.agent.errors import UsageError
from stallward.evaluation.assess.assessment import assess as assess_parts
from stallward.evaluation.assess.readings import Readings, read_node
from stallward.evaluation.assess.text import assessment_page, lines_of
from stallward.evaluation.report.experiment_page import write_experiment_page
from stallward.evaluation.results.serialise import to_json


def assess(
    recordings: Annotated[
        list[Path] | None,
        typer.Argument(help="A daemon's record.dir, or recordings [record.dir of --config]."),
    ] = None,
    config: ConfigFile = DEFAULT_CONFIG,
    out: Annotated[
        Path | None, typer.Option(help="Also write a page with a timeline (HTML).")
    ] = None,
    as_json: Json = False,
) -> None:
    """Say whether it would help on this node.

    From what a daemon recorded without acting: which seconds missed the target and what they waited
    for, what the controller would have done in them, what that would cost the background, and an
    answer, which may be no.
    """
    parts = _read(recordings) if recordings else [_read_configured(config)]
    found = assess_parts(parts)
    if as_json:
        output.print_json(to_json(found))
    else:
        output.text("\n".join(lines_of(found)))
    if out is not None:
        write_experiment_page(assessment_page(found, parts), out)


def _read_configured(config: Path) -> Readings:
    """What the daemon of a configuration recorded, with the names of its slots."""
    check_config(config)
    loaded = load_config(config)
    if loaded.record is None:
        raise UsageError(
            f"{config} has no [record], so the daemon keeps nothing to assess.",
            next_step="Add it with a dir, and let the daemon run with dry_run = true.",
        )
    readings = read_node(loaded.record.dir)
    names = tuple(slot.name for slot in loaded.background)
    return (
        replace(readings, slot_names=names) if len(names) == len(readings.slot_names) else readings
    )


def _read(places: list[Path]) -> list[Readings]:
    """What is in some places: the ticks of daemons, or Parquet."""
    parts: list[Readings] = []
    for place in places:
        if not place.is_dir() or not any(place.glob("**/run.json")):
            parts.append(read_node(place))
            continue
        # A node has no Parquet.
        from stallward.evaluation.assess.recordings import readings_of_recordings  # noqa: PLC0415

        parts += readings_of_recordings(place)
    return sorted(parts, key=lambda one: float(one.of("wall_time_s")[0]))
