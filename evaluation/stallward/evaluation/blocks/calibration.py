"""What controllers are told the target is, where a scenario leaves it to be measured.

One number per scenario and node: recordings and blocks of which each was told another target
cannot be compared. It comes from one block with ample memory, as long as the scenario says (its
p99 must be more than one request's bad luck, and the detector answers 15 a second), or from
recordings that were told it before.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from stallward.env.errors import RecordingError
from stallward.env.recording.run_info import NodeInfo, load_run
from stallward.evaluation.blocks.request import Runner, RunRequest
from stallward.evaluation.blocks.rerun import run_undisturbed
from stallward.evaluation.errors import ComparisonError
from stallward.evaluation.measures.block_measures import measure_recording
from stallward.evaluation.measures.estimates import auto_target_ms

UNCALIBRATED_SLO_MS: Final = 100.0
"""What the daemon of the calibration block itself is told; nobody acts on it."""
_BURN_IN_S: Final = 3.0


def target_ms(ample: Path) -> float:
    """The target that a recording with ample memory gives: 1.5 x its p99.

    Raises:
        ComparisonError: If no request was answered in it.
    """
    found_ms = auto_target_ms([measure_recording(ample)])
    if found_ms is None:
        raise ComparisonError(
            "No request was answered with ample memory.",
            next_step="Check that the load generator of the scenario runs.",
        )
    return found_ms


def calibrate_ms(runner: Runner, calibration_s: float, seed: int, scratch: Path) -> float:
    """Measure the target with a block of its own.

    Args:
        runner: Runs it.
        calibration_s: Its measured length.
        seed: Of the block.
        scratch: Folder for its recording, which is removed again.

    Raises:
        StallwardError: If the block fails or answers nothing.
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
    directories: Iterable[Path], *, scenario: str, parameters: Mapping[str, Any], node: NodeInfo
) -> float | None:
    """The target that recordings of the same scenario on the same node were told.

    Args:
        directories: Recordings; anything else is passed over.
        scenario: Its name.
        parameters: The contents of its file: after a change its latencies are others.
        node: The machine; another one has another target.

    Returns:
        The target of the first that fits, or ``None``.
    """
    for directory in directories:
        try:
            run = load_run(directory)
        except RecordingError:
            continue
        if (run.scenario, run.scenario_parameters, run.node) == (scenario, parameters, node):
            return run.slo_ms
    return None
