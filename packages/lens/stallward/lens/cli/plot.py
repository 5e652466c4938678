"""``stallward plot``: the pictures of a trace."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stallward.actuator.cli import output
from stallward.actuator.cli.options import LONGEST_S
from stallward.lens.plot.file import read_trace
from stallward.lens.plot.largest import (
    draw_largest,
    largest_at,
    write_graphml,
    write_latex,
    write_text,
)
from stallward.lens.plot.panels import panels_of
from stallward.lens.plot.picture import draw_panels, save
from stallward.training.pipeline.outputs import check_writable


def plot(
    file: Annotated[
        Path, typer.Argument(help="A trace, or ticks.parquet of a recording.", metavar="FILE")
    ],
    out: Annotated[
        Path | None, typer.Option(help="The pictures' name without .svg and .png [FILE's].")
    ] = None,
    at: Annotated[
        float | None,
        typer.Option(
            min=0.0, max=LONGEST_S, help="Of largest: seconds after the begin [the end]."
        ),
    ] = None,
) -> None:
    """Draw a trace as SVG and PNG.

    A trace of the largest processes becomes a tree, with GraphML, LaTeX and text beside it. A trace
    that was killed is drawn as far as it came.
    """
    trace = read_trace(file)
    base = file.with_suffix("") if out is None else out
    check_writable(base.with_name(f"{base.name}.svg"))
    if trace.torn:
        output.note(f"plot: {trace.path} is of a trace that was killed; it is drawn as far.")
    written: tuple[Path, ...]
    if trace.table.kind == "largest":
        largest = largest_at(trace, at)
        written = save(draw_largest(largest), base)
        for suffix, write in (
            ("graphml", write_graphml),
            ("tex", write_latex),
            ("txt", write_text),
        ):
            path = base.with_name(f"{base.name}.{suffix}")
            write(largest, path)
            written = (*written, path)
    else:
        what = trace.table.what
        title = f"{what[0].upper()}{what[1:]}: {file}"
        written = save(draw_panels(panels_of(trace), title), base)
    output.line("  ".join(map(str, written)))
