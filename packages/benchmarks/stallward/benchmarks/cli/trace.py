"""``stallward bench trace``: what tracing costs."""

from __future__ import annotations

from typing import Annotated

import typer

from stallward.actuator.cli import output
from stallward.actuator.cli.options import LONGEST_S, Json


def trace(
    seconds: Annotated[
        float, typer.Option(min=1.0, max=LONGEST_S, help="Length of each trace.")
    ] = 10.0,
    as_json: Json = False,
) -> None:
    """Measure the processor time of tracing a process of 100 MB, and of 2 GB.

    Their memory is in pages of 4 KiB, which is the most expensive case.
    """
    from stallward.actuator.kernel.paths import DEFAULT_PATHS  # noqa: PLC0415
    from stallward.benchmarks.cli.text import print_figures  # noqa: PLC0415
    from stallward.benchmarks.overhead import figure_rows  # noqa: PLC0415
    from stallward.benchmarks.trace_cost import MEANINGS, bench_traces  # noqa: PLC0415

    with output.progress("bench trace") as report:
        figures = bench_traces(seconds=seconds, paths=DEFAULT_PATHS, report=report)
    print_figures(figures, figure_rows(figures, MEANINGS), as_json=as_json)
