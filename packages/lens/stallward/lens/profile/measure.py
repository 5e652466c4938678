"""Measures a profile: runs an application alone, and with less and less memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from stallward.agent.profile import ApplicationProfile
from stallward.lens.errors import ProfilingError
from stallward.lens.profile.figures import (
    make_profile,
    next_limit,
    profile_run,
    undisturbed,
)
from stallward.lens.profile.observed import ObservedRun, Subject
from stallward.training.progress import Report, silent

_MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileSettings:
    """How a profile is measured."""

    shares: tuple[float, ...] = (0.8, 0.6, 0.45, 0.3)
    """The limits to try first, as shares of what the application uses with ample memory."""
    refinements: int = 3
    """How often the border between enough and too little is halved then."""
    tolerance: float = 1.15
    """The largest slowdown at which the application counts as undisturbed."""
    apart_bytes: int = 4 * _MIB
    """The border is not looked for more closely than this."""


def measure_profile(
    subject: Subject,
    settings: ProfileSettings,
    *,
    node: str,
    report: Report = silent,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> ApplicationProfile:
    """Measure the profile of an application.

    It runs with ample memory twice. The first time, while the machine's caches are still cold, it
    is watched which memory it touches, and the second one is the measure for the others. Then it
    runs with some limits, and with limits in between.

    Args:
        subject: The application.
        settings: How it is measured.
        node: The machine, in words.
        report: Told about progress.
        now: The time.

    Raises:
        ProfilingError: If it cannot run with ample memory.
        StallwardError: If the sandbox or a program fails.
    """
    steps = 2 + len(settings.shares) + settings.refinements
    report("watched, with ample memory", 0.0)
    watched = subject.run(subject.ample_bytes, True)
    report("with ample memory", 1.0 / steps)
    alone = subject.run(subject.ample_bytes, False)
    if alone.killed or not alone.samples:
        raise ProfilingError(
            f"{subject.application} cannot be measured with {subject.ample_bytes // _MIB} MiB: "
            + ("the kernel killed it." if alone.killed else "it ended at once."),
            next_step="Give it more memory." if alone.killed else "Give it more work.",
        )
    runs = [alone]

    def attempt(limit_bytes: int) -> None:
        report(f"with {limit_bytes // _MIB} MiB", (1.0 + len(runs)) / steps)
        runs.append(subject.run(limit_bytes, False))

    used = int(alone.memory.max())
    rule = undisturbed(subject, alone, settings.tolerance)
    limits = {max(int(used * share), subject.floor_bytes) for share in settings.shares}
    for limit_bytes in sorted(limits, reverse=True):
        attempt(limit_bytes)
    for _ in range(settings.refinements):
        figures = [profile_run(run, alone, rule) for run in _ordered(runs)]
        between = next_limit(figures, apart_bytes=settings.apart_bytes)
        if between is None:
            break
        attempt(between)
    return make_profile(
        subject,
        runs,
        watched,
        tolerance=settings.tolerance,
        node=node,
        measured_at=now().isoformat(timespec="seconds"),
    )


def _ordered(runs: Sequence[ObservedRun]) -> list[ObservedRun]:
    return sorted(runs, key=lambda run: -run.limit_bytes)
