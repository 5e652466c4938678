"""A sandbox in which one application after another runs beside batch jobs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from stallward.actuator.errors import GroupError
from stallward.actuator.kernel.hierarchies import require
from stallward.actuator.kernel.paths import DEFAULT_PATHS, Paths
from stallward.env.recording.node_facts import node_info
from stallward.env.recording.recording import load_recording
from stallward.env.recording.run_info import NodeInfo
from stallward.env.sandbox.block import make_workplace
from stallward.env.sandbox.data_cache import default_cache_dir
from stallward.env.sandbox.sandbox import Sandbox, open_sandbox
from stallward.evaluation.blocks.live import LiveSession
from stallward.evaluation.blocks.request import RunRequest
from stallward.evaluation.errors import ReplicationError
from stallward.evaluation.replication.dasec.applications import (
    BURN_IN_S,
    MEASURED_S,
    SLO_MS,
    Application,
    Division,
    dasec_scenario,
)
from stallward.evaluation.replication.dasec.reduce import reduce_run
from stallward.evaluation.replication.dasec.result import DasecRun
from stallward.evaluation.replication.dasec.steps import RATIOS, Setting
from stallward.evaluation.replication.dasec.threads import ThreadWatch

_CPU: Final = "cpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class DasecSession:
    """A sandbox, and everything that it takes to run an application in it."""

    sandbox: Sandbox
    node: NodeInfo
    cache_dir: Path
    cpus: int
    """How many threads a batch job has."""
    measured_s: float = MEASURED_S
    """How long a run is measured."""
    slo_ms: float = SLO_MS
    """The latency target, for controllers that look at one."""

    def prepare(self, application: Application) -> None:
        """Make the data and programs of an application, unless that has been done.

        Raises:
            WorkloadError: If that fails, or a program that it needs is not installed.
        """
        make_workplace(dasec_scenario(application, max(RATIOS), self.cpus), self.cache_dir)

    def run(self, setting: Setting, seed: int) -> DasecRun:
        """Make one run.

        Args:
            setting: What runs.
            seed: The seed of the arrivals.

        Raises:
            StallwardError: If the sandbox, the daemon or a program fails.
        """
        scenario = dasec_scenario(setting.application, setting.ratio, self.cpus)
        sandbox = replace(self.sandbox, slots=self.sandbox.slots[: setting.ratio])
        live = LiveSession(
            scenario=scenario,
            sandbox=sandbox,
            workplace=make_workplace(scenario, self.cache_dir),
            node=self.node,
        )
        request = RunRequest(
            condition="together" if setting.ratio else "alone",
            arm=setting.arm,
            slo_ms=self.slo_ms,
            duration_s=self.measured_s,
            burn_in_s=BURN_IN_S,
            seed=seed,
            probes=False,
        )
        with TemporaryDirectory(dir=live.scratch) as folder:
            out = Path(folder) / "recording"
            with ThreadWatch(sandbox.protected, sandbox.paths.proc) as watch:
                live.run(request, out)
            return reduce_run(load_recording(out), watch.readings)


@contextmanager
def open_dasec_session(
    *,
    division: Division,
    cpus: int,
    cache_dir: Path | None = None,
    paths: Paths = DEFAULT_PATHS,
) -> Iterator[DasecSession]:
    """Make a sandbox whose programs share the CPU thread by thread, or group by group.

    Args:
        division: How the CPU is divided.
        cpus: How many threads a batch job has.
        cache_dir: The folder for data and builds; by default the user's cache.
        paths: The roots of the kernel's files.

    Raises:
        StallwardError: If this user or machine cannot have the sandbox; the message says why.
    """
    require(paths)
    cache_dir = cache_dir or default_cache_dir()
    memory = dasec_scenario("memcached", 0, cpus).sandbox
    with open_sandbox(
        slots=max(RATIOS),
        limit_bytes=memory.limit_bytes,
        swap_bytes=memory.swap_bytes,
        cache_dir=cache_dir,
        paths=paths,
    ) as sandbox:
        yield DasecSession(
            sandbox=_divide_cpu(sandbox, division),
            node=node_info(cache_dir, paths),
            cache_dir=cache_dir,
            cpus=cpus,
        )


def _divide_cpu(sandbox: Sandbox, division: Division) -> Sandbox:
    """Divide the CPU in the sandbox; the load generator stays outside, where it is real-time.

    Raises:
        ReplicationError: If the node cannot divide it that way.
    """
    shared = sandbox.zone.v1_dir(_CPU)
    if shared is None and division == "thread":
        raise ReplicationError(
            "This node divides the CPU by groups: it has no cpu controller of cgroup v1.",
            next_step="Give --division group, or boot with the v1 cpu controller.",
        )
    groups = (sandbox.zone, sandbox.protected, *sandbox.slots)
    try:
        for group in groups if division == "group" else groups[:1]:
            group.create((_CPU,))
    except GroupError as error:
        raise ReplicationError(error.cause, next_step=error.next_step) from error
    if division == "group" or shared is None:
        return sandbox
    return replace(sandbox, shared_dirs=(*sandbox.shared_dirs, shared))
