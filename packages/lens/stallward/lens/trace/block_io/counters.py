"""Block I/O per process, disk and direction, counted by eBPF.

It is what biotop of bcc shows, with the bytes that were merged into a request after it was made.

The programs are in :mod:`~stallward.lens.trace.block_io.programs`. They and their maps
belong to this process alone: when it closes their descriptors, or is killed, the kernel removes
them.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from stallward.actuator.errors import NodeError
from stallward.actuator.kernel.bpf import (
    HASH,
    PERCPU_HASH,
    TRACEPOINT,
    BpfSyscall,
    Btf,
    Drain,
    possible_cpus,
)
from stallward.lens.trace.block_io.programs import (
    DONE,
    ISSUE,
    KEY_BYTES,
    NAMES,
    REQUEST_BYTES,
    START,
    STARTED_BYTES,
    VALUE_BYTES,
    done_program,
    issue_program,
    layout_of,
    start_program,
)

_BTF: Final = "kernel/btf/vmlinux"
_STARTED: Final = 16384
"""How many requests may be under way at once; more are not counted."""
_ENTRIES: Final = 4096
"""How many processes with a disk and direction are counted apart between two reads."""
_BATCH: Final = 256
_MAX_BATCHES: Final = 16
_MAX_ORIGINS: Final = 16384
"""How many of :class:`Origin` have their totals kept: those that made requests last."""
_DIRECTIONS: Final = {0: "R", 1: "W"}
"""The operations REQ_OP_READ and REQ_OP_WRITE (include/linux/blk_types.h)."""
_KEY: Final = struct.Struct("<QIIQ16s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """What requests are counted by."""

    pid: int
    """The process that made them; 0 for the kernel without a process."""
    name: str
    major: int
    minor: int
    direction: str
    """``R`` for reading, ``W`` for writing, ``-`` for anything else, such as discarding."""


@dataclass(slots=True)
class BlockCount:
    """Ended requests since the counters were opened."""

    requests: int = 0
    bytes: int = 0
    time_ns: int = 0
    """The sum of the times from making a request to its end."""


class BlockIoCounters:
    """Counters that are attached to the kernel until this object is closed.

    Args:
        sys: Where sysfs is.
        bpf: The system call; this machine's if not given.

    Raises:
        NodeError: If the kernel lacks or refuses something; nothing stays attached.
        SensorError: If the kernel's types cannot be understood.
    """

    def __init__(self, sys: Path, bpf: BpfSyscall | None = None) -> None:
        self._counts: dict[Origin, BlockCount] = {}
        self._fds: list[int] = []
        path = sys / _BTF
        try:
            layout = layout_of(Btf(path.read_bytes(), path, NAMES))
        except OSError as error:
            raise NodeError(f"{path}: {error.strerror}") from error
        bpf = bpf or BpfSyscall()
        self._cpus = possible_cpus(sys)
        try:
            started = bpf.create_map(
                "sw_started",
                HASH,
                key_size=REQUEST_BYTES,
                value_size=STARTED_BYTES,
                max_entries=_STARTED,
            )
            self._fds.append(started)
            counts = bpf.create_map(
                "sw_block_io",
                PERCPU_HASH,
                key_size=KEY_BYTES,
                value_size=VALUE_BYTES,
                max_entries=_ENTRIES,
            )
            self._fds.append(counts)
            programs = (
                (DONE, layout.done_type, done_program(started, counts)),
                (ISSUE, layout.issue_type, issue_program(layout, started)),
                (START, layout.start_type, start_program(layout, started)),
            )
            for name, type_id, code in programs:
                program = bpf.load_program(name, code, attach_type=TRACEPOINT, attach_to=type_id)
                self._fds.append(program)
                self._fds.append(bpf.attach(name, program))
        except BaseException:
            self.close()
            raise
        self._drain = Drain(
            bpf,
            counts,
            key_size=KEY_BYTES,
            value_size=VALUE_BYTES,
            cpus=self._cpus,
            batch=_BATCH,
        )

    def read(self) -> dict[Origin, BlockCount]:
        """Add what has ended since the last read, in bounded time; returns totals that changed.

        Raises:
            BpfRefusedError: If the kernel refuses it.
        """
        changed: dict[Origin, BlockCount] = {}
        for _ in range(_MAX_BATCHES):
            count, more = self._drain.take()
            self._add(count, changed)
            if not more:
                break
        return changed

    def _add(self, count: int, changed: dict[Origin, BlockCount]) -> None:
        values = np.frombuffer(
            memoryview(self._drain.values), np.int64, count=count * self._cpus * 3
        )
        sums = values.reshape(count, self._cpus, 3).sum(axis=1).tolist()
        for number, (requests, size, time_ns) in enumerate(sums):
            pid, major, minor, operation, name = _KEY.unpack_from(
                self._drain.keys, number * KEY_BYTES
            )
            origin = Origin(
                pid=pid,
                name=name.split(b"\0")[0].decode("utf-8", "replace"),
                major=major,
                minor=minor,
                direction=_DIRECTIONS.get(operation, "-"),
            )
            total = self._counts.pop(origin, None) or BlockCount()
            total.requests += requests
            total.bytes += size
            total.time_ns += time_ns
            self._counts[origin] = total  # those that were counted last are last
            changed[origin] = total
        while len(self._counts) > _MAX_ORIGINS:
            del self._counts[next(iter(self._counts))]

    def close(self) -> None:
        """Detach from the kernel; a second call does nothing."""
        while self._fds:
            os.close(self._fds.pop())
