"""Describes the machine of a measurement: hardware, kernel and versions of packages."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

import psutil

from stallward.actuator.kernel.hierarchies import detect
from stallward.actuator.kernel.paths import DEFAULT_PATHS, Paths
from stallward.env.recording.run_info import NodeInfo

_PACKAGES: Final = (
    "stallward",
    "numpy",
    "onnxruntime",
    "grpcio",
    "protobuf",
    "torch",
    "stable-baselines3",
)


def node_info(disk_of: Path, paths: Paths = DEFAULT_PATHS) -> NodeInfo:
    """This machine: kind, kernel, CPUs, memory and the disk that holds ``disk_of``."""
    return NodeInfo(
        kind=detect(paths).kind,
        kernel=platform.release(),
        cpu_count=len(os.sched_getaffinity(0)),
        memory_total_bytes=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        disk=_disk(disk_of),
        cpu=_cpu(paths.proc / "cpuinfo"),
    )


def _cpu(path: Path) -> str:
    """Name, family, model and stepping of the first processor; empty if not known."""
    try:
        lines = path.read_text(encoding="utf-8").partition("\n\n")[0].splitlines()
    except OSError:
        return ""
    facts = {key.strip(): value.strip() for key, _, value in (li.partition(":") for li in lines)}
    names = ("model name", "cpu family", "model", "stepping")
    return " ".join(facts[name] for name in names if name in facts)


def node_of_memory(memory_total_bytes: int) -> tuple[NodeInfo, str]:
    """Describe and name this machine if its memory is of this size, or else what is known.

    Args:
        memory_total_bytes: The memory of the node that is meant; 0 if that is not known.
    """
    here = node_info(Path.cwd())
    if memory_total_bytes in (0, here.memory_total_bytes):
        return here, platform.node()
    unknown = NodeInfo(
        kind="unknown", kernel="unknown", cpu_count=0, memory_total_bytes=memory_total_bytes
    )
    return unknown, ""


def _disk(path: Path) -> str:
    """The device and file system below ``path``; empty if not known."""
    where = path.resolve()
    partitions = [
        p for p in psutil.disk_partitions(all=True) if where.is_relative_to(p.mountpoint)
    ]
    # Where several are mounted on one folder, the last one is visible.
    partition = max(reversed(partitions), key=lambda p: len(p.mountpoint), default=None)
    return "" if partition is None else f"{partition.device} ({partition.fstype})"


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that results depend on."""
    installed = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            installed[name] = version(name)
        except PackageNotFoundError:
            continue
    return installed
