"""Makes the controller of an arm decide, and puts back what was in force before."""

from __future__ import annotations

from typing import Final

from stallward.actuator.experiments.plan import Candidate
from stallward.actuator.experiments.state import Before
from stallward.actuator.runtime.stderr_line import say
from stallward.actuator.service.loop_link import LOAD_ANSWER_S, MODES, LoopLink
from stallward.proto.v1 import stallward_pb2 as pb

_NO_ANSWER: Final = "UNAVAILABLE"


class LoadRefusedError(Exception):
    """The loop did not load a policy.

    Args:
        code: The name of a gRPC status code.
        message: Why.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


class ArmSwitch:
    """Loads policies and sets their modes. The event loop's thread uses it.

    Args:
        link: The connection to the loop.
    """

    def __init__(self, link: LoopLink) -> None:
        self._link = link

    async def make_decide(self, candidate: Candidate) -> None:
        """Make a controller decide; ``decides`` says at each tick whether it does."""
        if not candidate.is_policy:
            await self._set_mode(pb.MODE_OFF)
            return
        loaded = self._link.policy
        if loaded is None or loaded.sha256 != candidate.sha256:
            try:
                loaded = await self._load(candidate.policy)
            except LoadRefusedError as error:
                say(f"{candidate.policy} cannot be loaded: {error.message}", "service")
                return
        if loaded.sha256 == candidate.sha256:
            await self._set_mode(pb.MODE_ACTIVE)

    async def put_back(self, before: Before) -> bool:
        """Put back what was in force before the experiment.

        A policy that the loop refuses is said, and stays off.

        Returns:
            Whether the loop has answered.
        """
        loaded, mode = self._link.policy, MODES[before.mode]
        try:
            if before.policy and (loaded is None or loaded.path != before.policy):
                await self._load(before.policy)
        except LoadRefusedError as error:
            if error.code == _NO_ANSWER:
                return False
            say(f"{before.policy} cannot be loaded again: {error.message}", "service")
            mode = pb.MODE_OFF
        return await self._set_mode(mode)

    def in_force(self) -> Before:
        """What is loaded now, and what it may do."""
        status = self._link.status()
        if status is None or not status.HasField("policy"):
            return Before()
        mode = next((name for name, wire in MODES.items() if wire == status.mode), "off")
        return Before(policy=status.policy.path, mode=mode)

    async def resolved(self, candidate: Candidate) -> Candidate:
        """The candidate with the file and the digest that its name means now.

        Raises:
            LoadRefusedError: If it cannot be loaded.
        """
        if not candidate.is_policy:
            return Candidate()
        loaded = await self._load(candidate.policy)
        return Candidate(policy=loaded.path, sha256=loaded.sha256)

    async def _load(self, policy: str) -> pb.PolicyStatus:
        command = pb.Command(load=pb.LoadRequest(path=policy))
        result = await self._link.ask(command, LOAD_ANSWER_S)
        if result is None:
            raise LoadRefusedError(_NO_ANSWER, "The loop does not answer.")
        if result.code:
            raise LoadRefusedError(result.code, result.message)
        return result.load.policy

    async def _set_mode(self, mode: pb.Mode) -> bool:
        """Set the mode of the loaded policy; returns whether the loop has answered."""
        command = pb.Command(set_mode=pb.SetModeRequest(mode=mode))
        return await self._link.ask(command) is not None

    def decides(self, candidate: Candidate, record: pb.TickRecord) -> bool:
        """Whether a controller is in force at a tick."""
        is_active = record.mode == pb.MODE_ACTIVE
        if not candidate.is_policy:
            return not is_active
        loaded = self._link.policy
        return is_active and loaded is not None and loaded.sha256 == candidate.sha256
