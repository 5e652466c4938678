"""Decisions on many nodes have the same bits with vectors of nodes and node after node."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

CODE = """
import hashlib
from dataclasses import fields
import numpy as np
from stallward.env.simulation.simulation import Simulation, SimulationSettings
from stallward.env.twin.inputs.fitted import load_fitted
from stallward.env.twin.simd.backend import WIDTH
from stallward.models.registry import find_twin

twins = [load_fitted(find_twin(name)) for name in ("detector-anon", "memcached-mix", "php-gawk")]
simulation = Simulation(twins, 30, SimulationSettings(), seed=1)
simulation.reset(np.ones(30, dtype=bool))
random, digest = np.random.default_rng(0), hashlib.sha256()
for _ in range(200):
    actions = np.stack([random.integers(0, n, 30) for n in simulation.table.sizes], axis=1)
    result = simulation.step(actions)
    for field in fields(result):
        digest.update(np.ascontiguousarray(getattr(result, field.name)).tobytes())
print(WIDTH, digest.hexdigest())
"""


def played(before: str = "") -> list[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run(
        [sys.executable, "-c", before + CODE],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return done.stdout.split()


@pytest.mark.slow
@pytest.mark.timeout(900)  # everything may have to be compiled
@pytest.mark.reaches("env/stallward/env/twin/simd/")
def test_a_numba_that_vectors_were_not_tried_with_gives_the_same_numbers() -> None:
    width, numbers = played()
    plain_width, plain_numbers = played("import numba\nnumba.__version__ = '9.1.0'\n")
    assert (width, plain_width) == ("8", "1")
    assert plain_numbers == numbers
