"""The dynamic oracle: set-points chosen by looking ahead on the twin.

A controller on a node sees features of the past. This one sees what no controller can: it copies
the whole state of a twin node, tries many set-points on the copies for a while, and takes those
that come out best. The copies have other random numbers than the node, so the future itself stays
unknown. What it gains over ``partition`` says what a learned policy of set-points may gain there,
but it is only as good as the candidates that it tries, and as the twin.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.agent.action_table import SET_POINTS
from stallward.agent.desired import SLOTS
from stallward.agent.errors import UsageError
from stallward.env.objective import SUFFERED, suffered_array
from stallward.env.simulation.constraints import hold, measure_ample, simulate, steps_in
from stallward.env.simulation.nuisance import NO_NUISANCE
from stallward.env.simulation.simulation import SimulationSettings
from stallward.env.twin.inputs.fitted import FittedTwin

_TICKS_PER_ACTION: Final = 10
_PRICES: Final = suffered_array(window_violated=1.0, excess=0.1, slow=1.0)
"""What is suffered, in background work: a per cent of missed windows is worth a per cent of it."""
_LEAST_GAIN: Final = 0.01
"""Smaller gains may be chance, and are not worth a deviation."""
_MOST_CHANGES: Final = 4
"""How many entries of a candidate differ from the first choices, at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlledNodes:
    """What came of the nodes of a twin under one controller, as means."""

    progress: float
    """Background progress, relative to having the node to itself."""
    window_violated: float
    """Share of windows that miss the target."""
    excess: float
    """Mean latency beyond that with ample memory, relative to the latter."""
    slow: float
    """Share of requests slower than 1.15 times the p99 with ample memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LookAhead:
    """``partition`` and the dynamic oracle on the same nodes of a twin."""

    scenario: str
    """Name of the scenario."""
    partition: ControlledNodes
    """All decided by ``partition``."""
    oracle: ControlledNodes
    """Set-points chosen by looking ahead."""
    deviations_share: float
    """Share of the choices that leave something not to ``partition``."""


class Varied(StrEnum):
    """A part of the set-points that the oracle may choose; ``partition`` decides the others."""

    SHARES = "shares"
    """What each group gets of the room."""
    KEPT = "kept"
    """How much memory is kept for the application."""
    TUNING = "tuning"


@dataclass(frozen=True, slots=True, kw_only=True)
class LookAheadSettings:
    """How the oracle looks ahead."""

    nodes: int = 24
    """Nodes that are drawn from the twin."""
    candidates: int = 48
    """Set-points that are tried on copies of each node; the first leaves all to ``partition``."""
    hold_s: float = 20.0
    """How long set-points are held. For as long again the copies then run under ``partition``, so
    that what is only put off counts, too."""
    choices: int = 6
    """How many times set-points are chosen, one after the other."""
    settle_s: float = 30.0
    """How long ``partition`` runs before the first choice."""
    varied: tuple[Varied, ...] = tuple(Varied)
    """What it may choose: with one of these, what that alone would gain."""


def parse_varied(text: str) -> tuple[Varied, ...]:
    """Read the parts that the oracle may choose, separated by commas.

    Raises:
        UsageError: If one is unknown, or there is none.
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    known = {part.value: part for part in Varied}
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        raise UsageError(
            f"{unknown[0]!r} is no part of the set-points."
            if unknown
            else "No part of the set-points is named.",
            next_step=f"Name one or more of {', '.join(known)}.",
        )
    return tuple(part for name, part in known.items() if name in names)


def look_ahead(
    twin: FittedTwin, settings: LookAheadSettings | None = None, *, seed: int = 1
) -> LookAhead:
    """Run ``partition`` and the oracle on the same nodes of a twin.

    Args:
        twin: The scenario's twin.
        settings: How the oracle looks ahead.
        seed: Everything random follows from it.
    """
    settings = settings or LookAheadSettings()
    return _Search(twin, settings, seed).run()


class _Search:
    """The nodes under ``partition``, those under the oracle, and their copies."""

    def __init__(self, twin: FittedTwin, settings: LookAheadSettings, seed: int) -> None:
        self._settings = settings
        self._scenario = twin.scenario.name
        simulated = SimulationSettings(
            action_table=SET_POINTS.name,
            ticks_per_action=_TICKS_PER_ACTION,
            nuisance=NO_NUISANCE,
        )
        ample = measure_ample([twin], simulated, seed=seed)
        self._hold = steps_in(settings.hold_s, simulated)
        self._settle = steps_in(settings.settle_s, simulated)
        self._rng = np.random.default_rng(seed)
        self._entries = _entries(settings.varied, len(twin.scenario.slots))
        nodes, copies = settings.nodes, settings.nodes * settings.candidates
        self._partition = simulate([twin], nodes, simulated, ample, seed=seed)
        self._oracle = simulate([twin], nodes, simulated, ample, seed=seed)
        self._copies = simulate([twin], copies, simulated, ample, seed=seed + 1, draws=nodes)

    def run(self) -> LookAhead:
        """Let both control their nodes for the same time."""
        nodes = self._settings.nodes
        auto = np.zeros((nodes, len(SET_POINTS.sizes)), dtype=np.int64)
        for simulation in (self._partition, self._oracle):
            hold(simulation, auto, self._settle)
        partition, oracle, deviations = [], [], []
        for _ in range(self._settings.choices):
            chosen = self._choose()
            deviations.append(chosen.any(axis=1).mean())
            partition.append(hold(self._partition, auto, self._hold))
            oracle.append(hold(self._oracle, chosen, self._hold))
        return LookAhead(
            scenario=self._scenario,
            partition=_outcome(np.mean(partition, axis=(0, 2))),
            oracle=_outcome(np.mean(oracle, axis=(0, 2))),
            deviations_share=float(np.mean(deviations)),
        )

    def _choose(self) -> NDArray[np.int64]:
        """The best candidate for each node of the oracle."""
        nodes, candidates = self._settings.nodes, self._candidates()
        self._copies.copy_from(self._oracle, np.tile(np.arange(nodes), len(candidates)))
        tried = np.repeat(candidates, nodes, axis=0)
        means = hold(self._copies, tried, self._hold)
        means += hold(self._copies, np.zeros_like(tried), self._hold)
        worth = means[0] / 2.0 - (_PRICES @ means[1:]) / 2.0
        worth = worth.reshape(len(candidates), nodes)
        best = worth.argmax(axis=0)
        gains = worth.max(axis=0) - worth[0]
        return np.asarray(candidates[np.where(gains > _LEAST_GAIN, best, 0)])

    def _candidates(self) -> NDArray[np.int64]:
        """Set-points to try: the first choices, and some with a few entries changed."""
        sizes, entries = np.array(SET_POINTS.sizes), self._entries
        candidates = np.zeros((self._settings.candidates, len(sizes)), dtype=np.int64)
        for candidate in candidates[1:]:
            count = self._rng.integers(1, min(_MOST_CHANGES, len(entries)) + 1)
            changed = self._rng.choice(entries, size=count, replace=False)
            candidate[changed] = self._rng.integers(1, sizes[changed])
        return candidates


def _entries(varied: Sequence[Varied], slots: int) -> list[int]:
    """The entries of an action that may be chosen; those of absent groups have no effect."""
    of_part = {
        Varied.SHARES: list(range(slots)),
        Varied.KEPT: [SLOTS],
        Varied.TUNING: [SLOTS + 1],
    }
    return [entry for part in Varied if part in varied for entry in of_part[part]]


def _outcome(means: NDArray[np.float64]) -> ControlledNodes:
    progress, *suffered = means.tolist()
    return ControlledNodes(progress=progress, **dict(zip(SUFFERED, suffered, strict=True)))
