"""Real memory pressure explains the holds of controllers, and ample memory explains none."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from stallward.actuator.guard.budgets import Budgets
from stallward.actuator.guard.hold_budget import HoldMemory, holds_back, note_holds, watch_holds
from stallward.agent.desired import DesiredState, SlotDesire
from stallward.agent.sample import (
    GroupSample,
    NodeSample,
    PsiTotals,
    Sample,
    SlotState,
)
from stallward.env.recording.recording import Recording, load_recording

RECORDINGS = Path(__file__).parents[3] / "recordings"
UNDER_POLICY = sorted(path.name for path in RECORDINGS.glob("*-ppo-s*"))
WITH_AMPLE_MEMORY = sorted(path.name for path in RECORDINGS.glob("*-ample-s*"))
HELD = DesiredState(slots=(SlotDesire(paused=True),))
PERIOD_S = 0.1
EARLIEST_S = 2.0
"""Programs that have just started have not asked for their memory yet."""


@dataclass(frozen=True, kw_only=True)
class Replay:
    """What the guard makes of a recording's holds."""

    held_share: float
    """The share of ticks at which something was held back."""
    longest_s: float
    """The longest time without a sign of memory pressure."""
    used_s: float
    refused: int
    """The ticks at which holds would have been refused."""


def _replay(recording: Recording, budgets: Budgets, held: DesiredState | None = None) -> Replay:
    """Let the guard watch a recording, with its own holds or with ``held`` at every tick."""
    memory, longest_s, count, refused, ticks = HoldMemory(), 0.0, 0, 0, 0
    grants = _granted(recording)
    for sample, granted in zip(_samples(recording), grants, strict=True):
        desired = granted if held is None else held
        memory = watch_holds(memory, sample, budgets, recording.run.sandbox_bytes, PERIOD_S)
        refused += memory.refusing and holds_back(desired)
        memory = note_holds(memory, desired)
        longest_s = max(longest_s, memory.since_sign_s or 0.0)
        count, ticks = count + holds_back(desired), ticks + 1
    return Replay(
        held_share=count / ticks, longest_s=longest_s, used_s=memory.used_s, refused=refused
    )


def _samples(recording: Recording) -> Iterator[Sample]:
    """The part of each recorded sample that shows memory pressure."""
    columns = {
        name: column.astype(float).tolist()
        for name, column in recording.ticks.items()
        if column.dtype.kind in "biuf"
    }
    slots = range(len(recording.run.slot_names))

    def number(name: str, row: int) -> int | None:
        value = columns[name][row] if name in columns else math.nan
        return None if math.isnan(value) else int(value)

    def group(prefix: str, row: int) -> GroupSample:
        return GroupSample(
            name=prefix,
            psi=PsiTotals(memory_some_us=number(f"{prefix}_psi_memory_some_us", row)),
            memory_usage_bytes=number(f"{prefix}_memory_usage_bytes", row),
            memory_limit_bytes=number(f"{prefix}_memory_limit_bytes", row),
            inactive_file_bytes=number(f"{prefix}_inactive_file_bytes", row),
            refault_file_pages=number(f"{prefix}_refault_file_pages", row),
            refault_anon_pages=number(f"{prefix}_refault_anon_pages", row),
            major_faults=number(f"{prefix}_major_faults", row),
        )

    for row, time_s in enumerate(columns["time_s"]):
        yield Sample(
            sequence=row,
            time_s=time_s,
            node=NodeSample(
                memory_total_bytes=recording.run.node.memory_total_bytes,
                memory_available_bytes=number("node_memory_available_bytes", row),
                scan_direct_pages=number("node_scan_direct_pages", row),
            ),
            zone=group("zone", row),
            protected=group("protected", row),
            slots=tuple(group(f"slot{i}", row) for i in slots),
            slot_states=tuple(
                SlotState(reference_bytes=number(f"slot{i}_state_reference_bytes", row))
                for i in slots
            ),
        )


def _granted(recording: Recording) -> Iterator[DesiredState]:
    """The holds of each tick."""
    for row in range(len(recording.ticks["time_s"])):
        slots = []
        for i in range(len(recording.run.slot_names)):
            limits = recording.actions.get(f"granted_slot{i}_limit_bytes")
            limit = math.nan if limits is None else float(limits[row])
            slots.append(
                SlotDesire(
                    paused=bool(recording.actions[f"granted_slot{i}_paused"][row]),
                    limit_bytes=None if math.isnan(limit) else int(limit),
                )
            )
        yield DesiredState(slots=tuple(slots))


def test_there_are_recordings_of_the_policy() -> None:
    assert len(UNDER_POLICY) >= 8


@pytest.mark.parametrize("name", UNDER_POLICY)
def test_the_budget_does_not_bite_while_the_policy_holds_real_pressure_down(name: str) -> None:
    """A policy that succeeds keeps stalls away for nearly a minute, but not every sign."""
    no_budget = Budgets(max_hold_without_pressure_share=0.0, pressure_lasts_s=30.0)
    seen = _replay(load_recording(RECORDINGS / name), no_budget)
    assert seen.held_share > 0.9, "or it tests nothing"
    assert seen.longest_s < no_budget.pressure_lasts_s < Budgets().pressure_lasts_s / 5
    assert (seen.used_s, seen.refused) == (0.0, 0)


@pytest.mark.parametrize("name", WITH_AMPLE_MEMORY)
def test_ample_memory_explains_no_hold(name: str) -> None:
    no_budget = Budgets(max_hold_without_pressure_share=0.0, pressure_lasts_s=EARLIEST_S)
    recording = load_recording(RECORDINGS / name)
    seen = _replay(recording, no_budget, HELD)
    ticks = len(recording.ticks["time_s"])
    assert seen.refused > 0.9 * ticks, "none is refused after a sign, so there was hardly one"
