"""Explains the decisions of a policy on a recording: which features made it choose what it chose.

Every entry of an action is compared with what the policy chooses for the usual observation, the
median of the recording. Where it differs, the features that made the difference are named.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.agent.controllers.onnx import OnnxController
from stallward.agent.observation.encoder import OBSERVATION_NAMES, ObservationEncoder
from stallward.env.recording.recording import Recording
from stallward.research.raw_rows import recorded_frames
from stallward.training.errors import DatasetError
from stallward.training.progress import Report, silent

# ---------- Which features a policy's choices come from: integrated gradients, by differences
# Sundararajan, Taly and Yan, "Axiomatic Attribution for Deep Networks", ICML 2017. The gradients
# along the straight line from the usual observation to the one that is explained add up to the
# difference of the outputs, so that each feature has its part of it. They are taken as central
# differences: a policy is a file that can be run and not differentiated.

Array = NDArray[np.float64]
Outputs = Callable[[NDArray[np.float32]], NDArray[np.float32]]
"""The outputs of a network for one observation: ``(N,)`` to ``(M,)``."""
POINTS: Final = 16
"""How many points of the line are looked at."""
_STEP: Final = 0.02
"""The width of a difference, as a share of the line: wide enough for the digits of float32."""


def integrated_gradients(
    outputs: Outputs, observation: Array, usual: Array, points: int = POINTS
) -> Array:
    """What each feature adds to each output, compared with the usual observation.

    Args:
        outputs: The network.
        observation: What is explained, ``(N,)``.
        usual: What it is compared with, ``(N,)``.
        points: How many points of the line are looked at.

    Returns:
        ``(N, M)``. Over the features they add up to the outputs of ``observation`` less those of
        ``usual``, but for what lies between the points.
    """
    line = observation - usual
    moved = np.flatnonzero(line)
    at = usual + line * ((np.arange(points) + 0.5) / points)[:, None]
    added = np.zeros((len(line), len(outputs(np.asarray(usual, dtype=np.float32)))))
    for feature in moved:
        half = 0.5 * _STEP * line[feature]
        for point in at:
            ends = []
            for side in (half, -half):
                end = point.astype(np.float32)
                end[feature] = point[feature] + side
                ends.append(np.asarray(outputs(end), dtype=np.float64))
            added[feature] += ends[0] - ends[1]
    return added / (_STEP * points)


MOST_TICKS: Final = 20
"""By default, of each choice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """A feature's part in a choice."""

    feature: str
    value: float
    """Its value, the mean of the ticks."""
    usual: float
    share: float
    """Its share of the difference between this choice and the usual one; all of them add up to 1.
    A negative one spoke for the usual choice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """Why an entry of the action was what it was."""

    entry: str
    chosen: str
    usual: str
    ticks: int
    """How many ticks of the recording it was chosen in."""
    causes: tuple[Cause, ...]
    """The features with the largest parts, the largest first."""


def explain(
    policy: OnnxController,
    recording: Recording,
    *,
    at_s: float | None = None,
    most_ticks: int = MOST_TICKS,
    most_causes: int = 5,
    report: Report = silent,
) -> tuple[Explained, ...]:
    """Explain every choice of a policy that is not the usual one.

    Args:
        policy: The policy. It need not be the one that was recorded.
        recording: What it sees.
        at_s: Only the tick at this time, in seconds after the recording's first tick.
        most_ticks: How many ticks of each choice are looked at, evenly spaced.
        most_causes: How many features are named.
        report: Called with the progress.

    Returns:
        The choices, the most frequent first; empty if there is none but the usual.

    Raises:
        DatasetError: If the time is outside the recording, or the policy's actions do not follow
            from its logits.
    """
    encoder = ObservationEncoder(recording.run.slo_ms)
    observations = np.stack([encoder.encode(frame) for frame in recorded_frames(recording)])
    usual = np.median(observations, axis=0).astype(np.float64)
    given, wanted = len(policy.logits(observations[0])), sum(policy.metadata.table.sizes)
    if given != wanted:
        raise DatasetError(f"{policy.path} has {given} logits and {wanted} choices.")
    network = _Network(policy, recording.run.slot_names)
    rows = range(len(observations)) if at_s is None else [_row_at(recording, at_s)]
    actions = np.stack([network.action(observations[row]) for row in rows])
    before = network.action(usual)
    choices = [
        (entry, int(choice), np.flatnonzero(actions[:, entry] == choice))
        for entry in range(len(network.names))
        for choice in np.unique(actions[:, entry])
        if choice != before[entry]
    ]
    explained = []
    for number, (entry, choice, found) in enumerate(choices):
        report(f"{network.names[entry][0]}", number / len(choices))
        spaced = np.unique(np.linspace(0, len(found) - 1, min(len(found), most_ticks)).round())
        some = [rows[found[int(index)]] for index in spaced]
        seen = observations[some].astype(np.float64)
        parts = network.parts(entry, choice, int(before[entry]), seen, usual)
        name, labels = network.names[entry]
        explained.append(
            Explained(
                entry=name,
                chosen=labels[choice],
                usual=labels[int(before[entry])],
                ticks=len(found),
                causes=_causes(parts, seen.mean(axis=0), usual, most_causes),
            )
        )
    return tuple(sorted(explained, key=lambda one: -one.ticks))


def _row_at(recording: Recording, at_s: float) -> int:
    time_s = recording.tick("time_s")
    after_s = time_s - time_s[0]
    if not 0.0 <= at_s <= after_s[-1]:
        raise DatasetError(
            f"The recording has no tick at {at_s:g} s.",
            next_step=f"Name a time from 0 to {after_s[-1]:.0f} s.",
        )
    return int(np.searchsorted(after_s, at_s, side="right")) - 1


def _causes(parts: Array, values: Array, usual: Array, most: int) -> tuple[Cause, ...]:
    shares = parts / parts.sum()
    largest = np.argsort(-np.abs(shares), kind="stable")[:most]
    return tuple(
        Cause(
            feature=OBSERVATION_NAMES[index],
            value=float(values[index]),
            usual=float(usual[index]),
            share=float(shares[index]),
        )
        for index in largest
        if shares[index]
    )


class _Network:
    """A policy's network, entry by entry.

    Args:
        policy: The policy.
        slots: The names of the background groups.
    """

    def __init__(self, policy: OnnxController, slots: Sequence[str]) -> None:
        self._policy = policy
        table = policy.metadata.table
        self._starts = np.cumsum((0, *table.sizes))
        named = table.entries(slots)
        self._kept = [entry for entry, one in enumerate(named) if one is not None]
        self.names = [one for one in named if one is not None]
        """The name of each entry that exists, and of its choices."""

    def action(self, observation: Array | NDArray[np.float32]) -> NDArray[np.int64]:
        """What is chosen for an observation, one number for each entry that exists."""
        logits = self._policy.logits(np.asarray(observation, dtype=np.float32))
        ends = zip(self._starts, self._starts[1:], strict=False)
        heads = [int(np.argmax(logits[start:end])) for start, end in ends]
        return np.array([heads[entry] for entry in self._kept])

    def parts(self, entry: int, choice: int, usual: int, seen: Array, baseline: Array) -> Array:
        """Each feature's part in that a choice was preferred to the usual one, ``(N,)``.

        Args:
            entry: The entry of the action.
            choice: The choice.
            usual: The usual choice.
            seen: The observations for which it was chosen, ``(ticks, N)``.
            baseline: The usual observation, ``(N,)``.
        """
        start = self._starts[self._kept[entry]]

        def preference(observation: NDArray[np.float32]) -> NDArray[np.float32]:
            logits = self._policy.logits(observation)
            return logits[[start + choice]] - logits[[start + usual]]

        added = [integrated_gradients(preference, one, baseline)[:, 0] for one in seen]
        return np.asarray(np.mean(added, axis=0))
