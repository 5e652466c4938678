"""No limit on cgroup v2 stops a program for good or kills it: on real groups."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

import pytest
from pressed_zone import MIB, Zone, wait_for

from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.config.tables import (
    ControlConfig,
    JournalConfig,
    NodeConfig,
    ProtectedConfig,
    ServiceConfig,
    SlotConfig,
)
from stallward.actuator.engine.engine import Engine
from stallward.actuator.guard.budgets import Budgets
from stallward.actuator.guard.changes import GuardRule
from stallward.actuator.node.node import Node
from stallward.agent.desired import DesiredState, SlotDesire
from stallward.agent.registry import make_controller

pytestmark = [pytest.mark.vm, pytest.mark.timeout(600)]

FLOOR = 8 * MIB
TIGHT = SlotDesire(limit_bytes=FLOOR)
TICK_S = 0.25

# Touches memory that grows by a megabyte at a time up to the given size, and counts its rounds.
GROWING = """
import mmap, os, sys, time
most, step_s, counter = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
held = mmap.mmap(-1, most << 20)
rounds = os.open(counter, os.O_WRONLY | os.O_CREAT)
print(flush=True)
size, done = 1, 0
while True:
    for at in range(0, size << 20, 4096):
        held[at] = 1
    done += 1
    os.pwrite(rounds, b"%d" % done, 0)
    if size < most:
        size += 1
        time.sleep(step_s)
"""


class Loop:
    """The loop of a daemon, here: senses, guards and applies one desired state again and again."""

    def __init__(self, zone: Zone) -> None:
        config = DaemonConfig(
            node=NodeConfig(zone=zone.zone.name),
            protected=ProtectedConfig(group=zone.app.name),
            background=(SlotConfig(name="bg", group=zone.slots[0].name, floor_bytes=FLOOR),),
            service=ServiceConfig(socket=zone.folder / "s.sock"),
            journal=JournalConfig(path=zone.folder / "journal"),
            control=ControlConfig(controller="none", tick_period_s=TICK_S),
            guard=Budgets(lift_budgets=True),
        )
        self.node = Node(config, lambda *_: None)
        none = make_controller("none")
        self._engine = Engine(
            settings=self.node.settings(frozenset()), configured=none, default=none
        )
        self._sequence = 0
        self.rules: set[GuardRule] = set()

    def until(self, desired: SlotDesire, done: Callable[[], bool], seconds: float) -> bool:
        """Hold ``desired`` until ``done``; returns whether it became true in time."""
        deadline_s = time.monotonic() + seconds
        while time.monotonic() < deadline_s:
            sample = self.node.read(self._sequence, time.monotonic())
            outcome = self._engine.step(sample, remote=DesiredState(slots=(desired,)), late=False)
            self.node.apply(outcome.granted, sample, time.monotonic())
            self.rules |= {change.rule for change in outcome.reasons.changes}
            self._sequence += 1
            if done():
                return True
            time.sleep(TICK_S)
        return False


@contextlib.contextmanager
def looping(zone: Zone) -> Iterator[Loop]:
    loop = Loop(zone)
    try:
        yield loop
    finally:
        assert loop.node.close(), "not everything was restored"


def rounds(zone: Zone) -> int:
    path = zone.folder / "rounds"
    return int(path.read_text() or 0) if path.exists() else 0


def grow(zone: Zone, most_mib: int, step_s: float) -> None:
    zone.start(zone.slots[0], GROWING, most_mib, step_s, zone.folder / "rounds")


def usage(zone: Zone) -> int:
    return int(zone.read(zone.slots[0], "memory.current"))


def high(zone: Zone) -> float:
    text = zone.read(zone.slots[0], "memory.high")
    return float("inf") if text == "max" else float(text)


def test_a_limit_below_memory_that_cannot_be_swapped_gives_way(zone: Zone) -> None:
    zone.file(zone.slots[0], "memory.swap.max").write_text("0")
    grow(zone, 40, 0.0)
    assert wait_for(lambda: usage(zone) > 40 * MIB)
    with looping(zone) as loop:
        assert loop.until(TIGHT, lambda: high(zone) < 64 * MIB, 60), "it was never limited"
        gave_way = loop.until(
            TIGHT, lambda: GuardRule.LOWEST_WORKABLE in loop.rules and high(zone) >= 40 * MIB, 90
        )
        assert gave_way, (high(zone), usage(zone), loop.rules)
        before = rounds(zone)
        assert loop.until(TIGHT, lambda: rounds(zone) >= before + 3, 90), "it stands still"
    assert zone.number(zone.slots[0], "memory.events", "oom_kill") == 0


def test_a_hard_limit_follows_what_grows_into_it_and_kills_nothing(zone: Zone) -> None:
    grow(zone, 20, 0.2)
    want = SlotDesire(limit_bytes=FLOOR, hard_limit_bytes=FLOOR)
    assert wait_for(lambda: usage(zone) > 6 * MIB)
    with looping(zone) as loop:
        limited = loop.until(want, lambda: zone.read(zone.slots[0], "memory.max") != "max", 60)
        assert limited, "there was never a hard limit"
        grown = loop.until(want, lambda: rounds(zone) >= 22, 240)
        assert zone.number(zone.slots[0], "memory.events", "oom_kill") == 0
        assert zone.processes[-1].poll() is None
        assert grown, (rounds(zone), usage(zone))
    assert zone.read(zone.slots[0], "memory.max") == "max"


def test_a_hard_limit_alone_is_not_granted(zone: Zone) -> None:
    grow(zone, 16, 0.0)
    assert wait_for(lambda: usage(zone) > 12 * MIB)
    with looping(zone) as loop:
        alone = SlotDesire(hard_limit_bytes=FLOOR)
        assert loop.until(alone, lambda: GuardRule.HARD_ALONE in loop.rules, 60)
        assert zone.read(zone.slots[0], "memory.max") == "max"
