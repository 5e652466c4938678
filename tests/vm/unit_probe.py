"""Tries, inside a unit, what the daemon needs and what nobody in there may do.

``python unit_probe.py FOREIGN_PID ADDRESS GROUPS`` writes to probe.json in the unit's runtime
directory, for each try, ``ok`` or the name of the error.
"""

from __future__ import annotations

import ctypes
import errno
import json
import mmap
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

LIBC = ctypes.CDLL(None, use_errno=True)
# Numbers of system calls, on x86-64.
NUMBERS = {
    "ptrace": 101,
    "kcmp": 312,
    "process_vm_readv": 310,
    "process_vm_writev": 311,
    "pidfd_getfd": 438,
    "process_madvise": 440,
    "userfaultfd": 323,
    "add_key": 248,
    "bpf": 321,
    "open_by_handle_at": 304,
    "perf_event_open": 298,
    "move_pages": 279,
    "migrate_pages": 256,
    "mount": 165,
    "swapoff": 168,
    "reboot": 169,
    "init_module": 175,
    "chroot": 161,
    "unshare": 272,
    "setuid": 105,
    "mlockall": 151,
}
PTRACE_SEIZE = 0x4206
"""It stops nothing, and ends with this process."""
MADV_COLD = 20
CLONE_NEWUSER = 0x10000000


class Vector(ctypes.Structure):
    """One iovec."""

    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


def call(name: str, *arguments: object) -> None:
    """Make a system call.

    Raises:
        OSError: With the kernel's error.
    """
    words = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    if LIBC.syscall(ctypes.c_long(NUMBERS[name]), *words) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def writable(path: str) -> Callable[[], object]:
    """Open a file for writing, and write nothing."""
    return lambda: os.close(os.open(path, os.O_WRONLY))


def create(path: str) -> Callable[[], object]:
    """Make a file."""
    return lambda: os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o700))


def executed(path: str) -> None:
    """Run a program that was written just now."""
    Path(path).write_text("#!/bin/true\n")
    Path(path).chmod(0o700)
    subprocess.run([path], check=True)


def send(address: str) -> None:
    """Send a datagram."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"x", (address, 9))


def trigger(path: str) -> None:
    """Ask to be woken by a stall in a window of half a second."""
    fd = os.open(path, os.O_RDWR)
    os.write(fd, b"some 30000 500000\0")
    os.close(fd)


def tries(pid: int, address: str, groups: str) -> dict[str, Callable[[], object]]:
    """All tries by name.

    Args:
        pid: A process of another user.
        address: An address of this machine that is not loopback.
        groups: The zone's directory.
    """
    proc = f"/proc/{pid}"
    word = ctypes.create_string_buffer(8)
    here = ctypes.byref(Vector(ctypes.addressof(word), 1))
    heap = next(
        int(line.split("-")[0], 16)
        for line in Path(f"{proc}/maps").read_text().splitlines()
        if line.split()[1] == "rw-p"
    )
    there = ctypes.byref(Vector(heap, 4096))
    pidfd = os.pidfd_open(pid)
    found: dict[str, Callable[[], object]] = {
        # What the daemon needs.
        **{f"write {path.name}": writable(str(path)) for path in Path("/proc/sys/vm").iterdir()},
        "write zone": writable(f"{groups}/memory.high"),
        "write oom_score_adj": lambda: Path(f"{proc}/oom_score_adj").write_text("0"),
        "read smaps_rollup": lambda: Path(f"{proc}/smaps_rollup").read_text(),
        "read io": lambda: Path(f"{proc}/io").read_text(),
        "process_madvise": lambda: call("process_madvise", pidfd, there, 1, MADV_COLD, 0),
        # No filter tells this file from another: docs/explanation/threat-model.md.
        "open memory": writable(f"{proc}/mem"),
        "signal": lambda: signal.pidfd_send_signal(pidfd, signal.SIGCONT),
        "nice": lambda: os.setpriority(os.PRIO_PROCESS, pid, 0),
        "affinity": lambda: os.sched_setaffinity(pid, os.sched_getaffinity(pid)),
        "realtime": lambda: os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1)),
        "mlockall": lambda: call("mlockall", 1 | 2 | 4),
        "trigger": lambda: trigger(f"{groups}/memory.pressure"),
        "create /run/stallward": create("/run/stallward/probe"),
        "create /var/lib/stallward": create("/var/lib/stallward/probe"),
        "loopback": lambda: send("127.0.0.1"),
        # What nobody in there may do.
        "write core_pattern": writable("/proc/sys/kernel/core_pattern"),
        "write sysrq-trigger": writable("/proc/sysrq-trigger"),
        "write read-ahead": writable("/sys/kernel/mm/swap/vma_ra_enabled"),
        "write other group": writable("/sys/fs/cgroup/system.slice/cgroup.freeze"),
        "create /etc": create("/etc/probe"),
        "create /run": create("/run/probe"),
        "list homes": lambda: tuple(Path("/root").iterdir()),
        "execute what it wrote": lambda: executed("/run/stallward/program"),
        "ptrace": lambda: call("ptrace", PTRACE_SEIZE, pid, 0, 0),
        "process_vm_readv": lambda: call("process_vm_readv", pid, here, 1, there, 1, 0),
        "process_vm_writev": lambda: call("process_vm_writev", pid, here, 1, there, 1, 0),
        "pidfd_getfd": lambda: call("pidfd_getfd", pidfd, 1, 0),
        "kcmp": lambda: call("kcmp", os.getpid(), pid, 1, 0, 0),
        "move_pages": lambda: call("move_pages", pid, 0, 0, 0, 0, 0),
        "migrate_pages": lambda: call("migrate_pages", pid, 0, 0, 0),
        "userfaultfd": lambda: call("userfaultfd", 0),
        "add_key": lambda: call("add_key", b"user", b"probe", b"x", 1, -2),
        "bpf": lambda: call("bpf", 0, None, 0),
        "open_by_handle_at": lambda: call("open_by_handle_at", -1, None, 0),
        "perf_event_open": lambda: call("perf_event_open", None, 0, -1, -1, 0),
        "mount": lambda: call("mount", b"none", b"/tmp", b"tmpfs", 0, None),
        "swapoff": lambda: call("swapoff", b"/nothing"),
        "reboot": lambda: call("reboot", 0, 0, 0, None),
        "init_module": lambda: call("init_module", None, 0, None),
        "chroot": lambda: call("chroot", b"/"),
        "user namespace": lambda: call("unshare", CLONE_NEWUSER),
        "setuid": lambda: call("setuid", 0),
        "writable code": lambda: mmap.mmap(
            -1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC
        ),
        "packet socket": lambda: socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM),
        "netlink socket": lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW),
        "other machine": lambda: send(address),
    }
    return found


def outcome(attempt: Callable[[], object]) -> str:
    """``ok``, or the name of the error."""
    try:
        attempt()
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, str(error))
    return "ok"


def main(pid: str, address: str, groups: str) -> None:
    """Make all tries, and write what came of them."""
    results = {name: outcome(one) for name, one in tries(int(pid), address, groups).items()}
    Path("/run/stallward/probe.json").write_text(json.dumps(results))


if __name__ == "__main__":
    main(*sys.argv[1:])
