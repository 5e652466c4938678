"""What the network of a policy may be made of, checked before anything runs it.

A policy maps one observation to one action. That takes arithmetic on tensors. Loops and branches
could run for ever, random operators would make replays differ, and operators of other domains are
code that nobody here has seen.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from stallward.agent.controllers.policy_file import messages
from stallward.agent.controllers.policy_shapes import RULES
from stallward.agent.errors import PolicyError

_OP_TYPE, _DOMAIN = 4, 7
"""The fields of a node (onnx.proto)."""
_FUNCTIONS: Final = 25
"""The field of a model with functions of its own."""
_STANDARD: Final = frozenset({"", "ai.onnx"})
_MOST_NAMED: Final = 5

ALLOWED: Final = frozenset({*RULES, "Constant"})
"""The operators that a policy may use: they end, give the same for the same input, and have results
of known size."""


def check_operators(path: Path, model: bytes) -> None:
    """Refuse a network with operators that a policy may not use.

    Args:
        path: The policy's file, for messages.
        model: Its content, which is the message of a model.

    Raises:
        PolicyError: If it has one.
    """
    refused: dict[str, None] = {}
    for kind, fields in messages(model):
        if kind == "ModelProto" and any(number == _FUNCTIONS for number, _ in fields):
            refused.setdefault("functions of its own")
        if kind != "NodeProto":
            continue
        texts = {
            number: bytes(value).decode("utf-8", "replace")
            for number, value in fields
            if number in {_OP_TYPE, _DOMAIN} and isinstance(value, memoryview)
        }
        name, domain = texts.get(_OP_TYPE, ""), texts.get(_DOMAIN, "")
        if domain not in _STANDARD:
            refused.setdefault(f"{name} of {domain}"[:80])
        elif name not in ALLOWED:
            refused.setdefault(name[:80])
    if refused:
        names = ", ".join(sorted(refused)[:_MOST_NAMED])
        raise PolicyError(
            f"The policy {path} uses what no policy may: {names}.",
            next_step="Export it with `stallward export`: arithmetic and ArgMax are enough.",
        )
