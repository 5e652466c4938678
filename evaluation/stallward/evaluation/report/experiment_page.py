"""The page of an experiment of a document: what it found, beside what the document found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from stallward.evaluation.report.page import put_page, render_template


class PageCell(str):
    """A figure and its interval, which a page shows below it and a terminal in brackets."""

    def __new__(cls, value: str, interval: str) -> Self:
        """Both in one line."""
        cell = super().__new__(cls, f"{value} ({interval})" if interval else value)
        cell.value, cell.interval = value, interval
        return cell

    value: str
    interval: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PageTable:
    """A table of a page or a terminal; a cell with an interval is a :class:`PageCell`."""

    title: str = ""
    headers: Sequence[str]
    rows: Sequence[tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PageChart:
    """A picture; several stand side by side."""

    title: str = ""
    svg: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PageSection:
    """A section of a page: pictures, a table, or both."""

    title: str
    what: str = ""
    """How to read it."""
    key: Mapping[str, str] = field(default_factory=dict)
    """What is drawn -> its colour."""
    charts: tuple[PageChart, ...] = ()
    table: PageTable | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentPage:
    """The whole page."""

    experiment: str
    """The name of the experiment."""
    source: str
    """The document, in words."""
    headline: str
    sections: Sequence[PageSection]


def render_experiment_page(page: ExperimentPage) -> str:
    """The page as HTML in one file, which needs no network. Pure."""
    return render_template(
        "experiment.html.j2",
        experiment=page.experiment,
        source=page.source,
        headline=page.headline,
        sections=page.sections,
    )


def write_experiment_page(page: ExperimentPage, path: Path) -> None:
    """Write the page."""
    put_page(path, render_experiment_page(page))
