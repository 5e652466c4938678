"""``mat``: one application more is paused at each epoch that thrashes."""

from __future__ import annotations

import numpy as np
import pytest

from stallward.agent.controller import NodeContext
from stallward.agent.desired import MIB
from stallward.agent.errors import ControllerError
from stallward.agent.observation.encoder import OBSERVATION_SIZE
from stallward.agent.registry import make_controller
from stallward.agent.sample import GroupSample, NodeSample, Sample, SlotState
from stallward.papers.controllers.mat import MatController, MatThresholds

OBSERVATION = np.zeros(OBSERVATION_SIZE, dtype=np.float32)
THRASH, CALM = 5000, 10


class Node:
    """A node with three groups whose pages come back at a rate."""

    def __init__(self, *, app_mib: int = 100, held_mib: tuple[int, ...] = (100, 100, 100)) -> None:
        self.controller = MatController(MatThresholds(refaults_per_s=1000.0, epoch_s=0.5))
        self.controller.reset(NodeContext(zone_limit_bytes=300 * MIB, slot_names=("a", "b", "c")))
        self.app_mib, self.held_mib = app_mib, held_mib
        self.time_s, self.refaults = 0.0, 0

    def run(self, seconds: float, pages_per_s: float) -> list[int]:
        """The slots that are paused at the end."""
        for _ in range(round(seconds / 0.1)):
            self.time_s += 0.1
            self.refaults += round(0.1 * pages_per_s)
            slots = tuple(
                GroupSample(
                    name=f"{i}",
                    memory_usage_bytes=size * MIB,
                    swap_bytes=0,
                    refault_anon_pages=self.refaults if i == 0 else 0,
                )
                for i, size in enumerate(self.held_mib)
            )
            tick = Sample(
                sequence=0,
                time_s=self.time_s,
                node=NodeSample(),
                zone=GroupSample(name="zone"),
                protected=GroupSample(name="app", memory_usage_bytes=self.app_mib * MIB),
                slots=slots,
                slot_states=tuple(SlotState() for _ in slots),
            )
            decision = self.controller.decide(tick, OBSERVATION)
        return [i for i, slot in enumerate(decision.desired.slots) if slot.paused]


def test_one_more_is_paused_at_each_epoch_that_thrashes() -> None:
    node = Node()
    assert node.run(0.4, THRASH) == []
    assert node.run(0.5, THRASH) == [0]
    assert node.run(0.5, THRASH) == [0, 1]
    assert node.run(5.0, THRASH) == [0, 1, 2]  # the application is what goes on


def test_one_more_runs_after_each_calm_epoch() -> None:
    node = Node()
    assert node.run(2.0, THRASH) == [0, 1, 2]
    paused = [node.run(0.1, CALM) for _ in range(30)]
    changes = [one for i, one in enumerate(paused) if i == 0 or one != paused[i - 1]]
    assert changes == [[0, 1, 2], [0, 1], [0], []]


def test_without_an_application_one_group_goes_on() -> None:
    assert Node(app_mib=0).run(5.0, THRASH) == [0, 1]


def test_groups_without_a_program_do_not_count() -> None:
    assert Node(app_mib=0, held_mib=(0, 100, 100)).run(5.0, THRASH) == [1]
    assert Node(app_mib=0, held_mib=(0, 100, 0)).run(5.0, THRASH) == []


def test_unknown_refaults_pause_nothing() -> None:
    controller = make_controller("mat")
    controller.reset(NodeContext(zone_limit_bytes=1, slot_names=("a",)))
    tick = Sample(
        sequence=0,
        time_s=1.0,
        node=NodeSample(),
        zone=GroupSample(name="zone"),
        protected=GroupSample(name="app"),
        slots=(GroupSample(name="a"),),
        slot_states=(SlotState(),),
    )
    decision = controller.decide(tick, OBSERVATION)
    assert not decision.desired.slots
    assert "not known" in decision.reason


def test_a_threshold_out_of_range_is_refused() -> None:
    with pytest.raises(ControllerError, match="outside"):
        make_controller("mat:epoch_s=0")
