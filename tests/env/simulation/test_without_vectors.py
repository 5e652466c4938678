"""Decisions on many nodes give the same numbers with vectors of nodes and node after node.

On some processors a sum differs by its last bit, so numbers are compared to twelve digits. A
difference that reached a decision would grow far beyond that within 200 decisions.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

CODE = """
import sys
from dataclasses import fields
import numpy as np
from stallward.env.simulation.simulation import Simulation, SimulationSettings
from stallward.env.twin.inputs.fitted import load_fitted
from stallward.env.twin.simd.backend import WIDTH
from stallward.models.registry import find_twin

twins = [load_fitted(find_twin(name)) for name in ("detector-anon", "memcached-mix", "php-gawk")]
simulation = Simulation(twins, 30, SimulationSettings(), seed=1)
simulation.reset(np.ones(30, dtype=bool))
random, results = np.random.default_rng(0), []
for _ in range(200):
    actions = np.stack([random.integers(0, n, 30) for n in simulation.table.sizes], axis=1)
    results.append(simulation.step(actions))
np.savez(
    sys.argv[1],
    width=WIDTH,
    **{f.name: np.stack([getattr(r, f.name) for r in results]) for f in fields(results[0])},
)
"""


def played(file: Path, before: str = "") -> dict[str, np.ndarray]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    subprocess.run([sys.executable, "-c", before + CODE, str(file)], env=environment, check=True)
    with np.load(file) as numbers:
        return dict(numbers)


@pytest.mark.slow
@pytest.mark.timeout(900)  # everything may have to be compiled
@pytest.mark.reaches("env/stallward/env/twin/simd/")
def test_a_numba_that_vectors_were_not_tried_with_gives_the_same_numbers(tmp_path: Path) -> None:
    vectors = played(tmp_path / "vectors.npz")
    plain = played(tmp_path / "plain.npz", "import numba\nnumba.__version__ = '9.1.0'\n")
    assert (int(vectors.pop("width")), int(plain.pop("width"))) == (8, 1)
    assert vectors.keys() == plain.keys()
    for name, numbers in vectors.items():
        np.testing.assert_allclose(plain[name], numbers, rtol=1e-12, atol=1e-12, err_msg=name)
