"""The recipe of a training: its settings that may be searched, and the file that holds them.

What a policy is judged by (slack, nuisance, twins) and how long it is trained are no part of a
recipe, so that trainings by two recipes can be compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from stallward.agent.control_law.thresholds import spans, tuned
from stallward.agent.errors import SchemaError
from stallward.agent.schema.file_kinds import next_step_of
from stallward.agent.schema.read import read
from stallward.agent.schema.toml_file import read_toml_file
from stallward.agent.schema.write import toml_literal
from stallward.training.errors import RecipeError

_HOW_TO_MAKE: Final = "Make one with `stallward search`, or write the settings below [recipe]."


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """The settings of PPO; the names are those of stable-baselines3 where it has them."""

    n_envs: int = tuned(
        1024, "twin nodes that are stepped together", 4, 65536, logarithmic=True, whole=True
    )
    n_steps: int = tuned(
        32, "decisions per node and rollout", 4, 4096, logarithmic=True, whole=True
    )
    batch_size: int = tuned(
        4096, "decisions per gradient step", 16, 1_000_000, logarithmic=True, whole=True
    )
    n_epochs: int = tuned(
        3, "passes over each rollout, which take most of the time", 1, 50, whole=True
    )
    learning_rate: float = tuned(
        1e-3,
        "learning rate at the start; it falls linearly to a tenth as the steps or time run out",
        1e-6,
        0.1,
        logarithmic=True,
    )
    gamma: float = tuned(
        0.98,
        "discount per decision of a second: a horizon of some 50 s, nearly as long as a turn",
        0.5,
        0.9999,
    )
    gae_lambda: float = tuned(0.95, "the lambda of generalised advantage estimation", 0.0, 1.0)
    ent_coef: float = tuned(0.004, "entropy bonus", 0.0, 1.0)
    held_decisions: float = tuned(
        1.0,
        "mean number of decisions in a row for which each head explores in the same direction",
        1.0,
        100.0,
        logarithmic=True,
    )
    clip_range: float = tuned(0.2, "the clip range of PPO's probability ratio", 0.01, 1.0)
    price_rate: float = tuned(
        0.03, "speed with which the prices follow what is suffered, per rollout", 0.0, 1.0
    )
    auto_share: float = tuned(
        0.6,
        "probability with which each head leaves things to partition at the start",
        0.05,
        0.99,
    )
    critic_rollouts: int = tuned(
        10,
        "rollouts in which only the critic is trained, before the actor",
        0,
        1000,
        whole=True,
    )

    def __post_init__(self) -> None:
        """Refuse sizes that cannot run.

        Raises:
            RecipeError: If a size is not positive or the batch does not divide the rollout.
        """
        if min(self.n_envs, self.n_steps, self.batch_size) < 1:
            raise RecipeError("Training sizes must be positive.")
        if (self.n_envs * self.n_steps) % self.batch_size:
            raise RecipeError(
                f"A rollout of {self.n_envs * self.n_steps} decisions is no multiple of the "
                f"batch of {self.batch_size}.",
                next_step="Choose a batch_size that divides n_envs x n_steps.",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class _RecipeFile:
    """The file of a recipe."""

    recipe: Mapping[str, object]
    provenance: Mapping[str, object] = field(default_factory=dict)


def make_recipe(values: Mapping[str, object], where: str) -> Recipe:
    """Make a recipe from a mapping; a setting that it does not name keeps its default.

    Args:
        values: The value of each setting by its name.
        where: The source of the values, for messages.

    Raises:
        RecipeError: If a name is unknown, a value is not in its range, or they do not go together.
    """
    return Recipe(**{name: setting(name, value, where) for name, value in values.items()})


def setting(name: str, value: object, where: str) -> Any:
    """One value of a setting, as the recipe holds it.

    Args:
        name: The name of the setting.
        value: Its value in a file.
        where: The place of the value, for messages.

    Raises:
        RecipeError: If there is no such setting, or the value is not in its range.
    """
    known = spans(Recipe)
    if name not in known:
        raise RecipeError(
            f"{where} names {name!r:.80}, which is no setting of the recipe.",
            next_step=f"The settings are: {', '.join(known)}.",
        )
    span = known[name]
    if isinstance(value, int | float) and not isinstance(value, bool):
        fits = span.low <= value <= span.high
        if fits and (not span.whole or value == int(value)):
            return int(value) if span.whole else float(value)
    expected = "a whole number" if span.whole else "a number"
    raise RecipeError(
        f"{where}: {name} is {value!r:.80}, not {expected} from {span.low:g} to {span.high:g}.",
        next_step=f"It means: {span.meaning}.",
    )


def recipe_values(recipe: Recipe) -> dict[str, Any]:
    """The value of each setting by its name; whole numbers are ``int``."""
    return {name: getattr(recipe, name) for name in spans(Recipe)}


def read_recipe(path: Path) -> Recipe:
    """Read the recipe in a file.

    Raises:
        RecipeError: If the file cannot be read, or is no recipe.
    """
    try:
        data = read_toml_file(path)
    except (OSError, ValueError) as error:
        raise RecipeError(
            f"The recipe {path} cannot be read: {error}.",
            next_step=next_step_of(error, _HOW_TO_MAKE),
        ) from error
    try:
        file = read(_RecipeFile, data)
    except SchemaError as error:
        raise RecipeError(f"{path} is not a recipe: {error}", next_step=_HOW_TO_MAKE) from error
    return make_recipe(file.recipe, str(path))


def recipe_text(recipe: Recipe, provenance: Mapping[str, Any]) -> str:
    """The text of the file that :func:`read_recipe` reads.

    Args:
        recipe: The recipe.
        provenance: Where it comes from: strings, numbers and lists of them.
    """
    lines = ["[recipe]"]
    for name, span in spans(Recipe).items():
        lines.append(f"# {span.meaning}; {span.low:g} to {span.high:g}")
        lines.append(f"{name} = {toml_literal(getattr(recipe, name))}")
    lines += ["", "[provenance]"]
    lines += [f"{key} = {toml_literal(value)}" for key, value in provenance.items()]
    return "\n".join(lines) + "\n"
