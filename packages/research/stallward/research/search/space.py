"""The space of a search: which settings of the recipe are tried, for how long, and who stops.

All trials are judged after the same numbers of decisions. So every rollout has to end there, and
nothing may be judged before its actor was trained.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from stallward.agent.control_law.thresholds import spans
from stallward.agent.errors import SchemaError
from stallward.agent.schema.describe import Expect
from stallward.agent.schema.file_kinds import next_step_of
from stallward.agent.schema.read import read
from stallward.agent.schema.toml_file import read_toml_file
from stallward.research.errors import SearchError
from stallward.training.errors import RecipeError
from stallward.training.ppo.recipe import Recipe, make_recipe, recipe_values, setting

_SIZES: Final = ("n_envs", "n_steps", "batch_size")
"""Settings of which not every value goes with every value of the others."""
_HOW_TO: Final = 'See the example in the page "Search recipes" of the documentation.'


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    """The values of one setting that trials may have."""

    low: float | None = None
    """The least value of a range."""
    high: float | None = None
    """The greatest value; included where the setting is a whole number."""
    logarithmic: bool = False
    """Whether values are drawn evenly by ratio."""
    values: tuple[float, ...] = ()
    """Instead of a range, each value that is tried."""

    def __post_init__(self) -> None:
        """Refuse what is neither a range nor a list.

        Raises:
            SchemaError: With the key.
        """
        if self.values:
            if self.low is not None or self.high is not None or self.logarithmic:
                raise SchemaError("values does not go with low, high and logarithmic.")
            if len(set(self.values)) < 2:
                raise SchemaError(
                    "values has only one value.", next_step="Fixed values belong below [recipe]."
                )
            return
        if self.low is None or self.high is None:
            raise SchemaError(
                f"{'low' if self.low is None else 'high'} is missing.",
                next_step="Name low and high, or values.",
            )
        if self.low >= self.high:
            raise SchemaError(
                f"high is {self.high:g}, not above low = {self.low:g}: the range is empty."
            )
        if self.logarithmic and self.low <= 0.0:
            raise SchemaError(f"low is {self.low:g}; a logarithmic range begins above 0.")

    def contains(self, value: float) -> bool:
        """Whether a trial may have this value."""
        if self.low is None or self.high is None:
            return value in self.values
        return self.low <= value <= self.high


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What a search may cost."""

    trials: Annotated[int, Expect(low=2, high=10_000)] = 16
    """Trainings, with that of the recipe that is searched around."""
    decisions: Annotated[int, Expect(low=1)]
    """Decisions of a trial that is not stopped early."""
    minutes: Annotated[float, Expect(low=0.1)] | None = None
    """The most time for all trials; then those that run are stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerSettings:
    """Who stops trials early."""

    kind: Literal["asha", "median", "none"] = "asha"
    """Asynchronous successive halving, the median stopping rule, or nobody."""
    judgements: Annotated[int, Expect(low=1, high=100)] = 4
    """How often a trial is judged, evenly over its decisions."""
    reduction: Annotated[int, Expect(low=2, high=100)] = 2
    """With ``asha``: one in so many trials goes on beyond a rung."""

    def __post_init__(self) -> None:
        """Refuse a scheduler that could never stop a trial.

        Raises:
            SchemaError: With the key.
        """
        if self.kind != "none" and self.judgements < 2:
            raise SchemaError(
                f"judgements is {self.judgements}, so {self.kind!r} would stop no trial.",
                next_step="Judge at least twice, or choose kind = 'none'.",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplerSettings:
    """Who chooses what is tried."""

    kind: Literal["random", "tpe"] = "random"
    """``random`` draws each trial from the seed and its number alone. ``tpe``, a tree-structured
    Parzen estimator, learns from the trials that are over by then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """A space file."""

    settings: Mapping[str, Values]
    """The settings that are searched, by their names in the recipe."""
    budget: Budget
    """What the search may cost."""
    scheduler: SchedulerSettings = field(default_factory=SchedulerSettings)
    """Who stops trials early."""
    sampler: SamplerSettings = field(default_factory=SamplerSettings)
    """Who chooses what is tried."""
    recipe: Mapping[str, object] = field(default_factory=dict)
    """Settings that all trials have in common; the others are as shipped."""

    @property
    def base(self) -> Recipe:
        """The recipe that is searched around: the first trial."""
        return make_recipe(self.recipe, "recipe")

    @property
    def judged_after(self) -> list[int]:
        """The numbers of decisions after which each trial is judged; the last is its end."""
        times = self.scheduler.judgements
        return [self.budget.decisions * k // times for k in range(1, times + 1)]


def load_space(path: Path) -> Space:
    """Read a space file, and refuse what cannot be searched.

    Raises:
        SearchError: If the file cannot be read, or is no space. The message names the key.
    """
    try:
        space = read(Space, _table(path))
        _check_settings(space)
        base = space.base
    except (SchemaError, RecipeError) as error:
        raise SearchError(
            f"{path} is no space to search: {error.cause}", next_step=error.next_step or _HOW_TO
        ) from error
    try:
        _check_sizes(space, base)
    except (SchemaError, RecipeError) as error:
        raise SearchError(f"{path}: {error.cause}", next_step=error.next_step) from error
    return space


def recipe_of(space: Space, chosen: Mapping[str, float]) -> Recipe:
    """The recipe of a trial.

    Args:
        space: The space.
        chosen: The values of the settings that are searched.
    """
    values: dict[str, Any] = {name: setting(name, v, "settings") for name, v in chosen.items()}
    return replace(space.base, **values)


def base_values(space: Space) -> dict[str, float]:
    """The values of the searched settings in the recipe that is searched around."""
    values = recipe_values(space.base)
    return {name: values[name] for name in space.settings}


def _table(path: Path) -> dict[str, Any]:
    try:
        return read_toml_file(path)
    except (OSError, ValueError) as error:
        raise SearchError(
            f"The space {path} cannot be read: {error}.", next_step=next_step_of(error, _HOW_TO)
        ) from error


def _check_settings(space: Space) -> None:
    """Refuse settings that the recipe does not have, and values that they cannot have.

    Raises:
        SchemaError: If none is named, or one is named twice.
        RecipeError: If there is no such setting, or a value is not in its range.
    """
    if not space.settings:
        raise SchemaError(
            "settings names nothing to search.",
            next_step=f"The settings are: {', '.join(spans(Recipe))}.",
        )
    for name, tried in space.settings.items():
        if name in space.recipe:
            raise SchemaError(
                f"recipe.{name} is fixed, and settings.{name} is searched.",
                next_step="Leave one of them out.",
            )
        for value in tried.values or (tried.low, tried.high):
            setting(name, value, "settings")
        if name in _SIZES and not tried.values:
            raise SchemaError(
                f"settings.{name} is a range, but sizes have to go together.",
                next_step=f"Name them one by one: {name} = {{ values = [...] }}.",
            )


def _check_sizes(space: Space, base: Recipe) -> None:
    """Refuse sizes with which trials could not be compared after the same decisions.

    Raises:
        RecipeError: If a batch does not divide a rollout.
        SchemaError: With the key.
    """
    values = recipe_values(base)
    first = space.judged_after[0]
    times = space.scheduler.judgements
    if space.budget.decisions % times:
        raise SchemaError(
            f"budget.decisions is {space.budget.decisions}, no multiple of "
            f"scheduler.judgements = {times}."
        )
    tried = [
        (*(space.settings[name].values if name in space.settings else ()), values[name])
        for name in _SIZES
    ]
    longest = 0
    for chosen in product(*tried):
        one = recipe_of(space, dict(zip(_SIZES, chosen, strict=True)))
        rollout = one.n_envs * one.n_steps
        longest = max(longest, rollout)
        if first % rollout:
            raise SchemaError(
                f"budget.decisions / scheduler.judgements is {first}, but with n_envs = "
                f"{one.n_envs} and n_steps = {one.n_steps} rollouts end after multiples of "
                f"{rollout}: such trials could not be judged after as many decisions.",
                next_step=f"Take {max(round(first / rollout), 1) * rollout * times} decisions, "
                "or other sizes.",
            )
    critic = space.settings.get("critic_rollouts")
    untrained = int(max((critic.values or (critic.high or 0.0,)) if critic else (0.0,)))
    untrained = max(untrained, base.critic_rollouts)
    if untrained * longest >= first:
        raise SchemaError(
            f"budget.decisions / scheduler.judgements is {first}, but the first {untrained} "
            f"rollouts of up to {longest} decisions train only the critic: the first judgement "
            "would be of actors that were not trained.",
            next_step="Take more decisions, fewer judgements, or lower n_envs or critic_rollouts "
            "below [recipe].",
        )
