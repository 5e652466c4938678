"""What the service asks of the loop, and the answers. No sockets here: bytes in, bytes out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from stallward.actuator.engine.engine import Engine, TickOutcome
from stallward.actuator.engine.lease import MAX_LEASE_S, MIN_LEASE_S, Leases
from stallward.actuator.errors import DaemonError, GuardError
from stallward.actuator.loop.policy_loader import Loaded, PolicyLoader
from stallward.actuator.record.reasons_text import problem_text
from stallward.actuator.record.reasons_wire import reasons_to_wire
from stallward.actuator.record.tick_record import Mode
from stallward.actuator.record.wire import (
    desired_from_wire,
    desired_to_wire,
    mode_from_wire,
    mode_to_wire,
)
from stallward.agent.controller import PolicyController
from stallward.agent.errors import StallwardError
from stallward.agent.observation.encoder import schema_hash
from stallward.proto.v1 import stallward_pb2 as pb

INVALID: Final = "INVALID_ARGUMENT"
PRECONDITION: Final = "FAILED_PRECONDITION"
NOT_FOUND: Final = "NOT_FOUND"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Refusal(Exception):  # noqa: N818 - it never leaves this module
    code: str
    message: str


def _result(ticket: int, **answer: Any) -> bytes:
    """A serialised CommandResult inside a LoopMessage."""
    result = pb.CommandResult(id=ticket, **answer)
    return pb.LoopMessage(result=result).SerializeToString()


def policy_status(policy: PolicyController) -> pb.PolicyStatus:
    """What a client is told of a loaded policy."""
    return pb.PolicyStatus(
        name=policy.path.stem,
        path=str(policy.path),
        schema_hash=schema_hash(),
        sha256=policy.sha256,
    )


class CommandDesk:
    """Answers the service's commands between ticks.

    Args:
        engine: What decides.
        leases: Who holds a desired state from outside.
        loader: Loads policies beside the ticks.
    """

    def __init__(
        self,
        *,
        engine: Engine,
        leases: Leases,
        loader: PolicyLoader,
    ) -> None:
        self._engine = engine
        self._leases = leases
        self._loader = loader
        self._applies: list[int] = []
        self.policy: pb.PolicyStatus | None = None

    def handle(self, message: bytes, now_s: float) -> bytes | None:
        """Answer one command; ``None`` if the answer comes with a later tick."""
        try:
            command = pb.Command.FromString(message)
        except Exception:  # protobuf's own error; our service never sends such a thing
            return None
        try:
            answer = self._answer(command, now_s)
        except _Refusal as refusal:
            return _result(command.id, code=refusal.code, message=refusal.message)
        except (GuardError, DaemonError) as error:
            return _result(command.id, code=PRECONDITION, message=str(error))
        return None if answer is None else _result(command.id, **answer)

    def after_tick(self, outcome: TickOutcome, now_s: float) -> tuple[bytes, ...]:
        """Answers that waited for a tick: desired states applied, policies loaded."""
        answers = [self._applied(ticket, outcome, now_s) for ticket in self._applies]
        self._applies.clear()
        loaded = self._loader.collect()
        if loaded is not None:
            answers.append(self._loaded(loaded))
        return tuple(answers)

    def _answer(self, command: pb.Command, now_s: float) -> dict[str, Any] | None:
        match command.WhichOneof("kind"):
            case "apply":
                self._apply(command.id, command.apply, now_s)
                return None
            case "release":
                self._leases.release(command.release.holder, now_s)
                return {"release": pb.ReleaseResponse()}
            case "load":
                self._loader.start(command.load.path, command.id)
                return None
            case "set_mode":
                return {"set_mode": self._set_mode(command.set_mode.mode)}
            case _:
                raise _Refusal(code="UNIMPLEMENTED", message="The loop does not know this.")

    def _apply(self, ticket: int, request: pb.ApplyRequest, now_s: float) -> None:
        if not request.holder:
            raise _Refusal(code=INVALID, message="Apply needs a holder: who asks.")
        if not MIN_LEASE_S <= request.lease_s <= MAX_LEASE_S:
            bounds = f"{MIN_LEASE_S:g}..{MAX_LEASE_S:g}"
            raise _Refusal(
                code=INVALID, message=f"lease_s is {request.lease_s:g}, outside {bounds}."
            )
        desired = desired_from_wire(request.desired)
        problem = self._engine.invalid(desired)
        if problem is not None:
            said = problem_text(problem)
            raise _Refusal(code=INVALID, message=f"Not expressible on this node: {said}.")
        self._leases.take(request.holder, desired, request.lease_s, now_s)
        self._applies.append(ticket)

    def _applied(self, ticket: int, outcome: TickOutcome, now_s: float) -> bytes:
        remaining_s = self._leases.remaining_s(now_s)
        answer = pb.ApplyResponse(
            granted=desired_to_wire(outcome.granted),
            reasons=reasons_to_wire(outcome.reasons),
            lease_remaining_s=remaining_s,
        )
        return _result(ticket, apply=answer)

    def _loaded(self, loaded: Loaded) -> bytes:
        if loaded.controller is None:
            code = NOT_FOUND if loaded.missing else PRECONDITION
            return _result(loaded.ticket, code=code, message=str(loaded.error))
        self.adopt(loaded)
        return _result(loaded.ticket, load=pb.LoadResponse(policy=self.policy))

    def adopt(self, loaded: Loaded) -> None:
        """Install a loaded policy, off."""
        if loaded.controller is None:
            raise loaded.error or StallwardError("The policy was not loaded.")
        self._engine.install(loaded.controller)
        self.policy = policy_status(loaded.controller)

    def _set_mode(self, wire: pb.Mode) -> pb.SetModeResponse:
        mode = mode_from_wire(wire)
        if mode is None:
            raise _Refusal(code=INVALID, message="SetMode needs a mode: off, shadow or active.")
        if self._engine.policy is None and mode is not Mode.OFF:
            raise _Refusal(code=PRECONDITION, message="No policy is loaded. Load one first.")
        self._engine.set_mode(mode)
        return pb.SetModeResponse(mode=mode_to_wire(self._engine.mode))
