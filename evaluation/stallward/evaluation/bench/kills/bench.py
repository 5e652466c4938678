"""``stallward bench kills``: kill -9 at random instants under pressure, and what it leaves.

A daemon controls a small sandbox whose programs compete for memory, by default with a controller
that moves every lever all the time, and with ``ends`` one that ends programs, too. Its processes
are killed at random instants: the loop, the service, the recorder, several of them, the guardian,
or all. A second later all settings of the groups, the node, the processes and their threads are
read from the kernel and compared with those from before the daemon's start. If all processes were
killed, this is done after the daemon's next start or after ``stallward restore``.
"""

from __future__ import annotations

import random
import time
from dataclasses import replace
from typing import Final

from stallward.agent.controller import needs_threads
from stallward.agent.registry import make_controller
from stallward.env.sandbox.data_cache import default_cache_dir
from stallward.env.sandbox.sandbox import open_sandbox
from stallward.evaluation.bench.kills.campaign import STORM, Campaign
from stallward.evaluation.bench.kills.programs import Programs
from stallward.evaluation.bench.kills.tally import KILL_TARGETS, Tally
from stallward.training.progress import Report, silent

_MIB: Final = 1 << 20
_LIMIT_BYTES: Final = 112 * _MIB
_SWAP_BYTES: Final = 512 * _MIB
_BUSY_THREADS: Final = 2
"""Threads of the application that want a CPU, where the controller schedules threads."""


def bench_kills(
    tally: Tally,
    *,
    kills: int,
    controller: str = STORM,
    ends: bool = False,
    seed: int = 1,
    report: Report = silent,
) -> None:
    """Kill a daemon's processes ``kills`` times, and check after each kill what it left.

    Args:
        tally: Each kill is added to it after its checks, so that the finished kills are known
            even if the campaign is interrupted.
        kills: The number of kills.
        controller: The daemon's controller.
        ends: Whether it may end programs of the background. Another takes the place of one that
            has ended.
        seed: Seeds the choice of targets and times.
        report: Called with the progress.

    Raises:
        StallwardError: If this machine cannot have the sandbox, or the daemon does not start.
    """
    # An unknown controller is refused before anything is started.
    schedules_threads = needs_threads(make_controller(controller))
    rng = random.Random(seed)  # noqa: S311 - chooses what to kill
    names = list(KILL_TARGETS)
    with (
        open_sandbox(
            slots=2,
            limit_bytes=_LIMIT_BYTES,
            swap_bytes=_SWAP_BYTES,
            cache_dir=default_cache_dir(),
        ) as sandbox,
        Programs(sandbox, busy_threads=_BUSY_THREADS if schedules_threads else 0) as programs,
        Campaign(sandbox, programs, rng, controller, ends=ends) as campaign,
    ):
        for number in range(kills):
            report(f"{number} kills", number / kills)
            target = rng.choices(names, [KILL_TARGETS[name][0] for name in names])[0]
            began_s = time.monotonic()
            kill = campaign.kill(target)
            tally.kills.append(replace(kill, took_s=time.monotonic() - began_s))
            tally.programs_ended = campaign.programs_ended
    report("done", 1.0)
