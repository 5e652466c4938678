"""What the nodes count, as their kernels do: cumulative since the reset."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stallward.agent.desired import SLOTS
from stallward.env.twin.pages import GROUPS

Mask = NDArray[np.bool_]


class Counters:
    """Counters of ``B`` nodes; of pressure the zone comes last.

    Attributes:
        psi_some_us, psi_full_us, psi_io_us: Memory and io stall, ``(GROUPS + 1, B)``.
        refault_pages, major_faults, cpu_us: Of each group, ``(GROUPS, B)``.
        units: Work done, ``(SLOTS, B)``.
        swap_in_pages, swap_out_pages, cpu_stall_us: Of the node, ``(B,)``.
    """

    def __init__(self, batch: int) -> None:
        self.psi_some_us = np.zeros((GROUPS + 1, batch))
        self.psi_full_us = np.zeros((GROUPS + 1, batch))
        self.psi_io_us = np.zeros((GROUPS + 1, batch))
        self.refault_pages = np.zeros((GROUPS, batch))
        self.major_faults = np.zeros((GROUPS, batch))
        self.cpu_us = np.zeros((GROUPS, batch))
        self.units = np.zeros((SLOTS, batch))
        self.swap_in_pages = np.zeros(batch)
        self.swap_out_pages = np.zeros(batch)
        self.cpu_stall_us = np.zeros(batch)

    def reset(self, rows: Mask) -> None:
        """Start the nodes in ``rows`` from zero."""
        for counter in vars(self).values():
            counter[..., rows] = 0.0
