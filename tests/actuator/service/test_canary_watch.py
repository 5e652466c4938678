"""What is said of a policy that was turned off is of the seconds in which it decided."""

from __future__ import annotations

import asyncio
import math
from typing import Any, cast

import pytest

from stallward.actuator.policies.canary import Canary, CanarySettings
from stallward.actuator.service.canary_watch import CanaryWatch
from stallward.actuator.service.loop_link import LoopLink
from stallward.proto.v1 import stallward_pb2 as pb

SLO_MS = 60.0


def _tick(
    second: int,
    mode: pb.Mode,
    p95_ms: float | None,
    longest_ms: float | None = None,
    stalled_us: int | None = None,
) -> pb.TickRecord:
    sample = pb.Sample(latency=pb.LatencySample(p95_ms=p95_ms, max_ms=longest_ms))
    if stalled_us is not None:
        sample.protected.psi.memory_some_us = stalled_us
    return pb.TickRecord(time_s=second, mode=mode, sample=sample)


class SlowLoop:
    """A loop whose ticks without the policy come before its answer to the command."""

    def __init__(self) -> None:
        self.policy = pb.PolicyStatus(name="bad", sha256="bad")
        self.watch: CanaryWatch | None = None
        self.second = 0

    async def ask(self, command: pb.Command) -> Any:
        assert self.watch is not None
        for _ in range(10):
            self.second += 1
            self.watch.take(_tick(self.second, command.set_mode.mode, 90.0))
        await asyncio.sleep(0.0)
        return pb.CommandResult()


def _watch(loop: SlowLoop) -> CanaryWatch:
    async def forget(_: str) -> None: ...

    loop.watch = CanaryWatch(Canary(CanarySettings()), SLO_MS, cast("LoopLink", loop), forget)
    return loop.watch


async def _turned_off(loop: SlowLoop) -> CanaryWatch:
    """A watch that has turned the policy of a loop off."""
    watch = _watch(loop)
    for mode, p95_ms, seconds in ((pb.MODE_OFF, 20.0, 100), (pb.MODE_ACTIVE, 90.0, 300)):
        for _ in range(seconds):
            loop.second += 1
            watch.take(_tick(loop.second, mode, p95_ms))
            await asyncio.sleep(0.0)
            if watch.returned:
                return watch
    return watch


def test_ticks_that_come_before_the_answer_are_not_the_policys() -> None:
    assert asyncio.run(_turned_off(SlowLoop())).returned == (
        "The policy bad was turned off: it kept the target in 0 % of the seconds, and what decided "
        "before in 100 %."
    )


def test_a_policy_that_was_turned_off_is_said_until_one_is_active_again() -> None:
    async def run() -> None:
        loop = SlowLoop()
        watch = await _turned_off(loop)
        loop.policy = pb.PolicyStatus(name="good", sha256="good")
        for mode, is_said in (
            (pb.MODE_OFF, True),
            (pb.MODE_SHADOW, True),
            (pb.MODE_ACTIVE, False),
            (pb.MODE_OFF, False),
        ):
            loop.second += 1
            watch.take(_tick(loop.second, mode, 20.0))
            assert bool(watch.status().returned) is is_said

    asyncio.run(run())


@pytest.mark.parametrize("waits", [True, False])
def test_seconds_without_answers_count_where_requests_waited(*, waits: bool) -> None:
    """Under the policy the application answers in 10 s of each 30, and is fast in these."""

    async def run() -> str:
        loop = SlowLoop()
        watch = _watch(loop)
        for _ in range(100):
            loop.second += 1
            watch.take(_tick(loop.second, pb.MODE_OFF, 20.0, 20.0))
        for number in range(600):
            loop.second += 1
            p95_ms = 20.0 if number % 30 < 10 else None
            longest_ms = 20_500.0 if waits and number % 30 == 0 and number else p95_ms
            watch.take(_tick(loop.second, pb.MODE_ACTIVE, p95_ms, longest_ms))
            await asyncio.sleep(0.0)
            if watch.returned:
                break
        return watch.returned

    assert bool(asyncio.run(run())) is waits


@pytest.mark.parametrize(
    ("stalled_share", "fails"), [(0.9, True), (0.1, False), (0.0, False), (None, False)]
)
def test_a_policy_under_which_nothing_is_answered_again_fails_unless_the_application_is_idle(
    *, stalled_share: float | None, fails: bool
) -> None:
    async def run() -> float:
        loop = SlowLoop()
        watch = _watch(loop)
        for _ in range(100):
            loop.second += 1
            watch.take(_tick(loop.second, pb.MODE_OFF, 20.0, 20.0, 5_000_000))
        for silent_s in range(600):
            loop.second += 1
            stalled_us = None
            if stalled_share is not None:
                stalled_us = 5_000_000 + int(1e6 * stalled_share * silent_s)
            watch.take(_tick(loop.second, pb.MODE_ACTIVE, None, stalled_us=stalled_us))
            await asyncio.sleep(0.0)
            if watch.returned:
                return silent_s
        return math.inf

    silent_s = asyncio.run(run())
    assert (silent_s < 180) is fails
