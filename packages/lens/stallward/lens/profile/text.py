"""A profile as text: its table and its headline. Pure."""

from __future__ import annotations

from stallward.agent.profile import ApplicationProfile, ProfileRun
from stallward.evaluation.report.experiment_page import PageTable

_MIB = 1 << 20


def mib(size_bytes: float) -> str:
    """A size as MiB."""
    return f"{size_bytes / _MIB:,.0f}"


def profile_table(profile: ApplicationProfile) -> PageTable:
    """A row for each run."""
    headers = (
        "limit MiB", "memory", "in swap", "read back/s", "stall", "time", "p95 ms", "slowdown", "",
    )  # fmt: skip
    return PageTable(headers=headers, rows=[*map(_row, profile.runs)])


def _row(run: ProfileRun) -> tuple[str, ...]:
    return (
        f"{mib(run.limit_bytes)}{' (ample)' if run.ample else ''}",
        mib(run.mean_bytes),
        mib(run.peak_swap_bytes),
        f"{run.read_back_pages / max(run.measured_s, 1e-9):,.0f}",
        "-" if run.stall_share is None else f"{100 * run.stall_share:.1f} %",
        "-" if run.s_per_work is None else _time(run.s_per_work),
        "-" if run.p95_ms is None else f"{run.p95_ms:,.1f}",
        "-" if run.slowdown is None else f"{run.slowdown:.2f}",
        "killed" if run.killed else "fits" if run.fits else "",
    )


def _time(time_s: float) -> str:
    """A time in a unit that suits it."""
    if time_s >= 1.0:
        return f"{time_s:.2f} s"
    return f"{1e3 * time_s:.2f} ms" if time_s >= 1e-3 else f"{1e6 * time_s:.1f} us"


def _aim(profile: ApplicationProfile) -> str:
    """What counts as undisturbed."""
    if profile.target_ms is not None:
        return f"keep its target of {profile.target_ms:.3g} ms"
    if profile.alone_s is not None:
        return f"run at most {100 * (profile.tolerance - 1):.0f} % slower"
    return "wait for memory for at most 2 % of the time"


def headline(profile: ApplicationProfile) -> str:
    """What was found, in a few sentences."""
    words = [
        f"{profile.application} needs {mib(profile.working_set_bytes)} MiB to {_aim(profile)}; "
        "alone it uses up to "
        f"{mib(profile.alone_peak_bytes)} MiB ({mib(profile.anonymous_bytes)} anonymous, "
        f"{mib(profile.file_bytes)} of files, in the mean)."
    ]
    if profile.touched:
        longest = profile.touched[-1]
        words.append(
            f"In {longest.window_s:.0f} s its processes touch {mib(longest.mean_bytes)} MiB in "
            "the mean."
        )
    if profile.fault_cost_us is not None:
        words.append(f"A major fault costs {profile.fault_cost_us:,.0f} us.")
    if profile.knee is not None:
        words.append(
            f"Its lifetime function has its knee at {mib(profile.knee.memory_bytes)} MiB."
        )
    words.append(f"It still ran with {mib(profile.least_bytes)} MiB.")
    return " ".join(words)
