"""Looking at the nodes of a wave and at the others, again and again for some time."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Final

from stallward.actuator.client.fleet.fleet import Fleet
from stallward.actuator.client.fleet.rollout.node_calls import NodeLooks, runs, why_not
from stallward.actuator.policies.rollout.contrast import Tally

_SILENT_LOOKS: Final = 3
"""A node of the wave that does not answer at so many looks in a row has failed."""


class Looking:
    """Counts what is seen.

    A node that is not among the fleet's clients any more is a node that does not answer.

    Args:
        fleet: The nodes.
        wave: The nodes on which the policy is to decide.
        others: Nodes on which it does not.
        sha256: The digest of the policy.
    """

    def __init__(
        self, fleet: Fleet, wave: Sequence[str], others: Sequence[str], sha256: str
    ) -> None:
        self._fleet = fleet
        self._sha256 = sha256
        self._wave = {name: NodeLooks() for name in wave}
        self._others = {name: NodeLooks() for name in others}
        self._silent = dict.fromkeys(wave, 0)
        self.failed: dict[str, str] = {}
        """Why the policy does not decide on nodes of the wave now."""

    @property
    def wave(self) -> Mapping[str, Tally]:
        """What was seen of the wave's nodes so far."""
        return {name: looks.tally for name, looks in self._wave.items()}

    @property
    def others(self) -> Mapping[str, Tally]:
        """The same of the other nodes."""
        return {name: looks.tally for name, looks in self._others.items()}

    def look_for(self, length_s: float, every_s: float) -> None:
        """Look at all nodes every ``every_s`` for ``length_s``."""
        begin_s = time.monotonic()
        for number in range(1, max(round(length_s / every_s), 1) + 1):
            time.sleep(max(begin_s + number * every_s - time.monotonic(), 0.0))
            self._look()

    def _look(self) -> None:
        wanted = [name for name in (*self._wave, *self._others) if name in self._fleet.clients]
        answers = self._fleet.ask(lambda _name, client: client.status(), wanted)
        for name, looks in self._others.items():
            if name in answers.given:
                looks.take(answers.given[name])
        for name, looks in self._wave.items():
            status = answers.given.get(name)
            if status is None:
                self._silent[name] += 1
                if self._silent[name] >= _SILENT_LOOKS:
                    self.failed[name] = "it does not answer"
                continue
            self._silent[name] = 0
            if not runs(status, self._sha256):
                self.failed[name] = why_not(status)
                continue
            self.failed.pop(name, None)
            looks.take(status)
