"""Whether the kubelet would evict background pods before the daemon holds them back.

The kubelet evicts when the machine's available memory falls below a threshold
(``memory.available``), and when that of all pods together does (``allocatableMemory.available``,
with the same threshold): first pods that use more than they request, of these those of the lowest
priority, of these those that exceed it most. Neither a pause nor a limit asks it. So what the
daemon keeps free must be more than the threshold.

Source: https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.doctor.finding import Finding, finding
from stallward.actuator.errors import ActuatorError, KernelFileError, NodeError
from stallward.actuator.kernel.cgroups import Hierarchy
from stallward.actuator.kernel.files import read_bytes, read_text
from stallward.actuator.kernel.hierarchies import detect
from stallward.actuator.kernel.paths import Paths
from stallward.actuator.kernel.process_table import user_ids
from stallward.actuator.sensors.files.meminfo import MeminfoParser
from stallward.actuator.targets.config import KubernetesConfig
from stallward.actuator.targets.kubelet_groups import (
    ROOTS,
    Driver,
    KubeletGroup,
    Level,
    parse_group,
)
from stallward.agent.believed_file import OPEN_FLAGS, read_believed
from stallward.agent.controllers.partition import PartitionThresholds
from stallward.agent.desired import MIB
from stallward.agent.errors import UnbelievedFileError
from stallward.kubernetes.api import ApiPods
from stallward.kubernetes.errors import KubeletConfigError, PodsError
from stallward.kubernetes.kubelet import KubeletPods
from stallward.kubernetes.watcher import make_source

# ---------- What the kubelet of this node is told: by it or the API where rights allow, or by its process
# Its command line is in /proc, and so is its view of the files that it names, ``/proc/PID/root``:
# so neither a mount nor a right in the cluster is needed. A kubelet inside another program (k3s) is
# seen by the API only. A pod may call its process so, too, and whatever links it makes there, only
# its own files are read.
#
# Sources: kubernetes pkg/kubelet/apis/config/v1beta1/defaults.go, cmd/kubelet/app/server.go.

AVAILABLE: Final = "memory.available"
_DEFAULT_HARD: Final = "100Mi"
_MOST_BYTES: Final = 1 << 20
_OPENAT2: Final = 437
"""The number of the system call, on all architectures that the kubelet runs on."""
_RESOLVE_IN_ROOT: Final = 0x10
_MOST: Final = 2.0**62
_GRANT: Final = "let its service account get nodes/proxy (rbac.nodesProxy of the chart)"
_ADD_UP: Final = frozenset({"eviction-hard", "eviction-soft", "feature-gates"})
_QUANTITY: Final = re.compile(r"([0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?)([KMGTPE]i|[kMGTPE]|)")
_UNITS: Final = {"": 1} | {
    f"{'K' if binary and name == 'k' else name}{'i' if binary else ''}": base ** (power + 1)
    for binary, base in ((False, 1000), (True, 1024))
    for power, name in enumerate("kMGTPE")
}


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletSettings:
    """The settings of a kubelet that matter for memory."""

    source: str
    """Where they were read."""
    hard: str = _DEFAULT_HARD
    """The hard eviction threshold of ``memory.available``, as written; empty for none."""
    soft: str = ""
    """The soft one."""
    memory_qos: bool = False
    """Whether it writes memory.min and memory.high of containers."""


def read_kubelet(
    paths: Paths, config: KubernetesConfig | None, environment: Mapping[str, str]
) -> KubeletSettings | None:
    """Read the settings of this node's kubelet; ``None`` where there is none.

    Args:
        paths: The kernel's files.
        config: Where the API server is; ``None`` where no pods are followed: then it is not asked,
            and there need not be a kubelet.
        environment: Where the node's name and the cluster's server are looked up.

    Raises:
        KubeletConfigError: If there is a kubelet, and its settings cannot be read.
    """
    silent = ""
    if config is not None:
        told, silent = _ask(config, environment)
        if told is not None:
            return settings_of(told, {}, "configz")
    pid = _find(paths.proc)
    if pid is None:
        if config is None:
            return None
        raise KubeletConfigError(
            "no process that can be seen is a kubelet (in k3s it is part of another program), and "
            f"{silent}",
            next_step=f"Give the doctor the processes of the node, or {_GRANT} while it runs. Or "
            "look up evictionHard of the kubelet, and keep a quarter more free by "
            "node.keep_available_bytes.",
        )
    flags = parse_flags(_command_line(paths.proc / pid / "cmdline"))
    root = paths.proc / pid / "root"
    table: dict[str, Any] = {}
    if "config" in flags:
        path = root / flags["config"].lstrip("/")
        content = _configuration(root, path)
        if content is None:
            raise KubeletConfigError(
                f"the kubelet's {flags['config']} cannot be read",
                next_step="Give the doctor CAP_SYS_PTRACE and the node's processes, or "
                f"{_GRANT} while it runs.",
            )
        table = parse_file(content or b"{}", path)
    if "config-dir" in flags:
        for part in _parts(root, root / flags["config-dir"].lstrip("/")):
            table = _merged(table, parse_file(_configuration(root, part) or b"{}", part))
    return settings_of(table, flags, flags.get("config", "its command line"))


def _ask(config: KubernetesConfig, environment: Mapping[str, str]) -> tuple[Any, str]:
    """What the API server says, or ``None`` and why not, since few have the right to ask."""
    try:
        source = make_source(config, environment)
        if not isinstance(source, ApiPods | KubeletPods):
            return None, "the API server is not asked where pods come from a file"
        return source.kubelet_config(), ""
    except (NodeError, PodsError) as error:
        asked = "the kubelet itself" if config.source == "kubelet" else "the API server"
        return None, f"{asked} does not say what it is told: {error.cause.rstrip('.')}"


def parse_file(content: bytes, path: Path) -> dict[str, Any]:
    """Read a KubeletConfiguration, or a part of one, as YAML or JSON.

    Raises:
        KubeletConfigError: If it is none.
    """
    try:
        table = yaml.safe_load(content)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise KubeletConfigError(f"the kubelet's {path.name} is no YAML") from error
    if not isinstance(table, dict):
        raise KubeletConfigError(f"the kubelet's {path.name} holds no table")
    return table


def settings_of(table: Any, flags: Mapping[str, str], source: str) -> KubeletSettings:
    """Return the settings in a KubeletConfiguration, over which flags go.

    Raises:
        KubeletConfigError: If it is none.
    """
    try:
        hard = table.get("evictionHard")
        merged = bool(table.get("mergeDefaultEvictionSettings"))
        # Who writes any hard threshold has none of the default ones, unless they are merged.
        default = _DEFAULT_HARD if hard is None or merged else ""
        gates = {**(table.get("featureGates") or {}), **_pairs(flags.get("feature-gates"), "=")}
        return KubeletSettings(
            source=source,
            hard=_threshold(flags.get("eviction-hard"), hard, default),
            soft=_threshold(flags.get("eviction-soft"), table.get("evictionSoft"), ""),
            memory_qos=str(gates.get("MemoryQoS", False)).lower() == "true",
        )
    except (AttributeError, TypeError, ValueError) as error:
        raise KubeletConfigError(f"{source} holds no settings of a kubelet") from error


def parse_flags(command_line: str) -> dict[str, str]:
    """Return the flags of a command line from /proc, in which NUL ends each argument."""
    arguments = command_line.split("\0")
    flags: dict[str, str] = {}
    for argument, following in zip(arguments, [*arguments[1:], ""], strict=True):
        if argument.startswith("--"):
            name, equals, value = argument[2:].partition("=")
            value = value if equals or following.startswith("-") else following
            # Those that are lists of pairs may come several times, and add up.
            flags[name] = f"{flags[name]},{value}" if name in _ADD_UP & flags.keys() else value
    return flags


def threshold_bytes(threshold: str, capacity_bytes: int) -> int:
    """Return an eviction threshold in bytes; 0 if nobody is evicted for it.

    Args:
        threshold: A quantity (``100Mi``), or per cent of the machine's memory (``5%``).
        capacity_bytes: The machine's memory.

    Raises:
        KubeletConfigError: If it is neither.
    """
    text = threshold.strip()
    if text in {"", "100%"}:  # the kubelet takes that for none, as 0%
        return 0
    share = _QUANTITY.fullmatch(text.removesuffix("%")) if text.endswith("%") else None
    if share is not None and not share[2]:
        return int(min(float(share[1]) / 100.0 * capacity_bytes, _MOST))
    size = _QUANTITY.fullmatch(text)
    if size is None:
        raise KubeletConfigError(f"the eviction threshold {threshold!r:.40} is no quantity")
    return int(min(float(size[1]) * _UNITS[size[2]], _MOST))


def _threshold(flag: str | None, table: Any, default: str) -> str:
    if flag is not None:
        return _pairs(flag, "<").get(AVAILABLE, "")
    return str((table or {}).get(AVAILABLE, default))


def _pairs(text: str | None, between: str) -> dict[str, str]:
    parts = (part.partition(between) for part in (text or "").split(",") if between in part)
    return {name.strip(): value.strip() for name, _, value in parts}


def _merged(table: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    made = dict(table)
    for key, value in over.items():
        old = made.get(key)
        if isinstance(old, Mapping) and isinstance(value, Mapping):
            value = {**old, **value}  # noqa: PLW2901
        made[key] = value
    return made


def _find(proc: Path) -> str | None:
    """The process of the kubelet, which is root's or this user's."""
    for folder in proc.iterdir():
        if folder.name.isdigit():
            try:
                # Any process may call itself so, and what it names is read with root's rights.
                if read_text(folder / "comm") != "kubelet":
                    continue
                users = user_ids(proc, int(folder.name))
                if users is not None and users <= {0, os.geteuid()}:
                    return folder.name
            except KernelFileError:  # hidden from this user, or it has just ended
                continue
    return None


def _command_line(path: Path) -> str:
    try:
        return (read_bytes(path) or b"").decode("utf-8", "replace")
    except KernelFileError:
        return ""


def _parts(root: Path, folder: Path) -> list[Path]:
    """The files in one of its folders that hold a part of its configuration, in their order."""
    found: list[Path] = []
    with contextlib.suppress(OSError):
        fd = _open_inside(root, folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for below, _, names, _ in os.fwalk(".", dir_fd=fd):
                found += [folder / below / name for name in names if name.endswith(".conf")]
        finally:
            os.close(fd)
    return sorted(found)


def _configuration(root: Path, path: Path) -> bytes | None:
    """What one of its files holds; ``None`` if it cannot be read.

    Raises:
        KubeletConfigError: If it may not be believed.
    """
    try:
        return read_believed(path, _MOST_BYTES, _open_inside(root, path, OPEN_FLAGS))
    except UnbelievedFileError as error:
        raise KubeletConfigError(error.cause, next_step=error.next_step) from error
    except OSError:
        return None


def _open_inside(root: Path, path: Path, flags: int) -> int:
    """Open a file below ``root`` as a process with that root would: no link leads out of it.

    Raises:
        OSError: If it cannot be opened, or the kernel is older than 5.6.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    folder = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fd = libc.syscall(
            ctypes.c_long(_OPENAT2),
            ctypes.c_int(folder),
            ctypes.c_char_p(os.fsencode(path.relative_to(root))),
            ctypes.c_char_p(struct.pack("QQQ", flags, 0, _RESOLVE_IN_ROOT)),
            ctypes.c_size_t(24),
        )
    finally:
        os.close(folder)
    if fd < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(path))
    return int(fd)


_ROOM: Final = 1.25
"""How much more than the threshold should be kept: it is looked at every ten seconds only."""


def try_kubelet(
    config: DaemonConfig, environment: Mapping[str, str] = os.environ
) -> list[Finding]:
    """Compare the kubelet's thresholds with what the daemon keeps free.

    Where pods are followed, a kubelet whose thresholds are not known is a finding, too.

    Args:
        config: The configuration.
        environment: Where the node's name and the cluster's server are looked up.
    """
    paths, hierarchy = config.node.paths, detect(config.node.paths)
    asked = config.kubernetes if config.follows_pods else None
    try:
        settings = read_kubelet(paths, asked, environment)
        if settings is None:
            return []
        meminfo = paths.proc / "meminfo"
        total_bytes = MeminfoParser()(meminfo.read_bytes(), meminfo).total_bytes or 0
        zone_bytes = _limit_bytes(hierarchy, config.node.zone) or total_bytes
        return [
            *_evictions(config, settings, hierarchy, total_bytes, zone_bytes),
            *_memory_qos(settings),
        ]
    except KubeletConfigError as error:
        return [
            Finding(
                area="configuration",
                name="kubelet",
                state="degraded",
                why=f"{error.cause}, so it is not known when it evicts",
                next_step=error.next_step,
            )
        ]
    except (ActuatorError, OSError):
        return []  # the machine's memory cannot be read, as other findings say


def _evictions(
    config: DaemonConfig,
    settings: KubeletSettings,
    hierarchy: Hierarchy,
    total_bytes: int,
    zone_bytes: int,
) -> Iterator[Finding]:
    hard_bytes = threshold_bytes(settings.hard, total_bytes)
    soft_bytes = threshold_bytes(settings.soft, total_bytes)
    threshold = max(hard_bytes, soft_bytes)
    name, key, text = "eviction", "evictionHard", settings.hard
    if soft_bytes > hard_bytes:
        key, text = "evictionSoft", settings.soft
    if not threshold:
        yield finding("node", name, "", "", works="the kubelet evicts nobody for memory")
        return
    rule = f"{key} {AVAILABLE}<{text}"
    kept_bytes = max(
        int(PartitionThresholds().margin_share * zone_bytes), config.node.keep_available_bytes
    )
    least = -(-int(_ROOM * threshold) // MIB) * MIB
    fault = ""
    if kept_bytes <= threshold:
        fault = (
            f"the kubelet evicts pods when {_mib(threshold)} are available ({rule} in "
            f"{settings.source}), and partition keeps {_mib(kept_bytes)} of the zone free: a "
            "background pod may be evicted before it is held back"
        )
    yield finding(
        "node",
        name,
        fault,
        f"Set node.keep_available_bytes to {least} or more, or lower the threshold.",
        works=f"below {_mib(threshold)} ({rule}); partition keeps {_mib(kept_bytes)}",
    )
    pods = _all_pods(hierarchy)
    zone = parse_group(config.node.zone)
    if pods is None or (zone is not None and zone.level is Level.ALL) or not hard_bytes:
        return
    group, limit_bytes = pods
    if total_bytes - limit_bytes + hard_bytes > kept_bytes and limit_bytes < zone_bytes:
        yield Finding(
            area="node",
            name="eviction of pods together",
            state="degraded",
            why=f"all pods may hold {_mib(limit_bytes)} ({group}), and the kubelet evicts when "
            f"they leave {_mib(hard_bytes)} of that; the zone {config.node.zone} has "
            f"{_mib(zone_bytes)}, so partition may see no lack before",
            next_step=f'Set node.zone = "{group}" if the application is a pod, too, or '
            f"node.keep_available_bytes to {total_bytes - limit_bytes + least} or more.",
        )


def _memory_qos(settings: KubeletSettings) -> Iterator[Finding]:
    if settings.memory_qos:
        yield Finding(
            area="node",
            name="MemoryQoS",
            state="degraded",
            why="the kubelet sets memory.min of pods and memory.high of containers (featureGates "
            "MemoryQoS): what a background pod requests cannot be reclaimed, and it may wait at "
            "limits that are not the daemon's",
            next_step="Let background pods request little memory, or turn MemoryQoS off.",
        )


def _all_pods(hierarchy: Hierarchy) -> tuple[str, int] | None:
    """The group of all pods and its limit; ``None`` where it has none."""
    for root in ROOTS:
        for driver in Driver:
            name = KubeletGroup(level=Level.ALL, driver=driver, parent=root).name
            limit_bytes = _limit_bytes(hierarchy, name)
            if limit_bytes is not None:
                return name, limit_bytes
    return None


def _limit_bytes(hierarchy: Hierarchy, group: str) -> int | None:
    """The limit of a group; ``None`` if there is none."""
    root = hierarchy.memory_root
    if root is None or not group.strip("/"):
        return None
    for file in ("memory.max", "memory.limit_in_bytes"):
        try:
            text = (root / group.strip("/") / file).read_text().strip()
        except OSError:
            continue
        if text.isascii() and text.isdigit() and int(text) < 1 << 62:
            return int(text)
    return None


def _mib(size: int) -> str:
    return f"{size / MIB:.0f} MiB"
