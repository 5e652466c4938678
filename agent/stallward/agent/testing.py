"""The conformance test of controllers, and samples to test them with; part of the public API.

To test a controller of your own::

    from stallward.agent.testing import check_controller

    def test_my_controller_conforms() -> None:
        check_controller(MyController)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from stallward.agent.action_table import ACTION_TABLES
from stallward.agent.controller import Controller, Decision, NodeContext
from stallward.agent.desired import MIB, DesiredState
from stallward.agent.errors import ControllerError
from stallward.agent.observation.encoder import ObservationEncoder
from stallward.agent.observation.raw import to_raw
from stallward.agent.sample import (
    GroupSample,
    LatencySample,
    NodeSample,
    ProcessSample,
    PsiTotals,
    Sample,
    SlotState,
)
from stallward.agent.threads import ThreadSample

CONTEXT = NodeContext(
    zone_limit_bytes=600 * MIB, slot_names=("hog0", "hog1"), floors_bytes=(16 * MIB, 16 * MIB)
)

_ACTION_LENGTHS: Final = {len(table.sizes) for table in ACTION_TABLES.values()}

PROTECTED_PROCESS: Final = ProcessSample(
    pid=99, start_time_ticks=6, slot=-1, oom_score=1000, stopped=False
)
"""A process of the protected application, first for the OOM killer; no controller may touch it."""


PROTECTED_TIDS: Final = (99, 98)
"""The threads of that process."""


def _threads(sequence: int) -> tuple[ThreadSample, ...]:
    """The application's threads: one that is short of CPU time, and one that sleeps at times."""
    return tuple(
        ThreadSample(
            pid=PROTECTED_PROCESS.pid,
            tid=tid,
            start_time_ticks=6,
            state="S" if place and sequence % 3 else "R",
            cpu=0,
            run_us=(30_000 - 10_000 * place) * sequence,
            wait_us=40_000 * sequence,
            voluntary_switches=place * sequence,
            involuntary_switches=(1 + sequence % 2) * sequence,
            nice=0,
            slice_us=1_400,
            cpus=(0, 1),
        )
        for place, tid in enumerate(PROTECTED_TIDS)
    )


def make_sample(
    sequence: int = 0,
    *,
    some_us: int = 0,
    full_us: int = 0,
    slot_some_us: int = 0,
    available_bytes: int = 100 * MIB,
    oom_scores: tuple[int, ...] = (700, 600),
    stopped: tuple[bool, ...] = (False, False),
) -> Sample:
    """A sample of a 600 MiB zone with two background groups, 0.1 s after the previous one."""
    slots = tuple(
        GroupSample(
            name=name,
            psi=PsiTotals(memory_some_us=slot_some_us, io_some_us=0),
            memory_usage_bytes=200 * MIB,
            cpu_usage_us=50_000 * sequence,
        )
        for name in CONTEXT.slot_names
    )
    return Sample(
        sequence=sequence,
        time_s=1000.0 + 0.1 * sequence,
        node=NodeSample(memory_total_bytes=24_000 * MIB),
        zone=GroupSample(
            name="zone",
            psi=PsiTotals(memory_some_us=some_us, memory_full_us=full_us),
            memory_limit_bytes=CONTEXT.zone_limit_bytes,
            memory_usage_bytes=CONTEXT.zone_limit_bytes - available_bytes,
            inactive_file_bytes=0,
        ),
        protected=GroupSample(name="app", psi=PsiTotals(memory_some_us=some_us // 2)),
        slots=slots,
        slot_states=tuple(SlotState(reference_bytes=300 * MIB) for _ in slots),
        latency=LatencySample(completed=5, mean_ms=10.0, p95_ms=20.0, max_ms=30.0),
        processes=(
            *(
                ProcessSample(
                    pid=100 + i,
                    start_time_ticks=7 + i,
                    slot=i,
                    oom_score=score,
                    stopped=stopped[i],
                )
                for i, score in enumerate(oom_scores)
            ),
            PROTECTED_PROCESS,
        ),
        protected_threads=_threads(sequence),
    )


def _episode(controller: Controller, length: int) -> list[Decision]:
    generator = np.random.default_rng(1)
    encoder = ObservationEncoder()
    controller.reset(CONTEXT)
    some = full = 0
    decisions = []
    for sequence in range(length):
        some += int(generator.integers(0, 2)) * 20_000
        full += int(generator.integers(0, 2)) * 10_000
        sample = make_sample(sequence, some_us=some, full_us=full, slot_some_us=some // 3)
        decisions.append(controller.decide(sample, encoder.encode(to_raw(sample))))
    return decisions


def check_controller(make: Callable[[], Controller], *, length: int = 200) -> None:
    """Check on a random episode the rules that every controller must keep.

    Raises:
        ControllerError: If a rule is broken. The error says which, and its likely cause.
    """
    controller = make()
    if not controller.name:
        raise ControllerError("The controller has no name.")
    first = _episode(controller, length)
    if first != _episode(controller, length):
        raise ControllerError(
            "The same episode after reset() gave other decisions.",
            next_step="Forget everything in reset() and draw only from context.seed.",
        )
    if first != _episode(make(), length):
        raise ControllerError(
            "Two controllers decided differently on the same episode.",
            next_step="Keep state in the instance, not in the class or the module.",
        )
    for tick, decision in enumerate(first):
        _check_decision(tick, decision)
    bare = Sample(
        sequence=0,
        time_s=0.0,
        node=NodeSample(),
        zone=GroupSample(name="zone"),
        protected=GroupSample(name="app"),
    )
    controller.reset(NodeContext(zone_limit_bytes=0, slot_names=()))
    controller.decide(bare, ObservationEncoder().encode(to_raw(bare)))


def _check_decision(tick: int, decision: Decision) -> None:
    if not isinstance(decision.desired, DesiredState):
        raise ControllerError(f"Tick {tick}: the decision has no desired state.")
    if len(decision.desired.slots) > len(CONTEXT.slot_names):
        raise ControllerError(
            f"Tick {tick}: {len(decision.desired.slots)} slots desired, the node has "
            f"{len(CONTEXT.slot_names)}.",
            next_step="Take the slots from sample.slots.",
        )
    for i, slot in enumerate(decision.desired.slots):
        if slot.limit_bytes is not None and slot.limit_bytes < CONTEXT.floor(i):
            raise ControllerError(
                f"Tick {tick}: slot {i} limited to {slot.limit_bytes} bytes, under its floor.",
                next_step="Keep limits at or above context.floor(slot).",
            )
    acted_on = (*decision.desired.stopped, decision.desired.terminate)
    if any(ref is not None and ref.pid == PROTECTED_PROCESS.pid for ref in acted_on):
        raise ControllerError(
            f"Tick {tick}: a process of the protected application is to be stopped or ended.",
            next_step="Leave out processes whose slot is -1.",
        )
    for desire in decision.desired.protected_threads:
        if desire.thread.tid not in PROTECTED_TIDS:
            raise ControllerError(
                f"Tick {tick}: thread {desire.thread.tid} is none of the application's.",
                next_step="Take the threads from sample.protected_threads.",
            )
    if decision.action is not None and len(decision.action) not in _ACTION_LENGTHS:
        raise ControllerError(f"Tick {tick}: the action has {len(decision.action)} entries.")
    if decision.propensity is not None and not 0.0 < decision.propensity <= 1.0:
        raise ControllerError(f"Tick {tick}: propensity {decision.propensity} is no probability.")
