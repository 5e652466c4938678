"""Turns a policy off that keeps the target less often than what decided before it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from stallward.actuator.policies.canary import Canary, CanaryState
from stallward.actuator.runtime.stderr_line import say
from stallward.actuator.service.loop_link import LoopLink
from stallward.proto.v1 import stallward_pb2 as pb


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
        self._time_s = 0.0
        self._returning: asyncio.Task[None] | None = None
        self.returned = ""
        """Why the last policy was turned off; empty if none was, or another is active since."""

    def take(self, record: pb.TickRecord) -> None:
        """Look at the first tick of each second in which requests were answered.

        Seconds in which a client's lease decided, or the default controller in place of an active
        policy, say nothing about either.
        """
        latency, second = record.sample.latency, int(record.time_s)
        if second == self._second or not latency.HasField("p95_ms"):
            return
        policy, is_active = self._link.policy, record.mode == pb.MODE_ACTIVE
        if record.decision.leased or (is_active and (record.fallback or policy is None)):
            return
        self._second, self._time_s = second, record.time_s
        active = policy.sha256 if policy is not None and is_active else ""
        if active:
            self.returned = ""
        met = latency.p95_ms <= self._slo_ms
        state = self._canary.take(record.time_s, active, met=met)
        if state is CanaryState.FAILED and policy is not None and self._returning is None:
            self._returning = asyncio.create_task(self._return(policy))

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
