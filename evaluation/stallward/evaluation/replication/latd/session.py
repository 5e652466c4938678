"""A sandbox in which the detector runs beside one hog after another."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from stallward.actuator.kernel.paths import DEFAULT_PATHS, Paths
from stallward.env.recording.recording import load_recording
from stallward.evaluation.arms import Arm
from stallward.evaluation.blocks.live import LiveSession, open_session
from stallward.evaluation.blocks.request import RunRequest
from stallward.evaluation.errors import ReplicationError
from stallward.evaluation.replication.latd.reduce import reduce_run
from stallward.evaluation.replication.latd.resident import ResidentWatch
from stallward.evaluation.replication.latd.result import LatdRun
from stallward.evaluation.replication.latd.steps import ISOLATED, SCENARIOS, Setting
from stallward.evaluation.replication.latd.workload import (
    BURN_IN_S,
    MEASURED_S,
    SLO_MS,
    USUAL,
    Machine,
)

ATTEMPTS: Final = 3
"""How often a run is tried in which the kernel kills."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectorSession:
    """A sandbox with the detector's data and the compiled programs."""

    live: LiveSession
    machine: Machine = USUAL
    measured_s: float = MEASURED_S
    """How long a run is measured."""

    def run(self, setting: Setting, seed: int) -> LatdRun:
        """Make one run.

        Args:
            setting: What runs.
            seed: The seed of the arrivals and the hog.

        Raises:
            ReplicationError: If the kernel kills a program again and again.
            StallwardError: If the sandbox, the daemon or a program fails.
        """
        live = replace(self.live, scenario=setting.scenario(self.machine))
        request = RunRequest(
            condition="alone" if setting.hog is None else "together",
            arm=Arm(label=setting.controller, spec=setting.controller),
            slo_ms=SLO_MS,
            duration_s=self.measured_s,
            burn_in_s=BURN_IN_S,
            seed=seed,
            probes=False,
        )
        groups = (live.sandbox.protected, *live.sandbox.slots)
        for _ in range(ATTEMPTS):
            with TemporaryDirectory(dir=live.scratch) as folder:
                out = Path(folder) / "recording"
                with ResidentWatch(groups, live.sandbox.paths.proc) as watch:
                    result = live.run(request, out)
                if result.oom_kills == result.limit_kills:
                    return reduce_run(load_recording(out), watch.readings)
        raise ReplicationError(
            f"{setting.name}: memory ran out {ATTEMPTS} times.",
            next_step="Check that swap is on and that its file is not full.",
        )


@contextmanager
def open_detector_session(
    machine: Machine = USUAL,
    measured_s: float = MEASURED_S,
    cache_dir: Path | None = None,
    paths: Paths = DEFAULT_PATHS,
) -> Iterator[DetectorSession]:
    """Make the data, compile the programs, and make a sandbox for them with swap of its own.

    Args:
        machine: What the programs run on.
        measured_s: How long a run is measured.
        cache_dir: The folder for data, builds and the swap file; by default the user's cache.
        paths: The roots of the kernel's files.

    Raises:
        StallwardError: If this user or machine cannot have the sandbox, or a program that is
            needed is not installed; the message says which, and what to do.
    """
    with open_session(SCENARIOS[ISOLATED].scenario(machine), cache_dir, paths) as live:
        yield DetectorSession(live=live, machine=machine, measured_s=measured_s)
