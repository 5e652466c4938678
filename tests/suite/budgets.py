"""What a plain test may take: 0.5 s of processor time, and 1 s of waiting.

A plain test has none of the markers slow, linter, live, vm, ray, kubernetes and install. Only the
test itself counts, not its fixtures. Machines differ and are busy, so processor time is compared with
that of a fixed piece of work on this machine at this moment, and the time for which the test
could have run but had no processor is no waiting. A test fails when it takes too much twice in a
row.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from typing import Final

import pytest

NOT_PLAIN: Final = ("slow", "linter", "live", "vm", "ray", "kubernetes", "install")
TIMEOUT_S: Final = 120
"""Of a plain test. The default in pyproject.toml is that of the others."""
_REFERENCE_S: Final = 0.0112
"""The processor time of this work on the machine that the budgets were set on."""


class OverBudgetError(AssertionError):
    """A plain test took more than it may."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """What this process and its children have used up to a moment, in seconds."""

    wall_s: float
    cpu_s: float
    children_cpu_s: float
    queued_s: float
    """The time for which the main thread could have run and had no processor."""

    @classmethod
    def now(cls) -> Clock:
        """Read all of them."""
        children = getrusage(RUSAGE_CHILDREN)
        return cls(
            wall_s=time.perf_counter(),
            cpu_s=time.process_time(),
            children_cpu_s=children.ru_utime + children.ru_stime,
            queued_s=_queued_s(),
        )


def _queued_s() -> float:
    try:
        return int(Path("/proc/self/schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0


def used_cpu_s(begin: Clock, end: Clock) -> float:
    """Processor time of the process and of its children that have ended."""
    return end.cpu_s - begin.cpu_s + end.children_cpu_s - begin.children_cpu_s


def waited_s(begin: Clock, end: Clock) -> float:
    """The time in which nothing was computed, at least.

    Children wait for a processor, too, beside others that compute: up to twice what they use.
    """
    children_s = end.children_cpu_s - begin.children_cpu_s
    wall_s = end.wall_s - begin.wall_s
    queued_s = end.queued_s - begin.queued_s
    return wall_s - (end.cpu_s - begin.cpu_s) - queued_s - 3.0 * children_s


def slowness() -> float:
    """How much slower than the reference this machine computes at this moment; 1 at least."""
    taken_s = min(_fixed_work_s() for _ in range(3))
    return max(taken_s / _REFERENCE_S, 1.0)


def _fixed_work_s() -> float:
    begin_s = time.process_time()
    total = 0
    for number in range(200_000):
        total += number * number % 7
    return time.process_time() - begin_s


def is_plain(item: pytest.Item) -> bool:
    """Whether the budget holds for a test."""
    return not any(item.get_closest_marker(name) is not None for name in NOT_PLAIN)


class Budgets:
    """Fails a plain test that takes too much, and prints what each folder took.

    Args:
        cpu_s: The processor time that a plain test may take, on the machine of the reference.
        waiting_s: The time for which it may wait.
        slack: How many times as much it may take because other work runs beside the tests.
    """

    def __init__(self, *, cpu_s: float = 0.5, waiting_s: float = 1.0, slack: float = 1.0) -> None:
        self._cpu_s = cpu_s * slack
        self._waiting_s = waiting_s * slack

    def what_is_over(self, cpu_s: float, waiting_s: float, slower: float = 1.0) -> str:
        """What a test has used too much of; empty if nothing."""
        if cpu_s > self._cpu_s * slower:
            return f"{cpu_s:.2f} s of processor time, of {self._cpu_s * slower:.2f} s"
        if waiting_s > self._waiting_s:
            return f"{waiting_s:.2f} s of waiting, of {self._waiting_s:.2f} s"
        return ""

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Let a test that takes too much be run again, and end plain ones that hang sooner."""
        for item in items:
            if is_plain(item):
                item.add_marker(pytest.mark.flaky(reruns=1, only_rerun=[OverBudgetError.__name__]))
                if item.get_closest_marker("timeout") is None:
                    item.add_marker(pytest.mark.timeout(TIMEOUT_S))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, None, None]:
        """Measure the test itself."""
        begin = Clock.now()
        yield
        if not is_plain(item):
            return
        end = Clock.now()
        cpu_s, waiting_s = used_cpu_s(begin, end), waited_s(begin, end)
        if not self.what_is_over(cpu_s, waiting_s):
            return
        if over := self.what_is_over(cpu_s, waiting_s, slowness()):
            raise OverBudgetError(
                f"A plain test took {over}. Make it shorter, or mark it `slow` (CONTRIBUTING.md)."
            )

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the time of each folder of tests, over all processes, the longest first."""
        took_s: defaultdict[str, float] = defaultdict(float)
        for reports in terminalreporter.stats.values():
            for report in reports:
                if isinstance(report, pytest.TestReport):
                    took_s["/".join(report.nodeid.split("::")[0].split("/")[1:3])] += (
                        report.duration
                    )
        if took_s:
            terminalreporter.section("seconds by folder, set-up included")
            longest = sorted(took_s.items(), key=lambda row: -row[1])
            words = (f"{folder} {seconds:.0f}" for folder, seconds in longest[:20])
            terminalreporter.line(", ".join(words))
