"""The loop's answers to the commands of the service, as bytes; sockets are elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from stallward.actuator.engine.engine import Engine
from stallward.actuator.engine.interface import TickOutcome
from stallward.actuator.engine.lease import MAX_LEASE_S, MIN_LEASE_S, Leases
from stallward.actuator.errors import DaemonError, GuardError
from stallward.actuator.loop.policy_loader import LoadResult, PolicyLoader
from stallward.actuator.policies.named_controller import PREFIX, digest_of, specification_of
from stallward.actuator.record.problem_text import problem_text
from stallward.actuator.record.tick_record import Mode
from stallward.actuator.record.wire import DESIRED_STATE, MODE, REASONS
from stallward.agent.controller import Controller, PolicyController
from stallward.agent.errors import ControllerError, StallwardError
from stallward.proto.v1 import stallward_pb2 as pb

INVALID: Final = "INVALID_ARGUMENT"
PRECONDITION: Final = "FAILED_PRECONDITION"
NOT_FOUND: Final = "NOT_FOUND"
_BLIND: Final = (
    "No sample could be read, so nothing is held back. The lease is kept until it ends; why nothing "
    "could be read is in the status."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Refusal(Exception):  # noqa: N818 - it never leaves this module
    code: str
    message: str


def _result(ticket: int, **answer: Any) -> bytes:
    """Return a serialised LoopMessage with a CommandResult."""
    result = pb.CommandResult(id=ticket, **answer)
    return pb.LoopMessage(result=result).SerializeToString()


def policy_status(controller: Controller, name: str) -> pb.PolicyStatus:
    """Return the status of what was loaded, for clients.

    Args:
        controller: A policy or another controller.
        name: How it was named.
    """
    if isinstance(controller, PolicyController):
        return pb.PolicyStatus(
            # A pushed policy's file is named by its digest, which nobody knows it by.
            name=name if controller.path.stem == controller.sha256 else controller.path.stem,
            path=str(controller.path),
            schema_hash=controller.schema_hash,
            sha256=controller.sha256,
        )
    specification = specification_of(name) or controller.name
    return pb.PolicyStatus(
        name=specification, path=f"{PREFIX}{specification}", sha256=digest_of(specification)
    )


class CommandHandler:
    """Answers the commands of the service between ticks.

    Args:
        engine: The engine, which decides.
        leases: The leases of clients.
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
        """The ids of the Apply commands that wait for the next tick."""
        self.policy: pb.PolicyStatus | None = None
        """The loaded policy; ``None`` if there is none."""

    def handle(self, message: bytes, now_s: float) -> bytes | None:
        """Return the answer to a command; ``None`` if it comes with a later tick."""
        try:
            command = pb.Command.FromString(message)
        except Exception:  # protobuf's own error; our service never sends this
            return None
        try:
            answer = self._answer(command, now_s)
        except _Refusal as refusal:
            return _result(command.id, code=refusal.code, message=refusal.message)
        except (GuardError, DaemonError) as error:
            return _result(command.id, code=PRECONDITION, message=str(error))
        return None if answer is None else _result(command.id, **answer)

    def after_tick(self, outcome: TickOutcome | None, now_s: float) -> tuple[bytes, ...]:
        """Return the answers that waited for a tick: to Apply, and to Load once it is done.

        Args:
            outcome: What was decided; ``None`` if no sample could be read.
            now_s: Monotonic time.
        """
        tickets, self._applies = self._applies, []
        answers = [self._applied(ticket, outcome, now_s) for ticket in tickets]
        loaded = self._loader.collect(now_s)
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
                self._loader.start(command.load.path, command.id, now_s)
                return None
            case "set_mode":
                return {"set_mode": self._set_mode(command.set_mode.mode)}
            case _:
                raise _Refusal(
                    code="UNIMPLEMENTED", message="The loop does not know this command."
                )

    def _apply(self, ticket: int, request: pb.ApplyRequest, now_s: float) -> None:
        if not request.holder:
            raise _Refusal(code=INVALID, message="Apply needs a holder: the client's name.")
        if not MIN_LEASE_S <= request.lease_s <= MAX_LEASE_S:
            bounds = f"{MIN_LEASE_S:g}..{MAX_LEASE_S:g}"
            raise _Refusal(
                code=INVALID, message=f"lease_s is {request.lease_s:g}, outside {bounds}."
            )
        desired = DESIRED_STATE.from_wire(request.desired)
        problem = self._engine.invalid(desired)
        if problem is not None:
            text = problem_text(problem)
            raise _Refusal(code=INVALID, message=f"Not expressible on this node: {text}.")
        self._leases.take(request.holder, desired, request.lease_s, now_s)
        self._applies.append(ticket)

    def _applied(self, ticket: int, outcome: TickOutcome | None, now_s: float) -> bytes:
        if outcome is None:
            return _result(ticket, code="UNAVAILABLE", message=_BLIND)
        remaining_s = self._leases.remaining_s(now_s)
        answer = pb.ApplyResponse(
            granted=DESIRED_STATE.to_wire(outcome.granted),
            reasons=REASONS.to_wire(outcome.reasons),
            lease_remaining_s=remaining_s,
        )
        return _result(ticket, apply=answer)

    def _loaded(self, result: LoadResult) -> bytes:
        if result.controller is None:
            code = NOT_FOUND if result.missing else PRECONDITION
            return _result(result.ticket, code=code, message=str(result.error))
        try:
            self.install(result)
        except ControllerError as error:
            return _result(result.ticket, code=PRECONDITION, message=str(error))
        return _result(result.ticket, load=pb.LoadResponse(policy=self.policy))

    def install(self, result: LoadResult) -> None:
        """Install a loaded policy, in ``Mode.OFF``.

        Raises:
            ControllerError: If it cannot run on this node.
            StallwardError: If it was not loaded.
        """
        if result.controller is None:
            raise result.error or StallwardError("The policy was not loaded.")
        self._engine.install(result.controller)
        self.policy = policy_status(result.controller, result.name)

    def _set_mode(self, wire: pb.Mode) -> pb.SetModeResponse:
        mode = MODE.get(wire)
        if mode is None:
            raise _Refusal(
                code=INVALID, message="SetMode needs a mode: off, shadow, advice or active."
            )
        if self._engine.policy is None and mode is not Mode.OFF:
            raise _Refusal(code=PRECONDITION, message="No policy is loaded. Load one first.")
        self._engine.set_mode(mode)
        return pb.SetModeResponse(mode=MODE.to_wire(self._engine.mode))
