"""A thread's timeslice: how long it runs at once, and how soon once it is ready.

The scheduler (EEVDF) runs the thread with the earliest virtual deadline, which lies one timeslice
ahead: a shorter one brings the thread on sooner and does not change its share. Linux 6.12 and
later take and tell it in ``sched_runtime`` of sched_setattr(2), from 0.1 to 100 ms; older kernels
ignore the field for these threads, and read 0.
"""

from __future__ import annotations

import functools
import os
import platform
import struct
import threading
from types import ModuleType
from typing import Any, Final, NamedTuple

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
