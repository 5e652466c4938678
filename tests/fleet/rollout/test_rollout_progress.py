"""Rollouts in every order of failures: each node is counted once, and as what it is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st

from stallward.fleet.cli.rollout import _run
from stallward.fleet.connections import Fleet
from stallward.fleet.errors import RolloutError
from stallward.fleet.rollout.contrast import Tally
from stallward.fleet.rollout.events import (
    Began,
    Checked,
    Event,
    Found,
    Judged,
    Measured,
    NotReturned,
    NotSwitched,
    Recalled,
    Resumed,
    Returned,
    Switched,
    Switching,
)
from stallward.fleet.rollout.judge import Verdict, Watched, judge
from stallward.fleet.rollout.plan import (
    RolloutPlan,
    WaveRules,
    drawn_order,
    parse_waves,
    share_of,
)
from stallward.fleet.rollout.progress import (
    NodeState,
    Outcome,
    Progress,
    Step,
    StepKind,
)

OLD, NEW = "old", "new"
RUNS_NEW = (NodeState.ACTIVE, NodeState.UNSURE, NodeState.SWITCHING)


def began(nodes: int, waves: str = "1,50%", skipped_share: float = 0.5) -> Began:
    names = drawn_order((f"n{k}" for k in range(nodes)), seed=1)
    plan = RolloutPlan(
        policy=NEW,
        name="",
        sha256="0" * 64,
        nodes=names,
        waves=parse_waves(waves, nodes),
        rules=WaveRules(skipped_share=skipped_share),
    )
    return Began(plan=plan, by="me")


@dataclass
class World:
    """Nodes that do what is drawn, and a client that may die between any two events."""

    draw: st.DataObject
    began: Began
    log: list[Event] = field(default_factory=list)
    decides: dict[str, str] = field(default_factory=dict)
    budget: int = 0

    def __post_init__(self) -> None:
        self.decides = dict.fromkeys(self.began.plan.nodes, OLD)
        self.log = [self.began]

    def chance(self, what: str) -> bool:
        """Whether something goes wrong; it does only so often, so that all ends."""
        if self.budget and self.draw.draw(st.booleans(), label=what):
            self.budget -= 1
            return True
        return False

    def run(self) -> Step:
        """Run clients until one ends by itself; returns how."""
        while True:
            progress = Progress(self.began)
            for event in self.log[1:]:
                progress.take(event)
            if len(self.log) > 1:
                self.log.append(Resumed(by="me"))
                progress.take(self.log[-1])
            while (step := progress.next()).kind is not StepKind.END:
                died = False
                for event in self.do(step, progress):
                    if self.chance("dies"):  # what it did is done, and not written down
                        died = True
                        break
                    self.log.append(event)
                    progress.take(event)
                    self.check(progress)
                if died:
                    break
            else:
                return step

    def check(self, progress: Progress) -> None:
        """What holds after every event."""
        assert sum(progress.counts.values()) == len(self.decides)
        for name, policy in self.decides.items():
            if policy == NEW:
                assert progress.states[name] in RUNS_NEW, name

    def do(self, step: Step, progress: Progress) -> Iterator[Event]:
        match step.kind:
            case StepKind.MEASURE:
                yield Measured(tallies={})
            case StepKind.FIND:
                for name in step.nodes:
                    if self.chance("finds nothing"):
                        yield NotSwitched(node=name, why="?", may_run=False)
                    else:
                        assert self.decides[name] == OLD
                        yield Found(node=name, policy=OLD, mode="active")
            case StepKind.SWITCH:
                assert progress.found.keys() >= set(step.nodes)
                yield Switching(nodes=step.nodes)
                yield from map(self.switch, step.nodes)
            case StepKind.WATCH:
                bad = ("slow",) if self.chance("bad") else ()
                yield Judged(wave=progress.wave, verdict=Verdict(bad=bad))
            case StepKind.RETURN:
                assert progress.found.keys() >= set(step.nodes)
                yield from map(self.put_back, step.nodes)
            case StepKind.CHECK:
                for name in step.nodes:
                    if self.chance("canary"):
                        self.decides[name] = OLD
                gone = [name for name in step.nodes if self.decides[name] == OLD]
                yield Checked(gone=dict.fromkeys(gone, "its canary"))

    def put_back(self, name: str) -> Event:
        if self.chance("stays"):
            return NotReturned(node=name, why="?")
        self.decides[name] = OLD
        return Returned(node=name)

    def switch(self, name: str) -> Event:
        if self.chance("refuses"):
            self.decides[name] = OLD
            return NotSwitched(node=name, why="?", may_run=False)
        if self.chance("its answer is lost"):
            self.decides[name] = NEW
            return NotSwitched(node=name, why="?", may_run=True)
        self.decides[name] = NEW
        return Switched(node=name)


@settings(deadline=None, max_examples=3 * settings().max_examples)
@given(st.data(), st.integers(1, 7), st.sampled_from(("1", "1,50%", "2,3", "40%,60%,80%")))
def test_whatever_fails_each_node_is_counted_once_and_as_what_it_is(
    data: st.DataObject, nodes: int, waves: str
) -> None:
    try:
        first = began(nodes, waves, data.draw(st.sampled_from((0.0, 0.5, 1.0))))
    except RolloutError:
        return  # more nodes in a wave than there are
    world = World(data, first, budget=data.draw(st.integers(0, 12)))
    step = world.run()
    progress = Progress(first)
    for event in world.log[1:]:
        progress.take(event)
    states = progress.states
    assert set(states) == set(world.decides)
    assert NodeState.SWITCHING not in states.values()
    for name, policy in world.decides.items():
        if states[name] is NodeState.ACTIVE:
            assert policy == NEW
        elif states[name] is not NodeState.UNSURE:
            assert policy == OLD
    match step.outcome:
        case Outcome.COMPLETE:
            assert not progress.in_state(NodeState.WAITING)
        case Outcome.RETURNED:
            assert not progress.in_state(NodeState.ACTIVE)
            assert progress.verdicts_bad
        case _:
            left_out = progress.in_state(NodeState.NOT_REACHED, NodeState.UNSURE)
            assert len(left_out) > first.plan.most_skipped
    # When everything answers, the same command brings each node to one side.
    world.budget = 0
    world.run()
    wanted = OLD if progress.verdicts_bad else NEW
    gone = progress.in_state(NodeState.BACK)
    assert {one for name, one in world.decides.items() if name not in gone} <= {wanted}


def take_all(progress: Progress, *events: Event) -> Progress:
    for event in events:
        progress.take(event)
    return progress


def switched(progress: Progress) -> tuple[Event, ...]:
    """The events that switch the nodes that are due."""
    step = progress.next()
    if step.kind is StepKind.MEASURE:
        progress.take(Measured(tallies={}))
        step = progress.next()
    found = tuple(Found(node=one, policy="", mode="off") for one in step.nodes)
    return (*found, Switching(nodes=step.nodes), *(Switched(node=one) for one in step.nodes))


def test_waves_grow_as_planned_and_the_next_begins_only_when_the_last_was_good() -> None:
    progress = Progress(began(10, "1,30%"))
    sizes = []
    while progress.next().kind is not StepKind.CHECK:
        take_all(progress, *switched(progress))
        assert progress.next().kind is StepKind.WATCH
        sizes.append(len(progress.next().nodes))
        progress.take(Judged(wave=progress.wave, verdict=Verdict(bad=())))
    assert sizes == [1, 2, 7]


def test_a_bad_wave_takes_all_back_and_no_further_node_is_switched() -> None:
    progress = Progress(began(10, "2"))
    take_all(progress, *switched(progress))
    wave = progress.next().nodes
    progress.take(Judged(wave=0, verdict=Verdict(bad=("slow",))))
    assert progress.next() == Step(kind=StepKind.RETURN, nodes=wave)
    take_all(progress, *(Returned(node=name) for name in wave))
    assert progress.next().outcome is Outcome.RETURNED
    assert progress.counts == {NodeState.BACK: 2, NodeState.WAITING: 8}


def test_a_node_that_does_not_answer_is_replaced_by_the_next_in_its_wave() -> None:
    progress = Progress(began(10, "2", skipped_share=0.1))
    progress.take(Measured(tallies={}))
    first, second = progress.next().nodes
    take_all(
        progress,
        NotSwitched(node=first, why="?", may_run=False),
        Found(node=second, policy="", mode="off"),
        Switching(nodes=(second,)),
        Switched(node=second),
    )
    assert progress.next() == Step(kind=StepKind.FIND, nodes=progress.plan.nodes[2:3])
    progress.take(NotSwitched(node=progress.plan.nodes[2], why="?", may_run=False))
    step = progress.next()
    assert step.outcome is Outcome.PAUSED
    assert "2 of 10 nodes could not be switched, more than the 1" in step.why


def test_after_an_interruption_the_nodes_are_looked_at_anew_unless_the_wave_has_begun() -> None:
    progress = Progress(began(4, "1"))
    take_all(progress, Measured(tallies={}), Resumed(by="me"))
    assert progress.next().kind is StepKind.MEASURE
    take_all(progress, *switched(progress), Resumed(by="me"))
    assert progress.next().kind is StepKind.WATCH


def test_a_node_that_is_switched_late_is_judged_by_what_was_seen_of_it_before() -> None:
    progress = Progress(began(3, "2"))
    seen = Tally(looks=99, met=99, ticks=99)
    progress.take(Measured(tallies=dict.fromkeys(progress.plan.nodes, seen)))
    *events, _ = switched(progress)
    late = progress.next().nodes[-1]
    take_all(progress, *events, NotSwitched(node=late, why="?", may_run=True))
    take_all(progress, *switched(progress))
    take_all(progress, Judged(wave=0, verdict=Verdict(bad=())), Checked(gone={}))
    assert progress.next().outcome is Outcome.COMPLETE
    take_all(progress, Resumed(by="me"), Switching(nodes=(late,)), Switched(node=late))
    assert progress.next() == Step(kind=StepKind.WATCH, nodes=(late,))
    watched = Watched(wave={late: seen}, others={}, before=progress.before, failed={})
    assert judge(watched, WaveRules(), last=True).bad == ()


def test_nodes_that_answer_again_are_looked_at_first_also_beside_one_that_is_switched() -> None:
    progress = Progress(began(3, "3"))
    take_all(progress, Measured(tallies={}))
    unsure, gone, last = progress.next().nodes
    take_all(
        progress,
        NotSwitched(node=gone, why="?", may_run=False),
        *(Found(node=one, policy="", mode="off") for one in (unsure, last)),
        Switching(nodes=(unsure, last)),
        NotSwitched(node=unsure, why="?", may_run=True),
        Switched(node=last),
        Judged(wave=0, verdict=Verdict(bad=())),
        Resumed(by="me"),
        Switching(nodes=(unsure,)),
        Switched(node=unsure),
    )
    assert progress.next() == Step(kind=StepKind.MEASURE, nodes=(gone,))


def test_a_recall_takes_all_back_also_when_it_was_complete() -> None:
    progress = Progress(began(3, "3"))
    take_all(progress, *switched(progress))
    take_all(progress, Judged(wave=0, verdict=Verdict(bad=())), Checked(gone={}))
    assert progress.next().outcome is Outcome.COMPLETE
    progress.take(Recalled(by="me@here"))
    assert set(progress.next().nodes) == set(progress.plan.nodes)
    name = progress.plan.nodes[0]
    take_all(progress, NotReturned(node=name, why="?"))
    assert name not in progress.next().nodes
    progress.take(Resumed(by="me"))  # the next client tries again
    assert name in progress.next().nodes


def test_a_node_on_which_the_policy_was_turned_off_is_no_success(
    capsys: pytest.CaptureFixture[str],
) -> None:
    progress = Progress(began(2, "2"))
    take_all(progress, *switched(progress))
    off = progress.plan.nodes[0]
    take_all(progress, Judged(wave=0, verdict=Verdict(bad=())), Checked(gone={off: "its canary"}))
    going: Any = SimpleNamespace(progress=progress, run=lambda *_: progress.next())
    with pytest.raises(typer.Exit):
        _run(going, Fleet({}), None, Path("state"), as_json=False)
    assert f"{off} (back): its canary" in capsys.readouterr().out


def test_a_recall_also_puts_back_what_decided_where_the_policy_was_turned_off() -> None:
    progress = Progress(began(2, "2"))
    take_all(progress, *switched(progress))
    off, other = progress.plan.nodes
    take_all(progress, Judged(wave=0, verdict=Verdict(bad=())), Checked(gone={off: "its canary"}))
    take_all(progress, Resumed(by="me"), Recalled(by="me"))
    assert progress.next() == Step(kind=StepKind.RETURN, nodes=(other, off))
    take_all(progress, Returned(node=off), Returned(node=other))
    assert progress.next().outcome is Outcome.RETURNED


@pytest.mark.parametrize(
    ("text", "nodes", "waves"),
    [
        ("1,5%,25%,100%", 1000, (1, 50, 250, 1000)),
        ("1,5%,25%,100%", 3, (1, 3)),
        ("1", 1, (1,)),
        ("0.1%,50%", 1000, (1, 500, 1000)),
        ("2, 4", 7, (2, 4, 7)),
    ],
)
def test_waves_are_numbers_or_shares(text: str, nodes: int, waves: tuple[int, ...]) -> None:
    assert parse_waves(text, nodes) == waves


@pytest.mark.parametrize("text", ["", "x", "5,2", "50%,1", "101%", "1.5", "-1", "0", "1,,2"])
def test_other_texts_are_no_waves(text: str) -> None:
    with pytest.raises(RolloutError):
        parse_waves(text, 100)


def test_shares() -> None:
    assert share_of("2.5%") == 0.025
    for text in ("2", "101%", "-1%", "%"):
        with pytest.raises(RolloutError):
            share_of(text)


def test_the_order_depends_on_the_seed_and_not_on_the_order_of_the_names() -> None:
    names = [f"n{k}" for k in range(50)]
    assert drawn_order(names, 1) == drawn_order(reversed(names), 1)
    assert drawn_order(names, 1) != drawn_order(names, 2)
