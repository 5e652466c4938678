"""Compile the twin now, so that later starts only read what was compiled.

``python -m stallward.env.precompile`` takes most of a minute where nothing is compiled yet, and a
second where all is. It is for images of containers, and for tests before their processes start.
"""

from __future__ import annotations

import numpy as np

from stallward.agent.desired import RELEASED
from stallward.env.simulation.simulation import Simulation, SimulationSettings
from stallward.env.testing import small_twin
from stallward.env.twin.node import TwinNode


def precompile() -> None:
    """Call every kernel of the twin and the simulation once."""
    simulation = Simulation([small_twin()], 1, SimulationSettings(), seed=0)
    simulation.reset(np.ones(1, dtype=bool))
    simulation.step(np.zeros((1, len(simulation.table.sizes)), dtype=np.int64))
    fitted = small_twin()
    node = TwinNode(fitted.scenario, fitted.draws[0], seed=0)
    node.step(RELEASED)


if __name__ == "__main__":
    precompile()
