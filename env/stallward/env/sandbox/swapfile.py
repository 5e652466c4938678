"""Makes a swap file, for nodes that have no swap, and swap on a device.

Its journal entry (``stallward.actuator.journal.entries.SwapFile``) removes it again.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import struct
from pathlib import Path
from typing import Final

from stallward.actuator.journal.own_entries import SWAP_SUFFIX
from stallward.actuator.kernel.refusals import Place, next_step
from stallward.env.errors import SandboxError

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_SPARE_BYTES = 512 * 1024 * 1024
"""Disk space that must stay free beside the swap file."""

DEVICE_PRIORITY: Final = 31_000
"""The priority of a sandbox's zram device. It is above that of swap files, which have none, so that
pages go to the device as long as it takes them; and nobody else's, so that it marks the device."""
_PRIORITY_IS_GIVEN: Final = 0x8000
"""A flag of swapon(2)."""

_libc = ctypes.CDLL(None, use_errno=True)


def foreign_swap_bytes(proc: Path) -> int:
    """Return the bytes of this node's swap, without swap files and zram devices of sandboxes.

    These do not count, because each vanishes when its sandbox ends.
    """
    total = 0
    for line in (proc / "swaps").read_text().splitlines()[1:]:
        fields = line.split()
        if len(fields) < 3 or fields[4:] == [str(DEVICE_PRIORITY)]:
            continue
        if not fields[0].endswith(SWAP_SUFFIX):
            total += int(fields[2]) * 1024
    return total


def header(size_bytes: int) -> bytes:
    """Make the first page of a swap area of ``size_bytes`` (include/linux/swap.h, version 1)."""
    page = bytearray(_PAGE_BYTES)
    struct.pack_into("<III", page, 1024, 1, size_bytes // _PAGE_BYTES - 1, 0)
    page[-10:] = b"SWAPSPACE2"
    return bytes(page)


def make_swap(path: Path, size_bytes: int) -> None:
    """Make a swap file and switch it on.

    Args:
        path: A new file on a disk; its name should end in ``SWAP_SUFFIX``.
        size_bytes: Its size, a multiple of the page size.

    Raises:
        SandboxError: If there is no room or the kernel refuses; the file is removed then.
    """
    free = shutil.disk_usage(path.parent).free
    if free < size_bytes + _SPARE_BYTES:
        raise SandboxError(
            f"{path.parent} has {free >> 20} MiB free, too little for a swap file of "
            f"{size_bytes >> 20} MiB.",
            next_step="Free some disk space, or give another cache folder.",
        )
    try:
        _write(path, size_bytes, filled=False)
        code = _swapon(path)
        if code == errno.EINVAL:  # this file system needs every block written
            _write(path, size_bytes, filled=True)
            code = _swapon(path)
    except OSError as error:
        path.unlink(missing_ok=True)
        raise SandboxError(
            f"Cannot write the swap file {path}: {error.strerror}.",
            next_step=next_step(error.errno or 0, path),
        ) from error
    if code != 0:
        path.unlink(missing_ok=True)
        raise SandboxError(
            f"The kernel refuses swap on {path}: {os.strerror(code)}.",
            next_step="Put the cache folder on ext4 or xfs."
            if code == errno.EINVAL
            else next_step(code, path, place=Place.SETTING),
        )


def _write(path: Path, size_bytes: int, *, filled: bool) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        if filled:
            for _ in range(0, size_bytes, 1 << 20):
                os.write(fd, bytes(1 << 20))
        else:
            os.posix_fallocate(fd, 0, size_bytes)
        os.pwrite(fd, header(size_bytes), 0)
        os.fsync(fd)
    finally:
        os.close(fd)


def swap_on_device(device: Path, size_bytes: int) -> None:
    """Make a block device swap and switch it on, with :data:`DEVICE_PRIORITY`.

    Args:
        device: The device. What it holds is lost.
        size_bytes: Its size.

    Raises:
        SandboxError: If the device cannot be written or the kernel refuses.
    """
    try:
        fd = os.open(device, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.pwrite(fd, header(size_bytes), 0)
            os.fsync(fd)
        finally:
            os.close(fd)
    except OSError as error:
        raise SandboxError(
            f"Cannot make {device} swap: {error.strerror}.",
            next_step=next_step(error.errno or 0, device),
        ) from error
    code = _swapon(device, _PRIORITY_IS_GIVEN | DEVICE_PRIORITY)
    if code != 0:
        raise SandboxError(
            f"The kernel refuses swap on {device}: {os.strerror(code)}.",
            next_step=next_step(code, device, place=Place.SETTING),
        )


def _swapon(path: Path, flags: int = 0) -> int:
    """Switch swap on; return 0 or the errno."""
    return 0 if _libc.swapon(os.fsencode(path), flags) == 0 else ctypes.get_errno()
