"""A space that cannot be searched is refused by the key that is wrong."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import stallward.research.search.search  # noqa: F401 - no test is to take the time of it
from stallward.evaluation.cli import main
from stallward.research.errors import SearchError
from stallward.research.search.space import Space, base_values, load_space, recipe_of
from stallward.training.ppo.recipe import Recipe

GOOD = """
[settings]
learning_rate = { low = 3e-4, high = 3e-3, logarithmic = true }
n_epochs = { values = [2, 3, 4] }

[recipe]
n_envs = 256

[budget]
trials = 8
decisions = 393_216

[scheduler]
kind = "asha"
judgements = 4
"""


def load(folder: Path, text: str) -> Space:
    (folder / "space.toml").write_text(text)
    return load_space(folder / "space.toml")


def test_a_space_gives_the_recipes_of_its_trials(tmp_path: Path) -> None:
    space = load(tmp_path, GOOD)
    assert space.base == Recipe(n_envs=256)
    assert base_values(space) == {"learning_rate": 1e-3, "n_epochs": 3}
    assert space.judged_after == [98_304, 196_608, 294_912, 393_216]
    tried = recipe_of(space, {"learning_rate": 2e-3, "n_epochs": 4.0})
    assert tried == Recipe(n_envs=256, learning_rate=2e-3, n_epochs=4)
    assert isinstance(tried.n_epochs, int)


@pytest.mark.parametrize(
    ("before", "after", "named"),
    [
        ("n_epochs =", "epochs =", "settings names 'epochs', which is no setting of the recipe"),
        ("high = 3e-3", "high = 3e-4", "settings.learning_rate.high is 0.0003, not above low"),
        (", high = 3e-3", "", "settings.learning_rate.high is missing"),
        ("low = 3e-4", "low = -1.0", "settings.learning_rate.low is -1"),
        ("high = 3e-3", "high = 3.0", "settings: learning_rate is 3.0, not a number from"),
        ("[2, 3, 4]", "[2, 2.5]", "settings: n_epochs is 2.5, not a whole number"),
        ("[2, 3, 4]", "[2]", "settings.n_epochs.values has only one value"),
        ("[2, 3, 4] }", "[2, 3], low = 1.0 }", "settings.n_epochs.values does not go with low"),
        ("n_envs = 256", "n_epochs = 3", "recipe.n_epochs is fixed, and settings.n_epochs is"),
        ("n_envs = 256", "envs = 256", "recipe names 'envs', which is no setting"),
        ("n_envs = 256", "n_envs = 100", "A rollout of 3200 decisions is no multiple"),
        ("n_envs = 256", "", "rollouts of up to 32768 decisions train only the critic"),
        ("trials = 8", "trials = 1", "budget.trials is 1"),
        ("trials = 8", "trial = 8", "budget has an unknown key 'trial'"),
        ("decisions = 393_216", "", "budget.decisions is missing"),
        ("393_216", "400_000", "with n_envs = 256 and n_steps = 32 rollouts end after"),
        ("393_216", "393_217", "no multiple of scheduler.judgements = 4"),
        ('"asha"', '"hyperband"', "scheduler.kind is 'hyperband'.*'asha', 'median', 'none'"),
        ('"asha"', '"ashha"', "scheduler.kind is 'ashha'.*Did you mean 'asha'"),
        ('"asha"', '"asha"\nreduction = 1.5', "scheduler.reduction is 1.5, not a whole number"),
        ("[scheduler]", '[sampler]\nkind = "grid"\n[scheduler]', "sampler.kind is 'grid'"),
        ("judgements = 4", "judgements = 1", "scheduler.judgements is 1, so 'asha' would stop"),
        ("[2, 3, 4] }", "[2, 3] }\nn_envs = { low = 1.0, high = 2.0 }", "n_envs"),
    ],
)
def test_what_cannot_be_searched_is_refused_by_its_key(
    tmp_path: Path, before: str, after: str, named: str
) -> None:
    assert GOOD.count(before) == 1
    with pytest.raises(SearchError, match=named) as refused:
        load(tmp_path, GOOD.replace(before, after))
    assert "space.toml" in refused.value.cause


def test_sizes_are_searched_one_by_one_and_all_of_them_end_together(tmp_path: Path) -> None:
    sizes = "n_envs = { values = [128, 256] }"
    text = GOOD.replace("n_envs = 256", "").replace("[settings]", f"[settings]\n{sizes}")
    with pytest.raises(SearchError, match="critic"):
        load(tmp_path, text)  # the shipped 1024 of the first trial
    text = text.replace("[recipe]", "[recipe]\ncritic_rollouts = 2")
    assert load(tmp_path, text).settings["n_envs"].values == (128, 256)
    with pytest.raises(SearchError, match=r"settings\.n_envs is a range"):
        load(tmp_path, text.replace("values = [128, 256]", "low = 128, high = 256"))


def test_a_suggested_number_of_decisions_is_accepted(tmp_path: Path) -> None:
    with pytest.raises(SearchError) as refused:
        load(tmp_path, GOOD.replace("393_216", "400_000"))
    decisions = refused.value.next_step.split()[1]
    assert load(tmp_path, GOOD.replace("393_216", decisions)).budget.decisions == int(decisions)


def test_a_bad_space_is_refused_before_anything_is_started(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["search", str(tmp_path / "none.toml"), "--out", str(tmp_path / "out")]) == 2
    assert "none.toml cannot be read" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_where_ray_is_not_installed_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    (tmp_path / "space.toml").write_text(GOOD)
    out = tmp_path / "out"
    assert main(["search", str(tmp_path / "space.toml"), "--out", str(out), "--ray"]) == 2
    error = capsys.readouterr().err
    assert error == "stallward: ray is not installed. Run `pip install 'stallward[ray]'`.\n"
    assert not out.exists()


def test_the_example_of_the_page_can_be_searched(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs/how-to/search-recipes.md").read_text()
    file = tmp_path / "space.toml"
    file.write_text(page.partition("```toml\n")[2].partition("```")[0])
    assert load_space(file).budget.decisions == 262_144
