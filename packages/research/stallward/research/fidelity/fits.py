"""The fits for a measurement of fidelity. They take hours, so they are kept until it is done."""

from __future__ import annotations

import functools
import hashlib
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import stallward.env.twin
import stallward.training
from stallward.env.errors import TwinError
from stallward.env.recording.stored import RecordingFolder
from stallward.env.twin.inputs.fitted import FittedTwin, load_fitted, save_fitted
from stallward.training.parallel.executor import Executor, Job
from stallward.training.parallel.local_processes import IN_THIS_PROCESS
from stallward.training.pipeline.fit import fit_recordings
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

    def fit(
        self,
        recordings: Sequence[tuple[str, Sequence[Path]]],
        *,
        executor: Executor = IN_THIS_PROCESS,
        report: Report = silent,
    ) -> list[FittedTwin]:
        """Fit twins, or load the fits that were kept; each fit is kept as soon as it is done.

        Args:
            recordings: For each fit its name, and the recordings of one scenario.
            executor: Runs the fits.
            report: Called with the progress.

        Raises:
            TrainingError: If there is no recording, or they are of several scenarios.
            RecordingError: If the scenario cannot be described from them.
            TwinError: If a fit cannot be saved.
        """
        places = [self._place(paths) for _, paths in recordings]
        twins = [_load(place) for place in places]
        missing = [number for number, twin in enumerate(twins) if twin is None]

        def keep(job: int, twin: FittedTwin) -> None:
            number = missing[job]
            twins[number] = twin
            place = places[number]
            if place is not None:
                save_fitted(place, twin)

        executor.run(
            [
                Job(name, partial(self._fit, name, paths), tuple(paths))
                for name, paths in (recordings[number] for number in missing)
            ],
            report,
            keep=keep,
        )
        return [twin for twin in twins if twin is not None]

    def _fit(self, name: str, recordings: Sequence[Path], report: Report) -> FittedTwin:
        return fit_recordings(
            [RecordingFolder.open(path) for path in recordings],
            generations=self.generations,
            seed=self.seed,
            report=lambda message, share: report(f"{name}, {message}", share),
        )

    def remove(self) -> None:
        """Remove the kept fits: once the result is written, nothing needs them any more."""
        if self.directory is not None:
            shutil.rmtree(self.directory, ignore_errors=True)

    def _place(self, recordings: Sequence[Path]) -> Path | None:
        """The file of a fit, named by a hash of everything it depends on, including the code."""
        if self.directory is None:
            return None
        digest = hashlib.sha256(repr((_code(), self.generations, self.seed)).encode())
        for recording in sorted(recordings):
            for file in sorted(p for p in recording.rglob("*") if p.is_file()):
                digest.update(f"{recording.name}/{file.relative_to(recording)}".encode())
                digest.update(hashlib.sha256(file.read_bytes()).digest())
        return self.directory / f"{digest.hexdigest()[:32]}.json"


def _load(kept: Path | None) -> FittedTwin | None:
    try:
        return None if kept is None else load_fitted(kept)
    except TwinError:  # there is none, or it is from an older version
        return None


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
