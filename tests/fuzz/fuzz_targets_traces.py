"""Targets: traces of memory references."""

from __future__ import annotations

import io
import re

from fuzz_mutations import Material
from fuzz_target import Target

from stallward.env.errors import TraceError
from stallward.env.lens.lackey import LackeyReader
from stallward.env.lens.lackey_kernel import CLASS_NAMES

_CLASSES = {b"I ": "instruction", b" L": "load", b" S": "store", b" M": "modify"}
_REFERENCE = re.compile(rb"(I | L| S| M) ([0-9a-fA-F]{1,16}),([0-9]{1,5})")
_SAMPLE = b"""==3210== Lackey, an example Valgrind tool
==3210== Command: ./t
==3210==\x20
I  0401ab70,3
I  0401ab73,5
 S 1fff000758,8
 L 1fff0005d0,8
 M 04a19de0,4
==3210==\x20
==3210== Exit code:       0
"""

Reference = tuple[str, int, int]


def _read(content: bytes) -> list[Reference]:
    found: list[Reference] = []
    for some in LackeyReader(io.BytesIO(content).readinto, chunk_bytes=64):
        columns = (some.classes.tolist(), some.addresses.tolist(), some.sizes.tolist())
        found += [(CLASS_NAMES[c], a % 2**64, s) for c, a, s in zip(*columns, strict=True)]
    return found


def _check(content: bytes, value: list[Reference]) -> None:
    lines = [match for line in content.split(b"\n") if (match := _REFERENCE.fullmatch(line))]
    assert value == [(_CLASSES[m[1]], int(m[2], 16), int(m[3])) for m in lines]


def targets() -> tuple[Target, ...]:
    """Every target of this file."""
    return (
        Target(
            name="lackey",
            run=_read,
            material=Material(samples=(_SAMPLE, b"I  0401ab70,3\n L 10,8\n" * 9)),
            errors=(TraceError,),
            check=_check,
        ),
    )
