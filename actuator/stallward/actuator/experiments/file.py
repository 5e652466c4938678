"""An experiment on the disk, so that it continues after a restart of the daemon."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Final

from stallward.actuator.errors import ExperimentDiskError, ExperimentError
from stallward.actuator.experiments.state import ExperimentState
from stallward.actuator.runtime.private_files import replace_file
from stallward.agent.errors import SchemaError
from stallward.agent.schema.read import read

_NAME: Final = "experiment.json"


def load_state(folder: Path) -> ExperimentState | None:
    """Read the last experiment; ``None`` if there was none.

    Raises:
        ExperimentDiskError: If it cannot be read.
    """
    path = folder / _NAME
    try:
        return read(ExperimentState, json.loads(path.read_text(encoding="utf-8")), strict=False)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, SchemaError, ExperimentError) as error:
        raise ExperimentDiskError(
            f"The experiment {path} cannot be read: {error}.",
            next_step="Move it away, and start the experiment again.",
        ) from error


def save_state(folder: Path, state: ExperimentState) -> None:
    """Keep an experiment in place of the last one.

    Raises:
        ExperimentDiskError: If it cannot be written.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(folder / _NAME, json.dumps(asdict(state)).encode())
    except OSError as error:
        raise ExperimentDiskError(
            f"The experiment cannot be kept in {folder}: {error.strerror}.",
            next_step="Check its rights and the free space.",
        ) from error
