"""What a policy in advice mode would do: told when it changes, in words, and not too often."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stallward.actuator.record.advice.advice import Advice, Adviser
from stallward.actuator.record.advice.text import advice_text
from stallward.actuator.record.advice.wire import ADVICE
from stallward.actuator.record.reasons import Fault, OutsideTraining, Reasons
from stallward.actuator.record.tick_record import Mode, NamedDecision, TickRecord
from stallward.agent.controller import Decision
from stallward.agent.desired import KEEP_ANON, MIB, RELEASED, DesiredState, SlotDesire
from stallward.agent.sample import (
    GroupSample,
    LatencySample,
    NodeSample,
    PsiTotals,
    Sample,
    SlotState,
)

PAUSED = DesiredState(slots=(SlotDesire(paused=True),))
LIMITED = DesiredState(slots=(SlotDesire(limit_bytes=64 * MIB),), tuning=KEEP_ANON)
NAMES = ("training",)
FAULT = Fault(controller="ppo", cause=OutsideTraining(score=0.9, limit=0.5))


def tick(
    number: int,
    wanted: DesiredState | None,
    *,
    mode: Mode = Mode.ADVICE,
    policy: str = "ppo",
    leased: bool = False,
    fault: Fault | None = None,
) -> TickRecord:
    """A tick, half a second after the one before; the application waits a fifth of the time."""
    sample = Sample(
        sequence=number,
        time_s=0.5 * number,
        node=NodeSample(),
        zone=GroupSample(name="zone"),
        protected=GroupSample(name="app", psi=PsiTotals(memory_some_us=100_000 * number)),
        slots=(GroupSample(name="hog"),),
        slot_states=(SlotState(),),
        latency=LatencySample(completed=5, p95_ms=812.0),
    )
    shadow = None
    if wanted is not None:
        decision = Decision(desired=wanted, reason="room 90 MiB")
        shadow = NamedDecision(controller=policy, decision=decision, leased=leased)
    decided = Decision(desired=RELEASED, reason="fits")
    return TickRecord(
        sequence=number,
        time_s=0.5 * number,
        wall_time_s=1e9 + 0.5 * number,
        sample=sample,
        observation=(),
        decision=NamedDecision(controller="partition", decision=decided),
        granted=RELEASED,
        mode=mode,
        shadow=shadow,
        reasons=Reasons(watched_fault=fault),
    )


def told(adviser: Adviser, *ticks: TickRecord) -> list[Advice]:
    return [advice for advice in map(adviser.take, ticks) if advice is not None]


def test_the_first_advice_is_told_at_once_and_then_each_change() -> None:
    states = [RELEASED, RELEASED, PAUSED, PAUSED, LIMITED, RELEASED]
    given = told(Adviser(0.0, 100.0), *(tick(k, state) for k, state in enumerate(states)))
    assert [advice.sequence for advice in given] == [0, 2, 4, 5]
    assert [advice.left_out for advice in given] == [0, 0, 0, 0]
    assert given[1].advised is not None
    assert given[1].advised.decision.desired == PAUSED
    assert given[1].decided.controller == "partition"


def test_a_policy_that_changes_its_mind_often_is_told_of_once_in_a_while() -> None:
    flapping = [tick(k, PAUSED if k % 2 else RELEASED) for k in range(41)]  # 20 s
    given = told(Adviser(5.0, 100.0), *flapping)
    # At every tenth tick it advises what was told before, so the one after it is told.
    assert [advice.sequence for advice in given] == [0, 11, 22, 33]
    assert [advice.left_out for advice in given] == [0, 10, 10, 10]
    assert advice_text(given[1]).endswith("10 changes before that were not told.")


def test_what_is_over_before_it_may_be_told_is_not_told() -> None:
    ticks = [tick(0, RELEASED), tick(1, PAUSED), *(tick(k, RELEASED) for k in range(2, 60))]
    assert len(told(Adviser(5.0, 100.0), *ticks)) == 1


def test_small_steps_of_a_limit_are_no_change() -> None:
    states = [DesiredState(slots=(SlotDesire(limit_bytes=k * MIB),)) for k in range(100, 110)]
    given = told(Adviser(0.0, 100.0), *(tick(k, state) for k, state in enumerate(states)))
    assert len(given) == 1


def test_a_policy_that_gives_no_decision_is_told_of_once_with_the_reason() -> None:
    ticks = [tick(0, PAUSED), *(tick(k, None, fault=FAULT) for k in range(1, 5)), tick(5, PAUSED)]
    given = told(Adviser(0.0, 100.0), *ticks)
    assert [advice.sequence for advice in given] == [0, 1, 5]
    assert advice_text(given[1], NAMES).startswith(
        "ppo gives no advice (outside the training range: score 0.900 above 0.5); partition "
        "decides to do nothing (fits). "
    )


def test_another_policy_is_told_of_even_if_it_wants_the_same() -> None:
    given = told(Adviser(0.0, 100.0), tick(0, PAUSED), tick(1, PAUSED, policy="pi"))
    assert len(given) == 2


@pytest.mark.parametrize("mode", [Mode.OFF, Mode.SHADOW, Mode.ACTIVE])
def test_in_other_modes_nothing_is_told_and_after_them_the_first_advice_is(mode: Mode) -> None:
    adviser = Adviser(1000.0, 100.0)
    assert told(adviser, tick(0, PAUSED, mode=mode)) == []
    assert len(told(adviser, tick(1, PAUSED), tick(2, PAUSED))) == 1
    assert told(adviser, tick(3, PAUSED, mode=mode)) == []
    assert len(told(adviser, tick(4, PAUSED))) == 1


def test_changes_before_another_mode_are_not_counted_with_those_after_it() -> None:
    adviser = Adviser(1000.0, 100.0)
    told(adviser, *(tick(k, PAUSED if k % 2 else RELEASED) for k in range(8)))
    told(adviser, tick(8, RELEASED, mode=Mode.SHADOW))
    (first,) = told(adviser, tick(9, RELEASED))
    assert first.left_out == 0


def test_what_a_lease_wants_is_no_advice() -> None:
    adviser = Adviser(0.0, 100.0)
    assert told(adviser, tick(0, PAUSED, leased=True), tick(1, None)) == []


def test_a_sentence_says_what_why_what_is_done_instead_and_how_the_application_is() -> None:
    adviser = Adviser(0.0, 100.0)
    *_, given = told(adviser, *(tick(k, RELEASED) for k in range(4)), tick(4, LIMITED))
    assert advice_text(given, NAMES) == (
        "ppo would limit training to 64 MiB, tune keep-anon (room 90 MiB); partition decides to "
        "do nothing (fits). P95 812 ms of at most 100 ms, and the application waits for memory "
        "20 % of the time."
    )


def test_a_sentence_says_when_both_want_the_same_and_leaves_out_what_is_not_known() -> None:
    (given,) = told(Adviser(0.0, None), tick(0, RELEASED))
    plain = replace(given, p95_ms=None)
    assert advice_text(plain) == "ppo would do nothing (room 90 MiB); partition wants the same."


def test_advice_survives_the_wire() -> None:
    adviser = Adviser(0.0, 100.0)
    ticks = [tick(0, RELEASED), tick(1, LIMITED), tick(2, None, fault=FAULT)]
    for given in told(adviser, *ticks):
        assert ADVICE.from_wire(ADVICE.to_wire(given)) == given
    bare = replace(told(Adviser(0.0, None), tick(0, PAUSED))[0], p95_ms=None, left_out=3)
    assert ADVICE.from_wire(ADVICE.to_wire(bare)) == bare
