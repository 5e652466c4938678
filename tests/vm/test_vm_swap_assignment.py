"""``swap-assign`` on cgroup v2: memory.high and memory.swap.max, on real groups."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from pressed_zone import HOG, MIB, Zone, wait_for

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
from stallward.actuator.levers.base.plugin import KNOWN
from stallward.actuator.node.node import Node
from stallward.agent.controller import THREAD_NEEDS, Need
from stallward.agent.registry import make_controller

pytestmark = [pytest.mark.vm, pytest.mark.timeout(600)]
FLOOR = 8 * MIB
TICK_S = 0.25


class Loop:
    """The loop of a daemon, here, with ``swap-assign``."""

    def __init__(self, zone: Zone) -> None:
        config = DaemonConfig(
            node=NodeConfig(zone=zone.zone.name),
            protected=ProtectedConfig(group=zone.app.name),
            background=tuple(
                SlotConfig(name=f"bg{i}", group=group.name, floor_bytes=FLOOR)
                for i, group in enumerate(zone.slots)
            ),
            service=ServiceConfig(socket=zone.folder / "s.sock"),
            journal=JournalConfig(path=zone.folder / "journal"),
            control=ControlConfig(controller="none", tick_period_s=TICK_S),
        )
        self.node = Node(config, lambda *_: None)
        self.settings = self.node.settings(frozenset())
        self.engine = Engine(
            settings=self.settings,
            configured=make_controller("swap-assign:degrees=1+2,needs_mib=64+64,margin_share=0"),
            default=make_controller("none"),
        )
        self._sequence = 0

    def until(self, done: Callable[[], bool], seconds: float) -> bool:
        """Tick until ``done``; returns whether it became true in time."""
        deadline_s = time.monotonic() + seconds
        while time.monotonic() < deadline_s:
            sample = self.node.read(self._sequence, time.monotonic())
            outcome = self.engine.step(sample, late=False)
            self.node.apply(outcome.granted, sample, time.monotonic())
            self._sequence += 1
            if done():
                return True
            time.sleep(TICK_S)
        return False


def setting(zone: Zone, slot: int, name: str) -> float:
    text = zone.read(zone.slots[slot], name)
    return float("inf") if text == "max" else float(text)


def test_the_lowest_lives_in_swap_and_the_other_keeps_its_memory(zone: Zone) -> None:
    before = zone.settings()
    zone.start(zone.slots[0], HOG, 64)
    zone.start(zone.slots[1], HOG, 64)
    loop = Loop(zone)
    try:
        # 128 MiB needed of 96: half of the lowest is in swap, so the least is its other half.
        assert loop.until(lambda: setting(zone, 0, "memory.high") <= 33 * MIB, 60), (
            setting(zone, 0, "memory.high"),
            zone.read(zone.slots[0], "memory.current"),
        )
        slack = 96 * MIB // 8
        assert setting(zone, 0, "memory.swap.max") == float("inf"), "here the rest can go"
        assert setting(zone, 1, "memory.swap.max") == pytest.approx(slack, rel=0.05)
        assert setting(zone, 1, "memory.high") == float("inf")
        assert setting(zone, 0, "memory.max") == float("inf")

        def apart() -> bool:
            held = [int(zone.read(group, "memory.current")) for group in zone.slots]
            return held[0] < 40 * MIB and held[1] > 56 * MIB

        assert loop.until(apart, 120), "the pages did not go where they are meant to"
        assert zone.number(zone.zone, "memory.events", "oom_kill") == 0
        zone.slots[1].kill()
        fits = loop.until(lambda: setting(zone, 0, "memory.high") == float("inf"), 60)
        assert fits, "what fits again is still limited"
    finally:
        assert loop.node.close(), "not everything was restored"
    assert wait_for(lambda: setting(zone, 1, "memory.swap.max") == float("inf"))
    after = {key: value for key, value in zone.settings().items() if not key.startswith("process")}
    assert after == {key: value for key, value in before.items() if key in after}


def test_a_group_that_grows_faster_than_the_plan_is_not_killed(zone: Zone) -> None:
    zone.start(zone.slots[0], HOG, 64)
    loop = Loop(zone)
    try:
        assert loop.until(lambda: int(zone.read(zone.slots[0], "memory.current")) > 32 * MIB, 60)
        grows = zone.start(zone.slots[1], HOG, 80)

        def grown() -> bool:
            names = ("memory.current", "memory.swap.current")
            return sum(int(zone.read(zone.slots[1], name)) for name in names) > 79 * MIB

        assert loop.until(grown, 60)
        loop.until(lambda: False, 5)
        assert grows.poll() is None
        assert zone.number(zone.zone, "memory.events", "oom_kill") == 0
    finally:
        assert loop.node.close()


def test_this_machine_lacks_nothing_that_it_needs(zone: Zone) -> None:
    loop = Loop(zone)
    try:
        lacks = set(loop.settings.context.lacks)
        # Version 2 has no swappiness of a group, and nothing here measures a latency; neither is
        # needed. It moves neither the application's threads nor file pages, whose lever is not
        # loaded for it.
        file_pages = KNOWN["file_pages"].needs
        assert lacks <= {Need.GROUP_SWAPPINESS, Need.LATENCY, *THREAD_NEEDS, *file_pages}
    finally:
        assert loop.node.close()
