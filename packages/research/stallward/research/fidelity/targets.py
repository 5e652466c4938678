"""The targets of a twin: what it has to reach before it is trusted, read from a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from importlib import resources
from pathlib import Path
from typing import Final

from stallward.agent.errors import SchemaError
from stallward.agent.schema.file_kinds import next_step_of
from stallward.agent.schema.read import read
from stallward.agent.schema.toml_file import read_toml_file
from stallward.evaluation.errors import PlanError
from stallward.research.fidelity.result import FidelitySummary, JudgedTarget, RankingSummary

_FIGURES: Final = tuple(
    field.name for field in fields(FidelitySummary) if field.name != "scenarios"
)
_RANKING_FIGURES: Final = tuple(field.name for field in fields(RankingSummary))
Summary = FidelitySummary | RankingSummary


@dataclass(frozen=True, slots=True, kw_only=True)
class FidelityTarget:
    """The target of one figure: an entry of the file's ``targets``."""

    figure: str
    """The figure, by its key in the summary."""
    at_most: float | None = None
    """The largest value that meets the target, for figures where less is better."""
    at_least: float | None = None
    """The smallest value that meets it, for figures where more is better."""
    floor: str | None = None
    """Key of the same figure of live against live; it replaces ``at_most`` if it is larger."""

    def judge(self, summary: Summary) -> JudgedTarget:
        """Judge the figure by this target."""
        value = _figure(summary, self.figure)
        if self.at_least is not None:
            met = None if value is None else value >= self.at_least
            return JudgedTarget(value=value, target=self.at_least, met=met)
        assert self.at_most is not None  # exactly one of the two bounds is given
        floor = None if self.floor is None else _figure(summary, self.floor)
        bound = self.at_most if floor is None else max(self.at_most, floor)
        met = None if value is None else value <= bound
        return JudgedTarget(value=value, target=bound, met=met)


@dataclass(frozen=True, slots=True, kw_only=True)
class FidelityTargets:
    """All targets of a file."""

    targets: tuple[FidelityTarget, ...]
    """Those of the errors against recordings."""
    ranking: tuple[FidelityTarget, ...] = ()
    """Those of the ranking of arms against live comparisons."""

    def judge(self, summary: FidelitySummary) -> Mapping[str, JudgedTarget]:
        """Key of a figure -> the figure with its target."""
        return {target.figure: target.judge(summary) for target in self.targets}

    def judge_ranking(self, summary: RankingSummary) -> Mapping[str, JudgedTarget]:
        """The same for a ranking."""
        return {target.figure: target.judge(summary) for target in self.ranking}


def load_fidelity_targets(path: Path | None = None) -> FidelityTargets:
    """Read a file of targets; without a path, the shipped one.

    Raises:
        PlanError: If it cannot be read, a key is missing, unknown or of the wrong type, or a
            target names no figure or does not have exactly one bound.
    """
    folder = Path(str(resources.files("stallward.research.fidelity")))
    file = path or folder / "fidelity_targets.toml"
    try:
        targets = read(FidelityTargets, read_toml_file(file))
    except (OSError, ValueError) as error:
        raise PlanError(
            f"The targets {file} cannot be read: {error}.", next_step=next_step_of(error, "")
        ) from error
    except SchemaError as error:
        raise PlanError(f"{file}: {error.cause}", next_step=error.next_step) from error
    listed = [(target, _FIGURES) for target in targets.targets]
    listed += [(target, _RANKING_FIGURES) for target in targets.ranking]
    for target, figures in listed:
        where = f"{file}: The target of {target.figure!r:.80}"
        for figure in (target.figure, target.floor):
            if figure is not None and figure not in figures:
                raise PlanError(
                    f"{where} names {figure!r:.80}, which is not a figure of the fidelity result.",
                    next_step=f"Choose one of: {', '.join(figures)}.",
                )
        if (target.at_most is None) == (target.at_least is None):
            raise PlanError(
                f"{where} does not have exactly one bound.",
                next_step="Give it at_most or at_least.",
            )
    return targets


def _figure(summary: Summary, key: str) -> float | None:
    value: float | None = getattr(summary, key)
    return value
