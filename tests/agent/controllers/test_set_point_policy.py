"""A policy of set-points runs ``partition`` within its choice, with the numbers of its file."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from divided_zone import ZONE_MIB, Zone, limits_mib, sum_mib
from policy_files import ZEROS, metadata, write_policy

from stallward.agent.action_table import LEVELS, SET_POINTS, ActionTable
from stallward.agent.controllers.onnx import OnnxController
from stallward.agent.controllers.partition import PartitionThresholds
from stallward.agent.desired import RELEASED
from stallward.agent.errors import PolicyError
from stallward.agent.observation.encoder import OBSERVATION_NAMES, schema_hash
from stallward.agent.registry import make_controller
from stallward.agent.sample import SlotState
from stallward.agent.set_points import SlotShare
from stallward.agent.testing import check_controller

AUTO = (0,) * len(SET_POINTS.sizes)
WAIT = (int(SlotShare.WAIT), *AUTO[1:])
STALLED = ZEROS.copy()
STALLED[OBSERVATION_NAMES.index("zone_psi_memory_full_share")] = 1.0


def policy(folder: Path, *, calm: float = 1.0, **entries: str) -> OnnxController:
    """A policy of set-points that lets slot 0 wait in a stall, or always where ``calm`` < 0."""
    of_file = metadata(SET_POINTS) | {f"stallward.{key}": text for key, text in entries.items()}
    path = folder / "p.onnx"
    return OnnxController(write_policy(path, of_file, table=SET_POINTS, calm=calm))


def test_it_conforms(tmp_path: Path) -> None:
    check_controller(lambda: policy(tmp_path))


def test_one_that_leaves_things_as_they_are_is_partition(tmp_path: Path) -> None:
    followed = Zone(200, 250, 500, controller=policy(tmp_path))
    alone = Zone(200, 250, 500, controller=make_controller("partition"))
    for zone in (followed, alone):
        zone.thrashing = {0, 1}
    for _ in range(200):
        decision = followed.tick()
        assert decision.desired == alone.tick().desired
        assert decision.action == AUTO
    assert any(slot.limit_bytes for slot in decision.desired.slots)


def test_partition_follows_its_choice(tmp_path: Path) -> None:
    zone = Zone(200, 250, 500, controller=policy(tmp_path, calm=-1.0))
    decision = zone.run(3.0)
    assert decision.action == WAIT
    assert [slot.paused for slot in decision.desired.slots] == [True, False]


def test_its_choice_is_held_even_when_a_stall_begins(tmp_path: Path) -> None:
    controller = policy(tmp_path, ticks_per_action="3")
    zone = Zone(200, 250, 500, controller=controller)
    zone.run(1.0)
    controller.reset(controller._context)
    seen = [ZEROS, STALLED, STALLED, STALLED, ZEROS, ZEROS, ZEROS]
    actions = [controller.decide(zone.sample(), observation).action for observation in seen]
    assert actions == [AUTO, AUTO, AUTO, WAIT, WAIT, WAIT, AUTO]


def test_a_node_without_background_work_is_left_alone(tmp_path: Path) -> None:
    controller = policy(tmp_path, calm=-1.0)
    zone = Zone(200, controller=controller)
    zone.states = [SlotState()]
    empty = replace(zone.sample(), slots=(), slot_states=())
    decision = controller.decide(empty, ZEROS)
    assert (decision.desired, decision.action, decision.score) == (RELEASED, AUTO, 0.0)


def test_the_numbers_of_partition_are_those_of_its_file(tmp_path: Path) -> None:
    usual = Zone(200, 400, 400, controller=policy(tmp_path)).run(2.0)
    margin = PartitionThresholds().margin_share + 0.2
    careful = policy(tmp_path, partition=json.dumps({"margin_share": margin}))
    decision = Zone(200, 400, 400, controller=careful).run(2.0)
    assert sum_mib(usual) - sum_mib(decision) == pytest.approx(0.2 * ZONE_MIB)
    assert None not in limits_mib(decision)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "not a stallward policy"),
        ("{", "not a stallward policy"),
        ("[]", "partition is no table"),
        ("7", "partition is no table"),
        ('{"moon": 1}', "names 'moon', which is not a threshold"),
        ('{"margin_share": 3}', "margin_share is 3, not a number from 0 to 0.4"),
        ('{"margin_share": NaN}', "margin_share is nan"),
        ('{"margin_share": "0.1"}', "margin_share is '0.1'"),
    ],
)
def test_broken_numbers_of_partition_are_refused(
    tmp_path: Path, text: str, complaint: str
) -> None:
    with pytest.raises(PolicyError, match=complaint) as caught:
        policy(tmp_path, partition=text)
    assert "p.onnx" in caught.value.cause
    assert "Export it" in caught.value.next_step


def test_a_file_without_the_numbers_of_partition_is_refused(tmp_path: Path) -> None:
    entries = metadata(SET_POINTS)
    del entries["stallward.partition"]
    with pytest.raises(PolicyError, match="not a stallward policy"):
        OnnxController(write_policy(tmp_path / "p.onnx", entries, table=SET_POINTS))


def test_both_tables_are_known_by_the_schema_of_their_files(tmp_path: Path) -> None:
    levels = OnnxController(write_policy(tmp_path / "levels.onnx"))
    points = policy(tmp_path)
    assert (levels.metadata.table, points.metadata.table) == (LEVELS, SET_POINTS)
    assert (levels.schema_hash, points.schema_hash) == (schema_hash(), schema_hash(SET_POINTS))
    assert levels.schema_hash != points.schema_hash


@pytest.mark.parametrize(("says", "acts"), [(LEVELS, SET_POINTS), (SET_POINTS, LEVELS)])
def test_a_network_for_the_other_table_is_refused_at_once(
    tmp_path: Path, says: ActionTable, acts: ActionTable
) -> None:
    with pytest.raises(PolicyError, match=f"its actions are {says.name}, but"):
        OnnxController(write_policy(tmp_path / "p.onnx", metadata(says), table=acts))


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"action_table": "moons"}, "action_table is 'moons' in the policy"),
        ({"action_table": "levels"}, "action_sizes"),
        ({"action_table": ["set-points"]}, "action_table is"),
        ({"choices": {}}, "choices is {} in the policy"),
    ],
)
def test_a_schema_of_another_table_is_refused(
    tmp_path: Path, change: dict[str, object], complaint: str
) -> None:
    schema = json.loads(metadata(SET_POINTS)["stallward.schema"]) | change
    with pytest.raises(PolicyError, match=complaint):
        policy(tmp_path, schema=json.dumps(schema), schema_hash="0" * 64)


def test_the_score_is_of_the_observation_that_was_decided_on(tmp_path: Path) -> None:
    controller = policy(tmp_path, ticks_per_action="5")
    zone = Zone(200, 250, 500, controller=controller)
    zone.run(0.5)
    strange = np.full_like(ZEROS, 99.0)
    controller.reset(controller._context)
    scores = [controller.decide(zone.sample(), o).score for o in (strange, ZEROS)]
    assert scores == [1.0, 1.0]
