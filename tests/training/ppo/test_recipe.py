"""A recipe survives its file, and a wrong one is refused by its name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from stallward.agent.control_law.thresholds import spans
from stallward.agent.observation.encoder import FEATURE_SETS
from stallward.evaluation.cli import main
from stallward.evaluation.cli.learn import Features
from stallward.training.errors import RecipeError
from stallward.training.ppo.args import Args
from stallward.training.ppo.recipe import Recipe, read_recipe, recipe_text, recipe_values


def test_a_recipe_is_read_as_it_was_written(tmp_path: Path) -> None:
    recipe = Recipe(learning_rate=0.00123456789, n_envs=256, critic_rollouts=2)
    file = tmp_path / "recipe.toml"
    file.write_text(recipe_text(recipe, {"trial": 3, "twins": ["small"]}))
    assert read_recipe(file) == recipe
    file.write_text("[recipe]\nn_envs = 256")
    assert read_recipe(file) == Recipe(n_envs=256)
    assert isinstance(read_recipe(file).n_envs, int)


def test_the_shipped_recipe_is_in_the_ranges_of_its_settings() -> None:
    for name, span in spans(Recipe).items():
        assert span.low <= recipe_values(Recipe())[name] <= span.high


def test_a_training_has_the_settings_of_its_recipe() -> None:
    recipe = Recipe(learning_rate=2e-3, n_epochs=5)
    args = Args(**recipe_values(recipe), seed=7)
    assert recipe_values(args) == recipe_values(recipe)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[recipe]\nlearnin_rate = 1e-3", "'learnin_rate'"),
        ("[recipe]\nlearning_rate = 1", "learning_rate is 1, not a number from 1e-06 to 0.1"),
        ("[recipe]\nn_epochs = 2.5", "n_epochs is 2.5, not a whole number"),
        ("[recipe]\nn_epochs = true", "n_epochs is True"),
        ("[recipe]\nbatch_size = 3000", "no multiple of the batch of 3000"),
        ("[recipes]", "unknown key 'recipes'"),
        ("recipe =", "cannot be read"),
    ],
)
def test_a_wrong_recipe_is_refused_by_its_setting(tmp_path: Path, text: str, named: str) -> None:
    (tmp_path / "recipe.toml").write_text(text)
    with pytest.raises(RecipeError, match=named):
        read_recipe(tmp_path / "recipe.toml")


def test_train_refuses_a_recipe_that_is_not_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe, out = str(tmp_path / "none.toml"), str(tmp_path / "run")
    assert main(["train", "--recipe", recipe, "--out", out]) == 2
    assert "none.toml cannot be read" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_train_offers_every_set_of_features(capsys: pytest.CaptureFixture[str]) -> None:
    assert get_args(Features) == tuple(FEATURE_SETS)
    assert main(["train", "--features", "moon"]) == 2
    assert "moon" in capsys.readouterr().err


def test_the_page_about_searches_lists_every_setting() -> None:
    page = (Path(__file__).parents[3] / "docs/how-to/search-recipes.md").read_text()
    listed = [line for line in page.splitlines() if re.match(r"\| `\w+` \|", line)]
    shipped = recipe_values(Recipe())
    assert listed == [
        f"| `{name}` | {shipped[name]:g} | {span.low:g} to {span.high:g} | {span.meaning} |"
        for name, span in spans(Recipe).items()
    ]
