"""The time between ticks, and in which of it the target was met or missed. Pure."""

from __future__ import annotations

from typing import Final

from stallward.actuator.latency.silence import waited_ms
from stallward.proto.v1 import stallward_pb2 as pb

_LONGEST_TICK_S: Final = 30.0
"""A longer time between two records is not counted as a tick: there was no loop."""


class TickTime:
    """Measures the time between one tick and the next."""

    def __init__(self) -> None:
        self._last_s: float | None = None

    def passed_s(self, record: pb.TickRecord) -> float:
        """Take one tick; the time since the tick before, 0 if ticks are missing in between."""
        now_s = record.sample.time_s
        passed_s = 0.0 if self._last_s is None else now_s - self._last_s
        self._last_s = now_s
        return passed_s if 0.0 <= passed_s <= _LONGEST_TICK_S else 0.0


class TargetSeconds:
    """Adds up, tick by tick, the time in which the p95 of the last second met the target."""

    def __init__(self) -> None:
        self.met_s = 0.0
        self.missed_s = 0.0
        """Without requests a time is neither. One without answers is missed where the next answer
        shows that its request had waited for longer than the target."""
        self.of: dict[str, tuple[float, float]] = {}
        """The same two times of each application, where there are several."""
        self._time = TickTime()
        self._silent_s: dict[str, float] = {}
        """The time without answers until now, of each application."""

    def take(self, record: pb.TickRecord) -> None:
        """Take one tick."""
        passed_s = self._time.passed_s(record)
        if not passed_s:  # nothing is known of the time before
            self._silent_s.clear()
        for one in record.sample.applications:
            met_s, missed_s = self.of.get(one.name, (0.0, 0.0))
            more_met_s, more_missed_s = self._split(one.name, passed_s, one.latency, one.slo_ms)
            self.of[one.name] = (met_s + more_met_s, missed_s + more_missed_s)
        if record.HasField("slo_ms"):
            met_s, missed_s = self._split("", passed_s, record.sample.latency, record.slo_ms)
            self.met_s, self.missed_s = self.met_s + met_s, self.missed_s + missed_s

    def _split(
        self, name: str, passed_s: float, latency: pb.LatencySample, slo_ms: float
    ) -> tuple[float, float]:
        """A time as that in which the target was met, and that in which it was missed."""
        silent_s = self._silent_s.pop(name, 0.0)
        if not latency.HasField("p95_ms"):
            self._silent_s[name] = silent_s + passed_s
            return 0.0, 0.0
        waited = waited_ms(0.0, answered_s=passed_s, longest_ms=latency.max_ms)
        missed_s = min(max(1e-3 * (waited - slo_ms), 0.0), silent_s)
        return (passed_s, missed_s) if latency.p95_ms <= slo_ms else (0.0, missed_s + passed_s)
