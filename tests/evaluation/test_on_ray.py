"""Fits, fidelity, comparisons and the oracle are the same on Ray as on this machine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from shared_ray import MARKS

from stallward.env.recording.run_info import load_run
from stallward.env.testing import small_twin
from stallward.env.twin.inputs.fitted import load_fitted
from stallward.evaluation.arms import parse_arms
from stallward.evaluation.comparison.compare import run_comparison
from stallward.evaluation.comparison.request import ComparisonRequest
from stallward.research.fidelity.fits import Fits
from stallward.research.fidelity.measure import measure_fidelity
from stallward.research.screening import grid, screen
from stallward.training.parallel.local_processes import IN_THIS_PROCESS
from stallward.training.pipeline.fit import fit_twin

if TYPE_CHECKING:
    from stallward.training.parallel.ray_tasks import RayTasks

pytest_plugins = ("shared_ray",)
pytestmark = [*MARKS, pytest.mark.reaches()]


def request(out: Path) -> ComparisonRequest:
    return ComparisonRequest(
        scenario="detector-anon",
        arms=parse_arms("none,static:pause=all,partition"),
        mode="twin",
        rounds=2,
        block_s=8.0,
        burn_in_s=3.0,
        seed=3,
        out=out,
    )


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A comparison that ran in this process. Its blocks are recordings."""
    out = tmp_path_factory.mktemp("compared") / "out"
    run_comparison(request(out))
    return out


def content(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_a_comparison_that_was_interrupted_goes_on_and_leaves_the_same_files(
    compared: Path, on_ray: RayTasks, tmp_path: Path
) -> None:
    one_round = replace(request(tmp_path / "out"), rounds=1)
    run_comparison(one_round, executor=on_ray)
    first = {path: path.stat().st_ino for path in (tmp_path / "out/blocks").iterdir()}
    run_comparison(request(tmp_path / "out"), executor=on_ray)
    assert {path: path.stat().st_ino for path in first} == first
    assert content(tmp_path / "out") == content(compared)


def test_a_fit_is_the_same_twin(on_ray: RayTasks, tmp_path: Path) -> None:
    places = sorted((Path(__file__).parents[2] / "recordings").glob("detector-[ap]*-none-s1"))
    assert len({load_run(place).scenario for place in places}) == 2
    here, there = (
        fit_twin(places, out=tmp_path / name, generations=2, executor=executor)
        for name, executor in (("here", IN_THIS_PROCESS), ("there", on_ray))
    )
    for one, other in zip(here.files, there.files, strict=True):
        assert load_fitted(one).draws == load_fitted(other).draws
        assert load_fitted(one).weights == load_fitted(other).weights


def test_fidelity_is_the_same_and_its_fits_are_kept(
    compared: Path, on_ray: RayTasks, tmp_path: Path
) -> None:
    here = measure_fidelity(
        compared / "blocks", fits=Fits(generations=2), executor=IN_THIS_PROCESS
    )
    fits = Fits(generations=2, directory=tmp_path / "fits")
    assert measure_fidelity(compared / "blocks", fits=fits, executor=on_ray) == here
    kept = {path: path.stat().st_ino for path in (tmp_path / "fits").iterdir()}
    assert len(kept) == 3, "one for each arm that was left out"
    assert measure_fidelity(compared / "blocks", fits=fits, executor=on_ray) == here
    assert {path: path.stat().st_ino for path in (tmp_path / "fits").iterdir()} == kept


def test_the_grid_of_the_oracle_is_screened_in_parts(on_ray: RayTasks) -> None:
    twin, settings = small_twin(), grid(1)
    here = screen(twin, settings, nodes=4, seconds=10.0)
    assert screen(twin, settings, nodes=4, seconds=10.0, executor=on_ray) == here
