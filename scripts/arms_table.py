"""Write the page of every arm, ``docs/arms.md``, from comparisons of ``--arms all``.

The tables with intervals are in ``docs/arms``, a CSV file for each scenario.

``python scripts/arms_table.py DIRECTORY...`` reads the results of ``stallward compare`` in the
directories; ``make arms`` makes them before.
"""

from __future__ import annotations

import csv
import io
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Final

from arms_picture import arms_picture

from stallward.evaluation.report.text import Kind, cell, number, seconds, target
from stallward.evaluation.results.comparison import (
    RESULT_FILE,
    ComparisonResult,
    load_result,
)
from stallward.evaluation.results.interval import Interval

DOCS: Final = Path(__file__).parents[1] / "docs"
HEAD: Final = """\
# Every arm, live

Every [controller](reference/controllers.md) that ships, on the same load and the same memory. Two
blocks of the same arm may be far apart, so only large differences mean anything. *Work* is the
background's, relative to having the machine alone; *ended* is the number of its programs that the
arm ended. `peer:` is [the program itself](reference/controllers.md#peers).

```sh
make arms    # an hour, as root; makes this page again
```

![Each arm: how often the target was met, and the work of the background](pictures/arms.svg)
"""
COLUMNS: Final = ("arm", "met", "p50, ms", "p95, ms", "p99, ms", "work", "ended")
ON_THE_PAGE: Final = ("arm", "met", "p95, ms", "work", "ended")


def page(results: Sequence[ComparisonResult], measured: Mapping[str, date]) -> str:
    """The page, from one comparison a scenario. Pure.

    Args:
        results: The comparisons.
        measured: Name of a scenario -> when its comparison was over.
    """
    sections = [_section(result, measured[result.scenario]) for result in results]
    return "\n".join([HEAD, *sections])


def _section(result: ComparisonResult, measured: date) -> str:
    table, method, node = result.table, result.method, result.node
    lines = [
        f"## {result.scenario}",
        "",
        *textwrap.wrap(
            f"Target: {target(table)} ({table.slo_source}). {method.rounds} "
            f"{'round' if method.rounds == 1 else 'rounds'} of {seconds(method.block_s)} after "
            f"{seconds(method.burn_in_s)} of burn-in; Linux {node.kernel.partition('-')[0]}, "
            f"{node.kind} cgroups, {node.cpu_count} CPUs; {measured:%Y-%m-%d}. "
            f"[Every figure with its 95 % interval](arms/{result.scenario}.csv), over the windows of "
            "a block, or over blocks if there are several.",
            100,
        ),
        "",
        f"| {' | '.join(ON_THE_PAGE)} |",
        f"| --- |{' ---: |' * (len(ON_THE_PAGE) - 1)}",
        *(f"| {' | '.join(row[name] for name in ON_THE_PAGE)} |" for row in _rows(result, _alone)),
    ]
    if method.left_out:
        lines += ["", *(f"- Left out: {why}" for why in method.left_out.values())]
    return "\n".join((*lines, ""))


def table(result: ComparisonResult) -> str:
    """Every figure of a comparison with its interval, as CSV. Pure."""
    written = io.StringIO()
    writer = csv.DictWriter(written, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(_rows(result, cell))
    return written.getvalue().replace("`", "")


def _rows(
    result: ComparisonResult, told: Callable[[Interval, Kind], str]
) -> Iterator[dict[str, str]]:
    """The rows of a comparison, the references first and then the best arm, by their columns."""
    table = result.table
    arms = sorted(
        table.arms.items(), key=lambda item: -(item[1].metrics.slo_attainment.value or 0.0)
    )
    for label, metrics, ended in (
        ("application alone", table.references.alone, 0),
        ("ample memory", table.references.ample, 0),
        *((f"`{label}`", arm.metrics, arm.facts.ended_processes) for label, arm in arms),
    ):
        figures = (
            told(metrics.slo_attainment, "share"),
            told(metrics.p50_ms, "ms"),
            told(metrics.p95_ms, "ms"),
            told(metrics.p99_ms, "ms"),
            "" if label == "application alone" else told(metrics.background_work, "share"),
            str(ended) if ended else "",
        )
        yield dict(zip(COLUMNS, (label, *figures), strict=True))


def _alone(figure: Interval, kind: Kind) -> str:
    return number(figure.value, kind)


def main() -> None:
    """Write the page from the directories on the command line."""
    directories = list(map(Path, sys.argv[1:]))
    if not directories:
        sys.exit(f"usage: python {sys.argv[0]} DIRECTORY...")
    results = list(map(load_result, directories))
    measured = {
        result.scenario: datetime.fromtimestamp(
            (directory / RESULT_FILE).stat().st_mtime, tz=UTC
        ).date()
        for result, directory in zip(results, directories, strict=True)
    }
    (DOCS / "arms").mkdir(exist_ok=True)
    for name, content in (
        ("arms.md", page(results, measured)),
        ("pictures/arms.svg", arms_picture(results)),
        *((f"arms/{result.scenario}.csv", table(result)) for result in results),
    ):
        (DOCS / name).write_text(content, encoding="utf-8")
        print(DOCS / name)


if __name__ == "__main__":
    main()
