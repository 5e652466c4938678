"""Profiles a program of a scenario: the protected application, or a background group."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stallward.actuator.kernel.cgroups import Cgroup
from stallward.env.sandbox.block import BlockResult, BlockSite, run_block
from stallward.env.sandbox.watch import GroupWatch
from stallward.env.scenario.scenario import BackgroundSpec, Scenario
from stallward.evaluation.blocks.live import LiveSession, open_session
from stallward.lens.errors import ProfilingError
from stallward.lens.profile.group_series import GroupSeries
from stallward.lens.profile.observed import ObservedRun, Subject
from stallward.lens.profile.touched_pages import TouchedPages

APPLICATION = "application"
"""The name of the protected application of a scenario."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLength:
    """How long a run is."""

    seconds: float
    """How long it counts."""
    burn_in_s: float
    """How long it runs before."""
    seed: int


@contextmanager
def scenario_subject(scenario: Scenario, slot: str | None, length: RunLength) -> Iterator[Subject]:
    """A sandbox in which a program of a scenario can be profiled.

    Args:
        scenario: The scenario.
        slot: The background group; ``None`` for the protected application.
        length: How long each run is.

    Raises:
        ProfilingError: If there is no such group.
        StallwardError: If this machine cannot have the sandbox, or a program fails.
    """
    spec = _spec(scenario, slot)
    with open_session(scenario) as session:
        runs = _ScenarioRuns(session=session, spec=spec, length=length)
        yield Subject(
            application=APPLICATION if spec is None else spec.name,
            source=f"scenario {scenario.name}",
            work="request" if spec is None else "unit",
            target_ms=None if spec is not None else scenario.protected.slo.latency_ms,
            ample_bytes=scenario.sandbox.ample_bytes,
            floor_bytes=16 << 20,
            run=runs.run,
        )


def _spec(scenario: Scenario, slot: str | None) -> BackgroundSpec | None:
    if slot is None:
        return None
    names = [spec.name for spec in scenario.background]
    if slot not in names:
        raise ProfilingError(
            f"{scenario.name} has no background group {slot!r}.",
            next_step=f"It has {', '.join(names)}; without --slot the application is profiled.",
        )
    return scenario.background[names.index(slot)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _ScenarioRuns:
    session: LiveSession
    spec: BackgroundSpec | None
    length: RunLength

    def run(self, limit_bytes: int, watched: bool) -> ObservedRun:
        """Run the program alone under a limit."""
        sandbox, length = self.session.sandbox, self.length
        scenario = self._alone(limit_bytes)
        group = sandbox.protected if self.spec is None else sandbox.slots[0]
        with tempfile.TemporaryDirectory(dir=sandbox.folder) as folder:
            watch = _Watch(group, sandbox.paths.proc, watched=watched)
            result = run_block(
                sandbox,
                scenario,
                "alone" if self.spec is None else "background",
                watch.during,
                workplace=self.session.workplace,
                duration_s=length.seconds,
                burn_in_s=length.burn_in_s,
                out_dir=Path(folder),
                seed=length.seed,
            )
        begin_s = result.start_s + length.burn_in_s
        s_per_work = self._work(result)
        latencies_ms = result.measured.sojourn_ms if self.spec is None else np.empty(0)
        quantile = scenario.protected.slo.quantile
        return ObservedRun(
            limit_bytes=limit_bytes,
            begin_s=begin_s,
            end_s=result.end_s,
            s_per_work=s_per_work,
            p95_ms=_quantile(latencies_ms, quantile),
            p99_ms=_quantile(latencies_ms, 0.99),
            killed=result.oom_kills > 0,
            samples=tuple(watch.series.samples(begin_s, result.end_s)),
            threads=watch.peak.peaks[0].threads,
            windows=() if watch.touched is None else watch.touched.since(begin_s),
        )

    def _alone(self, limit_bytes: int) -> Scenario:
        """The scenario with the memory of one run, and one background group if that is meant."""
        scenario = self.session.scenario
        if self.spec is None:
            spec = replace(scenario.sandbox, limit_bytes=limit_bytes)
            return replace(scenario, sandbox=spec)
        spec = replace(scenario.sandbox, ample_bytes=limit_bytes)
        return replace(scenario, sandbox=spec, background=(self.spec,))

    def _work(self, result: BlockResult) -> float | None:
        """The mean time for a request, or for a unit."""
        if self.spec is not None:
            rate_per_s = result.units_per_s(0)
            return 1.0 / rate_per_s if rate_per_s else None
        latencies_ms = result.measured.sojourn_ms
        if not latencies_ms.size or not np.isfinite(mean_ms := float(np.mean(latencies_ms))):
            return None
        return mean_ms / 1e3


def _quantile(latencies_ms: NDArray[np.float64], quantile: float) -> float | None:
    """A quantile; ``None`` without requests, or where it falls on those without an answer."""
    if not latencies_ms.size:
        return None
    found = float(np.quantile(latencies_ms, quantile, method="higher"))
    return found if np.isfinite(found) else None


class _Watch:
    """What looks at the group of a run while it runs."""

    def __init__(self, group: Cgroup, proc: Path, *, watched: bool) -> None:
        self.series = GroupSeries(group)
        self.peak = GroupWatch((group,), proc)
        self.touched = TouchedPages(group, proc) if watched else None

    @contextmanager
    def during(self, _site: BlockSite) -> Iterator[object]:
        """Look until the context ends."""
        with self.series, self.peak, self.touched or contextlib.nullcontext():
            yield self
