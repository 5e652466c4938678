"""Which arms a kill campaign takes, and what each of them is allowed."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import replace

import pytest

from stallward.agent.controller import Need
from stallward.agent.registry import controllers
from stallward.benchmarks.errors import BenchError
from stallward.benchmarks.kills.arms import KilledArm, choose_arms, one_controller
from stallward.benchmarks.kills.bench import campaign_node, kill_next
from stallward.benchmarks.kills.tally import Kill
from stallward.evaluation.errors import ComparisonError

COMPLETE = replace(campaign_node(), lacks={})


def taken(text: str) -> Mapping[str, KilledArm]:
    arms, left_out = choose_arms(text, COMPLETE)
    assert left_out == {}
    return {arm.label: arm for arm in arms}


def test_all_is_every_controller_of_the_registry() -> None:
    arms, left_out = choose_arms("all", COMPLETE)
    names = {arm.label.partition(":")[0] for arm in arms}
    assert names | set(left_out) == {entry.name for entry in controllers()}
    assert set(left_out) == {"onnx"}
    assert "'ppo' runs the shipped one" in left_out["onnx"]


def test_all_may_stand_beside_other_arms() -> None:
    arms, _ = choose_arms("all,excite,partition:margin_share=0.1", COMPLETE)
    labels = [arm.label for arm in arms]
    assert labels.count("excite") == 1
    assert {"partition", "partition:margin_share=0.1", "remote"} <= set(labels)


def test_only_those_may_end_programs_that_are_published_so() -> None:
    arms = taken("partition,earlyoom,latd,storm,storm:ends=0.2")
    may_end = {label for label, arm in arms.items() if arm.may_end}
    assert may_end == {"earlyoom", "latd", "storm:ends=0.2"}
    assert one_controller("partition", ends=True).may_end


def test_those_that_schedule_threads_have_the_consent() -> None:
    arms = taken("dasec,bvt,rule")
    assert [arm.schedules_threads for arm in arms.values()] == [True, True, False]


def test_what_decides_beside_a_daemon_has_its_file() -> None:
    arms = taken("ppo,remote,mpc")
    assert arms["ppo"].client_file is None, "the daemon runs it itself"
    assert [arms[name].controller for name in ("remote", "mpc")] == ["remote", "remote"]
    policy, twin = arms["remote"].client_file, arms["mpc"].client_file
    assert policy is not None
    assert twin is not None
    assert (policy.suffix, twin.suffix) == (".onnx", ".json")
    assert [arms[name].plans for name in ("remote", "mpc")] == [False, True]


def test_what_the_node_does_not_support_is_left_out_with_the_reason() -> None:
    node = replace(COMPLETE, lacks={Need.THREAD_SLICE: "Linux 6.11 has none"})
    arms, left_out = choose_arms("none,bvt", node)
    assert [arm.label for arm in arms] == ["none"]
    assert "thread_slice (Linux 6.11 has none)" in left_out["bvt"]
    with pytest.raises(BenchError, match=r"Linux 6.11 has none.*Name other arms"):
        choose_arms("bvt", node)


def test_a_peer_is_refused() -> None:
    with pytest.raises(BenchError, match="program of its own"):
        choose_arms("none,peer:earlyoom", COMPLETE)


def test_arms_take_turns_and_one_whose_client_does_not_start_is_left_out() -> None:
    killed: list[str] = []

    def kill(target: str, arm: KilledArm) -> Kill:
        if arm.label == "mpc":
            raise ComparisonError("The remote controller did not start.")
        killed.append(arm.label)
        return Kill(target=target, arm=arm.label, held=True)

    turns = deque(choose_arms("rule,mpc,pi", COMPLETE)[0])
    left_out: dict[str, str] = {}
    for _ in range(5):
        kill_next(kill, turns, "loop", left_out)
    assert killed == ["rule", "pi", "rule", "pi", "rule"]
    assert left_out == {"mpc": "The remote controller did not start."}
    with pytest.raises(ComparisonError, match="did not start"):
        kill_next(kill, deque(choose_arms("mpc", COMPLETE)[0]), "loop", left_out)
