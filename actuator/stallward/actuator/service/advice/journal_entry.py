"""Advice as an entry of systemd's journal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from stallward.actuator.record.advice.advice import Advice
from stallward.actuator.record.advice.text import advice_text
from stallward.actuator.record.desired.text import desired_text

ADVICE_ID: Final = "0d9c3a3f3a5e4c0f8f6e5f0a7d1c2b94"
"""Identifies advice among all other messages (``journalctl MESSAGE_ID=...``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviceEntry:
    """One piece of advice, with the names of the slots."""

    advice: Advice
    slots: Sequence[str]
    message_id: str = ADVICE_ID

    @property
    def message(self) -> str:
        """The advice in sentences."""
        return advice_text(self.advice, self.slots)

    def fields(self) -> dict[str, str]:
        """The advice as named texts."""
        advised, decided = self.advice.advised, self.advice.decided
        found = {
            "STALLWARD_CONTROLLER": decided.controller,
            "STALLWARD_DECIDED": desired_text(decided.decision.desired, self.slots),
            "STALLWARD_LEFT_OUT": str(self.advice.left_out),
        }
        if advised is not None:
            found["STALLWARD_POLICY"] = advised.controller
            found["STALLWARD_ADVICE"] = desired_text(advised.decision.desired, self.slots)
            found["STALLWARD_REASON"] = advised.decision.reason
        elif self.advice.fault is not None:
            found["STALLWARD_POLICY"] = self.advice.fault.controller
            found["STALLWARD_FAULT"] = self.advice.fault.kind.value
        return found
