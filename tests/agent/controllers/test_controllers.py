"""The shipped controllers: conformance, and the rules that their sources describe."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from stallward.agent.controller import Controller, Decision, Need, NodeContext, check_node
from stallward.agent.controllers.excite import ExciteController
from stallward.agent.controllers.latd import LatdController
from stallward.agent.controllers.none import NoneController
from stallward.agent.controllers.static import SETTLE_S
from stallward.agent.desired import MIB, DesiredState, ProcessRef
from stallward.agent.errors import ControllerError
from stallward.agent.observation.encoder import OBSERVATION_SIZE
from stallward.agent.registry import controllers, make_controller
from stallward.agent.sample import Sample
from stallward.agent.testing import CONTEXT, check_controller, make_sample

SETTLED = round(SETTLE_S / 0.1) + 1
"""The number of samples after which ``static`` limits a group to a share."""
OBSERVATION = np.zeros(OBSERVATION_SIZE, dtype=np.float32)
SPECS = [
    "none",
    "remote",
    "static:pause=0,limit=0.4",
    "excite",
    "border:dwell_s=1",
    "pi",
    "partition",
    "lend",
    "psi-hold",
    "rule",
    "latd",
    "latd-cgroup",
    "latd-grow",
    "mat",
    "swap-assign",
    "swap-assign:degrees=0.5+0.1,needs_mib=300+300,cpu=0",
    "swap-average",
    "storm",
    "parties",
    "heracles",
    "senpai",
    "tmo",
    "sideloader",
    "oomd",
    "oomd:kill=0",
    "systemd-oomd",
    "earlyoom",
    "earlyoom:kill=0",
    "nohang",
    "ws-flush",
    "ws-pressure:writeback=no",
    "ws-deactivate:at=phase,by=pageout,files=all",
    "ws-promote:who=protected",
    "dasec",
    "dasec:answers=latency",
    "dasec:answers=layout",
    "dasec:answers=share",
    "bvt",
]


def run(name: str, samples: list[Sample]) -> list[Decision]:
    controller = make_controller(name)
    controller.reset(CONTEXT)
    return [controller.decide(sample, OBSERVATION) for sample in samples]


@pytest.mark.parametrize("spec", SPECS)
def test_every_shipped_controller_conforms(spec: str) -> None:
    check_controller(lambda: make_controller(spec))


def test_every_registered_controller_is_tested_here() -> None:
    # Those that need a file have a test of their own of the same rules.
    tested = {spec.partition(":")[0] for spec in SPECS} | {"mpc", "onnx", "ppo"}
    assert {entry.name for entry in controllers()} == tested


class _Forgetful(NoneController):
    """Does not forget its state in reset()."""

    calls = 0

    def decide(self, sample: Sample, observation: NDArray[np.float32]) -> Decision:
        self.calls += 1
        return Decision(
            desired=super().decide(sample, observation).desired, reason=f"{self.calls}"
        )


class _Crowded(NoneController):
    """Desires more slots than the node has."""

    def decide(self, sample: Sample, observation: NDArray[np.float32]) -> Decision:
        return make_controller("static:pause=all").decide(
            Sample(
                sequence=0,
                time_s=0,
                node=sample.node,
                zone=sample.zone,
                protected=sample.protected,
                slots=sample.slots * 3,
                slot_states=sample.slot_states * 3,
            ),
            observation,
        )


class _Reckless(NoneController):
    """Stops the process with the highest OOM score, even a protected one."""

    def decide(self, sample: Sample, observation: NDArray[np.float32]) -> Decision:
        top = max(sample.processes or (), key=lambda p: p.oom_score, default=None)
        stopped = (
            ()
            if top is None
            else (ProcessRef(pid=top.pid, start_time_ticks=top.start_time_ticks),)
        )
        return Decision(desired=DesiredState(stopped=stopped))


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (_Forgetful, "after reset"),
        (_Crowded, "slots desired"),
        (_Reckless, "of the protected application"),
    ],
)
def test_the_conformance_test_says_what_a_controller_does_wrong(
    make: type[Controller], complaint: str
) -> None:
    with pytest.raises(ControllerError, match=complaint):
        check_controller(make)


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        ("ltad", "no controller 'ltad'.*latd"),
        ("static:limt=0.4", "does not take 'limt=0.4'.*limit"),
        ("static:limit=2", "not a ratio"),
        ("static:limit=abc", "not a number"),
        ("static:limit=0.4+0", "not a ratio"),
        ("static:pause=x", "names no slots"),
        ("static:profile=fast", "no tuning profile 'fast'.*flush"),
        ("static:swappiness=201", "outside 0 to 200"),
        ("static:swappiness=-1", "outside 0 to 200"),
        ("static:swappiness=0.5", "not a whole number"),
        ("excite:pause=1.5", "probability"),
        ("onnx", "needs a policy file"),
    ],
)
def test_a_wrong_spec_is_refused_with_the_right_form(spec: str, complaint: str) -> None:
    with pytest.raises(ControllerError, match=complaint):
        make_controller(spec)


def test_latd_flushes_on_some_and_stops_the_top_scorer_on_full() -> None:
    calm, some, full = run(
        "latd",
        [
            make_sample(0),
            make_sample(1, some_us=5),
            make_sample(2, some_us=9, full_us=1, oom_scores=(600, 700)),
        ],
    )
    assert (calm.desired.tuning.dirty_ratio, calm.desired.tuning.swappiness) == (None, 90)
    assert some.desired.tuning.dirty_background_ratio == 2
    assert some.desired.tuning.dirty_ratio == 100
    assert some.desired.stopped == ()
    assert full.desired.stopped == (ProcessRef(pid=101, start_time_ticks=8),)
    assert full.desired.protect_from_oom


def test_latd_resumes_only_when_both_are_stable() -> None:
    samples = [
        make_sample(0),
        make_sample(1, some_us=5, full_us=5),
        make_sample(2, some_us=5, full_us=9),
        make_sample(3, some_us=9, full_us=9),
        make_sample(4, some_us=9, full_us=9),
        make_sample(5, some_us=9, full_us=9),
    ]
    decisions = run("latd", samples)
    assert [len(d.desired.stopped) for d in decisions] == [0, 1, 1, 1, 0, 0]
    flushing = [d.desired.tuning.dirty_ratio is not None for d in decisions]
    assert flushing == [False, True, False, True, False, False]
    assert decisions[2].reason == "some stable: restore"
    assert decisions[4].reason == "stable: resume and restore"
    assert decisions[5].reason == "stable"


def test_latd_does_nothing_when_the_top_scorer_is_stopped_already() -> None:
    decisions = run(
        "latd",
        [make_sample(0), make_sample(1, some_us=5, full_us=5, stopped=(True, False))],
    )
    assert decisions[1].desired.stopped == ()


def test_latd_terminates_the_top_scorer_once_when_a_thousandth_of_memory_is_left() -> None:
    low = make_sample(1, available_bytes=CONTEXT.zone_limit_bytes // 1000)
    decisions = run("latd", [make_sample(0), low, make_sample(2, some_us=9, full_us=9)])
    assert decisions[0].desired.terminate is None
    assert decisions[1].desired.terminate == ProcessRef(pid=100, start_time_ticks=7)
    assert decisions[2].desired.stopped == ()
    assert "ended" in decisions[2].reason


def test_latd_cgroup_limits_the_background_and_stops_on_some() -> None:
    calm, some, stable = run(
        "latd-cgroup",
        [make_sample(0), make_sample(1, some_us=5), make_sample(2, some_us=5)],
    )
    limits = [slot.limit_bytes for slot in calm.desired.slots]
    assert limits == [CONTEXT.zone_limit_bytes * 10 // 32] * 2
    assert calm.desired.tuning.protected_swappiness == 90
    assert calm.desired.tuning.swappiness is None
    assert len(some.desired.stopped) == 1
    assert stable.desired.stopped == ()


def test_latd_cgroup_sets_the_nodes_swappiness_where_groups_have_none_and_says_so() -> None:
    controller = make_controller("latd-cgroup")
    context = replace(CONTEXT, lacks={Need.GROUP_SWAPPINESS: "cgroup v2"})
    check_node(controller, context)
    controller.reset(context)
    decision = controller.decide(make_sample(0), OBSERVATION)
    assert decision.desired.tuning.swappiness == 90
    assert decision.desired.tuning.protected_swappiness is None
    assert decision.reason == "stable; swappiness 90 for all groups"
    assert [slot.limit_bytes for slot in decision.desired.slots] == [
        CONTEXT.zone_limit_bytes * 10 // 32
    ] * 2
    controller.reset(CONTEXT)
    assert controller.decide(make_sample(0), OBSERVATION).reason == "stable"
    neither = {Need.GROUP_SWAPPINESS: "cgroup v2", Need.NODE_TUNING: "read-only"}
    with pytest.raises(ControllerError, match=r"\(cgroup v2\) and node_tuning \(read-only\)"):
        check_node(controller, replace(CONTEXT, lacks=neither))


@pytest.mark.parametrize(
    ("arguments", "limits"),
    [
        ("limit=0.4", True),
        ("pause=0,limit=0.4", True),
        ("pause=0,limit=0.4,slots=0", False),
        ("pause=all,limit_mib=40", False),
        ("pause=0,limit=0.4+1", False),
        ("slots=7,limit=0.4", False),
    ],
)
def test_static_needs_limits_where_what_runs_is_limited(arguments: str, limits: bool) -> None:
    """What is paused is squeezed on every node, also where nothing limits what runs."""
    context = replace(CONTEXT, lacks={Need.LIMIT: "process trees"})
    if limits:
        with pytest.raises(ControllerError, match=r"lacks limit \(process trees\)"):
            check_node(make_controller(f"static:{arguments}"), context)
    else:
        check_node(make_controller(f"static:{arguments}"), context)


def test_latd_grow_raises_a_stalling_groups_limit_while_memory_is_left() -> None:
    samples = [
        make_sample(0, available_bytes=200 * MIB),
        make_sample(1, slot_some_us=5, available_bytes=200 * MIB),
        make_sample(2, slot_some_us=9, available_bytes=MIB),
    ]
    first, grown, full = (d.desired.slots[0].limit_bytes or 0 for d in run("latd-grow", samples))
    assert grown - first == CONTEXT.zone_limit_bytes // 16
    assert full == grown


def test_static_limits_are_shares_of_the_reference_and_keep_the_floor() -> None:
    decisions = run(
        "static:limit=0.4,slots=0,pause=1", [make_sample(k) for k in range(SETTLED + 1)]
    )
    early, decision = decisions[SETTLED - 2], decisions[SETTLED]
    assert early.desired.slots[0].limit_bytes is None, "limited before the group had time to start"
    first, second = decision.desired.slots
    assert (first.paused, first.limit_bytes) == (False, int(0.4 * 300 * MIB))
    assert (second.paused, second.limit_bytes) == (True, None)
    decision = run("static:limit=0.01", [make_sample(k) for k in range(SETTLED + 1)])[-1]
    assert decision.desired.slots[0].limit_bytes == 16 * MIB


def test_static_takes_one_share_for_all_slots_or_one_for_each() -> None:
    samples = [make_sample(k) for k in range(SETTLED + 1)]
    limits = [s.limit_bytes for s in run("static:limit=1+0.4", samples)[-1].desired.slots]
    assert limits == [None, int(0.4 * 300 * MIB)]
    limits = [s.limit_bytes for s in run("static:limit=0.5", samples)[-1].desired.slots]
    assert limits == [int(0.5 * 300 * MIB)] * 2


@pytest.mark.parametrize("value", [0, 20, 200])
def test_static_gives_every_group_the_swappiness_that_it_is_told(value: int) -> None:
    for profile in ("default", "keep-cache", "keep-anon"):
        decisions = run(f"static:profile={profile},swappiness={value}", [make_sample(0)])
        tuning = decisions[0].desired.tuning
        assert tuning.swappiness == value
        assert tuning.protected_swappiness is None, "a value of its own would stay in force"
        assert str(value) in tuning.name
    flush = run(f"static:profile=flush,swappiness={value}", [make_sample(0)])[0]
    assert flush.desired.tuning.dirty_ratio == 100, "the rest of the profile stays"


@pytest.mark.slow
def test_excite_logs_the_probability_of_each_action() -> None:
    """Over many ticks, the mean of 1/propensity is the number of possible outcomes."""
    controller = ExciteController({"dwell_s": "0.2"})
    context = NodeContext(zone_limit_bytes=1, slot_names=("a",), seed=3)
    controller.reset(context)
    sample = make_sample(0)
    one_slot = Sample(
        sequence=0,
        time_s=0.0,
        node=sample.node,
        zone=sample.zone,
        protected=sample.protected,
        slots=sample.slots[:1],
        slot_states=sample.slot_states[:1],
    )
    inverse = [
        1.0 / (controller.decide(one_slot, OBSERVATION).propensity or 0.0) for _ in range(40_000)
    ]
    # One slot: 2 pauses x 6 levels x 4 profiles = 48 outcomes, after any previous action.
    assert np.mean(inverse) == pytest.approx(48, rel=0.05)


def test_excite_holds_actions_for_the_dwell_time() -> None:
    controller = ExciteController({"dwell_s": "2"})
    controller.reset(CONTEXT)
    actions = [controller.decide(make_sample(i), OBSERVATION).action for i in range(2000)]
    changes = sum(a != b for a, b in itertools.pairwise(actions))
    # There is a redraw every 20 ticks, and few redraws give the same action again.
    assert changes == pytest.approx(2000 / 20, rel=0.25)


def test_excite_releases_everything_at_a_fixed_rate_whatever_the_number_of_slots() -> None:
    controller = ExciteController({"dwell_s": "0.1"})
    controller.reset(CONTEXT)
    actions = [controller.decide(make_sample(i), OBSERVATION).action for i in range(4000)]
    assert sum(not any(a) for a in actions if a) / 4000 == pytest.approx(0.2, abs=0.03)


def test_latd_ignores_samples_without_psi() -> None:
    controller = LatdController()
    controller.reset(CONTEXT)
    sample = make_sample(0)
    blind = Sample(
        sequence=0, time_s=0.0, node=sample.node, zone=sample.slots[0], protected=sample.protected
    )
    assert controller.decide(blind, OBSERVATION).desired.stopped == ()
