"""``stallward bench limits``: programs that dirty memory fast, under the tightest limit.

Beside an application that holds most of a small sandbox, a program rewrites its memory as fast as
it can, and a daemon limits it to 16 MiB: reclaim does not keep up. Each block
has a new daemon and a new program. A limit of the daemon must never kill, and when the daemon is
stopped nothing may be left waiting.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from stallward.actuator.client.daemon_process import Daemon
from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.config.tables import (
    ControlConfig,
    JournalConfig,
    NodeConfig,
    ProtectedConfig,
    ServiceConfig,
    SlotConfig,
)
from stallward.actuator.guard.budgets import Budgets
from stallward.actuator.kernel.refusals import more_rights
from stallward.benchmarks.kernel_settings import changed_settings, read_settings
from stallward.env.sandbox.data_cache import default_cache_dir
from stallward.env.sandbox.launch import Program, start
from stallward.env.sandbox.oom_log import OomLog
from stallward.env.sandbox.sandbox import Sandbox, open_sandbox
from stallward.env.scenario.scenario import Command, Places
from stallward.env.workloads.native.build import build_native
from stallward.evaluation.errors import EvaluationError
from stallward.training.progress import Report, silent

_MIB: Final = 1 << 20
_ZONE_BYTES: Final = 500 * _MIB
_SWAP_BYTES: Final = 2048 * _MIB
_APPLICATION_MIB: Final = 450
_PROGRAM_MIB: Final = 400
_CONTROLLER: Final = "static:limit_mib=16"
"""The default floor. The guard's budgets are lifted, so that it is reached at once."""
_START_S: Final = 1.0
"""How long the program runs before the daemon starts."""
_POLL_S: Final = 0.005
_ANON: Final = "{workloads}/anon --order random --seed {seed} --report {run}/units --program"
_EIGHT: Final = f"for i in 1 2 3 4 5 6 7 8; do {_ANON} {_PROGRAM_MIB // 8} & done; wait"
PROGRAMS: Final[dict[str, tuple[str, ...]]] = {
    "one process": (*_ANON.split(), str(_PROGRAM_MIB)),
    "eight processes": ("sh", "-c", _EIGHT),
    "file": (
        *_ANON.replace("/anon", "/dirty").split(),
        str(_PROGRAM_MIB),
        "--file",
        "{run}/dirty.data",
    ),
}
"""Programs that dirty memory as fast as they can; stress-ng is added where it is installed."""
_STRESS_NG: Final = {
    "stress-ng rand-set": "--vm 1 --vm-keep --vm-method rand-set",
    "stress-ng rand-set, 8 workers": "--vm 8 --vm-keep --vm-method rand-set",
    "stress-ng flip, 4 workers": "--vm 4 --vm-method flip",
    "stress-ng page-in, 4 workers": "--vm 4 --page-in",
}
MEANINGS: Final = {
    "blocks": "blocks, each with a new daemon and a new program",
    "limit_kills": "processes killed because of a limit of the daemon",
    "other_kills": "processes killed otherwise, as far as the kernel's log says",
    "waited_blocks": "blocks in which the program had to wait for memory",
    "wait_p50_ms": "longest wait for memory of such a block, median",
    "wait_max_ms": "longest wait for memory of all blocks",
    "left_waiting": "blocks after which a setting was not restored or a program still waited",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitBlock:
    """The outcome of one block."""

    program: str
    limit_kills: int
    other_kills: int
    longest_wait_s: float
    """The longest time for which the kernel reported that the slot waits; 0 for none."""
    left: tuple[str, ...]
    """What was not restored, one line each."""


@dataclass(slots=True, kw_only=True)
class LimitTally:
    """The blocks so far."""

    blocks: list[LimitBlock] = field(default_factory=list)

    def figures(self) -> dict[str, float | None]:
        """The figures that ``stallward bench limits`` prints."""
        waits_s = [block.longest_wait_s for block in self.blocks if block.longest_wait_s > 0.0]
        return {
            "blocks": float(len(self.blocks)),
            "limit_kills": float(sum(block.limit_kills for block in self.blocks)),
            "other_kills": float(sum(block.other_kills for block in self.blocks)),
            "waited_blocks": float(len(waits_s)),
            "wait_p50_ms": 1e3 * statistics.median(waits_s) if waits_s else None,
            "wait_max_ms": 1e3 * max(waits_s) if waits_s else None,
            "left_waiting": float(sum(bool(block.left) for block in self.blocks)),
        }


def programs() -> dict[str, tuple[str, ...]]:
    """The programs of this machine, by name."""
    if shutil.which("stress-ng") is None:
        return PROGRAMS
    common = ("stress-ng", "--quiet", "--temp-path", "{run}", "--vm-bytes", f"{_PROGRAM_MIB}M")
    return {**PROGRAMS, **{name: (*common, *words.split()) for name, words in _STRESS_NG.items()}}


def bench_limits(
    tally: LimitTally,
    *,
    blocks: int,
    seconds: float,
    report: Report = silent,
    chosen: Sequence[str] = (),
) -> None:
    """Limit programs that dirty memory fast, one in each block.

    Args:
        tally: Each block is added to it when it has ended.
        blocks: The number of blocks.
        seconds: How long each program runs beside the daemon.
        report: Called with the progress.
        chosen: Names of the programs to run; all by default.

    Raises:
        StallwardError: If this machine cannot have the sandbox, or the daemon does not start.
    """
    log = OomLog()
    if not log.readable:
        raise EvaluationError(
            "The kernel's log (/dev/kmsg) cannot be read, so nobody knows whose limit killed.",
            next_step=f"{more_rights('CAP_SYSLOG')} Some containers hide the log all the same.",
        )
    log.close()
    known = programs()
    names = list(chosen) or list(known)
    with open_sandbox(
        slots=1,
        limit_bytes=_ZONE_BYTES,
        swap_bytes=_SWAP_BYTES,
        cache_dir=default_cache_dir(),
    ) as sandbox:
        for number in range(blocks):
            report(f"{number} blocks", number / blocks)
            name = names[number % len(names)]
            tally.blocks.append(_run(sandbox, name, known[name], number, seconds))
    report("done", 1.0)


def _run(
    sandbox: Sandbox, name: str, argv: tuple[str, ...], number: int, seconds: float
) -> LimitBlock:
    """Run one block."""
    folder = sandbox.folder / f"block{number}"
    folder.mkdir()
    places = Places(
        data=folder,
        run=folder,
        scratch=folder,
        python=sys.executable,  # noqa: TID251
        workloads=build_native(default_cache_dir()),
        seed=number,
    )
    application = (
        f"{{workloads}}/anon --program {_APPLICATION_MIB} --rate 400 --report {{run}}/app"
    )
    log, slot = OomLog(), sandbox.slots[0]
    kills_before = sandbox.oom_kills()
    started: list[Program] = []
    try:
        for label, words, group in (
            ("application", tuple(application.split()), sandbox.protected),
            ("program", argv, slot),
        ):
            started.append(start(label, Command(argv=words), group, places))
        time.sleep(_START_S)
        groups = [sandbox.zone.name, sandbox.protected.name, slot.name]
        before = read_settings(groups, (), sandbox.paths)
        with Daemon(_config(sandbox, folder), owned=sandbox.folder):
            longest_wait_s = _watch_waits(slot.memory_dir, seconds)
        left = changed_settings(before, read_settings(groups, (), sandbox.paths))
        kills = sandbox.oom_kills() - kills_before
        limit_kills = sum(kill.under_limit_of([slot.name]) for kill in log.read())
    finally:
        sandbox.kill()
        for program in started:
            program.process.wait()
        sandbox.empty()
        log.close()
        shutil.rmtree(folder, ignore_errors=True)
    return LimitBlock(
        program=name,
        limit_kills=limit_kills,
        other_kills=max(kills - limit_kills, 0),
        longest_wait_s=longest_wait_s,
        left=left,
    )


def _watch_waits(folder: Path | None, seconds: float) -> float:
    """Watch for ``seconds`` whether a v1 group waits; return the longest wait."""
    control = None if folder is None else folder / "memory.oom_control"
    until_s = time.monotonic() + seconds
    longest_s, since_s = 0.0, None
    while (now_s := time.monotonic()) < until_s:
        waits = control is not None and control.exists() and "under_oom 1" in control.read_text()
        since_s = (since_s or now_s) if waits else None
        if since_s is not None:
            longest_s = max(longest_s, now_s - since_s + _POLL_S)
        time.sleep(_POLL_S)
    return longest_s


def _config(sandbox: Sandbox, folder: Path) -> DaemonConfig:
    return DaemonConfig(
        node=NodeConfig.at(sandbox.paths, zone=sandbox.zone.name),
        protected=ProtectedConfig(group=sandbox.protected.name, groups=(sandbox.load.name,)),
        background=(SlotConfig(name="program", group=sandbox.slots[0].name),),
        service=ServiceConfig(socket=folder / "limits.sock"),
        journal=JournalConfig(path=folder / "limits.journal"),
        control=ControlConfig(controller=_CONTROLLER, seed=1),
        guard=Budgets(lift_budgets=True),
    )
