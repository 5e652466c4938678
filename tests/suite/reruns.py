"""Tests that needed to be repeated: with fixtures made anew, written down, and named.

A test with real pressure is repeated, twice at most. It may have failed by what the fixtures of
its module saw, so these are made anew as well. Each repeated test is a line of
``tests/reruns.txt``, which is committed with the change. So a test that needs it now and then is
seen: the summary names all that stand there for more than one run.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import Final

import pytest
from budgets import OverBudgetError

WRITTEN: Final = Path(__file__).parents[1] / "reruns.txt"


def repeated_before(text: str) -> list[str]:
    """The tests that were repeated on more than one occasion, the most frequent first."""
    lines = {line.strip() for line in text.splitlines() if line.strip() and line[0] != "#"}
    counts = Counter(line.partition(" ")[2] for line in lines)
    return [f"{name} ({count} times)" for name, count in counts.most_common() if count > 1]


class Reruns:
    """Makes the fixtures of a repeated test anew, and keeps the list.

    Args:
        written: The file of the list; None where nothing may be written.
    """

    def __init__(self, written: Path | None = WRITTEN) -> None:
        self._written = written
        self._failed = ""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Remember a test that fails."""
        report = yield
        if report.failed:
            self._failed = item.nodeid
        elif report.when == "setup":
            self._failed = ""
        return report

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> None:
        """After a failure end the fixtures of its module as well, so that they are made anew.

        Only those of the session stay. This comes before the plug-in that repeats tests, which
        would keep them.
        """
        if item.nodeid == self._failed and item.get_closest_marker("flaky") is not None:
            item.session._setupstate.teardown_exact(item.session)  # type: ignore[arg-type]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print what repeated tests saw before, and write them down."""
        seen = {}
        for report in terminalreporter.getreports("rerun"):
            if OverBudgetError.__name__ in report.longreprtext:
                continue
            seen[report.nodeid] = report
            terminalreporter.section(f"repeated: {report.nodeid}")
            terminalreporter.line(report.longreprtext)
            for title, text in report.sections:
                terminalreporter.line(f"--- {title}\n{text}")
        if self._written is None:
            return
        moment = time.strftime("%Y-%m-%dT%H:%M")
        if seen:
            with self._written.open("a", encoding="utf-8") as file:
                file.writelines(f"{moment} {nodeid}\n" for nodeid in sorted(seen))
        text = self._written.read_text("utf-8") if self._written.exists() else ""
        if names := repeated_before(text):
            terminalreporter.section("repeated in more than one run, mend these")
            for name in names:
                terminalreporter.line(name)
