"""The time in which the target was met, and in which it was missed. Pure."""

from __future__ import annotations

from typing import Final

from stallward.proto.v1 import stallward_pb2 as pb

_LONGEST_TICK_S: Final = 30.0
"""A longer time between two records is not counted as a tick: there was no loop."""


class TargetSeconds:
    """Adds up, tick by tick, the time in which the p95 of the last second met the target."""

    def __init__(self) -> None:
        self.met_s = 0.0
        self.missed_s = 0.0
        """Without requests a time is neither."""
        self.passed_s = 0.0
        """The time since the tick before; 0 if ticks are missing in between."""
        self.of: dict[str, tuple[float, float]] = {}
        """The same two times of each application, where there are several."""
        self._last_s: float | None = None

    def take(self, record: pb.TickRecord) -> None:
        """Take one tick."""
        now_s = record.sample.time_s
        passed_s = 0.0 if self._last_s is None else now_s - self._last_s
        self._last_s = now_s
        self.passed_s = passed_s if 0.0 <= passed_s <= _LONGEST_TICK_S else 0.0
        for one in record.sample.applications:
            met_s, missed_s = self.of.get(one.name, (0.0, 0.0))
            if one.latency.HasField("p95_ms"):
                met = one.latency.p95_ms <= one.slo_ms
                met_s += self.passed_s if met else 0.0
                missed_s += 0.0 if met else self.passed_s
            self.of[one.name] = (met_s, missed_s)
        latency = record.sample.latency
        if not (record.HasField("slo_ms") and latency.HasField("p95_ms")):
            return
        if latency.p95_ms <= record.slo_ms:
            self.met_s += self.passed_s
        else:
            self.missed_s += self.passed_s
