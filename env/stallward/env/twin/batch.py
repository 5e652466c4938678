"""The twin: the state of ``B`` nodes, and a tick of all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from stallward.agent.desired import NORMAL_CPU_WEIGHT
from stallward.env.twin.inputs.exogenous import Exogenous
from stallward.env.twin.inputs.parameters import PARAMETER_NAMES, TwinParameters, to_array
from stallward.env.twin.physics import application, background, schedule
from stallward.env.twin.physics import tick as ticking
from stallward.env.twin.physics.application import SUBSTEP_VALUES
from stallward.env.twin.physics.latency import make_windows
from stallward.env.twin.physics.others import (
    MOST_OTHERS,
    World,
    noise_of,
    other_at,
    others_in_use,
)
from stallward.env.twin.physics.pages import ANON
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
from stallward.env.twin.physics.window import judge, report, schedule_answer
from stallward.env.twin.scenario_arrays import ScenarioArrays
from stallward.env.twin.settings import NODE_SETTINGS
from stallward.env.twin.simd.backend import WIDTH
from stallward.env.twin.simd.jit import kernel, model
from stallward.env.twin.simd.layout import Arrays, Columns, copy_tiles, tiles

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

NODE_SWAPPINESS: Final = NODE_SETTINGS.swappiness
NODE_DIRTY_RATIOS: Final = (NODE_SETTINGS.dirty_start, NODE_SETTINGS.dirty_block)
_SEEDS: Final = 1 << 40
"""How far apart the seeds of a node's applications are."""


@model
def tick_nodes(world: World, at: int, tick: int, slots: int, new_noise: bool) -> None:
    """Let one tick pass for the eight nodes from ``at`` on.

    Args:
        world: All nodes.
        at: The first of the eight nodes.
        tick: The number of ticks before.
        slots: How many slots are in use on any of them.
        new_noise: Whether to draw new noise first; else the noise stays as it is.
    """
    node, parameters = node_at(world.state, at), parameters_at(world.parameters, at)
    noise, now = noise_at(world.noise, at), application.substep_values()
    application.set_rate(node, world.rates)
    if new_noise:
        draw(noise, world.keys, at, tick, node.arriving_per_s * STEP_S)
    others = others_in_use(world, at)
    for a in range(1, 1 + others):
        other = other_at(world, at, a)
        application.set_rate(other, world.rates)
        if new_noise:
            there, expected = at + world.places[a], other.arriving_per_s * STEP_S
            draw(noise_of(world, at, a), world.keys, there, tick, expected)
    ticking.begin(world, node, parameters, noise, now, at, slots, others)
    schedule.start_and_stop(node, world.running, slots)
    schedule.set_targets(node, world.programs, slots)
    schedule.set_bursts(node, slots)
    for k in range(SUBSTEPS):
        background.apply_levers(node, parameters, STEP_S, slots)
        ticking.substep(world, node, parameters, noise, now, k, at, slots, others)
        schedule_answer(node, world.windows, at, tick, k, k * STEP_S)
        for a in range(1, 1 + others):
            there = at + world.places[a]
            schedule_answer(other_at(world, at, a), world.windows, there, tick, k, k * STEP_S)
    ticking.end(node, slots)
    ticking.end_together(world, node, at, others)
    report(node, world.windows, at, tick)
    judge(node)
    for a in range(1, 1 + others):
        other = other_at(world, at, a)
        report(other, world.windows, at + world.places[a], tick)
        judge(other)


@kernel
def _tick_all(world: World, tick: int, new_noise: bool) -> None:
    for at in range(0, world.keys.shape[0] // len(world.places), WIDTH):
        tick_nodes(world, at, tick, background.slots_in_use(node_at(world.state, at)), new_noise)


class TwinBatch:
    """``B`` twin nodes.

    Args:
        scenarios: The scenarios that nodes may have.
        batch: How many nodes, ``B``.
        seed: Everything random follows from it.
        draws: How many nodes have random numbers of their own; node ``i`` has those of node
            ``i % draws``. All by default.

    Attributes:
        nodes: The state (:class:`~stallward.env.twin.physics.state.Node`) as arrays whose last
            axis is the node.
        applications: For each application the arrays of its records, of which the first are
            ``nodes``; one where no scenario has several.
        noise: The noise of the last tick as such arrays.
        scenario_arrays: The scenarios as arrays.
        world: The arrays that kernels take.
        ticks: How many ticks have passed.
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
        self.scenario_arrays = ScenarioArrays(scenarios)
        self.batch = batch
        self.ticks = 0
        self._size = tiles(batch) * WIDTH
        others = MOST_OTHERS if any(scenario.others for scenario in scenarios) else 0
        places = tuple(self._size * a for a in range(1 + others))
        size = self._size * len(places)
        self.world = World(
            state=NODE.empty(size),
            parameters=PARAMETERS.empty(size),
            noise=NOISE.empty(size),
            keys=np.empty(size, dtype=np.uint64),
            programs=self.scenario_arrays.programs,
            running=self.scenario_arrays.running,
            rates=self.scenario_arrays.rates,
            windows=make_windows(size),
            values=SUBSTEP_VALUES.empty(size if others else 0),
            places=places,
        )
        self.world.keys[:] = self._keys(seed)
        everyone = np.arange(size)
        # Nodes beyond the batch are computed, too, so their values must be valid.
        self.world.parameters[:] = 1.0
        unused = Arrays(NODE, self.world.state, everyone)
        for name in ("zone_pages", "slo_ms", "cores", "service_s", "workers", "cpu_weight"):
            setattr(unused, name, 1.0)
        self.applications = tuple(unused.at(place + everyone[:batch]) for place in places)
        self.nodes = self.applications[0]
        self.noise = Arrays(NOISE, self.world.noise, everyone[:batch])

    @property
    def bytes_used(self) -> int:
        """The memory that the nodes take."""
        arrays: list[Any] = [*self.world, *self.world.windows]
        return sum(array.nbytes for array in arrays if isinstance(array, np.ndarray))

    def _keys(self, seed: int) -> Keys:
        """The keys of all applications; those of the first do not depend on the others."""
        of_each = (
            keys_of(seed + a * _SEEDS, self._size, self._draws)
            for a in range(len(self.world.places))
        )
        return np.concatenate(list(of_each))

    def seed(self, seed: int) -> None:
        """Begin new random numbers, which follow from ``seed``."""
        self.world.keys[:] = rewound(self._keys(seed), self.ticks)

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
        """Begin again on some nodes, with the application loaded and the background starting.

        Args:
            rows: Which nodes, ``(B,)``, of which ``n`` are true.
            scenario: The index of each one's scenario, ``(n,)``.
            parameters: The parameters of each, ``(len(PARAMETER_NAMES), n)``, or those of each
                application, ``(applications, len(PARAMETER_NAMES), n)``.
            cursor_s: Where in its own time each program begins, scalar or ``(n, SLOTS)``.
            phase_s: Where in the schedule of programs each node begins, scalar or ``(n,)``.
            vary: May change the state of the new nodes before they begin.
        """
        index = np.flatnonzero(rows)
        each = (
            parameters
            if parameters.ndim == 3
            else np.broadcast_to(parameters, (len(self.world.places), *parameters.shape))
        )
        applications = [
            self.scenario_arrays.fresh(self.scenario_arrays.entries[scenario, a], mine)
            for a, mine in enumerate(each)
        ]
        for nodes in applications:
            nodes["cursor_s"] = cursor_s
            nodes["phase_s"] = phase_s
            if vary is not None:
                vary(nodes)
        self.scenario_arrays.load(applications)
        for place, nodes, mine in zip(self.world.places, applications, each, strict=True):
            there = index + place
            self.world.state[there // WIDTH, :, there % WIDTH] = nodes.matrix
            self.world.parameters[there // WIDTH, :, there % WIDTH] = mine.T
            self.world.windows.reset(there)

    def copy_from(self, source: TwinBatch, rows: NDArray[np.int64]) -> None:
        """Copy the state of nodes of another batch; random numbers stay those of this batch.

        Args:
            source: A batch of the same scenarios.
            rows: For each node, the index of the node to copy, ``(B,)``.
        """
        self.ticks = source.ticks
        mine, theirs = self.world, source.world
        for place, from_place in zip(mine.places, theirs.places, strict=True):
            to, source_rows = place // WIDTH, rows + from_place
            copy_tiles(mine.state[to:], theirs.state, source_rows)
            copy_tiles(mine.parameters[to:], theirs.parameters, source_rows)
            mine.windows.behind(place).copy_from(theirs.windows, source_rows)

    def parameters_of_each(
        self, first: Sequence[TwinParameters], others: Sequence[Sequence[TwinParameters]]
    ) -> Array:
        """The parameters of nodes as :meth:`reset` takes them.

        Args:
            first: Those of each node and its first application.
            others: Those of each further application of each node; where there are none, they are
                the same.
        """
        own = to_array(first)
        each = [to_array(mine) for mine in others]
        missing = len(self.applications) - 1 - len(each)
        return np.stack([own, *each, *([own] * missing)])

    @property
    def pooled(self) -> Array:
        """A copy of the histogram of all requests of each node, ``(POOL_BINS, B)``.

        They are those of the first application; :meth:`pooled_of` has those of any.
        """
        return self.pooled_of(0)

    def pooled_of(self, application: int) -> Array:
        """A copy of such a histogram of one application."""
        first = self.world.places[application]
        return self.world.windows.pooled[first : first + self.batch].T.astype(np.float64)

    def set_levers(
        self,
        paused: Mask,
        limit_pages: Array,
        swappiness: Array | float = NODE_SWAPPINESS,
        dirty_ratios: tuple[Array | float, Array | float] = NODE_DIRTY_RATIOS,
        *,
        protected_swappiness: Array | float | None = None,
        protected_low_pages: Array | float = 0.0,
        cpu_weight: Array | float = NORMAL_CPU_WEIGHT,
    ) -> None:
        """Set the levers for the next ticks.

        Args:
            paused: Which slots are paused, ``(SLOTS, B)``.
            limit_pages: The limits, ``(SLOTS, B)``; infinite for none.
            swappiness: The swappiness of all groups, ``(B,)`` or scalar.
            dirty_ratios: The shares of dirty pages in the zone at which writeback starts and at
                which writers block.
            protected_swappiness: The swappiness of the protected group, if it has its own.
            protected_low_pages: The pages of the protected group that are reclaimed last.
            cpu_weight: The CPU weights of the slots, ``(SLOTS, B)`` or scalar.
        """
        nodes = self.nodes
        nodes.want_paused = np.asarray(paused, dtype=np.float64)
        nodes.want_limit_pages = limit_pages
        nodes.swappiness = swappiness
        for own in self.applications:
            own.protected_swappiness = (
                swappiness if protected_swappiness is None else protected_swappiness
            )
            own.protected_low_pages = protected_low_pages
        nodes.cpu_weight = cpu_weight
        nodes.dirty_start, nodes.dirty_block = dirty_ratios

    def advance(self, *, new_noise: bool = True) -> None:
        """Let one tick of 0.1 s pass, with new noise or with the noise as it is."""
        _tick_all(self.world, self.ticks, new_noise)
        self.ticks += 1

    def read_back(self, rows: Mask) -> None:
        """Ask once for the applications' pages in swap, on the nodes in ``rows``, ``(B,)``."""
        for nodes in self.applications:
            swapped = nodes.wanted[0, ANON] - nodes.resident[0, ANON]
            nodes.read_back_pages = np.where(rows, swapped, nodes.read_back_pages)

    def end_slots(self, ended: Mask, *, for_good: bool = True) -> None:
        """End programs and free their memory.

        Args:
            ended: The slots whose programs end, ``(SLOTS, B)``.
            for_good: Whether they stay ended; else they begin anew.
        """
        nodes = self.nodes
        gone = np.concatenate([np.zeros((1, self.batch), dtype=bool), ended])
        if for_good:
            nodes.has_program = np.where(ended, 0.0, nodes.has_program)
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
