"""The page on other libraries and a policy's card say what works: their code is run."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import pytest
import yaml

import stallward.env  # noqa: F401 - registers the environments
from stallward.models.registry import find_policy, load_policy

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/how-to/use-other-libraries.md"
HYPERPARAMETERS = ROOT / "docs/reference/rl-zoo3-ppo.yml"
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ABSENT = ("d3rlpy",)
"""Libraries that the project's own environment has not."""


@pytest.mark.slow
@pytest.mark.reaches("docs/", "models/", "recordings/")
@pytest.mark.filterwarnings("ignore")  # of the other libraries
def test_the_code_on_the_page_runs_from_top_to_bottom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "recordings").symlink_to(ROOT / "recordings")
    blocks = PYTHON.findall(PAGE.read_text())
    assert len(blocks) >= 6
    names: dict[str, Any] = {}
    for block in blocks:
        missing = [name for name in ABSENT if f"import {name}\n" in block]
        if any(not has(name) for name in missing):
            continue
        exec(compile(block, str(PAGE), "exec"), names)
    assert names["info"]["propensity"] > 0.0, "the last block steps through a recording"


def has(module: str) -> bool:
    try:
        __import__(module)
    except ImportError:
        return False
    return True


def test_the_code_on_the_card_of_the_default_policy_runs_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = find_policy("default")
    shutil.copy(path, tmp_path)
    monkeypatch.chdir(tmp_path)
    (code,) = PYTHON.findall(path.with_suffix(".md").read_text())
    names: dict[str, Any] = {}
    exec(compile(code, "card", "exec"), names)
    assert names["truncated"]
    assert 0.0 <= names["info"]["progress"] <= 1.0


def test_the_metadata_of_the_card_are_the_results_that_are_in_the_policy() -> None:
    path = find_policy("default")
    text = path.with_suffix(".md").read_text()
    data = yaml.safe_load(text.split("---\n")[1])
    assert data["library_name"] == "stallward"
    (model,) = data["model-index"]
    outcomes = load_policy(path).metadata.provenance["evaluation"]["ppo"]
    assert {result["dataset"]["name"] for result in model["results"]} == set(outcomes)
    assert len(model["results"]) == len(outcomes)
    for result in model["results"]:
        outcome = outcomes[result["dataset"]["name"]]
        assert result["task"]["type"] == "reinforcement-learning"
        for metric in result["metrics"]:
            assert metric["value"] == pytest.approx(outcome[metric["type"]], abs=5e-4)


def test_the_hub_reads_the_results_on_the_card() -> None:
    """Needs ``pip install huggingface_hub``, which the project's own environment has not."""
    hub = pytest.importorskip("huggingface_hub")
    results = hub.ModelCard.load(find_policy("default").with_suffix(".md")).data.eval_results
    assert {result.dataset_type for result in results} == {"stallward/Twin-v0"}
    assert "score" in {result.metric_type for result in results}


def test_the_environment_of_the_hyperparameter_file_can_be_made() -> None:
    for name, parameters in yaml.safe_load(HYPERPARAMETERS.read_text()).items():
        env = gymnasium.make(name, **parameters["env_kwargs"])
        env.reset(seed=1)
        batch = parameters["n_envs"] * parameters["n_steps"]
        assert batch % parameters["batch_size"] == 0, "PPO warns of a last batch that is smaller"


@pytest.mark.slow
def test_rl_zoo3_trains_by_the_hyperparameter_file(tmp_path: Path) -> None:
    """Needs ``pip install rl_zoo3``, which the project's own environment has not."""
    pytest.importorskip("rl_zoo3")
    command = [
        *(sys.executable, "-m", "rl_zoo3.train", "--algo", "ppo", "--env", "stallward/Twin-v0"),
        *("--gym-packages", "stallward.env.gym", "--conf-file", str(HYPERPARAMETERS)),
        *("--num-threads", "1", "-n", "2048", "-f", str(tmp_path), "--eval-freq", "-1"),
    ]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    assert list(tmp_path.glob("ppo/*/stallward-Twin-v0.zip"))
