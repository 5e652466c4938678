"""The fits that fidelity is measured with, kept until it is: all of them take hours."""

from __future__ import annotations

import functools
import hashlib
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import stallward.env.twin
import stallward.training
from stallward.env.errors import TwinError
from stallward.env.twin.inputs.fitted import FittedTwin, load_fitted, save_fitted
from stallward.training.pipeline.recordings import fit_recordings
from stallward.training.progress import Report, silent


@dataclass(frozen=True, slots=True, kw_only=True)
class Fits:
    """How twins are fitted, and where they are kept so that an interrupted measure goes on.

    Args:
        generations: Of each fit: the same on any machine.
        seed: Of each search.
        directory: Where they and nothing else are kept; ``None`` for nowhere.
    """

    generations: int = 100
    seed: int = 1
    directory: Path | None = None

    def fit(self, recordings: Sequence[Path], report: Report = silent) -> FittedTwin:
        """Fit a twin to ``recordings`` of one scenario, or take what was fitted to the same.

        Raises:
            EvaluationError: If there is none, or they are of several scenarios.
            DatasetError: If they cannot describe the scenario.
            TwinError: If it cannot be written down.
        """
        kept = None if self.directory is None else self._place(self.directory, recordings)
        if kept is not None:
            try:
                return load_fitted(kept)
            except TwinError:  # there is none, or one that an older version left
                pass
        twin = fit_recordings(
            recordings, generations=self.generations, seed=self.seed, report=report
        )
        if kept is not None:
            save_fitted(kept, twin)
        return twin

    def forget(self) -> None:
        """Remove them: what they were for is written, and the next version may fit otherwise."""
        if self.directory is not None:
            shutil.rmtree(self.directory, ignore_errors=True)

    def _place(self, directory: Path, recordings: Sequence[Path]) -> Path:
        """Named after all that a fit follows from, the twin's own code among it."""
        digest = hashlib.sha256(repr((_code(), self.generations, self.seed)).encode())
        for recording in sorted(recordings):
            for file in sorted(p for p in recording.rglob("*") if p.is_file()):
                digest.update(f"{recording.name}/{file.relative_to(recording)}".encode())
                digest.update(hashlib.sha256(file.read_bytes()).digest())
        return directory / f"{digest.hexdigest()[:32]}.json"


@functools.cache
def _code() -> str:
    """A digest of what computes a twin and of what fits it."""
    digest = hashlib.sha256()
    for package in (stallward.env.twin, stallward.training):
        for folder in package.__path__:
            for file in sorted(Path(folder).rglob("*.py")):
                digest.update(file.name.encode() + hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()


USUAL_FITS: Final = Fits()
