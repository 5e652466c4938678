"""What the kubelet of this node is told: by it or the API where rights allow, or by its process.

Its command line is in /proc, and so is its view of the files that it names, ``/proc/PID/root``:
so neither a mount nor a right in the cluster is needed. A kubelet inside another program (k3s) is
seen by the API only.

Sources: kubernetes pkg/kubelet/apis/config/v1beta1/defaults.go, cmd/kubelet/app/server.go.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from stallward.actuator.errors import KernelFileError, KubeletConfigError, NodeError, PodsError
from stallward.actuator.kernel.files import read_bytes, read_text
from stallward.actuator.kernel.paths import Paths
from stallward.actuator.kernel.process_identity import user_ids
from stallward.actuator.kubernetes.api import ApiPods
from stallward.actuator.kubernetes.config import KubernetesConfig
from stallward.actuator.kubernetes.kubelet import KubeletPods
from stallward.actuator.kubernetes.watcher import make_source
from stallward.agent.believed_file import read_believed
from stallward.agent.errors import UnbelievedFileError

AVAILABLE: Final = "memory.available"
_DEFAULT_HARD: Final = "100Mi"
_MOST_BYTES: Final = 1 << 20
_MOST: Final = 2.0**62
_GRANT: Final = "let its service account get nodes/proxy (rbac.nodesProxy of the chart)"
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
        content = _configuration(path)
        if content is None:
            raise KubeletConfigError(
                f"the kubelet's {flags['config']} cannot be read",
                next_step="Give the doctor CAP_SYS_PTRACE and the node's processes, or "
                f"{_GRANT} while it runs.",
            )
        table = parse_file(content or b"{}", path)
    if "config-dir" in flags:
        for part in sorted((root / flags["config-dir"].lstrip("/")).glob("**/*.conf")):
            table = _merged(table, parse_file(_configuration(part) or b"{}", part))
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
    flags = {}
    for argument, following in zip(arguments, [*arguments[1:], ""], strict=True):
        if argument.startswith("--"):
            name, equals, value = argument[2:].partition("=")
            flags[name] = value if equals or following.startswith("-") else following
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
    if not text:
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


def _configuration(path: Path) -> bytes | None:
    """What one of its files holds; ``None`` if it cannot be read.

    Raises:
        KubeletConfigError: If it may not be believed.
    """
    try:
        return read_believed(path, _MOST_BYTES)
    except UnbelievedFileError as error:
        raise KubeletConfigError(error.cause, next_step=error.next_step) from error
    except OSError:
        return None
