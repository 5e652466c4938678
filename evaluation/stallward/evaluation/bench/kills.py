"""``stallward bench kills``: kill -9 at random instants under pressure, and what it leaves.

A daemon controls a small sandbox whose programs compete for memory, by default with a controller
that moves every lever all the time. Its processes are killed at random instants: the loop, the
service, the recorder, several of them, the guardian, or all. A second later all settings of the
groups, the node and the processes are read from the kernel and compared with those from before the
daemon's start. If all processes were killed, this is done after the daemon's next start or after
``stallward restore``.
"""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from stallward.actuator.runtime.process_start import interpreter
from stallward.agent.registry import make_controller
from stallward.env.sandbox.data_cache import default_cache_dir
from stallward.env.sandbox.sandbox import Sandbox, open_sandbox
from stallward.evaluation.bench.kill_campaign import STORM, Campaign
from stallward.evaluation.bench.kill_tally import KILL_TARGETS, Tally
from stallward.training.progress import Report, silent

_MIB: Final = 1 << 20
_LIMIT_BYTES: Final = 112 * _MIB
_SWAP_BYTES: Final = 512 * _MIB

# A program that touches its memory for ever: a file mapped read-only, or anonymous pages.
_PROGRAM: Final = """
import mmap, sys, time
size, pause_s, path = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
if path:
    with open(path, "rb") as file:
        pages = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    while True:
        for offset in range(0, size, 4096):
            pages[offset]
        time.sleep(pause_s)
pages = mmap.mmap(-1, size)
while True:
    for offset in range(0, size, 4096):
        pages[offset] = 1
    time.sleep(pause_s)
"""


def bench_kills(
    tally: Tally,
    *,
    kills: int,
    controller: str = STORM,
    seed: int = 1,
    report: Report = silent,
) -> None:
    """Kill a daemon's processes ``kills`` times, and check after each kill what it left.

    Args:
        tally: Each kill is added to it after its checks, so that the finished kills are known
            even if the campaign is interrupted.
        kills: The number of kills.
        controller: The daemon's controller.
        seed: Seeds the choice of targets and times.
        report: Called with the progress.

    Raises:
        StallwardError: If this machine cannot have the sandbox, or the daemon does not start.
    """
    make_controller(controller)  # refuses an unknown one before anything is started
    rng = random.Random(seed)  # noqa: S311 - chooses what to kill
    names = list(KILL_TARGETS)
    with (
        open_sandbox(
            slots=2,
            limit_bytes=_LIMIT_BYTES,
            swap_bytes=_SWAP_BYTES,
            cache_dir=default_cache_dir(),
        ) as sandbox,
        _programs(sandbox) as pids,
        Campaign(sandbox, pids, rng, controller) as campaign,
    ):
        for number in range(kills):
            report(f"{number} kills", number / kills)
            target = rng.choices(names, [KILL_TARGETS[name][0] for name in names])[0]
            began_s = time.monotonic()
            kill = campaign.kill(target)
            tally.kills.append(replace(kill, took_s=time.monotonic() - began_s))
    report("done", 1.0)


@contextlib.contextmanager
def _programs(sandbox: Sandbox) -> Iterator[tuple[int, ...]]:
    """Run the programs that compete for memory, and kill them at the end."""
    folder = sandbox.folder
    app, file_hog, anon_hog = folder / "app.data", folder / "hog.data", ""
    started = []
    try:
        for group, size_mib, pause_s, path in (
            (sandbox.protected, 24, 0.05, app),
            (sandbox.slots[0], 80, 0.0, anon_hog),
            (sandbox.slots[1], 60, 0.0, file_hog),
        ):
            if path:
                _write_uncached(Path(path), size_mib)
            arguments = [str(size_mib * _MIB), str(pause_s), str(path)]
            process = subprocess.Popen([*interpreter(), "-c", _PROGRAM, *arguments])
            started.append(process)
            group.add_pid(process.pid)
        yield tuple(process.pid for process in started)
    finally:
        sandbox.kill()
        for process in started:
            process.kill()
            process.wait()


def _write_uncached(path: Path, size_mib: int) -> None:
    """Write a file and drop it from the cache, so that its first reader's group is charged."""
    with path.open("wb") as file:
        for _ in range(size_mib):
            file.write(bytes(_MIB))
        file.flush()
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
