"""The state of a node once a second, from recordings as Parquet."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from stallward.env.catalogue.find import recording_folders
from stallward.env.recording.applications import application_names
from stallward.env.recording.recording import Recording, load_recording
from stallward.evaluation.assess.readings import (
    MOST_GAP_S,
    Readings,
    titles,
    titles_of_applications,
)
from stallward.evaluation.errors import MeasureError


def readings_of_recordings(place: Path) -> list[Readings]:
    """The readings of the recordings in a folder.

    Raises:
        RecordingError: If one cannot be opened.
        MeasureError: If one has no ticks after its burn-in.
    """
    return [_readings_of(load_recording(one, several=True)) for one in recording_folders([place])]


def _readings_of(recording: Recording) -> Readings:
    """The readings of a recording after its burn-in."""
    run, tick_s = recording.run, recording.tick("time_s")
    measured = np.flatnonzero((tick_s >= run.measured_from_s) & (tick_s <= run.end_s))
    if not measured.size:
        raise MeasureError(f"{recording.path} has no ticks after its burn-in.")
    _, first = np.unique(np.floor(tick_s[measured]), return_index=True)
    kept = measured[first]
    profile = recording.ticks.get("profile")
    tuned = np.zeros(tick_s.size) if profile is None else ~np.isin(profile, ("", "default"))
    names, number = np.unique(recording.actions["controller"], return_inverse=True)
    columns = {
        "time_s": tick_s,
        "wall_time_s": recording.tick("wall_time_s"),
        "stretch": np.cumsum(np.diff(tick_s, prepend=tick_s[0]) > MOST_GAP_S),
        "target_ms": np.full(tick_s.size, run.slo_ms),
        "tuned": tuned,
        "asked": np.where(names == "none", 0, 1 + np.arange(names.size))[number],
    }
    applications = application_names(recording.ticks)
    for title in (*titles(len(run.slot_names)), *titles_of_applications(applications)):
        advised = recording.actions.get(title)
        columns[title] = recording.tick(title) if advised is None else advised
    return Readings(
        columns={title: np.asarray(one, dtype=np.float64)[kept] for title, one in columns.items()},
        slot_names=run.slot_names,
        controllers=tuple(map(str, names)),
        applications=applications,
    )
