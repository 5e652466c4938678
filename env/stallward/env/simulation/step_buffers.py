"""The arrays between policies and twin nodes, and the figures of a decision."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stallward.agent.observation.encoder import OBSERVATION_SIZE
from stallward.env.simulation.observe import ENCODER, Observations
from stallward.env.simulation.sharing.state import SHARING
from stallward.env.twin.frame import FRAME
from stallward.env.twin.physics import levers
from stallward.env.twin.physics.levers import Ring
from stallward.env.twin.simd.backend import WIDTH
from stallward.env.twin.simd.layout import Layout, tiles
from stallward.env.twin.simd.records import reader

Array = NDArray[np.float64]
Actions = NDArray[np.int64]

COSTS: Final = ("violated", "excess", "slow")
"""The parts of the reward that have a price: severity, excess and slow requests."""


class StepBuffers(NamedTuple):
    """The arrays between policies and nodes. Their size is rounded up to whole tiles of eight."""

    frames: Array
    """Rows of :class:`~stallward.env.twin.frame.Frame`."""
    encoders: Array
    """Rows of :class:`~stallward.env.simulation.observe.Encoder`."""
    ring: Ring
    """Whether each slot was paused, for the ticks of the last minute."""
    observation: Observations
    """``(B, OBSERVATION_SIZE)``."""
    wanted: Actions
    """The actions of this decision, one column for each entry of the action table."""
    action: Actions
    """The actions of the decision before, same shape."""
    slow: NDArray[np.bool_]
    """Whether actions take effect a tick late, ``(B,)``."""
    sharing: Array
    """Rows of :class:`~stallward.env.simulation.sharing.state.Sharing`."""
    late: NDArray[np.bool_]
    """Whether the next decision is made on the observation before the newest one, ``(B,)``."""


class RewardTerms(NamedTuple):
    """The terms of the reward for each scenario."""

    prices: Array
    """The price of each of :data:`COSTS`, ``(len(COSTS), scenarios)``."""
    baseline_ms: Array
    """The latency baseline: the mean with ample memory, ``(scenarios,)``."""
    slow_ms: Array
    """Requests with a longer latency are slow, ``(scenarios,)``."""
    others_baseline_ms: Array
    """The latency baselines of further applications, ``(MOST_OTHERS, scenarios)``."""
    others_slow_ms: Array
    """The latencies from which their requests are slow, same shape."""


class Measured:
    """The figures of one decision on a node: means over its ticks, except ``moved``."""

    reward: float
    progress: float
    """Mean share of full speed of the slots."""
    violated: float
    """Severity of the last second. Of several applications the worst counts, here and below."""
    window_violated: float
    """1 where the last window missed the target, else 0."""
    moved: float
    """How many levers moved: the sum over the ticks."""
    excess: float
    """Excess of the requests' latency over the baseline."""
    slow: float
    """Share of slow requests."""


MEASURED: Final = Layout(Measured)
measured_at: Final = reader(Measured, MEASURED)


def measured_by_name(measured: Array, nodes: int) -> dict[str, Array]:
    """Return the figures of the first ``nodes`` nodes by their names in :class:`Measured`.

    Args:
        measured: Rows of ``MEASURED``.
        nodes: How many nodes; each figure has the shape ``(nodes,)``.
    """
    rows = measured.swapaxes(0, 1).reshape(MEASURED.rows, -1)[:, :nodes]
    return {name: rows[row] for name, (row, _) in MEASURED.fields.items()}


def make_buffers(nodes: int, entries: int) -> StepBuffers:
    """Make the buffers for ``nodes`` nodes, whose actions have ``entries`` entries."""
    size = tiles(nodes) * WIDTH
    return StepBuffers(
        frames=FRAME.empty(nodes),
        encoders=ENCODER.empty(nodes),
        ring=levers.make_ring(nodes),
        observation=np.zeros((size, OBSERVATION_SIZE), dtype=np.float32),
        wanted=np.zeros((size, entries), dtype=np.int64),
        action=np.zeros((size, entries), dtype=np.int64),
        slow=np.zeros(size, dtype=bool),
        sharing=SHARING.empty(nodes),
        late=np.zeros(size, dtype=bool),
    )
