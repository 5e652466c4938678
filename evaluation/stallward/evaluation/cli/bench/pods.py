"""``stallward bench pods``: what a tick costs with many pods in one slot."""

from __future__ import annotations

from stallward.actuator.cli import output
from stallward.actuator.cli.options import Json
from stallward.evaluation.cli.bench.text import print_figures


def pods(as_json: Json = False) -> None:
    """Measure a tick's processor time with 1, 10, 50 and 100 pods in one slot (needs root).

    The groups are real and its own, with one sleeping process each; it takes about a minute.
    """
    from stallward.evaluation.bench.overhead import figure_rows  # noqa: PLC0415
    from stallward.evaluation.bench.pods import MEANINGS, bench_pods  # noqa: PLC0415

    with output.progress("bench pods") as report:
        figures = bench_pods(report)
    print_figures(figures, figure_rows(figures, MEANINGS), as_json=as_json)
