"""In continuous integration a skip that nobody expects is a failure.

``tests/expected_skips.txt`` has a line for each that may be: a pattern of the test's id, a colon,
and a regular expression that its reason begins with.
"""

from __future__ import annotations

import os
import re
from collections.abc import Generator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final, Self, TypeVar

import pytest

EXPECTED: Final = Path(__file__).parents[1] / "expected_skips.txt"
Report = TypeVar("Report", pytest.TestReport, pytest.CollectReport)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedSkips:
    """The skips that may be: patterns of ids, with what the reason begins with."""

    rows: tuple[tuple[str, re.Pattern[str]], ...]

    @classmethod
    def read(cls, text: str) -> Self:
        """Read the lines of the file; comments begin with a hash.

        Raises:
            ValueError: If a line has no colon with a space, or no regular expression after it.
        """
        rows = []
        for line in text.splitlines():
            if not line.strip() or line.startswith("#"):
                continue
            pattern, separator, reason = line.partition(": ")
            if not separator:
                raise ValueError(f"{EXPECTED.name}: {line!r} is not 'PATTERN: REASON'")
            rows.append((pattern, re.compile(reason)))
        return cls(rows=tuple(rows))

    def allow(self, nodeid: str, reason: str) -> bool:
        """Whether a test may be skipped for a reason."""
        return any(
            fnmatchcase(nodeid, pattern) and expression.match(reason)
            for pattern, expression in self.rows
        )


class Skips:
    """Turns skips that nobody expects into failures, where ``CI`` is set."""

    def __init__(self) -> None:
        self._expected = ExpectedSkips.read(EXPECTED.read_text("utf-8"))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Look at each test that was skipped."""
        report = yield
        return self._judged(report, item.nodeid)

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        """Look at each module that was skipped as a whole."""
        report = yield
        return self._judged(report, collector.nodeid)

    def _judged(self, report: Report, nodeid: str) -> Report:
        if report.outcome != "skipped" or hasattr(report, "wasxfail"):
            return report
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reason = reason.removeprefix("Skipped: ")
        if not self._expected.allow(nodeid, reason):
            report.outcome = "failed"
            report.longrepr = (
                f"{nodeid} was skipped: {reason}\n"
                f"No line of tests/{EXPECTED.name} expects that in continuous integration."
            )
        return report


def in_ci() -> bool:
    """Whether this is continuous integration, where everything that is needed must be there."""
    return bool(os.environ.get("CI"))
