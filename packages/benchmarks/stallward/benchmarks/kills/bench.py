"""``stallward bench kills``: kill -9 at random instants under pressure, and what it leaves.

A daemon controls a small sandbox whose programs compete for memory, by default with a controller
that moves every lever all the time, and with ``ends`` one that ends programs, too. Arms may take
turns: then a daemon is started for each kill. Its processes are killed at random instants: the
loop, the service, the recorder, several of them, the guardian, or all. A second later all settings
of the groups, the node, the processes and their threads are read from the kernel and compared with
those from before the first daemon's start. If all processes were killed, this is done after the
daemon's next start or after ``stallward restore``.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from stallward.actuator.kernel.paths import DEFAULT_PATHS
from stallward.agent.controller import NodeContext
from stallward.benchmarks.kills.arms import KilledArm, one_controller
from stallward.benchmarks.kills.campaign import Campaign, Instants
from stallward.benchmarks.kills.faults import Faults
from stallward.benchmarks.kills.programs import Programs
from stallward.benchmarks.kills.tally import KILL_TARGETS, Kill, Tally
from stallward.env.sandbox.data_cache import default_cache_dir
from stallward.env.sandbox.lacks import sandbox_lacks
from stallward.env.sandbox.sandbox import open_sandbox
from stallward.evaluation.errors import ComparisonError
from stallward.training.progress import Report, silent

_MIB: Final = 1 << 20
_LIMIT_BYTES: Final = 112 * _MIB
_SWAP_BYTES: Final = 512 * _MIB
_SLOTS: Final = 2
_BUSY_THREADS: Final = 2
"""Threads of the application that want a CPU, where a controller schedules threads."""


def campaign_node() -> NodeContext:
    """What is known of the node of a campaign before its sandbox is made."""
    return NodeContext(
        zone_limit_bytes=_LIMIT_BYTES,
        slot_names=tuple(f"slot{index}" for index in range(_SLOTS)),
        lacks=sandbox_lacks(_SWAP_BYTES, DEFAULT_PATHS),
    )


def bench_kills(
    tally: Tally,
    *,
    kills: int,
    arms: Sequence[KilledArm] = (),
    instants: Instants | None = None,
    all_groups: bool = False,
    faults: bool = False,
    several: bool = False,
    seed: int = 1,
    report: Report = silent,
) -> None:
    """Kill daemons' processes ``kills`` times, and check after each kill what it left.

    Args:
        tally: Each kill is added to it after its checks, so that the finished kills are known
            even if the campaign is interrupted.
        kills: The number of kills.
        arms: The arms, which take turns, a kill each; by default one that moves every lever.
            Where they may end programs, another takes the place of one that has ended.
        instants: When it kills.
        all_groups: Whether the groups are in the CPU and block controllers of cgroup v1, too, as
            in a comparison. Some arms need the CPU limits.
        faults: Whether system calls of the daemon fail around each kill. Then everything must be
            restored a second after the last of them.
        several: Whether the last group of the background is protected as well.
        seed: Seeds the choice of targets and times.
        report: Called with the progress.

    Raises:
        StallwardError: If this machine cannot have the sandbox, or a daemon does not start.
    """
    arms = arms or (one_controller(),)
    schedules_threads = any(arm.schedules_threads for arm in arms)
    rng = random.Random(seed)  # noqa: S311 - chooses what to kill
    names = list(KILL_TARGETS)
    with (
        open_sandbox(
            slots=_SLOTS,
            limit_bytes=_LIMIT_BYTES,
            swap_bytes=_SWAP_BYTES,
            cache_dir=default_cache_dir(),
            controllers=("cpu", "blkio") if all_groups else (),
        ) as sandbox,
        Programs(sandbox, busy_threads=_BUSY_THREADS if schedules_threads else 0) as programs,
        Campaign(
            sandbox,
            programs,
            rng,
            instants or Instants(),
            Faults(sandbox.folder, sandbox.folder / "kills.journal") if faults else None,
            several=several,
        ) as campaign,
    ):
        turns = deque(arms)
        for number in range(kills):
            report(f"{number} kills", number / kills)
            target = rng.choices(names, [KILL_TARGETS[name][0] for name in names])[0]
            began_s = time.monotonic()
            kill = kill_next(campaign.kill, turns, target, tally.left_out)
            tally.kills.append(replace(kill, took_s=time.monotonic() - began_s))
            tally.ended = campaign.ended
    report("done", 1.0)


def kill_next(
    kill: Callable[[str, KilledArm], Kill],
    turns: deque[KilledArm],
    target: str,
    left_out: dict[str, str],
) -> Kill:
    """Kill the daemon of the arm whose turn it is, which has the last turn then.

    An arm beside which no process can be started to decide, for example because the machine is too
    busy, is left out from then on: the kills of the others are not lost.

    Args:
        kill: Kills a target of an arm's daemon.
        turns: The arms, the next one first.
        target: What is killed.
        left_out: Label of an arm -> why it is left out; it is added to.

    Raises:
        ComparisonError: If no arm is left.
    """
    while True:
        turns.rotate(-1)
        try:
            return kill(target, turns[-1])
        except ComparisonError as error:
            left_out[turns.pop().label] = error.cause
            if not turns:
                raise
