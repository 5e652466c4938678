"""What policies in advice mode have advised lately, for clients and for the journal."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from stallward.actuator.record.advice.advice import Advice, Adviser
from stallward.actuator.service.watchers import Watchers
from stallward.proto.v1 import stallward_pb2 as pb

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
