"""The fits for a measurement of fidelity. They take hours, so they are kept until it is done."""

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
    """How twins are fitted, and where fits are kept so that a measurement can be resumed."""

    generations: int = 100
    """Generations of each fit; with the same number, a fit is the same on any machine."""
    seed: int = 1
    """Seeds each search."""
    directory: Path | None = None
    """A directory for the fits and nothing else; with ``None`` they are not kept."""

    def fit(self, recordings: Sequence[Path], report: Report = silent) -> FittedTwin:
        """Fit a twin to ``recordings`` of one scenario, or load the fit that was kept.

        Raises:
            EvaluationError: If there is no recording, or they are of several scenarios.
            RecordingError: If the scenario cannot be described from them.
            TwinError: If the fit cannot be saved.
        """
        kept = None if self.directory is None else self._place(self.directory, recordings)
        if kept is not None:
            try:
                return load_fitted(kept)
            except TwinError:  # there is none, or it is from an older version
                pass
        twin = fit_recordings(
            recordings, generations=self.generations, seed=self.seed, report=report
        )
        if kept is not None:
            save_fitted(kept, twin)
        return twin

    def remove(self) -> None:
        """Remove the kept fits: once the result is written, nothing needs them any more."""
        if self.directory is not None:
            shutil.rmtree(self.directory, ignore_errors=True)

    def _place(self, directory: Path, recordings: Sequence[Path]) -> Path:
        """The file of a fit, named by a hash of everything it depends on, including the code."""
        digest = hashlib.sha256(repr((_code(), self.generations, self.seed)).encode())
        for recording in sorted(recordings):
            for file in sorted(p for p in recording.rglob("*") if p.is_file()):
                digest.update(f"{recording.name}/{file.relative_to(recording)}".encode())
                digest.update(hashlib.sha256(file.read_bytes()).digest())
        return directory / f"{digest.hexdigest()[:32]}.json"


@functools.cache
def _code() -> str:
    """A digest of the code that computes twins and fits them."""
    digest = hashlib.sha256()
    for package in (stallward.env.twin, stallward.training):
        for folder in package.__path__:
            for file in sorted(Path(folder).rglob("*.py")):
                digest.update(file.name.encode() + hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()


DEFAULT_FITS: Final = Fits()
