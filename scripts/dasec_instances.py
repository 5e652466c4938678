"""Write what ``stallward experiment dasec --instances`` measured into ``docs/lab/dasec.md``.

``python scripts/dasec_instances.py build/experiment/dasec-instances`` copies the list of all runs
beside the page, and writes the part of the page that stands between its two marks.
"""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Final

from stallward.evaluation.results.interval import Interval
from stallward.evaluation.results.serialise import load
from stallward.papers.experiments.dasec.instances.page import method_notes
from stallward.papers.experiments.dasec.instances.result import (
    ArmFigures,
    CellFigures,
    InstancesResult,
    OverCells,
)
from stallward.papers.experiments.dasec.instances.steps import ARMS
from stallward.papers.experiments.dasec.instances.tables import RUNS_FILE, instances_of
from stallward.papers.experiments.dasec.steps import UNMANAGED
from stallward.papers.experiments.figures import one_minus, percent
from stallward.papers.experiments.runs import RESULT_FILE

PAGE: Final = Path(__file__).parents[1] / "docs/lab/dasec.md"
BEGIN: Final = "<!-- instances: scripts/dasec_instances.py writes from here -->"
END: Final = "<!-- instances: to here -->"
Of = Callable[[ArmFigures], Interval]
Over = Callable[[ArmFigures | OverCells], Interval]
CONTROLLED: Final = tuple(arm for arm in ARMS if arm != UNMANAGED)


def part(result: InstancesResult, measured: date) -> str:
    """The part of the page. Pure.

    Args:
        result: The result.
        measured: When it was measured.
    """
    text = " ".join(
        [
            f"*Several instances, no batch work* ({measured.day} {measured:%B %Y}; [every instance "
            f"of every run](dasec/{RUNS_FILE})).",
            *method_notes(result),
            "How much lower than without control in the same round: geometric means over the "
            "instances, with 95 % intervals over rounds, in the last row over cells.",
        ]
    )
    lines = [BEGIN, *textwrap.wrap(text, 100), ""]
    for title, of, over in (
        ("mean", lambda one: one.mean_ms, lambda one: one.mean_ratio),
        ("p99", lambda one: one.p99_ms, lambda one: one.p99_ratio),
    ):
        arms = " | ".join(f"`{arm}`" for arm in CONTROLLED)
        lines += [
            f"| {title}: instances | load | CPUs used | `{UNMANAGED}`, ms | {arms} |",
            f"| --- | ---: | ---: | ---: |{' ---: |' * len(CONTROLLED)}",
            *(_row(cell, of, over) for cell in result.cells if UNMANAGED in cell.arms),
            _cells_row(
                ["all", "", "", ""],
                [
                    over(result.summary[arm]) if arm in result.summary else None
                    for arm in CONTROLLED
                ],
            ),
            "",
        ]
    return "\n".join([*lines[:-1], END])


def _row(cell: CellFigures, of: Of, over: Over) -> str:
    unmanaged = cell.arms[UNMANAGED]
    used = unmanaged.cpu.services + unmanaged.cpu.generators
    return _cells_row(
        [
            instances_of(cell),
            f"{100 * cell.load:.0f} %",
            f"{100 * used:.0f} %",
            f"{of(unmanaged).value:.3g}",
        ],
        [over(cell.arms[arm]) if arm in cell.arms else None for arm in CONTROLLED],
    )


def _cells_row(names: Sequence[str], ratios: Sequence[Interval | None]) -> str:
    figures = ["" if one is None else _lower(percent(one_minus(one))) for one in ratios]
    return f"| {' | '.join([*names, *figures])} |"


def _lower(share: str) -> str:
    """A share and its interval as the pages write them: ``42 % [28..54]``."""
    return share.replace(" (", " [").replace(" to ", "..").replace(" %)", "]")


def put(page: str, new: str) -> str:
    """The page with another part between its marks. Pure."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + new + after


def main() -> None:
    """Write the page from the folder on the command line."""
    if len(sys.argv) != 2:
        sys.exit(f"usage: python {sys.argv[0]} FOLDER")
    folder = Path(sys.argv[1])
    path = folder / RESULT_FILE
    measured = datetime.fromtimestamp(path.stat().st_mtime, tz=UTC).date()
    text = put(PAGE.read_text("utf-8"), part(load(InstancesResult, path), measured))
    PAGE.write_text(text, encoding="utf-8")
    shutil.copyfile(folder / RUNS_FILE, PAGE.with_suffix("") / RUNS_FILE)
    print(PAGE)


if __name__ == "__main__":
    main()
