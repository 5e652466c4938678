"""What a policy is shown on a node and on its twin, under the levers of the same recording.

``python -m stallward.training.twin_fit.sim_to_real RECORDINGS TWINS`` prints how far apart the
features are: from that come the spreads of :mod:`stallward.env.simulation.nuisance`. Work and
latency agree sooner than what a policy sees of their causes, and what it sees is what it decides
by.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.agent.errors import StallwardError
from stallward.agent.observation.encoder import OBSERVATION_NAMES, ObservationEncoder
from stallward.agent.observation.raw import NODE, SLOT, RawFrame
from stallward.env.recording.raw_rows import recorded_frames
from stallward.env.recording.recording import Recording, load_recording
from stallward.env.recording.run_info import load_run
from stallward.env.twin.batch import TICK_S, TwinBatch
from stallward.env.twin.frame import FRAME, fill_frame, frame_at, raw_frames
from stallward.env.twin.inputs.exogenous import PAGE_BYTES
from stallward.env.twin.inputs.fitted import FittedTwin, load_fitted
from stallward.env.twin.inputs.parameters import to_array
from stallward.env.twin.physics.background import slots_in_use
from stallward.env.twin.physics.state import node_at
from stallward.env.twin.simd.jit import kernel
from stallward.env.twin.simd.vectors import WIDTH
from stallward.training.errors import DatasetError
from stallward.training.parallel import side_by_side
from stallward.training.progress import Report
from stallward.training.twin_fit.replay import as_it_ran, ended_slots, replay_levers

Array = NDArray[np.float64]

_DRAWS: Final = 8
_LEVERS: Final = tuple(
    SLOT[name]
    for name in (
        "paused", "paused_for_s", "since_thaw_s", "paused_share", "limit_bytes", "reference_bytes",
    )
)  # fmt: skip
_LEAST: Final = 0.005
"""Features below this on both sides say nothing; ``2 * _LEAST`` more keeps logarithms finite."""
_TO_SIGMA: Final = 2.5631
"""From the 10th to the 90th percentile of a normal distribution, in standard deviations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """Means over a recording after its burn-in, ``(OBSERVATION_SIZE,)``."""

    name: str
    live: Array
    twin: Array


def shown(recording: Recording, twin: FittedTwin, *, seed: int = 5) -> Shown:
    """What was observed live, and what the twin shows under the same levers.

    Args:
        recording: Of an application and its background together.
        twin: Of its scenario; its likeliest draws are replayed side by side.
        seed: Of the twin's randomness.
    """
    draws = to_array(twin.draws[:_DRAWS])
    count = draws.shape[1]
    batch = TwinBatch([as_it_ran(twin.scenario, recording)], count, seed=seed)
    batch.reset(np.ones(count, dtype=bool), np.zeros(count, dtype=np.int64), draws)
    batch.nodes.zone_pages = recording.run.sandbox_bytes / PAGE_BYTES
    levers = replay_levers(recording)
    ended = ended_slots(recording, len(levers[0]))
    frames, everyone = FRAME.empty(count), np.arange(count)
    encoders = [ObservationEncoder(recording.run.slo_ms) for _ in range(1 + count)]
    time_s = recording.tick("time_s")
    live, on_twin, tick = [], [], 0
    for k, frame in enumerate(recorded_frames(recording)):
        while tick < len(ended) and recording.run.start_s + tick * TICK_S <= time_s[k]:
            _advance(batch, [lever[tick] for lever in levers], ended[tick])
            tick += 1
        _fill(batch.world.state, frames)
        live.append(encoders[0].encode(frame))
        on_twin.append(
            [
                encoder.encode(_under_levers_of(frame, of_twin, float(time_s[k])))
                for encoder, of_twin in zip(
                    encoders[1:], raw_frames(frames, everyone), strict=True
                )
            ]
        )
    measured = time_s >= recording.run.measured_from_s
    return Shown(
        name=recording.path.name,
        live=np.mean(np.array(live, dtype=np.float64)[measured], axis=0),
        twin=np.mean(np.array(on_twin, dtype=np.float64)[measured], axis=(0, 1)),
    )


def _advance(batch: TwinBatch, levers: Sequence[Array], ended: NDArray[np.bool_]) -> None:
    """A tick with a recording's levers on all nodes."""
    each = [np.repeat(np.asarray(lever)[..., None], batch.batch, axis=-1) for lever in levers]
    if ended.any():
        batch.end_slots(np.repeat(ended[:, None], batch.batch, axis=1))
    batch.tick(each[0] > 0, each[1], each[2], (each[3][0], each[3][1]))


@kernel
def _fill(state: Array, frames: Array) -> None:
    for at in range(0, state.shape[0] * WIDTH, WIDTH):
        node = node_at(state, at)
        fill_frame(node, frame_at(frames, at), slots_in_use(node))


def _under_levers_of(recorded: RawFrame, of_twin: RawFrame, time_s: float) -> RawFrame:
    """A frame of the twin at a recorded time, with the levers as they were recorded."""
    node, slots = list(of_twin.node), [list(slot) for slot in of_twin.slots]
    node[NODE["time_s"]] = time_s
    node[NODE["profile_index"]] = recorded.node[NODE["profile_index"]]
    for mine, theirs in zip(slots, recorded.slots, strict=True):
        for column in _LEVERS:
            mine[column] = theirs[column]
    return RawFrame(node=node, slots=slots)


@dataclass(frozen=True, slots=True, kw_only=True)
class Apart:
    """How far apart a feature is, over recordings and, of a slot's, over slots.

    Attributes:
        feature: Its name, without the number of a slot.
        live, twin: Means.
        median: Of ln(twin / live).
        spread: Of the same, as a standard deviation.
    """

    feature: str
    live: float
    twin: float
    median: float
    spread: float


def apart(found: Sequence[Shown]) -> list[Apart]:
    """How far apart each feature is, but for levers and what is next to nothing everywhere."""
    columns: dict[str, list[int]] = {}
    for i, name in enumerate(OBSERVATION_NAMES):
        columns.setdefault(re.sub(r"^slot\d", "slotN", name), []).append(i)
    live, twin = np.array([one.live for one in found]), np.array([one.twin for one in found])
    rows = []
    for name, at in columns.items():
        one, two = live[:, at].ravel(), twin[:, at].ravel()
        says = (one > _LEAST) | (two > _LEAST)
        if says.sum() < 3 or np.allclose(one[says], two[says]):
            continue
        logs = np.log((two[says] + 2 * _LEAST) / (one[says] + 2 * _LEAST))
        tenth, median, ninetieth = np.quantile(logs, [0.1, 0.5, 0.9])
        rows.append(
            Apart(
                feature=name,
                live=float(one[says].mean()),
                twin=float(two[says].mean()),
                median=float(median),
                spread=float((ninetieth - tenth) / _TO_SIGMA),
            )
        )
    return rows


def _of_one_twin(twin: Path, recordings: Sequence[Path], report: Report) -> list[Shown]:
    report(twin.stem, 0.0)
    fitted = load_fitted(twin)
    return [shown(load_recording(path), fitted) for path in recordings]


def table(recordings: Path, twins: Path) -> str:
    """How far apart features are in all recordings of a folder whose scenario has a twin.

    Raises:
        DatasetError: If there is none.
        StallwardError: If one, or its twin, cannot be read.
    """
    of_twin: dict[Path, list[Path]] = {}
    for path in (file.parent for file in sorted(recordings.glob("*/run.json"))):
        run = load_run(path)
        twin = twins / f"{run.scenario}.json"
        if run.condition == "together" and twin.exists():
            of_twin.setdefault(twin, []).append(path)
    if not of_twin:
        raise DatasetError(
            f"No recording in {recordings} is of a scenario that has a twin in {twins}.",
            next_step="Record some with `stallward record`, or fit twins to them.",
        )
    jobs = [partial(_of_one_twin, twin, paths) for twin, paths in of_twin.items()]
    found = [one for some in side_by_side(jobs, lambda _said, _share: None) for one in some]
    lines = [
        f"{len(found)} recordings",
        "",
        "| feature | live | twin | median ln(twin / live) | spread |",
        "| --- | ---: | ---: | ---: | ---: |",
        *(
            f"| `{one.feature}` | {one.live:.3f} | {one.twin:.3f} | {one.median:+.2f} "
            f"| {one.spread:.2f} |"
            for one in apart(found)
        ),
    ]
    return "\n".join(lines) + "\n"


def _main() -> None:
    parser = argparse.ArgumentParser(description="How far apart features are, live and on twins.")
    parser.add_argument("recordings", type=Path, help="directory of recordings")
    parser.add_argument("twins", type=Path, help="directory of fitted twins")
    asked = parser.parse_args()
    try:
        sys.stdout.write(table(asked.recordings, asked.twins))
    except StallwardError as error:
        sys.exit(f"{parser.prog}: {error}")


if __name__ == "__main__":
    _main()
