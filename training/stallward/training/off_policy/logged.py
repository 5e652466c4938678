"""Finds the recordings of a randomised arm that candidates are judged by."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from stallward.agent.action_table import ActionTable, ActionTableName
from stallward.env.catalogue.find import find_recordings
from stallward.env.recording.split import load_split
from stallward.env.recording.stored import MOST_HELD, Selection, StoredRecording, spread
from stallward.env.twin.estimate.exogenous import estimate_exogenous
from stallward.env.twin.inputs.exogenous import Exogenous
from stallward.env.twin.inputs.find import find_twin_of
from stallward.env.twin.inputs.fitted import load_fitted
from stallward.models.registry import twin_names
from stallward.training.errors import TrainingError

_NAMES: Final[dict[ActionTableName, str]] = {"levels": "limit levels", "set-points": "set-points"}
_ARMS: Final[dict[ActionTableName, str]] = {
    "levels": "excite",
    "set-points": "excite:table=set-points",
}


class Chosen(NamedTuple):
    """The recordings to judge by, of each scenario."""

    with_propensities: dict[str, list[StoredRecording]]
    references: dict[str, list[StoredRecording]]
    """All of its recordings, which say how fast its programs are."""


def with_propensities(
    places: Sequence[str | Path], selection: Selection, twin: str, table: ActionTable
) -> tuple[Chosen, list[str]]:
    """The recordings with propensities of a table, and the scenarios held out.

    Args:
        places: Recordings, directories of them, or catalogues.
        selection: Which of them are used.
        twin: The fitted twin; only with another than ``default`` held-out scenarios are used.
        table: The action table.

    Raises:
        TrainingError: If there is none.
    """
    chosen = Chosen(defaultdict(list), defaultdict(list))
    held_out: set[str] = set()
    split = load_split()
    # References have other arms than the recordings to judge by.
    for one in find_recordings(places, replace(selection, arm="")):
        chosen.references[one.scenario].append(one)
        if one.condition != "together" or selection.arm not in ("", one.arm):
            continue
        if one.choices() != len(table.sizes):
            continue
        if twin == "default" and not selection.scenario and split.part_of_run(one.run()) == "test":
            held_out.add(one.scenario)
            continue
        chosen.with_propensities[one.scenario].append(one)
    if not chosen.with_propensities:
        raise TrainingError(
            f"No recording in {', '.join(map(str, places))} has propensities of "
            + _NAMES[table.name]
            + (f" (held out: {', '.join(sorted(held_out))})." if held_out else "."),
            next_step=f"Record some with `stallward record SCENARIO --arm {_ARMS[table.name]}`.",
        )
    return chosen, sorted(held_out)


def full_speeds(scenario: str, twin: str, recordings: Sequence[StoredRecording]) -> Exogenous:
    """The description of a scenario, with the full speed of each program.

    Raises:
        RegistryError: If it has neither a twin nor a reference with ample memory among its
            recordings.
    """
    ample = any(one.condition == "ample" for one in recordings)
    if twin == "default" and scenario not in twin_names() and ample:
        loaded = [one.load() for one in spread(recordings, MOST_HELD)]
        return estimate_exogenous(scenario, loaded)
    return load_fitted(find_twin_of(scenario, twin)).scenario
