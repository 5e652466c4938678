"""Replay: runs the samples of a recording through the engine again and compares."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, fields, is_dataclass, replace

from stallward.actuator.engine.engine import Engine
from stallward.actuator.engine.interface import EngineSettings
from stallward.actuator.record.reasons import FaultKind, NoDetails, Reasons
from stallward.actuator.record.tick_record import Mode, TickRecord
from stallward.agent.controller import Controller
from stallward.agent.controllers.none import NoneController
from stallward.agent.desired import DesiredState


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The first difference between a recording and its replay."""

    sequence: int
    """The sequence number of the tick."""
    field: str
    """The name of the part that differs, e.g. ``granted``."""
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
        controller: The controller that decided while no policy was active.
        settings: The settings of the daemon's engine.
        default: The default controller; ``none`` if not given.
        policy: The policy that was loaded, for recordings with one.

    Returns:
        The first difference in observation, decision, granted state or reasons, compared bit for
        bit; ``None`` if there is none.
    """
    default = default or NoneController()
    engine: Engine | None = None
    last = -1
    for record in records:
        if engine is None or record.sequence <= last:
            engine = Engine(settings=settings, configured=controller, default=default)
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
    fault = record.reasons.fault
    late = fault is not None and fault.kind is FaultKind.LATE  # time does not repeat
    outcome = engine.step(
        record.sample, remote=_leased(record), late=late, circumstances=record.circumstances
    )
    pairs = (
        ("observation", record.observation, tuple(outcome.observation.tolist())),
        ("decision", record.decision, outcome.decision),
        ("granted", record.granted, outcome.granted),
        ("reasons", *_comparable(record.reasons, outcome.reasons)),
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
    """Return the desired state of a client that held a lease, whether it was followed or not."""
    for named in (record.decision, record.shadow):
        if named is not None and named.leased:
            return named.decision.desired
    return None


def _comparable(recorded: Reasons, replayed: Reasons) -> tuple[object, object]:
    """Return the parts of both that must be equal: all but how long a late decision took."""
    return _without_lateness(recorded), _without_lateness(replayed)


def _without_lateness(reasons: Reasons) -> Reasons:
    fault = reasons.fault
    if fault is None or fault.kind is not FaultKind.LATE:
        return reasons
    return replace(reasons, fault=replace(fault, cause=NoDetails(kind=FaultKind.LATE)))


def _same(left: object, right: object) -> bool:
    """Return whether two values are equal bit for bit; a NaN equals a NaN."""
    if isinstance(left, float) and isinstance(right, float):
        if math.isnan(left) or math.isnan(right):
            return math.isnan(left) and math.isnan(right)
        return left == right and math.copysign(1.0, left) == math.copysign(1.0, right)
    if isinstance(left, tuple) and isinstance(right, tuple) and len(left) == len(right):
        return all(map(_same, left, right))
    if is_dataclass(left) and type(left) is type(right):
        return all(_same(getattr(left, f.name), getattr(right, f.name)) for f in fields(left))
    return left == right
