"""Says in words why ONNX Runtime refused a model; its own messages name lines of its C++ code."""

from __future__ import annotations

import re
from typing import Final

_IR_VERSION: Final = re.compile(
    r"Unsupported model IR version: (\d+), max supported IR version: (\d+)"
)
_OPSET: Final = re.compile(r"Opset (\d+) is under development.*till opset (\d+)", re.DOTALL)
_NO_OPERATOR: Final = re.compile(r"([\w.:]+)\(-?\d+\) is not a registered function/op")
_NOT_REGISTERED: Final = re.compile(r"No Op registered for (\w+) with")
_NOT_IMPLEMENTED: Final = re.compile(r"Could not find an implementation for ([\w.]+\(\d+\))")
_PREFIX: Final = re.compile(r"^(\[ONNXRuntimeError\] : \d+ : \w+ : )?")
_CODE: Final = re.compile(r"\S+\.(?:cc|cpp|cu|h|hpp)\b|\w::\w|\[with \w+ = |&&")
"""Signs of C++: a file, a qualified name, a template's arguments, a condition."""
_MOST_CHARACTERS: Final = 200


def runtime_cause(error: Exception) -> str:
    """The cause of an error that ONNX Runtime raised, in one line without any of its code."""
    text = str(error)
    if match := _IR_VERSION.search(text):
        version, most = match.groups()
        return f"its IR version is {version}, and this ONNX Runtime reads up to {most}"
    if match := _OPSET.search(text):
        opset, most = match.groups()
        return f"its opset is {opset}, and this ONNX Runtime knows up to {most}"
    for missing in (_NO_OPERATOR, _NOT_REGISTERED, _NOT_IMPLEMENTED):
        if match := missing.search(text):
            return f"this ONNX Runtime has no operator {match.group(1)}"
    if "Protobuf parsing failed" in text:
        return "it is damaged"
    first = _PREFIX.sub("", text).splitlines()[0] if text else ""
    plain = first if not _CODE.search(first) else ""
    return plain.strip()[:_MOST_CHARACTERS].rstrip(" .") or f"ONNX Runtime: {type(error).__name__}"
