"""Fits the parameters of a twin jointly to all recorded arms of a scenario.

Recorded lever states and exogenous inputs are replayed through many candidate twins in one batch.
Their outputs are compared with the recordings by distributions (quantiles of latency, work, stall
time, memory use, refaults, swap). The search is a cross-entropy method in the unit cube. The
result is not a point estimate: the best parameters are kept, weighted by how well they explain the
recordings.
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from stallward.env.errors import RecordingError
from stallward.env.recording.recording import Recording
from stallward.env.recording.stored import MOST_HELD, StoredRecording, dataset_hash, spread
from stallward.env.twin.estimate.exogenous import estimate_exogenous
from stallward.env.twin.inputs.exogenous import Exogenous
from stallward.env.twin.inputs.fitted import FittedTwin
from stallward.env.twin.inputs.parameters import (
    PARAMETER_NAMES,
    TwinParameters,
    from_column,
    from_unit,
    to_array,
    to_unit,
)
from stallward.env.twin.physics.latency import Array
from stallward.training.progress import Report
from stallward.training.twin_fit.loss import NAMES, SEGMENT_S, live_summary, loss
from stallward.training.twin_fit.replay import twin_summaries

# ---------- The recordings of a fit, of which only the latest used are in memory


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


_SMOOTHING: Final = 0.7
"""How far the mean and spread of the search move towards the elite."""
_LEAST_SPREAD: Final = 0.015
_WIDE: Final = 0.25
"""Initial spread of a search without a start."""
_NARROW: Final = 0.06
"""Least initial spread of a search that starts from a fitted twin."""
_SEARCH_SHARE: Final = 0.85
"""Share of the time for the search; in the rest the best candidates are compared."""
_REPLAYED_TOGETHER: Final = 8
"""Recordings in one batch of twins. Each has random numbers of its own, so this changes no result,
only the memory: a candidate twin takes 0.5 MB a recording."""
_SHARPNESS: Final = 8.0
"""The weight of a draw falls by this exponent per unit of relative loss."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FitSettings:
    """The settings of the search for a twin's parameters."""

    candidates: int = 128
    """Candidate twins in each generation."""
    generations: int = 340
    """The most generations; there are fewer if the time runs out."""
    elite_share: float = 0.12
    """Share of the candidates that the search moves towards."""
    draws: int = 24
    """Parameter sets that are kept."""
    max_seconds: float = math.inf
    """Wall time for one scenario."""
    recordings_per_generation: int = 4
    """Recordings replayed in each generation, drawn evenly over arms. The final comparison replays
    all."""
    seed: int = 1
    """The seed of the search."""


def fit_scenario(
    recordings: Sequence[StoredRecording],
    settings: FitSettings,
    report: Report | None = None,
    *,
    start: FittedTwin | None = None,
) -> FittedTwin:
    """Fit the twin of one scenario jointly to all its recordings.

    At most :data:`~stallward.env.recording.stored.MOST_HELD` recordings are in memory. If there
    are more, so many of them, evenly over arms and time, describe the scenario; its parameters are
    searched and compared with all of them.

    Args:
        recordings: The recordings of the scenario.
        settings: The settings of the search.
        report: Called with the progress.
        start: A twin around whose parameters the search starts; without one it starts wide.

    Raises:
        RecordingError: If the recordings are not enough to describe the scenario, or a twin can be
            compared with none of them.
    """
    name = recordings[0].scenario
    describing = spread(recordings, MOST_HELD)
    loaded = [recording.load() for recording in describing]
    scenario = estimate_exogenous(name, loaded)
    usable = [r for r in recordings if _is_usable(r)]
    if not usable:
        raise RecordingError(
            f"None of the {len(recordings)} recordings of {name} can be fitted: in each the kernel "
            "killed a process for memory, or it has no requests or no time after its burn-in.",
            next_step="Record it again, for longer or with more memory or swap.",
        )
    held = HeldRecordings(usable, scenario, dict(zip(describing, loaded, strict=True)))
    del loaded
    search = _Search(settings, start)
    began_s = time.monotonic()
    generation = 0
    while True:
        spent = (time.monotonic() - began_s) / (_SEARCH_SHARE * settings.max_seconds)
        done = max(spent, generation / settings.generations)
        if report is not None:
            loss_now = f": loss {search.best_loss:.3f}" if generation else ""
            report(f"{name}{loss_now}", _SEARCH_SHARE * min(done, 1.0))
        if generation > 0 and done >= 1.0:
            break
        chosen = _choose(usable, settings.recordings_per_generation, search.rng)
        unit = search.ask()
        losses = _losses(unit, held, chosen, settings.seed + generation)
        search.tell(unit, losses)
        generation += 1
    unit = search.finalists(settings.draws * 3)
    losses = _losses(unit, held, range(len(usable)), settings.seed)
    order = np.argsort(losses)[: settings.draws]
    values = from_unit(unit[:, order])
    weight = np.exp(-_SHARPNESS * (losses[order] / max(losses[order[0]], 1e-9) - 1.0))
    return FittedTwin(
        scenario=scenario,
        draws=tuple(from_column(values[:, k]) for k in range(len(order))),
        weights=tuple(float(w) for w in weight / weight.sum()),
        provenance={
            **_provenance(usable, settings, losses[order], generation),
            "started_from": None if start is None else start.scenario.name,
        },
    )


def _is_usable(stored: StoredRecording) -> bool:
    """Whether a twin can be compared with a recording."""
    if stored.condition == "background" or stored.oom_kills or not stored.requests():
        return False
    run = stored.run()
    return run.end_s > run.measured_from_s


class _Search:
    """A cross-entropy search in the unit cube, which keeps the best of every generation."""

    def __init__(self, settings: FitSettings, start: FittedTwin | None) -> None:
        self.rng = np.random.default_rng(settings.seed)
        self._settings = settings
        draws = [TwinParameters()] if start is None else start.draws
        unit = to_unit(to_array(draws))
        self._mean = np.average(unit, axis=1, weights=None if start is None else start.weights)
        self._spread = (
            np.full(len(PARAMETER_NAMES), _WIDE)
            if start is None
            else np.maximum(unit.std(axis=1), _NARROW)
        )
        self._kept: list[tuple[float, Array]] = []
        self.best_loss = float("inf")

    def ask(self) -> Array:
        """Draw candidates, ``(len(PARAMETER_NAMES), candidates)``."""
        shape = (len(PARAMETER_NAMES), self._settings.candidates)
        noise = self.rng.standard_normal(shape)
        unit = np.clip(self._mean[:, None] + self._spread[:, None] * noise, 0.0, 1.0)
        unit[:, 0] = self._mean
        return unit

    def tell(self, unit: Array, losses: Array) -> None:
        """Move the search towards the candidates with the lowest losses."""
        count = max(int(self._settings.elite_share * len(losses)), 2)
        order = np.argsort(losses)[:count]
        elite = unit[:, order]
        self._mean += _SMOOTHING * (elite.mean(axis=1) - self._mean)
        self._spread += _SMOOTHING * (elite.std(axis=1) - self._spread)
        np.maximum(self._spread, _LEAST_SPREAD, out=self._spread)
        self._kept += [(float(losses[i]), unit[:, i].copy()) for i in order[:8]]
        self.best_loss = float(losses[order[0]])

    def finalists(self, count: int) -> Array:
        """The latest elite, the best candidates of all generations, and draws around the mean."""
        latest = [u for _, u in self._kept[-count // 3 :]]
        best = [u for _, u in sorted(self._kept, key=lambda item: item[0])[: count // 3]]
        drawn = list(self.ask().T[: count - len(latest) - len(best)])
        return np.stack(latest + best + drawn, axis=1)


def _choose(
    recordings: Sequence[StoredRecording], count: int, rng: np.random.Generator
) -> tuple[int, ...]:
    """Draw recordings for one generation: first one of each arm and condition, then any."""
    order = rng.permutation(len(recordings))
    seen: set[tuple[str, str]] = set()
    first: list[int] = []
    rest: list[int] = []
    for i in order:
        key = (recordings[int(i)].condition, recordings[int(i)].arm)
        (rest if key in seen else first).append(int(i))
        seen.add(key)
    return tuple((first + rest)[:count])


def _losses(unit: Array, held: HeldRecordings, numbers: Sequence[int], seed: int) -> Array:
    """The mean loss of candidates over some recordings, of which few are replayed at a time."""
    parameters = from_unit(unit)
    total = np.zeros(unit.shape[1])
    for first in range(0, len(numbers), _REPLAYED_TOGETHER):
        together = [held.get(number) for number in numbers[first : first + _REPLAYED_TOGETHER]]
        recordings = [one.recording for one in together]
        summaries = twin_summaries(recordings, held.scenario, parameters, seed=seed, first=first)
        for one, simulated in zip(together, summaries, strict=True):
            total += loss(one.live, simulated)
    return np.asarray(total / len(numbers))


def _provenance(
    recordings: Sequence[StoredRecording],
    settings: FitSettings,
    losses: Array,
    generations: int,
) -> dict[str, Any]:
    return {
        "recordings": [r.name for r in recordings],
        "recordings_sha256": dataset_hash(recordings),
        "arms": sorted({r.arm for r in recordings}),
        "kernel": recordings[0].run().node.kernel,
        "seed": settings.seed,
        "generations": generations,
        "loss": [round(float(v), 4) for v in losses],
        "compared": list(NAMES),
        "segment_s": SEGMENT_S,
    }
