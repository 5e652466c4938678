"""Figures with their intervals as cells of the pages of experiments. Pure."""

from __future__ import annotations

from stallward.evaluation.report.experiment_page import PageCell
from stallward.evaluation.results.interval import Interval


def percent(figure: Interval, digits: int = 0) -> PageCell:
    """A share with its interval."""
    if figure.value is None:
        return PageCell("-")
    text = f"{100 * figure.value:.{digits}f} %"
    if figure.low is None or figure.high is None:
        return PageCell(text)
    return PageCell(text, f"{100 * figure.low:.{digits}f} to {100 * figure.high:.{digits}f} %")


def seconds(figure: Interval) -> PageCell:
    """A time with its interval, to a hundredth of a second."""
    return _number(figure, 2, " s")


def milliseconds(figure: Interval) -> PageCell:
    """A latency in ms with its interval; below 10 ms with a decimal."""
    return _number(figure, 0 if (figure.value or 0.0) >= 10.0 else 1, " ms")


def ratio(figure: Interval) -> PageCell:
    """A ratio near 1 with its interval."""
    return _number(figure, 2, "")


def factor(figure: Interval) -> PageCell:
    """A ratio with its interval."""
    return _number(figure, 1, " x")


def _number(figure: Interval, digits: int, unit: str) -> PageCell:
    if figure.value is None:
        return PageCell("-")
    if figure.low is None or figure.high is None:
        return PageCell(f"{figure.value:.{digits}f}{unit}")
    interval = f"{figure.low:.{digits}f} to {figure.high:.{digits}f}"
    return PageCell(f"{figure.value:.{digits}f}{unit}", interval)
