"""Turns a policy off that keeps the target less often than what decided before it."""

from __future__ import annotations

import asyncio
import operator
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

from stallward.actuator.latency.silence import waited_ms
from stallward.actuator.policies.canary import BATCH_S, MOST_BATCHES, Canary, CanaryState
from stallward.actuator.runtime.stderr_line import say
from stallward.actuator.service.loop_link import LoopLink
from stallward.proto.v1 import stallward_pb2 as pb

_LONG_SILENCE_S: Final = 30
_STALLED_SHARE: Final = 0.5


class CanaryWatch:
    """Gives the canary one second after the other, and does what it says.

    It must be used in the event loop's thread.

    Args:
        canary: Decides whether a policy is to be turned off.
        slo_ms: The latency target.
        link: The connection to the loop.
        on_return: Called with the digest of a policy that was turned off.
    """

    def __init__(
        self,
        canary: Canary,
        slo_ms: float,
        link: LoopLink,
        on_return: Callable[[str], Awaitable[None]],
    ) -> None:
        self._canary = canary
        self._slo_ms = slo_ms
        self._link = link
        self._on_return = on_return
        self._second = -1
        self._silent = deque[tuple[int, str, tuple[int, ...]]](maxlen=BATCH_S * MOST_BATCHES)
        """Seconds without answers since the last one that do not count yet, with the policy that
        decided in each, and how long the application had been stalled when it began."""
        self._time_s = 0.0
        self._returning: asyncio.Task[None] | None = None
        self.returned = ""
        """Why the last policy was turned off; empty if none was, or another is active since."""

    def take(self, record: pb.TickRecord) -> None:
        """Look at the first tick of each second in which requests were answered.

        A second without answers is missed where the next answer shows that its request waited, and
        after a long silence where the application was stalled: one that is idle waits for nothing.
        Seconds in which a client's lease decided, or the default controller in place of an active
        policy, say nothing about either.
        """
        latency, second = record.sample.latency, int(record.time_s)
        if latency.HasField("p95_ms"):
            self._look_back(record)
        if second == self._second:
            return
        policy, is_active = self._link.policy, record.mode == pb.MODE_ACTIVE
        if record.decision.leased or (is_active and (record.fallback or policy is None)):
            return
        active = policy.sha256 if policy is not None and is_active else ""
        if not latency.HasField("p95_ms"):
            if not self._silent or self._silent[-1][0] != second:
                self._add_silent(second, active, record.sample.protected.psi)
            return
        self._second = second
        self._count(record.time_s, active, met=latency.p95_ms <= self._slo_ms)

    def _count(self, time_s: float, active: str, *, met: bool) -> None:
        self._time_s = time_s
        if active:
            self.returned = ""
        state, policy = self._canary.take(time_s, active, met=met), self._link.policy
        if state is CanaryState.FAILED and policy is not None and self._returning is None:
            self._returning = asyncio.create_task(self._return(policy))

    def _add_silent(self, second: int, active: str, psi: pb.PsiTotals) -> None:
        """Note a second without answers that begins, and count the one before if it was missed."""
        stalled_us = (psi.memory_some_us, psi.io_some_us, psi.cpu_some_us)
        if self._silent and second - self._silent[0][0] > _LONG_SILENCE_S:
            before, decided, before_us = self._silent[-1]
            grown_us = max(map(operator.sub, stalled_us, before_us))
            if decided == active and grown_us > 1e6 * _STALLED_SHARE * (second - before):
                self._silent.pop()
                self._count(float(second), active, met=False)
        self._silent.append((second, active, stalled_us))

    def _look_back(self, record: pb.TickRecord) -> None:
        """Give the canary the seconds without answers in which a request waited for too long."""
        longest_ms = record.sample.latency.max_ms
        for second, active, _ in self._silent:
            end_s = second + 1.0
            waited = waited_ms(end_s, answered_s=record.time_s, longest_ms=longest_ms)
            if end_s <= record.time_s and waited > self._slo_ms:
                self._canary.take(end_s, active, met=False)
        self._silent.clear()

    async def _return(self, policy: pb.PolicyStatus) -> None:
        """Turn the policy off; if the loop does not answer, the next second tries again."""
        # The loop sends ticks without the policy before its answer, and they begin a new count.
        kept, kept_before = self._canary.attainment, self._canary.attainment_before
        command = pb.Command(set_mode=pb.SetModeRequest(mode=pb.MODE_OFF))
        result = await self._link.ask(command)
        if result is not None and not result.code:
            self.returned = (
                f"The policy {policy.name} was turned off: it kept the target in "
                f"{_percent(kept)} of the seconds, and what decided before in "
                f"{_percent(kept_before)}."
            )
            say(self.returned, "service")
            self._canary.returned()
            self._silent.clear()
            await self._on_return(policy.sha256)
        self._returning = None

    def status(self) -> pb.CanaryStatus:
        """The status for clients."""
        canary = self._canary
        return pb.CanaryStatus(
            watching=canary.state is CanaryState.WATCHING,
            left_s=canary.left_s(self._time_s),
            attainment=canary.attainment,
            attainment_before=canary.attainment_before,
            returned=self.returned,
        )


def _percent(share: float | None) -> str:
    return "an unknown share" if share is None else f"{100 * share:.0f} %"
