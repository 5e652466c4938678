"""The target "tight", for scenarios that state none: controllers are given it, and judged by it.

There is one target for each scenario and node, because runs with different targets cannot be
compared. It comes from one block with ample memory, or from recordings that were made with it
before. The scenario states the length of that block: its p99 must not depend on a single slow
request, and the detector answers only 15 requests a second.

A burst in that block must not set the target either: once, one of a second made the target of
nginx 113 ms instead of 1.5 ms. So the block is cut into parts of equal length, and the median of
their p99s counts.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from stallward.env.errors import RecordingError
from stallward.env.recording.run_info import NodeInfo, load_run
from stallward.env.scenario.scenario import states_target, workload_of
from stallward.evaluation.blocks.request import Runner, RunRequest, run_undisturbed
from stallward.evaluation.errors import ComparisonError
from stallward.evaluation.measures.block_measures import BlockMeasures, measure_recording
from stallward.evaluation.measures.bootstrap import pooled_quantiles

UNCALIBRATED_SLO_MS: Final = 100.0
"""The target of the daemon in the calibration block itself; no controller acts on it."""
_BURN_IN_S: Final = 3.0
AUTO_SLO_FACTOR: Final = 1.5
_MOST_PARTS: Final = 10
_LEAST_IN_PART: Final = 100
"""Fewer answers have no p99 of their own."""


def auto_target_ms(ample: BlockMeasures) -> float | None:
    """The target by a block with ample memory: 1.5 x its usual p99.

    The usual p99 is the median of those of up to ten parts of equal length, each with about a
    hundred answers or more. Failed requests are left out, because they would make the target
    easier.

    Returns:
        ``None`` if no request was answered.
    """
    answered_ms = ample.latency_ms[ample.ok]
    if not len(answered_ms):
        return None
    parts = max(min(_MOST_PARTS, len(answered_ms) // _LEAST_IN_PART), 1)
    part = np.minimum(ample.scheduled_s[ample.ok] / ample.duration_s * parts, parts - 1)
    in_parts = [answered_ms[part.astype(np.int64) == k] for k in range(parts)]
    p99s_ms = [float(pooled_quantiles([ms], [0.99])[0]) for ms in in_parts if len(ms)]
    return AUTO_SLO_FACTOR * float(np.median(p99s_ms))


def target_ms(ample: Path) -> float:
    """The target from a recording with ample memory: 1.5 x its usual p99.

    Raises:
        ComparisonError: If no request was answered in it.
    """
    slo_ms = auto_target_ms(measure_recording(ample))
    if slo_ms is None:
        raise ComparisonError(
            "No request was answered with ample memory.",
            next_step="Check that the load generator of the scenario runs.",
        )
    return slo_ms


def calibrate_ms(runner: Runner, calibration_s: float, seed: int, scratch: Path) -> float:
    """Measure the target with a block of its own.

    Args:
        runner: Runs the block.
        calibration_s: The measured length of the block.
        seed: The seed of the block.
        scratch: Folder for the recording, which is removed afterwards.

    Raises:
        StallwardError: If the block fails, or no request was answered.
    """
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        out = Path(folder) / "ample"
        request = RunRequest(
            condition="ample",
            slo_ms=UNCALIBRATED_SLO_MS,
            duration_s=calibration_s,
            burn_in_s=_BURN_IN_S,
            seed=seed,
        )
        run_undisturbed(runner, request, out, "The block with ample memory for the target")
        return target_ms(out)


def recorded_ms(
    directories: Iterable[Path], *, scenario: str, content: Mapping[str, Any], node: NodeInfo
) -> float | None:
    """The measured target that recordings of the same workload on the same node were made with.

    Args:
        directories: Recordings; any other directory is skipped.
        scenario: The scenario's name.
        content: The content of the scenario's file, since a change of it changes latencies.
        node: The machine, since each machine has its own target.

    Returns:
        The target of the first recording that matches, or ``None``.
    """
    for directory in directories:
        try:
            run = load_run(directory)
        except RecordingError:
            continue
        made_with = run.scenario_parameters
        if states_target(made_with) or (run.scenario, run.node) != (scenario, node):
            continue
        if workload_of(made_with) == workload_of(content):
            return run.slo_ms
    return None
