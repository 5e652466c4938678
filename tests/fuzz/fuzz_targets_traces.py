"""Targets: traces of memory references, the pages of mappings, profiles of applications."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping

from fuzz_mutations import JSON_VALUES, Material
from fuzz_target import Target, sound
from fuzz_targets_files import of_file
from fuzz_targets_kernel import kernel

from stallward.agent.errors import ProfileError
from stallward.agent.profile import read_profile
from stallward.lens.errors import TraceError
from stallward.lens.page_tables import REFERENCED, parse_smaps
from stallward.lens.workingset.lackey import LackeyReader
from stallward.lens.workingset.lackey_kernel import CLASS_NAMES

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


_SMAPS = b"""\
7f8000000000-7f8000400000 r-xp 00001000 08:01 1234                     /usr/lib/lib a.so
Size:               4096 kB
Rss:                 812 kB
Referenced:          640 kB
VmFlags: rd ex mr mw me
7ffd10000000-7ffd10021000 rw-p 00000000 00:00 0                        [stack]
Rss:                  16 kB
Referenced:           16 kB
"""


def _smaps_check(content: bytes, value: Mapping[int, int]) -> None:
    lines = [line.split() for line in content.splitlines()]
    sizes = [int(words[1]) for words in lines if words[:1] == [b"Referenced:"]]
    assert sum(value.values()) <= 1024 * sum(sizes)


def _profile() -> Target:
    size = {"memory_bytes": 1 << 26, "anonymous_bytes": 5, "file_bytes": 6, "swap_bytes": 0}
    content = {
        "kind": "stallward-profile",
        "schema": 1,
        **dict.fromkeys(("application", "source", "measured_at", "node"), "words"),
        "tolerance": 1.15,
        "target_ms": None,
        "work": "request",
        **dict.fromkeys(("working_set_bytes", "least_bytes", "alone_peak_bytes"), 1 << 26),
        **dict.fromkeys(("anonymous_bytes", "file_bytes", "threads"), 7),
        "alone_s": 0.01,
        "fault_cost_us": None,
        "knee": {"memory_bytes": 1 << 26, "lifetime_s": 0.001},
        "demand": [{"time_s": 0.5, **size}],
        "touched": [{"window_s": 1.0, "mean_bytes": 4096, "peak_bytes": 8192}],
        "runs": [],
    }
    return of_file(
        "profile",
        read_profile,
        (json.dumps(content, indent=1).encode(),),
        (ProfileError,),
        file="profile.json",
        check=sound,
        values=JSON_VALUES,
    )


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
        kernel(
            "smaps",
            lambda content, path: parse_smaps(content, REFERENCED, path),
            (_SMAPS,),
            _smaps_check,
            (b"Referenced:", b" kB"),
        ),
        _profile(),
    )
