"""Compressed swap of a sandbox: zswap before its swap file, or a zram device in the file's place.

Both keep what is swapped out compressed in memory, in a *pool*. The pool of a sandbox takes at most
half of its zone's memory: zram takes no more then and pages stay where they are, and zswap leaves
them to the swap file. zswap is limited in percents of the machine's memory, rounded down to at
least one.

zswap and the order of swap devices are the whole machine's, so nothing else should swap meanwhile.
:mod:`stallward.env.sandbox.sandbox` charges the pool to the zone.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from stallward.actuator.errors import KernelFileError
from stallward.actuator.journal.entries import FileValue, JournalEntry, ZramDevice
from stallward.actuator.journal.own_entries import SWAP_SUFFIX
from stallward.actuator.kernel.files import read_text, write_text
from stallward.actuator.kernel.memory.compressed_swap import (
    add_zram,
    can_add_zram,
    remove_zram,
    zram_dir,
    zswap_dir,
)
from stallward.actuator.kernel.paths import Paths
from stallward.actuator.kernel.refusals import Place, next_step, why_not_writable
from stallward.env.errors import SandboxError
from stallward.env.scenario.scenario import CompressedSwap

# ---------- Makes a swap file, for nodes that have no swap, and swap on a device.
# Its journal entry (``stallward.actuator.journal.entries.SwapFile``) removes it again.

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


Note = Callable[[JournalEntry], None]
"""Has an entry undone when the sandbox ends, however it ends."""
Pool = Callable[[], int]
"""Reads how many bytes of memory a pool takes."""
_ZSWAP_SETTINGS: Final = ("enabled", "compressor", "max_pool_percent")
"""The settings that are written, in the order in which they are put back."""
_MEM_USED: Final = 2
"""The column of mem_used_total in mm_stat."""


def most_pool_bytes(limit_bytes: int) -> int:
    """The most that the pool of a zone may take.

    The other half keeps an application alive whose pages cannot be compressed.
    """
    return limit_bytes // 2


def check_compressed_swap(swap: CompressedSwap, paths: Paths) -> None:
    """Check that this machine has the compressed swap of a scenario.

    Raises:
        SandboxError: If it has not, or this user may not set it up.
    """
    if swap.kind == "zram":
        if not can_add_zram(paths):
            raise SandboxError(
                "The sandbox needs zram, which this kernel does not have.",
                next_step="Load its module (modprobe zram) on a kernel with CONFIG_ZRAM.",
            )
        if foreign_swap_bytes(paths.proc) > 0:
            raise SandboxError(
                "The sandbox's zram would stand beside the swap of this machine.",
                next_step="Switch that off for the run (swapoff -a), or use a scenario with zswap.",
            )
        return
    folder = zswap_dir(paths)
    if not folder.is_dir() or _meminfo_bytes("Zswap", paths) is None:
        raise SandboxError(
            "The sandbox needs zswap, which this kernel does not have.",
            next_step="Boot a kernel from 5.19 on with CONFIG_ZSWAP.",
        )
    for name in _ZSWAP_SETTINGS:
        if number := why_not_writable(folder / name):
            raise SandboxError(
                f"The sandbox needs zswap, and {folder / name} cannot be written.",
                next_step=next_step(number, folder / name, place=Place.SETTING),
            )


def switch_on(
    swap: CompressedSwap, *, size_bytes: int, most_bytes: int, paths: Paths, note: Note
) -> Pool:
    """Set compressed swap up; what undoes it is noted before each change.

    Args:
        swap: What kind.
        size_bytes: How much can be swapped out to a zram device, before it is compressed.
        most_bytes: The most that the pool may take.
        paths: The roots of the kernel's files.
        note: Has an entry undone.

    Returns:
        What reads the memory of the pool; it raises :class:`SandboxError` where the kernel
        does not say.

    Raises:
        SandboxError: If the kernel refuses; what is noted is still to be undone.
    """
    try:
        if swap.kind == "zswap":
            _switch_zswap_on(swap.compressor, most_bytes, paths, note)
            return partial(_zswap_bytes, paths)
        device = _new_zram(paths, note)
        _set_zram_up(device, swap.compressor, size_bytes, most_bytes, paths)
        return partial(_zram_bytes, device, paths)
    except KernelFileError as error:
        raise SandboxError(
            f"The sandbox cannot have {swap.kind}: {error}", next_step=error.next_step
        ) from error


def _switch_zswap_on(compressor: str, most_bytes: int, paths: Paths, note: Note) -> None:
    folder = zswap_dir(paths)
    for name in _ZSWAP_SETTINGS:
        before = read_text(folder / name)
        if before is None:
            raise KernelFileError(folder / name, "there is no such file")
        note(FileValue(folder / name, before))
    write_text(folder / "max_pool_percent", str(_percent(most_bytes, paths)))
    write_text(folder / "enabled", "Y")
    _choose(folder / "compressor", compressor)
    # A kernel that has just set zswap up takes its default in place of one that it does not have.
    if (taken := read_text(folder / "compressor")) != compressor:
        raise SandboxError(
            f"zswap does not take the compressor {compressor!r}, but {taken!r}.",
            next_step="Load its module, or name one of /proc/crypto as sandbox.compressor.",
        )


def _percent(most_bytes: int, paths: Paths) -> int:
    """The percents of the machine's memory that ``most_bytes`` are; at least one."""
    total = _meminfo_bytes("MemTotal", paths)
    if not total:
        raise SandboxError(f"{paths.proc / 'meminfo'} does not say how much memory there is.")
    return max(most_bytes * 100 // total, 1)


def _new_zram(paths: Paths, note: Note) -> Path:
    """Make a device and note it. Until it is noted it has no size, and so holds no memory."""
    device = add_zram(paths)
    try:
        note(ZramDevice(device))
    except SandboxError:
        remove_zram(device, paths)
        raise
    return device


def _set_zram_up(
    device: Path, compressor: str, size_bytes: int, most_bytes: int, paths: Paths
) -> None:
    folder = zram_dir(device, paths)
    _choose(folder / "comp_algorithm", compressor)
    write_text(folder / "mem_limit", str(most_bytes))
    write_text(folder / "disksize", str(size_bytes))
    swap_on_device(device, size_bytes)


def _choose(path: Path, compressor: str) -> None:
    try:
        write_text(path, compressor)
    except KernelFileError as error:
        listed = (read_text(path) or "").replace("[", "").replace("]", "")
        raise SandboxError(
            f"The kernel refuses the compressor {compressor!r}: {error}",
            next_step=f"Load its module, or name another one as sandbox.compressor; {path} is: "
            f"{listed}.",
        ) from error


def _zswap_bytes(paths: Paths) -> int:
    size_bytes = _meminfo_bytes("Zswap", paths)
    if size_bytes is None:
        raise SandboxError(f"{paths.proc / 'meminfo'} does not say what zswap takes.")
    return size_bytes


def _meminfo_bytes(key: str, paths: Paths) -> int | None:
    for line in (read_text(paths.proc / "meminfo") or "").splitlines():
        name, _, value = line.partition(":")
        if name == key:
            digits = value.removesuffix("kB").strip()
            return int(digits) * 1024 if digits.isascii() and digits.isdigit() else None
    return None


def _zram_bytes(device: Path, paths: Paths) -> int:
    path = zram_dir(device, paths) / "mm_stat"
    columns = (read_text(path) or "").split()
    used = columns[_MEM_USED] if len(columns) > _MEM_USED else ""
    if not (used.isascii() and used.isdigit()):
        raise SandboxError(f"{path} does not say what the device takes.")
    return int(used)
