"""Decide a recording again and find the first difference."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from stallward.actuator.engine.engine import (
    LATE_NOTE,
    LEASE_REASON,
    REMOTE,
    Engine,
    EngineSettings,
)
from stallward.actuator.record.tick_record import Mode, TickRecord
from stallward.agent.controller import Controller
from stallward.agent.controllers.none import NoneController
from stallward.agent.desired import DesiredState


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The first thing that came out differently."""

    sequence: int
    field: str
    recorded: object
    replayed: object


def replay(
    records: Iterable[TickRecord],
    controller: Controller,
    *,
    settings: EngineSettings,
    default: Controller | None = None,
    policy: Controller | None = None,
) -> Difference | None:
    """Run recorded samples through the engine again.

    Args:
        records: The ticks of a recording, in order. A sequence that starts again (the loop was
            restarted) starts the engine again.
        controller: What decided while no policy was active.
        settings: As the daemon had them.
        default: The fallback rule; ``none`` if not given.
        policy: The policy that was loaded, for recordings with one.

    Returns:
        The first difference in observation, decision, granted state or notes, compared bit for
        bit; ``None`` if there is none.
    """
    default = default or NoneController()
    engine: Engine | None = None
    last = -1
    for record in records:
        if engine is None or record.sequence <= last:
            engine = Engine(settings=settings, rule=controller, default=default)
            if policy is not None:
                engine.install(policy)
        last = record.sequence
        difference = _replay_tick(engine, record)
        if difference is not None:
            return difference
    return None


def _replay_tick(engine: Engine, record: TickRecord) -> Difference | None:
    if record.mode is not Mode.OFF and engine.policy is None:
        return Difference(
            sequence=record.sequence, field="mode", recorded=record.mode, replayed=Mode.OFF
        )
    engine.set_mode(record.mode)
    late = any(note.startswith(LATE_NOTE) for note in record.guard_notes)
    outcome = engine.step(
        record.sample, remote=_leased(record), late=late, circumstances=record.circumstances
    )
    pairs = (
        ("observation", record.observation, tuple(outcome.observation.tolist())),
        ("decision", record.decision, outcome.decision),
        ("granted", record.granted, outcome.granted),
        ("guard_notes", _timeless(record.guard_notes), _timeless(outcome.notes)),
        ("fallback", record.fallback, outcome.fallback),
        ("shadow", record.shadow, outcome.shadow),
    )
    for field, recorded, replayed in pairs:
        if not _same(recorded, replayed):
            return Difference(
                sequence=record.sequence, field=field, recorded=recorded, replayed=replayed
            )
    return None


def _leased(record: TickRecord) -> DesiredState | None:
    """What a client held a lease for, whether or not it was followed."""
    for named in (record.decision, record.shadow):
        if named is not None and (named.controller, named.decision.reason) == (
            REMOTE,
            LEASE_REASON,
        ):
            return named.decision.desired
    return None


def _same(left: object, right: object) -> bool:
    if isinstance(left, tuple) and isinstance(right, tuple) and len(left) == len(right):
        return all(
            a == b and math.copysign(1.0, a) == math.copysign(1.0, b)
            if isinstance(a, float) and isinstance(b, float)
            else a == b
            for a, b in zip(left, right, strict=True)
        )
    return left == right


def _timeless(notes: tuple[str, ...]) -> tuple[str, ...]:
    """Notes without the measured time of a late decision."""
    return tuple(LATE_NOTE if note.startswith(LATE_NOTE) else note for note in notes)
