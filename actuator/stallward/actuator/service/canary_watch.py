"""Turns a policy off that keeps the target less often than what decided before it."""

from __future__ import annotations

import asyncio

from stallward.actuator.policies.canary import Canary, CanaryState
from stallward.actuator.runtime.stderr_line import say
from stallward.actuator.service.loop_link import LoopLink
from stallward.proto.v1 import stallward_pb2 as pb

_ANSWER_S = 2.0


class CanaryWatch:
    """Gives the canary one second after the other, and does what it says.

    It must be used in the event loop's thread.

    Args:
        canary: Decides whether a policy is to be turned off.
        slo_ms: The latency target.
        link: The connection to the loop.
    """

    def __init__(self, canary: Canary, slo_ms: float, link: LoopLink) -> None:
        self._canary = canary
        self._slo_ms = slo_ms
        self._link = link
        self._second = -1
        self._time_s = 0.0
        self._returning: asyncio.Task[None] | None = None
        self.returned = ""
        """Why the last policy was turned off; empty if none was."""

    def take(self, record: pb.TickRecord) -> None:
        """Look at the first tick of each second in which requests were answered."""
        latency, second = record.sample.latency, int(record.time_s)
        if second == self._second or not latency.HasField("p95_ms"):
            return
        self._second, self._time_s = second, record.time_s
        policy = self._link.policy
        active = policy.sha256 if policy is not None and record.mode == pb.MODE_ACTIVE else ""
        met = latency.p95_ms <= self._slo_ms
        state = self._canary.take(record.time_s, active, met=met)
        if state is CanaryState.FAILED and policy is not None and self._returning is None:
            self._returning = asyncio.create_task(self._return(policy.name))

    async def _return(self, name: str) -> None:
        """Turn the policy off; if the loop does not answer, the next second tries again."""
        command = pb.Command(set_mode=pb.SetModeRequest(mode=pb.MODE_OFF))
        result = await self._link.ask(command, _ANSWER_S)
        if result is not None and not result.code:
            now, before = self._canary.attainment or 0.0, self._canary.attainment_before or 0.0
            self.returned = (
                f"The policy {name} was turned off: it kept the target in {100 * now:.0f} % of "
                f"the seconds, and what decided before in {100 * before:.0f} %."
            )
            say(self.returned, "service")
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
