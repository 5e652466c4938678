"""What policies in advice mode would do: kept, sent to clients, written to the journal."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from stallward.actuator.record.advice.advice import Advice, Adviser
from stallward.actuator.record.advice.text import advice_text
from stallward.actuator.record.desired.text import desired_text
from stallward.actuator.service.watchers import Watchers
from stallward.proto.v1 import stallward_pb2 as pb

# ---------- What policies in advice mode have advised lately, for clients and for the journal

MOST_KEPT: Final = 200
"""More pieces of advice are not kept: the oldest is lost."""


class AdviceLog:
    """Makes advice of tick records, keeps the last, and gives each to who wants it.

    The event loop's thread uses it.

    Args:
        interval_s: The least time between two pieces of advice.
        slo_ms: The latency target; ``None`` if it is not known.
    """

    def __init__(self, interval_s: float, slo_ms: float | None) -> None:
        self._interval_s = interval_s
        self._slo_ms = slo_ms
        self._adviser: Adviser | None = None
        self._kept: deque[pb.Advice] = deque(maxlen=MOST_KEPT)
        self.watchers = Watchers[pb.Advice]()
        """The clients that follow."""
        self.tellers: list[Callable[[Advice], None]] = []
        """Called with every piece of advice."""

    def last(self, count: int) -> Sequence[pb.Advice]:
        """The last ``count`` pieces of advice, oldest first."""
        return tuple(self._kept)[-count:] if count else ()

    def take(self, record: pb.TickRecord) -> None:
        """Take one tick."""
        if self._adviser is None and record.mode != pb.MODE_ADVICE:
            return
        # They need numpy, which takes 7 MB, and most nodes never have a policy in this mode.
        from stallward.actuator.record.advice.wire import ADVICE  # noqa: PLC0415
        from stallward.actuator.record.wire import TICK_RECORD  # noqa: PLC0415

        if self._adviser is None:
            self._adviser = Adviser(self._interval_s, self._slo_ms)
        advice = self._adviser.take(TICK_RECORD.from_wire(record))
        if record.mode != pb.MODE_ADVICE:
            self._adviser = None
        if advice is None:
            return
        message = ADVICE.to_wire(advice)
        self._kept.append(message)
        self.watchers.send(message)
        for tell in self.tellers:
            tell(advice)


# ---------- Advice as an entry of systemd's journal

ADVICE_ID: Final = "0d9c3a3f3a5e4c0f8f6e5f0a7d1c2b94"
"""Identifies advice among all other messages (``journalctl MESSAGE_ID=...``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviceEntry:
    """One piece of advice, with the names of the slots."""

    advice: Advice
    slots: Sequence[str]
    message_id: str = ADVICE_ID

    @property
    def message(self) -> str:
        """The advice in sentences."""
        return advice_text(self.advice, self.slots)

    def fields(self) -> dict[str, str]:
        """The advice as named texts."""
        advised, decided = self.advice.advised, self.advice.decided
        found = {
            "STALLWARD_CONTROLLER": decided.controller,
            "STALLWARD_DECIDED": desired_text(decided.decision.desired, self.slots),
            "STALLWARD_LEFT_OUT": str(self.advice.left_out),
        }
        if advised is not None:
            found["STALLWARD_POLICY"] = advised.controller
            found["STALLWARD_ADVICE"] = desired_text(advised.decision.desired, self.slots)
            found["STALLWARD_REASON"] = advised.decision.reason
        elif self.advice.fault is not None:
            found["STALLWARD_POLICY"] = self.advice.fault.controller
            found["STALLWARD_FAULT"] = self.advice.fault.kind.value
        return found
