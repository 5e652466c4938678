"""The sandbox: groups with their own memory limit, whose pressure does not harm the machine.

These are its groups, in every hierarchy of the node::

    stallward/ID            the limit
    stallward/ID/app        the protected application
    stallward/ID/app-NAME   a further one, where there are several
    stallward/ID/slot0 ...  the background groups
    stallward/ID-load       the load generator, which is outside of the pressure
    stallward/ID-peer       a peer under comparison, made only for one
"""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock
from types import FrameType
from typing import Final

from stallward.actuator.errors import (
    ActuatorError,
    GroupError,
    JournalError,
    KernelFileError,
)
from stallward.actuator.journal.entries import JournalEntry, OwnedFolder, OwnedGroup, SwapFile
from stallward.actuator.journal.keeper import Keeper
from stallward.actuator.journal.own_entries import SWAP_SUFFIX, Owner
from stallward.actuator.journal.restore import restore
from stallward.actuator.kernel.cgroups import Cgroup, Hierarchy
from stallward.actuator.kernel.files import read_bytes, read_text, write_text
from stallward.actuator.kernel.hierarchies import require
from stallward.actuator.kernel.memory.pressure import why_no_psi
from stallward.actuator.kernel.paths import DEFAULT_PATHS, Paths
from stallward.actuator.levers.cgroup.cpu_and_io import disks_of
from stallward.actuator.sensors.files.flat import parse_partly
from stallward.actuator.sensors.files.meminfo import parse_meminfo
from stallward.env.errors import SandboxError
from stallward.env.sandbox.compressed_swap import (
    Pool,
    check_compressed_swap,
    foreign_swap_bytes,
    make_swap,
    most_pool_bytes,
    switch_on,
)
from stallward.env.sandbox.data_cache import default_state_dir
from stallward.env.sandbox.watch import PeriodicWatch
from stallward.env.sandbox.zone_memory import limit_memory, memory_file
from stallward.env.scenario.scenario import CompressedSwap, DiskLimit

# ---------- Charges the pool of compressed swap to a sandbox's zone.
# On a machine the pool takes memory away from everything that runs there. To a group the kernel
# charges only the pool of zswap, and only with cgroup v2; so a zone would get memory for nothing.
# Therefore its limit is lowered by as much as the pool has grown, and raised again as it shrinks.

_PERIOD_S: Final = 0.1
_STEP_BYTES: Final = 1 << 20
"""Smaller changes are not written: each lowering reclaims."""


def is_charged_by_kernel(swap: CompressedSwap, zone: Cgroup) -> bool:
    """Whether the kernel itself charges the pool to the groups whose pages it holds."""
    return swap.kind == "zswap" and zone.hierarchy.kind == "v2"


def charged_limit_bytes(limit_bytes: int, growth_bytes: int, most_bytes: int) -> int:
    """The limit that leaves a zone what the pool does not take.

    Args:
        limit_bytes: The limit of zone and pool together.
        growth_bytes: How much more the pool takes than before the sandbox.
        most_bytes: The most that is charged. The limit is never lower by more, which could kill
            the application.
    """
    return limit_bytes - min(max(growth_bytes, 0), most_bytes)


class PoolCharge(PeriodicWatch):
    """Keeps the limit of a zone and the pool within one limit; a context manager.

    Args:
        zone: The zone.
        pool: Reads the memory of the pool. What it is now is not the sandbox's.
        most_bytes: The most that is charged.
    """

    def __init__(self, zone: Cgroup, pool: Pool, most_bytes: int) -> None:
        super().__init__("pool-charge", _PERIOD_S)
        self._zone = zone
        self._pool = pool
        self._most_bytes = most_bytes
        self._before_bytes = pool()
        self._lock = Lock()
        self._limit_bytes: int | None = None
        self._set_bytes = 0

    def set_limit(self, limit_bytes: int) -> None:
        """Set the limit of zone and pool together.

        Raises:
            SandboxError: If the kernel refuses, or does not say what the pool takes.
        """
        with self._lock:
            self._limit_bytes = limit_bytes
            self._set(self._wanted_bytes(limit_bytes))

    def _wanted_bytes(self, limit_bytes: int) -> int:
        growth_bytes = self._pool() - self._before_bytes
        return charged_limit_bytes(limit_bytes, growth_bytes, self._most_bytes)

    def _set(self, wanted_bytes: int) -> None:
        limit_memory(self._zone, wanted_bytes, swap=True)
        self._set_bytes = wanted_bytes

    def _look(self) -> None:
        # v1 refuses a limit that cannot be reached by reclaiming. The next look tries again.
        with self._lock, contextlib.suppress(SandboxError, KernelFileError):
            if self._limit_bytes is not None:
                wanted_bytes = self._wanted_bytes(self._limit_bytes)
                if abs(wanted_bytes - self._set_bytes) >= _STEP_BYTES:
                    self._set(wanted_bytes)


# ---------- Makes the disks slow for the programs of a sandbox, and for nobody else.
# All programs of the sandbox share one limit, as they would share a slow disk. With v1 they enter
# one group of the blkio hierarchy, because its limits do not add up over the groups below. The limit
# ends with the group, so there is nothing to put back.

BLKIO = "blkio"
"""The v1 controller that limits disks."""


def shared_dirs(zone: Cgroup, limit: DiskLimit | None) -> tuple[Path, ...]:
    """The directories that every program of a sandbox enters besides those of its own group."""
    v1 = None if limit is None else zone.v1_dir(BLKIO)
    return () if v1 is None else (v1,)


def limit_disks(zone: Cgroup, limit: DiskLimit, paths: Paths) -> None:
    """Limit every disk of the node for the programs of a zone.

    Args:
        zone: The zone's group, which exists in the v1 blkio hierarchy where there is one.
        limit: How slow the disks are to be.
        paths: The roots of the kernel's files.

    Raises:
        SandboxError: If the node has no disk or cannot limit it.
    """
    disks = tuple(disks_of(paths))
    if not disks:
        raise SandboxError(
            f"There is no disk in {paths.sys / 'block'} that could be made slow.",
            next_step="Use a scenario without sandbox.disk_mib_per_s and sandbox.disk_ops_per_s.",
        )
    try:
        for disk in disks:
            for path, text in _disk_writes(zone, limit):
                write_text(path, f"{disk} {text}")
    except KernelFileError as error:
        raise SandboxError(
            f"The disks cannot be made slow for the sandbox: {error}",
            next_step="Use a kernel with blk-throttle, and v1 blkio or the io controller of v2.",
        ) from error


def _disk_writes(zone: Cgroup, limit: DiskLimit) -> Iterator[tuple[Path, str]]:
    """The files of the zone and what follows the disk's number in each."""
    v1 = zone.v1_dir(BLKIO)
    rates = (("bps", limit.bytes_per_s), ("iops", limit.ops_per_s))
    if v1 is not None:
        for unit, rate in rates:
            for direction in ("read", "write") if rate is not None else ():
                yield v1 / f"blkio.throttle.{direction}_{unit}_device", str(rate)
    elif zone.unified_dir is not None:
        words = [f"r{unit}={rate} w{unit}={rate}" for unit, rate in rates if rate is not None]
        yield zone.unified_dir / "io.max", " ".join(words)


_SPARE_BYTES = 256 * 1024 * 1024
"""Memory that must be available beside the sandbox."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sandbox:
    """The groups of one sandbox."""

    zone: Cgroup
    """The group with the memory limit, and the parent of the others."""
    protected: Cgroup
    """The group of the protected application; of the first of several."""
    others: tuple[Cgroup, ...] = ()
    """The groups of the further protected applications, in order."""
    slots: tuple[Cgroup, ...]
    """The background groups, in order."""
    load: Cgroup
    """The group of the load generator, outside of the limit."""
    peer: Cgroup
    """The group of a peer under comparison, outside of the limit; it is made only for one."""
    folder: Path
    """A temporary folder, removed with the sandbox even if its owner is killed."""
    paths: Paths
    """The roots of the kernel's files on this node."""
    swap_path: Path | None = None
    """The swap file made for the sandbox; ``None`` if the node has swap, or it has none."""
    swap: bool = True
    """Whether its programs may use swap."""
    shared_dirs: tuple[Path, ...] = ()
    """Directories that every program in the zone enters besides those of its own group."""
    charge: PoolCharge | None = None
    """Charges the pool of compressed swap to the zone; ``None`` without one, or if the kernel does."""

    @property
    def applications(self) -> tuple[Cgroup, ...]:
        """The groups of all protected applications, at least one."""
        return (self.protected, *self.others)

    def set_limit(self, limit_bytes: int) -> None:
        """Set the memory limit of the zone, which includes the pool of compressed swap.

        Raises:
            SandboxError: If the kernel refuses.
        """
        if self.charge is not None:
            self.charge.set_limit(limit_bytes)
        else:
            limit_memory(self.zone, limit_bytes, swap=self.swap)

    def kill(self) -> None:
        """Kill everything in the sandbox, in the load generator's group and in the peer's.

        Raises:
            SandboxError: If a process survives.
        """
        left = (*self.zone.kill(), *self.load.kill(), *self.peer.kill())
        if left:
            raise SandboxError(f"Processes {list(left)} of the sandbox cannot be killed.")

    def empty(self) -> None:
        """Free the page cache of ended programs, which is still charged to the sandbox."""
        for group in (*self.slots, *self.applications, self.zone):
            # Both free what they can, and report an error if that was not all.
            with contextlib.suppress(KernelFileError):
                if group.hierarchy.kind == "v2":
                    write_text(memory_file(group, "memory.reclaim"), str(1 << 34))
                else:
                    write_text(memory_file(group, "memory.force_empty"), "0")

    def oom_kills(self) -> int:
        """Count the processes that the kernel killed in the sandbox because memory ran out."""
        name = "memory.events" if self.zone.hierarchy.kind == "v2" else "memory.oom_control"
        groups = (self.zone, *self.applications, *self.slots)
        if self.zone.hierarchy.kind == "v2":  # the count includes the children
            groups = (self.zone,)
        return sum(_oom_kills(read_text(memory_file(group, name)) or "") for group in groups)


def _oom_kills(text: str) -> int:
    for line in text.splitlines():
        key, _, value = line.partition(" ")
        if key == "oom_kill" and value.isdigit():
            return int(value)
    return 0


def check_memory(limit_bytes: int, paths: Paths) -> None:
    """Check that the machine has the memory that the sandbox may take.

    Raises:
        SandboxError: If it has not, or does not say how much it has.
    """
    path = paths.proc / "meminfo"
    info, fault = parse_partly(parse_meminfo, read_bytes(path) or b"", path)
    available = None if info is None else info.available_bytes
    if available is None:
        raise SandboxError(
            f"It cannot be told how much memory is available: {fault or f'{path} does not say'}.",
            next_step="Use a machine whose meminfo is the kernel's own.",
        )
    if available < limit_bytes + _SPARE_BYTES:
        raise SandboxError(
            f"The sandbox takes {limit_bytes >> 20} MiB, but only {available >> 20} MiB "
            "are available.",
            next_step="Stop other programs or lower sandbox.limit_mib of the scenario.",
        )


@contextlib.contextmanager
def open_sandbox(
    *,
    slots: int,
    others: tuple[str, ...] = (),
    limit_bytes: int,
    swap_bytes: int,
    compressed_swap: CompressedSwap | None = None,
    disk: DiskLimit | None = None,
    cache_dir: Path,
    state_dir: Path | None = None,
    paths: Paths = DEFAULT_PATHS,
    controllers: tuple[str, ...] = (),
) -> Iterator[Sandbox]:
    """Make a sandbox and remove it when the context ends, whatever ends it.

    Remains of a sandbox whose owner and keeper were both killed are removed first.

    Args:
        slots: How many background groups.
        others: The names of the protected applications beside the first.
        limit_bytes: The memory limit of the zone at the start.
        swap_bytes: Size of the swap file, if the node has no swap; 0 for a sandbox without swap,
            which does not use the node's either.
        compressed_swap: What compresses that swap; with zram, a device of that size takes the
            place of the file, and the node must not have swap. ``None`` for nothing.
        disk: How slow the disks are for the programs in the sandbox; ``None`` leaves them as they
            are.
        cache_dir: The folder for that swap file, on a disk.
        state_dir: The folder for the journal of what must be removed; by default the user's state
            folder.
        paths: The roots of the kernel's files.
        controllers: v1 controllers (cpu, blkio) in which the groups are made, too, if they are
            mounted. The cpu controller gives each group the same share, whatever it runs.

    Raises:
        SandboxError: If a sandbox cannot be made on this machine by this user; the message says
            what is missing.
    """
    try:
        hierarchy = require(paths)
    except ActuatorError as error:
        raise SandboxError(error.cause, next_step=error.next_step) from error
    check_memory(limit_bytes, paths)
    if compressed_swap is not None:
        check_compressed_swap(compressed_swap, paths)
    zram = compressed_swap is not None and compressed_swap.kind == "zram"
    identity = f"{os.getpid()}-{os.urandom(3).hex()}"
    swap_path = None
    if swap_bytes > 0 and not zram and foreign_swap_bytes(paths.proc) == 0:
        # Absolute, because the process that undoes a crash may work in another folder.
        swap_path = (cache_dir / f"{identity}{SWAP_SUFFIX}").absolute()
    sandbox = replace(
        _plan(hierarchy, identity, slots, swap_path, paths),
        others=tuple(hierarchy.group(f"stallward/{identity}/app-{name}") for name in others),
        swap=swap_bytes > 0,
        shared_dirs=shared_dirs(hierarchy.group(f"stallward/{identity}"), disk),
    )
    state_dir = state_dir or default_state_dir()
    with _ended_by_sigterm(), _undone(paths, state_dir) as note, contextlib.ExitStack() as stack:
        note(*_entries(sandbox))
        if compressed_swap is not None:
            most_bytes = most_pool_bytes(limit_bytes)
            pool = switch_on(
                compressed_swap,
                size_bytes=swap_bytes,
                most_bytes=most_bytes,
                paths=paths,
                note=note,
            )
            if not is_charged_by_kernel(compressed_swap, sandbox.zone):
                sandbox = replace(sandbox, charge=PoolCharge(sandbox.zone, pool, most_bytes))
        _make(sandbox, limit_bytes, swap_bytes, controllers)
        if disk is not None:
            limit_disks(sandbox.zone, disk, paths)
        if sandbox.charge is not None:
            stack.enter_context(sandbox.charge)
        yield sandbox


@contextlib.contextmanager
def _undone(paths: Paths, state_dir: Path) -> Iterator[Callable[..., None]]:
    """Have what is noted undone when the context or this process ends, whatever ends it.

    Yields:
        What notes entries, before the changes that they undo.
    """
    noted: list[JournalEntry] = []

    def note(*entries: JournalEntry) -> None:
        try:
            keeper.hold(*entries)
        except JournalError as error:
            raise SandboxError(error.cause, next_step=error.next_step) from error
        noted.extend(entries)

    try:
        keeper = Keeper.start(paths, state_dir)
    except JournalError as error:
        raise SandboxError(error.cause, next_step=error.next_step) from error
    try:
        yield note
    finally:
        try:
            problems = keeper.restore()
        except JournalError:  # the keeper was killed: do its work here
            problems = tuple(map(str, restore(noted, paths, Owner.SANDBOX)))
        if problems:  # the keeper stays open, and tries again when this process ends
            raise SandboxError(f"The sandbox could not be removed: {' '.join(problems)}")
        keeper.close()


def _entries(sandbox: Sandbox) -> tuple[JournalEntry, ...]:
    own: tuple[JournalEntry, ...] = (
        OwnedGroup(sandbox.load.name),
        OwnedGroup(sandbox.zone.name),
        OwnedGroup(sandbox.peer.name),
        OwnedFolder(sandbox.folder),
    )
    return own if sandbox.swap_path is None else (*own, SwapFile(sandbox.swap_path))


def _plan(
    hierarchy: Hierarchy, identity: str, slots: int, swap_path: Path | None, paths: Paths
) -> Sandbox:
    zone = hierarchy.group(f"stallward/{identity}")
    return Sandbox(
        zone=zone,
        protected=zone.child("app"),
        slots=tuple(zone.child(f"slot{index}") for index in range(slots)),
        load=hierarchy.group(f"stallward/{identity}-load"),
        peer=hierarchy.group(f"stallward/{identity}-peer"),
        folder=Path(tempfile.gettempdir()) / f"stallward-{identity}",
        paths=paths,
        swap_path=swap_path,
    )


def _make(
    sandbox: Sandbox, limit_bytes: int, swap_bytes: int, controllers: tuple[str, ...]
) -> None:
    if sandbox.swap_path is not None:
        sandbox.swap_path.parent.mkdir(parents=True, exist_ok=True)
        make_swap(sandbox.swap_path, swap_bytes)
    try:
        sandbox.folder.mkdir(mode=0o700)
    except OSError as error:
        raise SandboxError(f"Cannot make {sandbox.folder} ({error.strerror}).") from error
    try:
        groups = (sandbox.zone, *sandbox.applications, *sandbox.slots, sandbox.load)
        for group in groups:
            group.create(controllers)
        if sandbox.shared_dirs:
            sandbox.zone.create((BLKIO,))
    except GroupError as error:
        raise SandboxError(error.cause, next_step=error.next_step) from error
    check_psi(sandbox)
    sandbox.set_limit(limit_bytes)


def check_psi(sandbox: Sandbox) -> None:
    """Check that the pressure of a group can be read, which the machine's does not show.

    Raises:
        SandboxError: If it cannot.
    """
    folder = sandbox.protected.unified_dir
    if folder is not None:
        no_psi = why_no_psi(folder / "memory.pressure")
        if no_psi is not None:
            raise SandboxError(
                f"The sandbox cannot see pressure: {no_psi.cause}.", next_step=no_psi.next_step
            )


@contextlib.contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Let SIGTERM unwind the stack, as Ctrl-C does, instead of ending the process at once."""

    def leave(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
