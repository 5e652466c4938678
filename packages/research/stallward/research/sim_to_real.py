"""The sim-to-real gap: features on a node and on its twin, under the levers of one recording.

``python -m stallward.research.sim_to_real RECORDINGS TWINS`` prints the gap of each
feature. The spreads of :mod:`stallward.env.simulation.nuisance` are taken from it. A twin whose
work and latency agree with the node may still differ in the features, by which a policy decides.
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
from stallward.env.recording.recording import Recording, load_recording
from stallward.env.recording.run_info import load_run
from stallward.env.twin.batch import TICK_S, TwinBatch
from stallward.env.twin.frame import FRAME, fill_frame, frame_at, raw_frames
from stallward.env.twin.inputs.exogenous import PAGE_BYTES
from stallward.env.twin.inputs.fitted import FittedTwin, load_fitted
from stallward.env.twin.inputs.parameters import to_array
from stallward.env.twin.physics.background import slots_in_use
from stallward.env.twin.physics.state import node_at
from stallward.env.twin.simd.backend import WIDTH
from stallward.env.twin.simd.jit import kernel
from stallward.research.raw_rows import recorded_frames
from stallward.training.errors import DatasetError
from stallward.training.parallel.executor import Job
from stallward.training.parallel.local_processes import LOCAL
from stallward.training.progress import Report, silent
from stallward.training.twin_fit.replay import (
    RecordedLevers,
    ended_slots,
    replay_levers,
    set_levers,
    with_recorded_running,
)

Array = NDArray[np.float64]

_DRAWS: Final = 8
_SEED: Final = 5
_LEVERS: Final = tuple(
    SLOT[name]
    for name in (
        "paused", "paused_for_s", "since_thaw_s", "paused_share", "limit_bytes", "reference_bytes",
    )
)  # fmt: skip
_LEAST: Final = 0.005
"""Features below this on both sides are left out; ``2 * _LEAST`` keeps logarithms finite."""
_TO_SIGMA: Final = 2.5631
"""From the 10th to the 90th percentile of a normal distribution, in standard deviations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureMeans:
    """The mean features of a recording after its burn-in, live and on the twin."""

    name: str
    """The name of the recording."""
    live: Array
    """The live means, ``(OBSERVATION_SIZE,)``."""
    twin: Array
    """The means on the twin, the same shape."""


def feature_means(recording: Recording, twin: FittedTwin) -> FeatureMeans:
    """Measure the mean features of a recording, live and on the twin under the same levers.

    Args:
        recording: A recording of an application together with its background.
        twin: The twin of its scenario; its likeliest draws are replayed in one batch.
    """
    draws = to_array(twin.draws[:_DRAWS])
    count = draws.shape[1]
    batch = TwinBatch([with_recorded_running(twin.scenario, recording)], count, seed=_SEED)
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
                encoder.encode(_with_recorded_levers(frame, twin_frame, float(time_s[k])))
                for encoder, twin_frame in zip(
                    encoders[1:], raw_frames(frames, everyone), strict=True
                )
            ]
        )
    measured = time_s >= recording.run.measured_from_s
    return FeatureMeans(
        name=recording.path.name,
        live=np.mean(np.array(live, dtype=np.float64)[measured], axis=0),
        twin=np.mean(np.array(on_twin, dtype=np.float64)[measured], axis=(0, 1)),
    )


def _advance(batch: TwinBatch, levers: Sequence[Array], ended: NDArray[np.bool_]) -> None:
    """Step all nodes by a tick, with the levers of a recording."""
    repeated = (np.repeat(np.asarray(lever)[..., None], batch.batch, axis=-1) for lever in levers)
    if ended.any():
        batch.end_slots(np.repeat(ended[:, None], batch.batch, axis=1))
    set_levers(batch, RecordedLevers(*repeated))
    batch.advance()


@kernel
def _fill(state: Array, frames: Array) -> None:
    for at in range(0, state.shape[0] * WIDTH, WIDTH):
        node = node_at(state, at)
        fill_frame(node, frame_at(frames, at), slots_in_use(node))


def _with_recorded_levers(recorded: RawFrame, twin_frame: RawFrame, time_s: float) -> RawFrame:
    """A frame of the twin, with the recorded time and lever states."""
    node, slots = list(twin_frame.node), [list(slot) for slot in twin_frame.slots]
    node[NODE["time_s"]] = time_s
    node[NODE["profile_index"]] = recorded.node[NODE["profile_index"]]
    for slot, recorded_slot in zip(slots, recorded.slots, strict=True):
        for column in _LEVERS:
            slot[column] = recorded_slot[column]
    return RawFrame(node=node, slots=slots)


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureGap:
    """The sim-to-real gap of a feature, over recordings and, for a slot feature, over slots."""

    feature: str
    """The name of the feature, without the number of a slot."""
    live: float
    """The live mean."""
    twin: float
    """The mean on the twin."""
    median: float
    """The median of ln(twin / live)."""
    spread: float
    """The spread of ln(twin / live), as a standard deviation."""


def feature_gaps(means: Sequence[FeatureMeans]) -> list[FeatureGap]:
    """The gap of each feature, without levers and features that are close to 0 everywhere."""
    columns: dict[str, list[int]] = {}
    for i, name in enumerate(OBSERVATION_NAMES):
        columns.setdefault(re.sub(r"^slot\d", "slotN", name), []).append(i)
    all_live = np.array([recording.live for recording in means])
    all_twin = np.array([recording.twin for recording in means])
    gaps = []
    for name, at in columns.items():
        live, twin = all_live[:, at].ravel(), all_twin[:, at].ravel()
        large = (live > _LEAST) | (twin > _LEAST)
        if large.sum() < 3 or np.allclose(live[large], twin[large]):
            continue
        logs = np.log((twin[large] + 2 * _LEAST) / (live[large] + 2 * _LEAST))
        tenth, median, ninetieth = np.quantile(logs, [0.1, 0.5, 0.9])
        gaps.append(
            FeatureGap(
                feature=name,
                live=float(live[large].mean()),
                twin=float(twin[large].mean()),
                median=float(median),
                spread=float((ninetieth - tenth) / _TO_SIGMA),
            )
        )
    return gaps


def _means_of_twin(twin: Path, recordings: Sequence[Path], report: Report) -> list[FeatureMeans]:
    report(twin.stem, 0.0)
    fitted = load_fitted(twin)
    return [feature_means(load_recording(path), fitted) for path in recordings]


def gap_table(recordings: Path, twins: Path) -> str:
    """The feature gaps over all recordings of a folder whose scenario has a twin, in Markdown.

    Raises:
        DatasetError: If there is no such recording.
        StallwardError: If a recording or a twin cannot be read.
    """
    by_twin: dict[Path, list[Path]] = {}
    for path in (file.parent for file in sorted(recordings.glob("*/run.json"))):
        run = load_run(path)
        twin = twins / f"{run.scenario}.json"
        if run.condition == "together" and twin.exists():
            by_twin.setdefault(twin, []).append(path)
    if not by_twin:
        raise DatasetError(
            f"No recording in {recordings} is of a scenario that has a twin in {twins}.",
            next_step="Record some with `stallward record`, or fit twins to them.",
        )
    jobs = [
        Job(twin.stem, partial(_means_of_twin, twin, paths)) for twin, paths in by_twin.items()
    ]
    means = [one for part in LOCAL.run(jobs, silent) for one in part]
    lines = [
        f"{len(means)} recordings",
        "",
        "| feature | live | twin | median ln(twin / live) | spread |",
        "| --- | ---: | ---: | ---: | ---: |",
        *(
            f"| `{gap.feature}` | {gap.live:.3f} | {gap.twin:.3f} | {gap.median:+.2f} "
            f"| {gap.spread:.2f} |"
            for gap in feature_gaps(means)
        ),
    ]
    return "\n".join(lines) + "\n"


def _main() -> None:
    parser = argparse.ArgumentParser(description="The sim-to-real gap of each feature.")
    parser.add_argument("recordings", type=Path, help="directory of recordings")
    parser.add_argument("twins", type=Path, help="directory of fitted twins")
    arguments = parser.parse_args()
    try:
        sys.stdout.write(gap_table(arguments.recordings, arguments.twins))
    except StallwardError as error:
        sys.exit(f"{parser.prog}: {error}")


if __name__ == "__main__":
    _main()
