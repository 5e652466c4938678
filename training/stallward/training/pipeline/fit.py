"""Fits twins to recordings."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from stallward.agent.errors import UsageError
from stallward.env.catalogue.find import find_recordings
from stallward.env.errors import SplitError, TwinError
from stallward.env.recording.split import Part, choose_part
from stallward.env.recording.stored import MOST_HELD, Selection, Stored, StoredRecording, spread
from stallward.env.scenario.file import scenario_from
from stallward.env.twin.estimate.exogenous import estimate_exogenous
from stallward.env.twin.estimate.transfer import transfer
from stallward.env.twin.inputs.fitted import FittedTwin, load_fitted, save_fitted, twin_to_json
from stallward.training.errors import TrainingError
from stallward.training.parallel.executor import Executor, Job, time_for_each
from stallward.training.parallel.local_processes import LOCAL
from stallward.training.parallel.versions import versions_here
from stallward.training.pipeline.outputs import check_file
from stallward.training.progress import Report, silent
from stallward.training.twin_fit.fit import FitSettings, fit_scenario

# ---------- The recordings that a fit or a training may use

PART_USES: Final = {"train": "learn from", "validation": "choose by", None: "look at"}
"""What the twins of a part of the split are for, in words."""


def fit_recordings(
    recordings: Sequence[StoredRecording],
    *,
    seconds: float = math.inf,
    generations: int | None = None,
    seed: int = 1,
    start: FittedTwin | None = None,
    report: Report = silent,
) -> FittedTwin:
    """Fit a twin to recordings of one scenario.

    Args:
        recordings: The recordings; a few of them are in memory at a time.
        seconds: The most time for the fit.
        generations: The most generations, by default those of ``FitSettings``.
        seed: The seed of the search.
        start: A twin from which the search starts.
        report: Called with the progress.

    Raises:
        TrainingError: If there is no recording, or they are of several scenarios.
        RecordingError: If they are not enough to describe the scenario.
    """
    scenarios = sorted({recording.scenario for recording in recordings})
    if len(scenarios) != 1:
        raise TrainingError(
            f"One twin cannot be fitted to {len(scenarios)} scenarios ({', '.join(scenarios)})."
        )
    _check_units(recordings)
    settings = FitSettings(max_seconds=seconds, seed=seed)
    if generations is not None:
        settings = replace(settings, generations=generations)
    return fit_scenario(recordings, settings, report, start=start)


def _check_units(recordings: Sequence[StoredRecording]) -> None:
    """Refuse recordings whose work does not compare.

    Raises:
        TrainingError: If a slot's work was counted in different units.
    """
    units = {recording.run().slot_units for recording in recordings} - {()}
    if len(units) > 1:
        listed = " and ".join(sorted("/".join(one) for one in units))
        raise TrainingError(
            f"The work in these recordings was counted in different units: {listed}.",
            next_step="Fit a twin to those with one [background.work] for each slot.",
        )


def drop_held_out(
    recordings: Sequence[Stored],
    *,
    parts: Sequence[Part] = ("train",),
    held_out: bool = False,
    report: Report = silent,
) -> Sequence[Stored]:
    """Drop the recordings of held-out scenarios, and report which they are.

    Args:
        recordings: The recordings.
        parts: The parts of the split whose recordings are kept.
        held_out: Keep all recordings.
        report: Called with a note about what was dropped.

    Raises:
        SplitError: If all of them are held out.
    """
    if held_out:
        return recordings
    chosen = choose_part(recordings, parts)
    if chosen.left_out and not chosen.kept:
        raise SplitError(
            f"All these recordings are held out: {chosen.note}.",
            next_step="Name recordings to train on; --held-out fits a twin to look at, "
            "which `stallward train` does not take.",
        )
    if chosen.left_out:
        report(chosen.note, 0.0)
    return chosen.kept


_DETERMINED_BY: Final = "fit_sha256"
"""The key in a twin's provenance for a digest of everything that determined its fit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TwinFiles:
    """The files of the twins that were asked for."""

    files: tuple[Path, ...]
    """One for each scenario."""
    kept: tuple[Path, ...]
    """Those of them that an earlier call had fitted in the same way."""


def fit_twin(
    places: Sequence[str | Path],
    *,
    selection: Selection | None = None,
    out: Path,
    seconds: float = math.inf,
    generations: int | None = None,
    leave_out: str = "",
    held_out: bool = False,
    seed: int = 1,
    start: FittedTwin | None = None,
    again: bool = False,
    executor: Executor = LOCAL,
    report: Report = silent,
) -> TwinFiles:
    """Fit one twin to every scenario recorded in ``places``, except those held out for tests.

    Each twin is written as soon as it is fitted. A file that has the twin of the same recordings
    and settings, fitted by the same versions, is kept, so that the same call goes on after an
    interruption.

    Args:
        places: Recordings, directories of them, or catalogues.
        selection: Which of their recordings are used; by default all.
        out: The file to write if there is one scenario; otherwise the directory of the files.
        seconds: The most time for all fits together.
        generations: The most generations of each fit, by default those of ``FitSettings``.
        leave_out: An arm whose recordings are not used.
        held_out: Fit to held-out scenarios, too (``stallward.env.recording.split``), in order to
            look at their twins.
        seed: The seed of the search.
        start: A fitted twin of the only scenario, from which the search starts.
        again: Fit those twins again, too, whose files could be kept.
        executor: Runs the fits.
        report: Called with the progress.

    Raises:
        StallwardError: If there is nothing to fit.
    """
    by_scenario: dict[str, list[StoredRecording]] = {}
    found = _find(places, selection)
    # Policies are chosen on twins of the validation scenarios, and not trained on them.
    parts: tuple[Part, ...] = ("train", "validation")
    for one in drop_held_out(found, parts=parts, held_out=held_out, report=report):
        if not leave_out or one.arm != leave_out or one.condition != "together":
            by_scenario.setdefault(one.scenario, []).append(one)
    if not by_scenario:
        raise TrainingError(
            f"There is no recording in {', '.join(str(p) for p in places)}.",
            next_step="Record some with `stallward record`.",
        )
    if start is not None and list(by_scenario) != [start.scenario.name]:
        raise UsageError(
            f"The search cannot begin at the twin of {start.scenario.name!r}: these are "
            f"recordings of {', '.join(by_scenario)}.",
            next_step="Name recordings of that scenario, or begin without --start.",
        )
    files = _files(by_scenario, out)
    settings = {"seconds": seconds, "generations": generations, "seed": seed}
    digests = {
        name: _determined_by(recordings, settings, start)
        for name, recordings in by_scenario.items()
    }
    missing = [name for name in files if again or _digest_in(files[name]) != digests[name]]
    each_s = time_for_each(seconds, len(missing), executor)
    fit = partial(fit_recordings, seconds=each_s, generations=generations, seed=seed, start=start)

    def keep(number: int, twin: FittedTwin) -> None:
        name = missing[number]
        provenance = {**twin.provenance, _DETERMINED_BY: digests[name]}
        save_fitted(files[name], replace(twin, provenance=provenance))

    executor.run(
        [
            Job(name, partial(_fit, fit, by_scenario[name]), _files_of(by_scenario[name]))
            for name in missing
        ],
        report,
        keep=keep,
    )
    return TwinFiles(
        files=tuple(files.values()),
        kept=tuple(file for name, file in files.items() if name not in missing),
    )


def _find(places: Sequence[str | Path], selection: Selection | None) -> list[StoredRecording]:
    """The selected recordings; with an arm also the references of the scenarios that it ran in.

    Without references the sizes and full speeds of programs would be guessed from runs under
    pressure, and no controller is the arm of a reference.
    """
    arm = selection.arm if selection else ""
    if selection is None or not arm:
        return find_recordings(places, selection)
    found = find_recordings(places, replace(selection, arm=""))
    own = {one.scenario for one in found if (one.condition, one.arm) == ("together", arm)}
    return [o for o in found if o.scenario in own and (o.condition != "together" or o.arm == arm)]


def _determined_by(
    recordings: Sequence[StoredRecording],
    settings: Mapping[str, float | None],
    start: FittedTwin | None,
) -> str:
    """A digest of everything that determines a fit, the order of recordings and the code too."""
    described = {
        "recordings": [recording.sha256() for recording in recordings],
        "settings": settings,
        "start": None if start is None else twin_to_json(start),
        "versions": versions_here(),
    }
    return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()


def _digest_in(file: Path) -> object:
    """What determined the twin in a file; ``None`` if there is none, or one without the digest."""
    try:
        return load_fitted(file).provenance.get(_DETERMINED_BY)
    except TwinError:
        return None


def transfer_twins(
    places: Sequence[str | Path],
    *,
    selection: Selection | None = None,
    out: Path,
    fitted: Sequence[FittedTwin],
    report: Report = silent,
) -> list[Path]:
    """Make twins that have seen no run under pressure of their scenario.

    Their sizes and full speeds come from the references, their parameters from the twins of other
    scenarios (:mod:`stallward.env.twin.estimate.transfer`).

    Args:
        places: Recordings, directories of them, or catalogues.
        selection: Which of their recordings are used; by default all.
        out: The file to write if there is one scenario; otherwise the directory of the files.
        fitted: Fitted twins. Those of the same scenario are left out.
        report: Called with the progress.

    Returns:
        The files written.

    Raises:
        StallwardError: If there is no reference, or no twin of another scenario.
    """
    by_scenario: dict[str, list[StoredRecording]] = {}
    for one in _find(places, selection):
        if one.condition != "together":
            by_scenario.setdefault(one.scenario, []).append(one)
    if not by_scenario:
        raise TrainingError(
            f"There is no recording of a reference in {', '.join(str(p) for p in places)}.",
            next_step="Record the conditions alone, ample and background with `stallward record`.",
        )
    files = _files(by_scenario, out)
    for k, (name, found) in enumerate(by_scenario.items()):
        report(name, k / len(by_scenario))
        others = [twin for twin in fitted if twin.scenario.name != name]
        if not others:
            raise TrainingError(
                f"There is no twin of a scenario other than {name}.",
                next_step="Fit one with `stallward fit`.",
            )
        references = [one.load() for one in spread(found, MOST_HELD)]
        recorded = scenario_from(references[0].run.scenario_parameters, Path(f"{name}.toml"))
        described = replace(
            estimate_exogenous(name, references), zone_bytes=recorded.sandbox.limit_bytes
        )
        save_fitted(files[name], transfer(described, others))
    report("done", 1.0)
    return list(files.values())


def _files(by_scenario: Mapping[str, Sequence[StoredRecording]], out: Path) -> dict[str, Path]:
    """The file of each scenario's twin, which does not exist or is one.

    Raises:
        StallwardError: If one file is named for several scenarios, or holds something else.
    """
    if len(by_scenario) > 1 and out.suffix == ".json":
        raise UsageError(
            f"These are recordings of {len(by_scenario)} scenarios.",
            next_step="Name a directory with --out; it gets one twin for each.",
        )
    files = {
        scenario: out if out.suffix == ".json" else out / f"{scenario}.json"
        for scenario in by_scenario
    }
    for file in files.values():
        check_file(file, kind="a fitted twin", mark=b'"draws"')
    return files


def _files_of(recordings: Sequence[StoredRecording]) -> tuple[Path, ...]:
    return tuple(dict.fromkeys(file for recording in recordings for file in recording.files))


def _fit(
    fit: Callable[..., FittedTwin], recordings: Sequence[StoredRecording], report: Report
) -> FittedTwin:
    return fit(recordings, report=report)
