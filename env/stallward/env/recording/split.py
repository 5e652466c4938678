"""The split of recordings into the parts train, validation and test.

The split is a file (``split.toml`` beside this module). It assigns whole applications, whole kinds
of background and whole zone sizes to a part. A scenario belongs to the most held-out part of its
application, backgrounds and zone size, so nothing in a test has been trained on.

Scenarios of users, which name no ``application``, are outside of the split: all of them are for
training. One that is based on a shipped scenario has its application; its other values count where
they are in the split.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Final, Generic, Literal, get_args

from stallward.agent.errors import SchemaError
from stallward.agent.schema.file_kinds import next_step_of
from stallward.agent.schema.read import read
from stallward.agent.schema.toml_file import read_toml_file
from stallward.env.errors import ScenarioError, SplitError
from stallward.env.recording.run_info import RunInfo
from stallward.env.recording.stored import Stored
from stallward.env.scenario.file import parse_scenario, scenario_from, shipped_files
from stallward.env.scenario.scenario import Scenario
from stallward.env.scenario.tables import MIB

Part = Literal["train", "validation", "test"]
PARTS: Final[tuple[Part, ...]] = get_args(Part)
"""The parts, from the one for training to the most held-out one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Names:
    """The table of an axis whose values are names."""

    train: tuple[str, ...]
    validation: tuple[str, ...]
    test: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sizes:
    """The table of an axis whose values are sizes in MiB."""

    train: tuple[int, ...]
    validation: tuple[int, ...]
    test: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _SplitTable:
    """The file of a split."""

    application: _Names
    background: _Names
    zone_mib: _Sizes


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """The split, checked: the part of every value of each axis."""

    application: Mapping[str, Part]
    """The part of each application."""
    background: Mapping[str, Part]
    """The part of each kind of background."""
    zone_mib: Mapping[int, Part]
    """The part of each zone size in MiB."""
    path: Path
    """The file of the split, for messages."""

    def part_of(self, scenario: Scenario) -> Part:
        """The part that a scenario belongs to.

        With compressed swap or several protected applications it is "test", whatever it is made
        of: no twin has such swap, or a second application, so nothing can be fitted to its
        recordings or trained for it.

        Raises:
            SplitError: If its application, or another value of a shipped scenario, is in no part.
        """
        if scenario.sandbox.compressed_swap is not None or scenario.others:
            return "test"
        if not scenario.application:
            return "train"
        parts = [self._part("application", scenario.application)]
        others: list[tuple[str, str | int]] = [("zone_mib", scenario.sandbox.limit_bytes // MIB)]
        others += [("background", group.kind or group.name) for group in scenario.background]
        parts += [
            self._part(axis, value)
            for axis, value in others
            if value in getattr(self, axis) or scenario.name in shipped_files()
        ]
        return max(parts, key=PARTS.index)

    def part_of_run(self, run: RunInfo) -> Part:
        """The part that a recording belongs to.

        Raises:
            SplitError: If its scenario has a value that is in no part.
        """
        if "application" not in run.scenario_parameters:
            return self.part_of_name(run.scenario)
        try:
            made_with = scenario_from(run.scenario_parameters, Path(f"{run.scenario}.toml"))
        except ScenarioError as error:
            raise SplitError(
                f"A recording of {run.scenario!r} holds no usable scenario: {error.cause}",
                next_step="Record it again with `stallward record`.",
            ) from error
        return self.part_of(made_with)

    def part_of_name(self, name: str) -> Part:
        """The part that the shipped scenario of that name belongs to; "train" if none is shipped.

        Raises:
            SplitError: If it has a value that is in no part.
        """
        shipped = shipped_files()
        return self.part_of(parse_scenario(shipped[name])) if name in shipped else "train"

    def _part(self, axis: str, value: str | int) -> Part:
        known: Mapping[Any, Part] = getattr(self, axis)
        if value not in known:
            raise SplitError(
                f"{self.path} puts the {axis} {value!r} in no part.",
                next_step=f"Add it to train, validation or test of [{axis}].",
            )
        return known[value]


def load_split(path: Path | None = None) -> Split:
    """Read the split; without a path the shipped one.

    Raises:
        SplitError: If it cannot be read, a key is unknown, missing or of the wrong type, or a
            value is in two parts.
    """
    return _shipped() if path is None else _load(path)


@cache
def _shipped() -> Split:
    return _load(Path(str(resources.files("stallward.env.recording"))) / "split.toml")


def _load(path: Path) -> Split:
    try:
        table = read_toml_file(path)
    except (OSError, ValueError) as error:
        raise SplitError(
            f"The split {path} cannot be read: {error}.", next_step=next_step_of(error, "")
        ) from error
    try:
        read_split = read(_SplitTable, table)
    except SchemaError as error:
        raise SplitError(f"{path}: {error.cause}", next_step=error.next_step) from error
    return Split(
        application=_parts(path, "application", read_split.application),
        background=_parts(path, "background", read_split.background),
        zone_mib=_parts(path, "zone_mib", read_split.zone_mib),
        path=path,
    )


def _parts(path: Path, axis: str, listed: _Names | _Sizes) -> dict[Any, Part]:
    parts: dict[Any, Part] = {}
    for part in PARTS:
        for value in getattr(listed, part):
            if value in parts:
                raise SplitError(
                    f"{path}: {axis} has {value!r:.80} in {parts[value]} and in {part}.",
                    next_step="Leave it in one of them.",
                )
            parts[value] = part
    return parts


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen(Generic[Stored]):
    """Recordings chosen by their part of the split."""

    kept: tuple[Stored, ...]
    """The recordings of the wanted parts, in the order given."""
    left_out: tuple[tuple[Stored, Part], ...]
    """The other recordings, with the part of each."""

    @property
    def note(self) -> str:
        """The recordings left out, in one sentence; empty if there are none."""
        if not self.left_out:
            return ""
        of_part = Counter(part for _, part in self.left_out)
        counts = [f"{of_part[part]} of {part}" for part in PARTS if part in of_part]
        scenarios = sorted({recording.scenario for recording, _ in self.left_out})
        return f"left out {' and '.join(counts)} ({', '.join(scenarios)})"


def choose_part(
    recordings: Sequence[Stored], parts: Sequence[Part] = ("train",), split: Split | None = None
) -> Chosen[Stored]:
    """Choose the recordings that belong to the wanted parts of the split.

    Args:
        recordings: The recordings.
        parts: The wanted parts; by default the recordings for training.
        split: The split; by default the shipped one.

    Raises:
        RecordingError: If one cannot be opened.
        SplitError: If one has a value that is in no part.
    """
    split = split or load_split()
    parted = [(recording, split.part_of_run(recording.run())) for recording in recordings]
    return Chosen(
        kept=tuple(recording for recording, part in parted if part in parts),
        left_out=tuple((recording, part) for recording, part in parted if part not in parts),
    )
