"""Compressed swap of a sandbox: zswap before its swap file, or a zram device in the file's place.

Both keep what is swapped out compressed in memory, in a *pool*. The pool of a sandbox takes at most
half of its zone's memory: zram takes no more then and pages stay where they are, and zswap leaves
them to the swap file. zswap is limited in percents of the machine's memory, rounded down to at
least one.

zswap and the order of swap devices are the whole machine's, so nothing else should swap meanwhile.
:mod:`stallward.env.sandbox.sandbox` charges the pool to the zone.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from stallward.actuator.errors import KernelFileError
from stallward.actuator.journal.entries import FileValue, JournalEntry, ZramDevice
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
from stallward.env.sandbox import swapfile
from stallward.env.scenario.scenario import CompressedSwap

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
        if swapfile.foreign_swap_bytes(paths.proc) > 0:
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
    swapfile.swap_on_device(device, size_bytes)


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
