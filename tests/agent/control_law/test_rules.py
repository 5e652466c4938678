"""Rules: what they do and when, alone and in a batch, and the files of their thresholds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from stallward.agent.control_law import staircase
from stallward.agent.control_law.law import Law, LawController
from stallward.agent.control_law.signals import (
    LatencySignal,
    Observations,
    free_share,
    limit_levels,
    paused_slots,
    present_slots,
    refaults_per_s,
    stall_share,
)
from stallward.agent.control_law.thresholds import (
    as_values,
    from_unit,
    make_thresholds,
    read_thresholds,
    spans,
    thresholds_text,
    to_unit,
)
from stallward.agent.controllers.pi import PiLaw, PiThresholds
from stallward.agent.controllers.psi_hold import PsiHoldLaw, PsiHoldThresholds
from stallward.agent.controllers.rule import RuleLaw, RuleThresholds
from stallward.agent.desired import LIMIT_RATIOS, MIB, SLOTS
from stallward.agent.errors import ControllerError, ThresholdError
from stallward.agent.observation.encoder import (
    OBSERVATION_NAMES,
    OBSERVATION_SIZE,
    ObservationEncoder,
)
from stallward.agent.observation.raw import to_raw
from stallward.agent.registry import make_controller
from stallward.agent.testing import CONTEXT, check_controller, make_sample

INDEX = {name: i for i, name in enumerate(OBSERVATION_NAMES)}
TICK_S = 0.2
QUICK = RuleThresholds(
    latency_high=1.0,
    stall_high_share=0.1,
    refaults_high_per_s=1000.0,
    urgent_danger=3.0,
    calm_danger=0.5,
    tighten_every_s=0.4,
    release_every_s=1.0,
    hold_s=0.6,
    deepest_level=3,
    stagger_levels=3,
    rest_share=0.0,
)
KINDS = (RuleThresholds, PiThresholds, PsiHoldThresholds)


def observe(
    *, stall: float = 0.0, latency: float | None = None, slots: int = 2, free: float = 0.0
) -> Observations:
    """One node's observation with the given stall share, p95 over the target and slots."""
    row = np.zeros((1, OBSERVATION_SIZE), dtype=np.float32)
    row[0, INDEX["protected_psi_memory_some_share_1s"]] = stall
    row[0, INDEX["zone_usage_ratio"]] = 1.0 - free
    if latency is not None:
        row[0, INDEX["latency_known"]] = 1.0
        row[0, INDEX["latency_p95_ratio"]] = np.log2(1.0 + latency) / 4.0
    for i in range(slots):
        row[0, INDEX[f"slot{i}_present"]] = 1.0
        row[0, INDEX[f"slot{i}_reference_ratio"]] = 0.5
        row[0, INDEX[f"slot{i}_limit_ratio"]] = 1.0
    return row


def run(law: Law, observations: Observations, seconds: float) -> NDArray[np.int64]:
    """The last action after some seconds of the same observation."""
    for _ in range(round(seconds / TICK_S)):
        actions = law.act(observations, TICK_S)
    first: NDArray[np.int64] = actions[0]
    return first


def levels_of(action: NDArray[np.int64]) -> list[int]:
    return [int(value) for value in action[1 : 2 * SLOTS : 2]]


def pauses_of(action: NDArray[np.int64]) -> list[int]:
    return [int(value) for value in action[0 : 2 * SLOTS : 2]]


def test_signals_are_computed_back_from_the_observation_of_a_node() -> None:
    encoder = ObservationEncoder(50.0)
    for k in range(30):
        sample = make_sample(k, some_us=20_000 * k, available_bytes=60 * MIB)
        limited = replace(sample.slot_states[1], paused=True, limit_bytes=int(0.4 * 300 * MIB))
        sample = replace(
            sample,
            slot_states=(sample.slot_states[0], limited),
            protected=replace(sample.protected, refault_file_pages=70 * k),
        )
        observation = encoder.encode(to_raw(sample))[None]
    assert stall_share(observation)[0] == pytest.approx(0.1, rel=0.1)
    assert refaults_per_s(observation)[0] == pytest.approx(700.0, rel=0.5)
    assert free_share(observation)[0] == pytest.approx(0.1, abs=1e-3)
    assert LatencySignal(1).read(observation)[0] == pytest.approx(20.0 / 50.0, rel=1e-4)
    assert present_slots(observation)[0].tolist() == [True, True, False, False]
    assert paused_slots(observation)[0].tolist() == [False, True, False, False]
    assert limit_levels(observation)[0].tolist() == [0, 3, 0, 0]


def test_the_last_latency_counts_for_a_while_when_nothing_is_answered() -> None:
    signal = LatencySignal(1)
    signal.read(observe(latency=3.0))
    silent = observe()
    silent[0, INDEX["latency_age"]] = np.log2(1.0 + 2.0) / 4.0
    assert signal.read(silent)[0] == pytest.approx(3.0, rel=1e-4)
    silent[0, INDEX["latency_age"]] = np.log2(1.0 + 11.0) / 4.0
    assert signal.read(silent)[0] == 0.0


def test_a_latency_whose_source_is_lost_does_not_count_for_ever() -> None:
    signal = LatencySignal(1)
    signal.read(observe(latency=3.0))
    assert signal.read(observe())[0] == 0.0


@pytest.mark.parametrize(
    ("rung", "stagger", "expected"),
    [
        (0, 3, [0, 0, 0, 0]),
        (2, 3, [2, 0, 0, 0]),
        (5, 3, [3, 0, 2, 0]),
        (2, 0, [2, 0, 2, 0]),
        (3, 1, [3, 0, 2, 0]),
        (9, 3, [3, 0, 3, 0]),
    ],
)
def test_the_staircase_tightens_the_present_slots_in_order(
    rung: int, stagger: int, expected: list[int]
) -> None:
    present = np.array([[True, False, True, False]])
    deepest, ahead = np.array([3.0]), np.array([float(stagger)])
    assert staircase.levels(np.array([rung]), present, deepest, ahead)[0].tolist() == expected
    top = staircase.top_rung(present, deepest, ahead)
    assert staircase.levels(top, present, deepest, ahead)[0].tolist() == [3, 0, 3, 0]
    assert staircase.first_slots(np.array([1]), present)[0].tolist() == [True, False, False, False]


@pytest.mark.parametrize(
    ("danger", "calm"),
    [
        (observe(stall=0.15), observe()),
        (observe(latency=1.5), observe(latency=0.1)),
    ],
)
def test_the_rule_tightens_in_danger_and_releases_gradually(
    danger: Observations, calm: Observations
) -> None:
    law = RuleLaw([QUICK])
    assert levels_of(run(law, danger, 1.0)) == [3, 0, 0, 0]
    assert levels_of(run(law, danger, 4.0)) == [3, 3, 0, 0]
    assert levels_of(run(law, calm, 0.8)) == [3, 3, 0, 0], "released before it was calm"
    assert levels_of(run(law, calm, 0.4)) == [3, 2, 0, 0]
    assert levels_of(run(law, calm, 6.0)) == [0, 0, 0, 0]


def test_between_calm_and_danger_the_rule_keeps_its_limits() -> None:
    law = RuleLaw([QUICK])
    before = levels_of(run(law, observe(stall=0.15), 1.0))
    assert levels_of(run(law, observe(stall=0.07), 20.0)) == before != [0, 0, 0, 0]


def test_urgent_danger_pauses_and_squeezes_one_group_after_the_other_and_holds() -> None:
    law = RuleLaw([QUICK])
    first = law.act(observe(stall=0.5), TICK_S)[0]
    assert pauses_of(first) == [1, 0, 0, 0]
    assert levels_of(first)[0] == 3, "a paused group is squeezed"
    assert pauses_of(run(law, observe(stall=0.5), 1.0)) == [1, 1, 0, 0]
    assert pauses_of(run(law, observe(), 0.4)) == [1, 1, 0, 0], "not held"
    assert pauses_of(run(law, observe(), 0.4)) == [0, 0, 0, 0]


def test_the_rule_does_nothing_with_free_memory_or_without_background() -> None:
    assert not run(RuleLaw([QUICK]), observe(stall=0.9, free=0.5), 3.0).any()
    assert not run(RuleLaw([QUICK]), observe(stall=0.9, slots=0), 3.0).any()


def test_the_rule_rests_at_its_rest_share_with_its_profile() -> None:
    law = RuleLaw([replace(QUICK, rest_share=0.5, profile=2)])
    action = run(law, observe(), 60.0)
    assert levels_of(action) == [3, 0, 0, 0]
    assert action[-1] == 2


def test_pi_settles_where_the_stall_equals_the_set_point() -> None:
    settings = PiThresholds(
        set_point_share=0.05, proportional=0.02, integral_per_s=0.1, dead_band=0.0
    )
    law = PiLaw([settings])
    stall = 0.0
    for _ in range(3000):  # a node whose stall follows what the background is given
        action = law.act(observe(stall=stall, slots=4), TICK_S)[0]
        given = sum(LIMIT_RATIOS[level] for level in levels_of(action)) / SLOTS
        stall += 0.2 * (max(0.2 * (given - 0.3), 0.0) - stall)
    assert given == pytest.approx(0.3 + 0.05 / 0.2, abs=0.08)


def test_pi_does_not_wind_up() -> None:
    law = PiLaw([PiThresholds(least_share=0.2, pause_share=0.0)])
    run(law, observe(stall=1.0), 300.0)
    short = PiLaw([PiThresholds(least_share=0.2, pause_share=0.0)])
    run(short, observe(stall=1.0), 60.0)
    assert np.array_equal(run(law, observe(), 6.0), run(short, observe(), 6.0))


def test_pi_pauses_where_it_allows_nearly_nothing() -> None:
    law = PiLaw([PiThresholds(least_share=0.05, pause_share=0.1)])
    assert pauses_of(run(law, observe(stall=1.0), 30.0)) == [1, 1, 0, 0]
    assert pauses_of(run(law, observe(), 60.0)) == [0, 0, 0, 0]


def test_the_hold_off_of_psi_hold_grows_with_each_overload_and_decays_in_calm() -> None:
    def held_s(law: PsiHoldLaw) -> float:
        law.act(observe(stall=0.5), TICK_S)
        length = 0
        while pauses_of(law.act(observe(), TICK_S)[0])[0]:
            length += 1
        return length * TICK_S

    law = PsiHoldLaw(PsiHoldThresholds(hold_s=2.0, most_hold_s=5.0))
    first, second, third = held_s(law), held_s(law), held_s(law)
    assert first == pytest.approx(2.0, abs=TICK_S)
    assert second > first + 1.0
    assert third == pytest.approx(5.0, abs=2 * TICK_S)
    run(law, observe(), 60.0)
    assert held_s(law) == pytest.approx(first)


def test_psi_hold_pauses_everything_and_only_above_its_threshold() -> None:
    law = PsiHoldLaw(PsiHoldThresholds(threshold_share=0.2, level=2))
    assert not run(law, observe(stall=0.19), 5.0).any()
    action = law.act(observe(stall=0.2), TICK_S)[0]
    assert pauses_of(action) == [1, 1, 0, 0]
    assert levels_of(action) == [2, 2, 0, 0]


def test_psi_hold_looks_at_latencies_only_where_it_is_asked_to() -> None:
    slow = observe(latency=0.95)
    assert not run(PsiHoldLaw(PsiHoldThresholds()), slow, 5.0).any()
    law = PsiHoldLaw(PsiHoldThresholds(latency_high=0.9))
    assert pauses_of(law.act(slow, TICK_S)[0]) == [1, 1, 0, 0]
    assert pauses_of(run(law, observe(latency=0.8), 10.0)) == [0, 0, 0, 0]


LAWS: list[Callable[[int], Law]] = [
    lambda batch: RuleLaw([QUICK], batch),
    lambda batch: PiLaw([PiThresholds()], batch),
    lambda batch: PsiHoldLaw(PsiHoldThresholds(latency_high=0.9), batch),
]


@pytest.mark.parametrize("make", LAWS)
def test_a_law_decides_the_same_in_a_batch_as_for_each_node_alone(
    make: Callable[[int], Law],
) -> None:
    rng = np.random.default_rng(3)
    rows = np.concatenate([observe(slots=1 + i % 4) for i in range(6)])
    together, alone = make(6), [make(1) for _ in range(6)]
    for _ in range(200):
        rows[:, INDEX["protected_psi_memory_some_share_1s"]] = 0.4 * rng.random(6) ** 4
        rows[:, INDEX["latency_known"]] = rng.random(6) < 0.9
        rows[:, INDEX["latency_p95_ratio"]] = 0.4 * rng.random(6)
        actions = together.act(rows, TICK_S)
        for i, law in enumerate(alone):
            assert np.array_equal(law.act(rows[i : i + 1], TICK_S)[0], actions[i])


def test_each_node_of_a_batch_may_have_thresholds_of_its_own() -> None:
    law = RuleLaw([QUICK, replace(QUICK, stall_high_share=0.5)], 2)
    rows = np.concatenate([observe(stall=0.15)] * 2)
    for _ in range(10):
        actions = law.act(rows, TICK_S)
    assert actions[0].any()
    assert not actions[1].any()


def test_a_law_controller_takes_time_from_samples_and_sets_limits_in_bytes() -> None:
    controller = LawController("rule", lambda: RuleLaw([QUICK]))
    controller.reset(CONTEXT)
    decisions = [
        controller.decide(make_sample(k), observe(stall=0.15)[0])
        for k in (0, 2, 4, 6, 8)  # 0.2 s apart: two steps of 0.4 s after the first
    ]
    limits = [d.desired.slots[0].limit_bytes for d in decisions]
    wanted = [int(300 * MIB * LIMIT_RATIOS[level]) for level in (1, 1, 2, 2, 3)]
    assert limits == wanted
    assert decisions[-1].action is not None
    assert "danger 1.50" in decisions[-1].reason


@pytest.mark.parametrize("kind", KINDS)
def test_thresholds_survive_the_way_to_the_unit_cube_and_back(kind: type[RuleThresholds]) -> None:
    settings = kind()
    back = as_values(from_unit(kind, to_unit(settings)))
    for name, span in spans(kind).items():
        if not span.whole:
            assert back[name] == pytest.approx(getattr(settings, name), rel=1e-6)
    corners = [as_values(from_unit(kind, np.full(len(spans(kind)), end))) for end in (0.0, 1.0)]
    for name, span in spans(kind).items():
        assert [c[name] for c in corners] == pytest.approx([span.low, span.high])


def test_a_file_of_thresholds_reads_back(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    settings = replace(QUICK, hold_s=1.25)
    file.write_text(
        thresholds_text(settings, "rule", {"seed": 3, "twins": ["a", 'b"\n\U0001f600']})
    )
    thresholds, provenance = read_thresholds(file, RuleThresholds, "rule")
    assert thresholds == settings
    assert provenance == {"seed": 3, "twins": ["a", 'b"\n\U0001f600']}
    assert make_controller(f"rule:path={file}").name == "rule"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not a file of thresholds"),
        ("controller = 'pi'\n[thresholds]", "for the controller 'pi'"),
        ("controller = 'rule'\n[thresholds]\nhold = 1", "'hold'"),
        ("controller = 'rule'\n[thresholds]\nhold_s = 'x'", "hold_s is 'x'"),
        ("controller = 'rule'\n[thresholds]\nhold_s = nan", "hold_s is nan"),
        ("controller = 'rule'\n[thresholds]\nhold_s = 1e9", "from 0.1 to 5"),
        ("controller = 'rule'\n[thresholds]\nprofile = 0.5", "whole number"),
        ("controller = 'rule'\nthresholds = 3", "not a file of thresholds"),
        ("controller = 'rule'\n[thresholds]\n[more]", "not a file of thresholds"),
        ("[", "cannot be read"),
    ],
)
def test_a_broken_file_of_thresholds_is_refused_with_its_name(
    tmp_path: Path, text: str, said: str
) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(text)
    with pytest.raises(ThresholdError, match=r"mine\.toml") as caught:
        read_thresholds(file, RuleThresholds, "rule")
    assert said in str(caught.value)


def test_a_missing_threshold_keeps_its_default() -> None:
    assert make_thresholds(RuleThresholds, {}, "here") == RuleThresholds()


@pytest.mark.parametrize("name", ["rule", "pi"])
def test_shipped_thresholds_are_used_and_an_argument_replaces_one(name: str) -> None:
    check_controller(lambda: make_controller(f"{name}:profile=1"))
    with pytest.raises(ThresholdError, match="profile"):
        make_controller(f"{name}:profile=7")
    with pytest.raises(ControllerError):
        make_controller(f"{name}:speed=7")
