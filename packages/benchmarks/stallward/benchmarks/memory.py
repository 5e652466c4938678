"""``stallward bench memory``: the memory that each import of the daemon takes, and locking.

Each row is measured in a separate process that imports everything up to that row, so modules that
several libraries share count once. The figures come from /proc/self/smaps_rollup.
"""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from typing import Final

from stallward.actuator.runtime.process_start import SINGLE_THREADED_MATHS, interpreter
from stallward.training.progress import Report, silent

LOOP_IMPORTS: Final = (
    ("Python itself", "pass"),
    ("stallward's own modules, without numpy", "import stallward.actuator.guardian.guardian"),
    ("protobuf and the wire code", "from stallward.proto.v1 import stallward_pb2"),
    ("numpy", "import numpy"),
    ("stallward's loop", "import stallward.actuator.loop.loop"),
    ("onnxruntime", "from stallward.agent.inference import import_runtime; import_runtime()"),
    (
        "the shipped policy",
        "from stallward.models.registry import find_policy\n"
        "from stallward.agent.controllers.onnx import OnnxController\n"
        "policy = OnnxController(find_policy('default'))",
    ),
    (
        "unused code released",
        "from stallward.actuator.runtime.process_setup import release_code_pages\n"
        "release_code_pages()",
    ),
)
SERVICE_IMPORTS: Final = (
    ("Python itself", "pass"),
    ("protobuf and the wire code", "from stallward.proto.v1 import stallward_pb2"),
    ("grpc", "import grpc"),
    ("health and reflection", "import grpc_health.v1.health, grpc_reflection.v1alpha.reflection"),
    ("stallward's service", "import stallward.actuator.service.server"),
)
LOCKS: Final = (
    ("locked page by page (MCL_ONFAULT)", "libc.mlockall(7)"),
    ("locked completely", "libc.mlockall(3)"),
)
_PRINT_MEMORY: Final = """
import json
memory = {}
for line in open('/proc/self/smaps_rollup'):
    name, _, rest = line.partition(':')
    if name in ('Rss', 'Pss', 'Anonymous', 'Private_Clean', 'Private_Dirty'):
        memory[name] = int(rest.split()[0]) / 1024
print(json.dumps(memory))
"""
_TIMEOUT_S: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRow:
    """The memory of one process after the steps up to this one."""

    process: str
    """Which process of the daemon it stands for."""
    step: str
    rss_mib: float
    added_mib: float
    """Increase of the resident memory since the previous step."""
    private_mib: float
    anon_mib: float


def bench_memory(*, report: Report = silent) -> tuple[MemoryRow, ...]:
    """Measure every step, and the two ways of locking the loop's memory."""
    rows: list[MemoryRow] = []
    chains = (("loop", LOOP_IMPORTS), ("service", SERVICE_IMPORTS))
    total = sum(len(steps) for _, steps in chains) + len(LOCKS)
    for process, steps in chains:
        before, code = 0.0, ""
        for step, line in steps:
            report(f"{process}: {step}", len(rows) / total)
            code += f"{line}\n"
            row = measure_import(process, step, code, before)
            rows.append(row)
            before = row.rss_mib
    loaded = "".join(f"{line}\n" for _, line in LOOP_IMPORTS)
    base = next(r.rss_mib for r in rows if r.step == LOOP_IMPORTS[-1][0])
    for step, line in LOCKS:
        report(step, len(rows) / total)
        code = f"{loaded}import ctypes\nlibc = ctypes.CDLL(None)\n{line}\n"
        rows.append(measure_import("loop", step, code, base))
    report("done", 1.0)
    return tuple(rows)


def measure_import(process: str, step: str, code: str, before_mib: float) -> MemoryRow:
    """Measure the memory of a separate process that has run ``code``.

    Args:
        process: The process of stallward that runs this code.
        step: What the last step of the code does, in words.
        code: Lines of Python.
        before_mib: The resident memory without this step.
    """
    done = subprocess.run(
        [*interpreter(), "-c", code + _PRINT_MEMORY],
        env={**os.environ, **SINGLE_THREADED_MATHS},
        check=True,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
    )
    memory: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return MemoryRow(
        process=process,
        step=step,
        rss_mib=memory["Rss"],
        added_mib=memory["Rss"] - before_mib,
        private_mib=memory["Private_Clean"] + memory["Private_Dirty"],
        anon_mib=memory["Anonymous"],
    )
