"""The recordings of a fit, of which only the latest used are in memory."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from stallward.env.recording.recording import Recording
from stallward.env.recording.stored import MOST_HELD, StoredRecording
from stallward.env.twin.inputs.exogenous import Exogenous
from stallward.env.twin.physics.latency import Array
from stallward.training.twin_fit.loss import live_summary


class Held(NamedTuple):
    """A loaded recording."""

    recording: Recording
    live: Array
    """Its figures, which a twin is compared with (:func:`live_summary`)."""


class HeldRecordings:
    """Loads recordings when they are needed, and forgets those not used for longest.

    Args:
        stored: The recordings of a scenario.
        scenario: The scenario, by which their figures are scaled.
        loaded: Those that have been loaded already, at most :data:`MOST_HELD`.
    """

    def __init__(
        self,
        stored: Sequence[StoredRecording],
        scenario: Exogenous,
        loaded: Mapping[StoredRecording, Recording],
    ) -> None:
        self.scenario = scenario
        self._stored = stored
        self._held: OrderedDict[int, Held] = OrderedDict(
            (number, Held(loaded[one], live_summary(loaded[one], scenario)))
            for number, one in enumerate(stored)
            if one in loaded
        )

    def get(self, number: int) -> Held:
        """The recording with this number among the stored ones.

        Raises:
            StallwardError: If it cannot be loaded.
        """
        held = self._held.pop(number, None)
        if held is None:
            while len(self._held) >= MOST_HELD:
                self._held.popitem(last=False)
            recording = self._stored[number].load()
            held = Held(recording, live_summary(recording, self.scenario))
        self._held[number] = held
        return held
