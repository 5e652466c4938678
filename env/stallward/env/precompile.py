"""Compile the twin and the lens now, so that later starts only read what was compiled.

``python -m stallward.env.precompile`` takes most of a minute where nothing is compiled yet, and a
second where all is. It is for images of containers, and for tests before their processes start.
"""

from __future__ import annotations

import io

import numpy as np

from stallward.agent.desired import RELEASED
from stallward.env.lens.analysis import AnalysisSettings, analyse
from stallward.env.simulation.simulation import Simulation, SimulationSettings
from stallward.env.testing import small_twin
from stallward.env.twin.node import TwinNode


def precompile() -> None:
    """Call every kernel of the twin, the simulation and the lens once."""
    simulation = Simulation([small_twin()], 1, SimulationSettings(), seed=0)
    simulation.reset(np.ones(1, dtype=bool))
    simulation.step(np.zeros((1, len(simulation.table.sizes)), dtype=np.int64))
    fitted = small_twin()
    node = TwinNode(fitted.scenario, fitted.draws[0], seed=0)
    node.step(RELEASED)
    lines = "".join(f"I  {page << 12:x},8\n" for page in range(5000))
    analyse(io.BytesIO(lines.encode()).readinto, AnalysisSettings(lru_pages=256))


if __name__ == "__main__":
    precompile()
