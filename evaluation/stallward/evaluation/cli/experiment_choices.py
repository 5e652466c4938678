"""The choices of the commands of ``stallward experiment``, and what they show in the end."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from stallward.actuator.cli import output

if TYPE_CHECKING:
    from stallward.evaluation.report.experiment_page import ExperimentPage, PageTable


class Part(StrEnum):
    """Which of a document's experiments."""

    ALL = "all"
    CASE_STUDY = "case-study"
    CASE_STUDY_RANDOM = "case-study-random"
    CASE_STUDY_ZIPF = "case-study-zipf"
    LARGER = "larger"


class LatdPart(StrEnum):
    """Which of the experiments of the latd thesis."""

    ALL = "all"
    SCENARIOS = "scenarios"
    UTILISATION = "utilisation"
    SWAPPINESS = "swappiness"


class CpuDivision(StrEnum):
    """How the CPU is divided."""

    THREAD = "thread"
    GROUP = "group"


class Finished(Protocol):
    """What the results of all experiments say."""

    @property
    def done_runs(self) -> int:
        """How many runs are finished."""

    @property
    def planned_runs(self) -> int:
        """How many are planned."""


def show_experiment(
    result: Finished,
    page: ExperimentPage,
    tables: Sequence[PageTable],
    out: Path,
    *,
    as_json: bool,
) -> None:
    """Write the page of an experiment, and print its tables and headline."""
    from stallward.evaluation.report.experiment_page import write_experiment_page  # noqa: PLC0415
    from stallward.evaluation.results.serialise import to_json  # noqa: PLC0415

    path = out / "report.html"
    write_experiment_page(page, path)
    if as_json:
        output.print_json(to_json(result))
        return
    for table in tables:
        output.table(table.headers, table.texts)
        output.line()
    output.line(page.headline)
    if result.done_runs < result.planned_runs:
        output.note(
            f"{result.done_runs} of {result.planned_runs} runs are finished; the same command "
            "goes on."
        )
    output.line(f"{out / 'result.json'}  {path}")
