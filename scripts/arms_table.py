"""Write the page of every arm, ``docs/arms.md``, from comparisons of ``--arms all``.

``python scripts/arms_table.py DIRECTORY...`` reads the results of ``stallward compare`` in the
directories; ``make arms`` makes them before.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Final

from arms_picture import arms_picture

from stallward.evaluation.report.text import cell, seconds, target
from stallward.evaluation.results.comparison import (
    RESULT_FILE,
    ComparisonResult,
    Metrics,
    load_result,
)

DOCS: Final = Path(__file__).parents[1] / "docs"
HEAD: Final = """\
# Every arm, live

Every [controller](reference/controllers.md) that ships, on the same load and the same memory.
Intervals are 95 %, over the windows of one block of each arm, or over blocks if there are
several. So they do not contain how far two blocks of the same arm may be apart, and only large
differences mean anything. *Work* is the background's, relative to having the machine alone;
*ended* is the number of its programs that the arm ended. `peer:` is a program of others itself,
beside the same load; the arm of the same name without it is a rule made from its source.

```sh
make arms    # an hour, as root; makes this page again
```

![Each arm: how often the target was met, and the work of the background](pictures/arms.svg)
"""


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
    arms = sorted(
        table.arms.items(), key=lambda item: -(item[1].metrics.slo_attainment.value or 0.0)
    )
    rows = [
        ("application alone", table.references.alone, 0),
        ("ample memory", table.references.ample, 0),
        *((f"`{label}`", arm.metrics, arm.facts.ended_processes) for label, arm in arms),
    ]
    lines = [
        f"## {result.scenario}",
        "",
        *textwrap.wrap(
            f"Target: {target(table)} ({table.slo_source}). {method.rounds} "
            f"{'round' if method.rounds == 1 else 'rounds'} of {seconds(method.block_s)} after "
            f"{seconds(method.burn_in_s)} of burn-in; Linux {node.kernel.partition('-')[0]}, "
            f"{node.kind} cgroups, {node.cpu_count} CPUs; {measured:%Y-%m-%d}.",
            100,
        ),
        "",
        "| arm | met | p50, ms | p95, ms | p99, ms | work | ended |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
        *(_row(*row) for row in rows),
    ]
    if method.left_out:
        lines += ["", *(f"- Left out: {why}" for why in method.left_out.values())]
    return "\n".join((*lines, ""))


def _row(label: str, metrics: Metrics, ended: int) -> str:
    figures = (
        cell(metrics.slo_attainment, "share"),
        cell(metrics.p50_ms, "ms"),
        cell(metrics.p95_ms, "ms"),
        cell(metrics.p99_ms, "ms"),
        "" if label == "application alone" else cell(metrics.background_work, "share"),
        str(ended) if ended else "",
    )
    return f"| {label} | {' | '.join(figures)} |"


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
    for name, content in (
        ("arms.md", page(results, measured)),
        ("pictures/arms.svg", arms_picture(results)),
    ):
        (DOCS / name).write_text(content, encoding="utf-8")
        print(DOCS / name)


if __name__ == "__main__":
    main()
