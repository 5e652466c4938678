"""The twin itself: the state of ``B`` nodes, and a tick of all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stallward.env.twin.inputs.exogenous import Exogenous
from stallward.env.twin.inputs.parameters import PARAMETER_NAMES
from stallward.env.twin.physics import application, background
from stallward.env.twin.physics import tick as ticking
from stallward.env.twin.physics.latency import Windows, make_windows
from stallward.env.twin.physics.randomness import Keys, draw, keys_of, rewound
from stallward.env.twin.physics.state import (
    LAST_S,
    NODE,
    NOISE,
    PARAMETERS,
    SUBSTEPS,
    node_at,
    noise_at,
    parameters_at,
)
from stallward.env.twin.physics.tick import STEP_S, TICK_S
from stallward.env.twin.physics.window import judge, remember, report
from stallward.env.twin.scenario_arrays import ScenarioArrays
from stallward.env.twin.simd.jit import kernel, model
from stallward.env.twin.simd.layout import Arrays, Columns, copy_tiles, tiles
from stallward.env.twin.simd.vectors import WIDTH

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

NODE_SWAPPINESS: Final = 60.0
NODE_DIRTY_RATIOS: Final = (0.10, 0.20)
"""Share of the zone at which writeback starts and at which writers block."""


class World(NamedTuple):
    """The arrays that a tick reads and changes, as compiled code takes them."""

    state: Array
    parameters: Array
    noise: Array
    keys: Keys
    programs: Array
    running: Array
    rates: Array
    windows: Windows


@model
def tick_nodes(world: World, at: int, tick: int, slots: int, draws: bool) -> None:
    """One tick of the eight nodes from ``at`` on; without ``draws``, of the noise that is there.

    Args:
        world: All nodes.
        at: The first of the nodes.
        tick: The count of ticks.
        slots: Slots that any of them has.
        draws: Whether to draw new noise first.
    """
    node, parameters = node_at(world.state, at), parameters_at(world.parameters, at)
    noise, now = noise_at(world.noise, at), application.moment()
    application.set_rate(node, world.rates)
    if draws:
        draw(noise, world.keys, at, tick, node.arriving_per_s * STEP_S)
    ticking.begin(node, parameters, noise, now, slots)
    background.come_and_go(node, world.running, slots)
    background.aim(node, world.programs, slots)
    for k in range(SUBSTEPS):
        background.move_levers(node, parameters, STEP_S, slots)
        ticking.substep(node, parameters, noise, now, k, slots)
        remember(node, world.windows, at, tick, k, k * STEP_S)
    ticking.end(node, slots)
    report(node, world.windows, at, tick)
    judge(node)


@kernel
def _tick_all(world: World, tick: int, draws: bool) -> None:
    for at in range(0, world.keys.shape[0], WIDTH):
        tick_nodes(world, at, tick, background.slots_in_use(node_at(world.state, at)), draws)


class TwinBatch:
    """``B`` nodes.

    Args:
        scenarios: What they are.
        batch: How many, ``B``.
        seed: Everything random follows from it.
        draws: So many nodes draw for themselves, and the others what the one so many before them
            does; all by default.

    Attributes:
        nodes: The state of :class:`~stallward.env.twin.physics.state.Node` as arrays, nodes last.
        noise: The last tick's, as arrays.
        table: The scenarios.
        world: What kernels take.
        ticks: How many there were.
    """

    def __init__(
        self,
        scenarios: Sequence[Exogenous],
        batch: int,
        *,
        seed: int,
        draws: int | None = None,
    ) -> None:
        self._draws = draws
        self.table = ScenarioArrays(scenarios)
        self.batch = batch
        self.ticks = 0
        size = tiles(batch) * WIDTH
        self.world = World(
            state=NODE.empty(batch),
            parameters=PARAMETERS.empty(batch),
            noise=NOISE.empty(batch),
            keys=keys_of(seed, size, draws),
            programs=self.table.programs,
            running=self.table.running,
            rates=self.table.rates,
            windows=make_windows(size),
        )
        everyone = np.arange(size)
        # Nodes beyond the batch are computed, too.
        self.world.parameters[:] = 1.0
        unused = Arrays(NODE, self.world.state, everyone)
        for name in ("zone_pages", "slo_ms", "cores", "service_s", "workers"):
            setattr(unused, name, 1.0)
        self.nodes = unused.at(everyone[:batch])
        self.noise = Arrays(NOISE, self.world.noise, everyone[:batch])

    @property
    def bytes_used(self) -> int:
        """Memory that the nodes take."""
        arrays: list[Any] = [*self.world[:-1], *self.world.windows]
        return sum(array.nbytes for array in arrays)

    def seed(self, seed: int) -> None:
        """Start the random stream afresh."""
        keys = keys_of(seed, len(self.world.keys), self._draws)
        self.world.keys[:] = rewound(keys, self.ticks)

    def reset(
        self,
        rows: Mask,
        scenario: NDArray[np.int64],
        parameters: Array,
        *,
        cursor_s: Array | float = 0.0,
        phase_s: Array | float = 0.0,
        vary: Callable[[Columns], None] | None = None,
    ) -> None:
        """Start the nodes in ``rows`` afresh: the application loaded, the background starting.

        Args:
            rows: Which nodes, ``(B,)``.
            scenario: Index of the scenario of each of them, ``(n,)``.
            parameters: ``(len(PARAMETER_NAMES), n)``.
            cursor_s: Where each program starts, scalar or ``(n, SLOTS)``.
            phase_s: How far into the coming and going of the programs, scalar or ``(n,)``.
            vary: May change the new nodes' descriptions before they begin.
        """
        index = np.flatnonzero(rows)
        nodes = self.table.fresh(scenario, parameters)
        nodes["cursor_s"] = cursor_s
        nodes["phase_s"] = phase_s
        if vary is not None:
            vary(nodes)
        self.table.load(nodes)
        self.world.state[index // WIDTH, :, index % WIDTH] = nodes.matrix
        self.world.parameters[index // WIDTH, :, index % WIDTH] = parameters.T
        self.world.windows.reset(index)

    def copy_from(self, source: TwinBatch, rows: NDArray[np.int64]) -> None:
        """Let every node be what one of another batch is; its luck from now on stays its own.

        Args:
            source: Of the same scenarios.
            rows: Which of its nodes, ``(B,)``.
        """
        self.ticks = source.ticks
        mine, theirs = self.world, source.world
        copy_tiles(mine.state, theirs.state, rows)
        copy_tiles(mine.parameters, theirs.parameters, rows)
        mine.windows.copy_from(theirs.windows, rows)

    @property
    def pooled(self) -> Array:
        """Histogram of all requests of each node, a copy, ``(POOL_BINS, B)``."""
        return self.world.windows.pooled[: self.batch].T.astype(np.float64)

    def tick(
        self,
        paused: Mask,
        limit_pages: Array,
        swappiness: Array | float = NODE_SWAPPINESS,
        dirty_ratios: tuple[Array | float, Array | float] = NODE_DIRTY_RATIOS,
    ) -> None:
        """One tick of 0.1 s with the levers as given.

        Args:
            paused: ``(SLOTS, B)``.
            limit_pages: ``(SLOTS, B)``; infinite for none.
            swappiness: ``(B,)`` or scalar.
            dirty_ratios: When writeback starts and when writers block, shares of the zone.
        """
        self.set_levers(paused, limit_pages, swappiness, dirty_ratios)
        self.advance()

    def set_levers(
        self,
        paused: Mask,
        limit_pages: Array,
        swappiness: Array | float = NODE_SWAPPINESS,
        dirty_ratios: tuple[Array | float, Array | float] = NODE_DIRTY_RATIOS,
    ) -> None:
        """Set the levers for the ticks to come; see :meth:`tick`."""
        nodes = self.nodes
        nodes.want_paused = np.asarray(paused, dtype=np.float64)
        nodes.want_limit_pages = limit_pages
        nodes.swappiness = swappiness
        nodes.dirty_start, nodes.dirty_block = dirty_ratios

    def advance(self, *, draws: bool = True) -> None:
        """One tick with the levers as they are, and, without ``draws``, the noise as it is."""
        _tick_all(self.world, self.ticks, draws)
        self.ticks += 1

    def end_slots(self, ended: Mask, *, for_good: bool = True) -> None:
        """The programs of the slots in ``ended`` ``(SLOTS, B)`` are gone, with their memory.

        Args:
            ended: Which.
            for_good: Otherwise they begin anew.
        """
        nodes = self.nodes
        gone = np.concatenate([np.zeros((1, self.batch), dtype=bool), ended])
        if for_good:
            nodes.present = np.where(ended, 0.0, nodes.present)
        nodes.cursor_s = np.where(ended, 0.0, nodes.cursor_s)
        nodes.resident = np.where(gone[:, None], 0.0, nodes.resident)
        nodes.wanted = np.where(gone[:, None], 0.0, nodes.wanted)
        nodes.touches_per_s = np.where(gone[:, None], 0.0, nodes.touches_per_s)
        nodes.dirty = np.where(gone, 0.0, nodes.dirty)


__all__ = [
    "LAST_S",
    "NODE_DIRTY_RATIOS",
    "NODE_SWAPPINESS",
    "PARAMETER_NAMES",
    "TICK_S",
    "TwinBatch",
    "World",
    "tick_nodes",
]
