"""Replace pods on real cgroups under a daemon again and again: when does it have the new one?

``.venv/bin/python tests/pods/pod_rollouts.py [ROLLOUTS]``, as root, prints what it
measured; on cgroup v2 by ``tests/vm/boot.py --run``. A pod is held, so it counts as bound when it
is frozen. Old and new pod overlap or not, as with the strategies of a deployment. Once in fifty
rollouts the daemon's loop is killed.
"""

from __future__ import annotations

import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import psutil
from pod_sandbox import MIB, UNLIMITED, PodSandbox, frozen, limit_of, pod_sandbox

from stallward.actuator.client import ActuatorClient
from stallward.actuator.client.daemon_process import Daemon
from stallward.actuator.errors import DaemonUnavailableError
from stallward.actuator.guard.budgets import Budgets
from stallward.actuator.kernel.cgroups import Cgroup
from stallward.actuator.targets.kubelet_groups import Driver
from stallward.actuator.targets.qos import Qos
from stallward.agent.desired import DesiredState, SlotDesire

HELD = DesiredState(slots=(SlotDesire(paused=True, limit_bytes=12 * MIB, cpu_weight=1),) * 2)
LEASE_S = 60.0
FIRST = 3
"""After so many rollouts a loop has opened what it needs."""
STEADY_S = 1.0
"""A loop that has opened and closed nothing for so long has ended what a rollout began."""
SETTLING_S = 10.0
PATIENCE_S = 30.0
KILL_EVERY = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Soak:
    """What rollouts have shown."""

    bound_s: tuple[float, ...]
    """How long each new pod had no slot, once there was one."""
    kills: int
    """How often the loop was killed."""
    files: int
    """How many more files a loop had open in the end than after its first rollouts: the most of all
    loops, as each kill begins another."""
    left_held: int
    """Pods that were still held when the daemon had ended."""
    journal_left: bool
    """Whether its journal was still there."""


def soak(box: PodSandbox, rollouts: int, *, kill_every: int = KILL_EVERY) -> Soak:
    """Replace the pods of two slots, so often in all."""
    draw, kills, files, more_files = random.Random(7), 0, 0, 0
    bound_s: list[float] = []
    # Otherwise the guard lets a pod go that has been paused for long.
    config = replace(box.config(), guard=Budgets(lift_budgets=True))
    with Daemon(config) as daemon, daemon.client() as client:
        box.start(1, "app", annotations={"stallward.io/role": "protected"}, qos=Qos.BURSTABLE)
        pods = [(number, box.start(number)) for number in (2, 3)]
        holding = _Holding(client)
        holding.wait(lambda: all(frozen(group) for _, group in pods))
        for number in range(1, rollouts + 1):
            slot = draw.randrange(2)
            old, overlap = pods[slot][0], draw.random() < 0.5
            if not overlap:
                box.stop(old)
            new = box.start(number + 3)
            if overlap:
                box.stop(old)
            bound_s.append(holding.wait(lambda new=new: frozen(new)))  # type: ignore[misc]
            pods[slot] = (number + 3, new)
            assert all(frozen(group) for _, group in pods), "the other pod was let go"
            if number % kill_every == FIRST:
                files = _steady_files(daemon)
            if number % kill_every == 0:
                kills += 1
                more_files = max(more_files, _steady_files(daemon) - files)
                _kill_loop(daemon)
                holding.begin_anew()
                holding.wait(lambda: all(frozen(group) for _, group in pods))
        if rollouts % kill_every > FIRST:
            more_files = max(more_files, _steady_files(daemon) - files)
    groups = [group for _, group in pods]
    return Soak(
        bound_s=tuple(bound_s),
        kills=kills,
        files=more_files,
        left_held=sum(_is_held(group) for group in groups),
        journal_left=(box.folder / "journal").exists(),
    )


class _Holding:
    """Has everything held, by leases that are renewed while something is waited for."""

    def __init__(self, client: ActuatorClient) -> None:
        self._client, self._until_s = client, 0.0

    def wait(self, condition: Callable[[], bool]) -> float:
        """Wait for a condition; returns how long, in seconds."""
        began_s = time.monotonic()
        while not condition():
            now_s = time.monotonic()
            assert now_s < began_s + PATIENCE_S, self._client.status().missing
            if now_s > self._until_s:
                self._renew(now_s)
            time.sleep(0.005)
        return time.monotonic() - began_s

    def begin_anew(self) -> None:
        """Take out a lease at once: another loop knows nothing of the last one."""
        self._until_s = 0.0

    def _renew(self, now_s: float) -> None:
        try:
            self._client.apply(HELD, lease_s=LEASE_S, holder="soak")
            self._until_s = now_s + LEASE_S / 2
        except DaemonUnavailableError:  # its loop was killed, and starts
            self._until_s = now_s + 0.1


def _kill_loop(daemon: Daemon) -> None:
    loop = daemon.pids.loop
    os.kill(loop or 0, signal.SIGKILL)
    deadline_s = time.monotonic() + PATIENCE_S
    while daemon.pids.loop in {None, loop}:
        assert time.monotonic() < deadline_s, daemon.last_words()
        time.sleep(0.02)


def _open_files(daemon: Daemon) -> int:
    return psutil.Process(daemon.pids.loop).num_fds()


def _steady_files(daemon: Daemon) -> int:
    """The open files once their number no longer changes, after some seconds at most.

    A busy loop freezes a pod some ticks before it has opened the files of its sensors.
    """
    began_s = changed_s = time.monotonic()
    found = _open_files(daemon)
    while (now_s := time.monotonic()) < min(changed_s + STEADY_S, began_s + SETTLING_S):
        time.sleep(0.05)
        if (files := _open_files(daemon)) != found:
            found, changed_s = files, now_s
    return found


def _is_held(group: Cgroup) -> bool:
    return frozen(group) or limit_of(group) not in UNLIMITED


def main(arguments: list[str]) -> None:
    """Run and print."""
    rollouts = int(arguments[0]) if arguments else 1000
    with (
        tempfile.TemporaryDirectory() as folder,
        pod_sandbox(Path(folder), Driver.SYSTEMD) as box,
    ):
        found = soak(box, rollouts)
    sys.stdout.write(
        f"{rollouts} rollouts, {found.kills} kills of the loop: bound after "
        f"{statistics.median(found.bound_s):.2f} s in the median, {max(found.bound_s):.2f} s at "
        f"most; {sum(s > 2.0 for s in found.bound_s)} took more than 2 s; {found.left_held} left "
        f"held, {found.files:+d} open files, "
        f"journal {'left' if found.journal_left else 'gone'}\n"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
