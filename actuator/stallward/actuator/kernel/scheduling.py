"""The scheduler's settings of a thread: its nice value, its CPUs and its timeslice.

They are per thread and inherited by new threads and processes. They cannot be set by pidfd: if a
thread ends after its start time was checked and before the call, another thread may have the same
number by then. For that all other numbers must have been used within microseconds.
"""

from __future__ import annotations

import functools
import math
import os
import platform
import struct
import threading
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NamedTuple

from stallward.actuator.errors import KernelFileError
from stallward.actuator.kernel.files import read_bytes
from stallward.actuator.kernel.paths import Paths

# ---------- A thread's timeslice: how long it runs at once, and how soon once it is ready
# The scheduler (EEVDF) runs the thread with the earliest virtual deadline, which lies one timeslice
# ahead: a shorter one brings the thread on sooner and does not change its share. Linux 6.12 and
# later take and tell it in ``sched_runtime`` of sched_setattr(2), from 0.1 to 100 ms; older kernels
# ignore the field for these threads, and read 0.

_NUMBERS: Final = {"x86_64": (314, 315), "aarch64": (274, 275), "riscv64": (274, 275)}
"""sched_setattr and sched_getattr, by the machine."""
_ATTRIBUTES: Final = struct.Struct("=IIQiIQQQII")
"""``struct sched_attr``: size, policy, flags, nice, priority, runtime, deadline, period, and the
two utilisation clamps."""
_RESET_ON_FORK: Final = 1
_FAIR: Final = frozenset({0, 3})
"""SCHED_OTHER and SCHED_BATCH, the policies with a timeslice of this kind."""
_NS_PER_US: Final = 1000
PROBE_US: Final = 700
"""A timeslice that is no kernel's usual one: the probe sets it."""


class Attributes(NamedTuple):
    """The attributes of one thread that are read and written together."""

    policy: int
    flags: int
    nice: int
    slice_ns: int


@functools.cache
def _ctypes() -> ModuleType:
    import ctypes  # noqa: PLC0415 - costs a megabyte that a waiting keeper does not need

    return ctypes


@functools.cache
def _system_call() -> Any:
    return _ctypes().CDLL(None, use_errno=True).syscall


def _call(place: int, tid: int, buffer: Any, *last: int) -> None:
    numbers = _NUMBERS.get(platform.machine())
    if numbers is None:
        raise OSError(38, os.strerror(38))
    if _system_call()(numbers[place], tid, buffer, *last) != 0:
        number = _ctypes().get_errno()
        raise OSError(number, os.strerror(number))


def read_attributes(tid: int) -> Attributes:
    """Read the scheduling attributes of a thread.

    Raises:
        OSError: If the kernel refuses, or the thread is gone (ESRCH).
    """
    buffer = _ctypes().create_string_buffer(_ATTRIBUTES.size)
    _call(1, tid, buffer, _ATTRIBUTES.size, 0)
    _, policy, flags, nice, _, slice_ns, *_ = _ATTRIBUTES.unpack(buffer.raw)
    return Attributes(policy, flags, nice, slice_ns)


def read_slice_us(tid: int) -> int | None:
    """Read a thread's timeslice; ``None`` if the kernel does not tell, or it has none.

    Raises:
        OSError: If the kernel refuses, or the thread is gone (ESRCH).
    """
    found = read_attributes(tid)
    if found.policy not in _FAIR or found.slice_ns < _NS_PER_US:
        return None
    return found.slice_ns // _NS_PER_US


def write_slice_us(tid: int, slice_us: int) -> None:
    """Set a thread's timeslice; its policy and nice value stay.

    The value that threads usually have is set as "no value of its own", so that the thread goes
    on to have the usual one.

    Raises:
        OSError: If the kernel refuses, or the thread is gone (ESRCH).
    """
    before = read_attributes(tid)
    if before.policy not in _FAIR:
        raise OSError(22, "it is not scheduled by timeslices")
    for value_us in (0, slice_us) if slice_us == _usual_us() else (slice_us,):
        packed = _ATTRIBUTES.pack(
            _ATTRIBUTES.size,
            before.policy,
            before.flags & _RESET_ON_FORK,
            before.nice,
            0,
            value_us * _NS_PER_US,
            0,
            0,
            0,
            0,
        )
        _call(0, tid, _ctypes().create_string_buffer(packed, _ATTRIBUTES.size), 0)
        if read_slice_us(tid) == slice_us:
            return


def _usual_us() -> int | None:
    """The timeslice of this thread, which most likely has the usual one."""
    try:
        return read_slice_us(0)
    except OSError:
        return None


@functools.cache
def why_no_slice() -> str:
    """Why the kernel takes no timeslice; empty if it does. A thread of this process tries it."""
    found: list[str] = []

    def probe() -> None:
        try:
            tid = threading.get_native_id()
            write_slice_us(tid, PROBE_US)
            taken = read_slice_us(tid)
        except OSError as error:
            found.append(f"the kernel refuses sched_setattr ({error.strerror})")
            return
        if taken != PROBE_US:
            found.append("the kernel takes no timeslice for SCHED_OTHER (Linux 6.12 does)")

    thread = threading.Thread(target=probe, name="stallward-slice")
    thread.start()
    thread.join()
    return found[0] if found else ""


NICE: Final = "nice"
CPUS: Final = "cpus"
SLICE: Final = "slice_us"

_WORST_NICE: Final = 19
_RATIO_PER_NICE: Final = 1.25
"""How much more CPU time a thread gets than one whose nice value is 1 worse (sched(7))."""
_NORMAL_WEIGHT: Final = 100


def nice_of_weight(weight: int) -> int:
    """The nice value that gives threads about the share of a group with this cpu.weight.

    It is never better than 0: that of a weight of 100.
    """
    steps = math.log(_NORMAL_WEIGHT / weight) / math.log(_RATIO_PER_NICE)
    return min(max(round(steps), 0), _WORST_NICE)


def thread_ids(proc: Path, pid: int) -> tuple[int, ...]:
    """The threads of a process, ascending; none if it is gone."""
    try:
        with os.scandir(proc / str(pid) / "task") as tasks:
            return tuple(sorted(int(task.name) for task in tasks if task.name.isdigit()))
    except OSError:
        return ()


def format_cpus(cpus: frozenset[int] | set[int] | tuple[int, ...]) -> str:
    """The text of a set of CPUs, e.g. ``0,2``."""
    return ",".join(str(cpu) for cpu in sorted(set(cpus)))


def read_value(what: str, tid: int) -> str | None:
    """Read a setting of a thread; ``None`` if the thread is gone, or has none of this kind.

    Raises:
        KernelFileError: If the setting cannot be read.
    """
    try:
        if what == NICE:
            return str(os.getpriority(os.PRIO_PROCESS, tid))
        if what == SLICE:
            slice_us = read_slice_us(tid)
            return None if slice_us is None else str(slice_us)
        return format_cpus(os.sched_getaffinity(tid))
    except ProcessLookupError:
        return None
    except OSError as error:
        raise _failure("read", what, tid, error) from error


def write_value(what: str, tid: int, value: str) -> bool:
    """Change a setting of a thread; returns whether the thread was still there.

    Raises:
        KernelFileError: If the kernel refuses.
    """
    try:
        if what == NICE:
            os.setpriority(os.PRIO_PROCESS, tid, int(value))
        elif what == SLICE:
            write_slice_us(tid, int(value))
        else:
            os.sched_setaffinity(tid, {int(cpu) for cpu in value.split(",")})
    except ProcessLookupError:
        return False
    except (OSError, ValueError) as error:
        raise _failure(f"set {value} as", what, tid, error) from error
    return True


def _failure(verb: str, what: str, tid: int, error: Exception) -> KernelFileError:
    number = getattr(error, "errno", None) or 0
    reason = os.strerror(number) if number else str(error)
    return KernelFileError(f"thread {tid}", f"cannot {verb} its {what} ({reason})", number=number)


def read_online_cpus(paths: Paths) -> frozenset[int] | None:
    """Return the CPUs that are online; ``None`` if the kernel does not say.

    Raises:
        KernelFileError: If the file is there but cannot be read.
    """
    words = (
        line.split(b" ", 1)[0] for line in (read_bytes(paths.proc / "stat") or b"").split(b"\n")
    )
    cpus = frozenset(
        int(word[3:]) for word in words if word.startswith(b"cpu") and word[3:].isdigit()
    )
    return cpus or None
