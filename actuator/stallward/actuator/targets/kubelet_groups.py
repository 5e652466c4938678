"""The cgroups that the kubelet makes, known by their names. Pure.

The kubelet makes one tree, with a level for each quality of service but the best, and one group
for each pod, in which the container runtime makes one for each container. The two cgroup drivers
spell the same tree differently::

    systemd                                            cgroupfs
    kubepods.slice                                     kubepods
    kubepods-burstable.slice                           burstable
    kubepods-burstable-podUID.slice                    podUID
    cri-containerd-ID.scope  crio-ID.scope             ID  crio-ID

systemd nests its slices by their names, where ``-`` separates levels, so a pod's UID has ``_`` for
``-``. A kubelet with ``--cgroup-root`` has its tree below that group, and repeats it in the names
of slices. v1 has the same names in every hierarchy.

Sources: kubernetes pkg/kubelet/cm/{pod_container_manager,cgroup_manager}_linux.go, containerd
internal/cri/server, CRI-O internal/config/cgmgr.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from stallward.actuator.errors import KubeletGroupError
from stallward.actuator.targets.qos import Qos


class Driver(Enum):
    """A kubelet's cgroup driver."""

    SYSTEMD = "systemd"
    CGROUPFS = "cgroupfs"


class Level(Enum):
    """What one group of the kubelet's tree stands for."""

    ALL = "all pods"
    QOS = "a quality of service"
    POD = "a pod"
    CONTAINER = "a container"


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletGroup:
    """One group of the kubelet's tree."""

    level: Level
    driver: Driver
    parent: str = ""
    """The group of ``--cgroup-root``; empty for the root of the hierarchy."""
    qos: Qos | None = None
    """``None`` for the group of all pods."""
    uid: str = ""
    """The pod's UID, with ``-``; empty above pods."""
    container: str = ""
    """The last part of a container's group; empty above containers."""

    @property
    def name(self) -> str:
        """The name of the group, as in the configuration."""
        folder = "" if self.qos is None else _FOLDERS.get(self.qos, "")
        if self.driver is Driver.CGROUPFS:
            parts = ["kubepods", folder, f"pod{self.uid}" if self.uid else ""]
        else:
            last = self.parent.rpartition("/")[2]
            # The name of a slice repeats those of the slices that it is in.
            slices = [last.removesuffix(".slice")] if last.endswith(".slice") else []
            parts = []
            for part in ("kubepods", folder, f"pod{self.uid.replace('-', '_')}"):
                if part not in {"", "pod"}:
                    slices.append(part)
                    parts.append(f"{'-'.join(slices)}.slice")
        return "/".join(filter(None, (self.parent, *parts, self.container)))


_FOLDERS: Final = {Qos.BURSTABLE: "burstable", Qos.BEST_EFFORT: "besteffort"}
"""Guaranteed pods are directly below the group of all pods."""
_CLASSES: Final = {folder: qos for qos, folder in _FOLDERS.items()}
_WORD: Final = "[0-9A-Za-z]+"
_SLICE: Final = re.compile(
    rf"(?P<before>(?:[^-/]+-)*)kubepods(?:-(?P<qos>burstable|besteffort))?"
    rf"(?:-pod(?P<uid>{_WORD}(?:_{_WORD})*))?\.slice"
)
_POD: Final = re.compile(rf"pod({_WORD}(?:-{_WORD})*)")
ROOTS: Final = ("", "kubelet", "kubelet.slice")
"""The groups in which a kubelet's tree is usually found: kind and others give it ``kubelet``."""


def parse_group(name: str) -> KubeletGroup | None:
    """Return what a group is in the kubelet's tree; ``None`` if it is not in it.

    Args:
        name: The group's name, relative to the root of the hierarchy.
    """
    parts = [part for part in name.split("/") if part]
    for start, part in enumerate(parts):
        found = None
        if part == "kubepods":
            found = _from_folders("/".join(parts[:start]), parts[start + 1 :])
        elif _SLICE.fullmatch(part):
            found = _from_slices("/".join(parts[:start]), parts[start:])
        else:
            continue
        # A slice that is elsewhere than its name says is none of the kubelet's.
        return found if found is not None and found.name == "/".join(parts) else None
    return None


def _from_folders(parent: str, rest: list[str]) -> KubeletGroup | None:
    qos = _CLASSES.get(rest[0]) if rest else None
    below = rest[1:] if qos is not None else rest
    if not below:
        level = Level.ALL if qos is None else Level.QOS
        return KubeletGroup(level=level, driver=Driver.CGROUPFS, parent=parent, qos=qos)
    pod = _POD.fullmatch(below[0])
    if pod is None:
        return None
    return _pod(Driver.CGROUPFS, parent, qos, pod[1], below[1:])


def _from_slices(parent: str, parts: list[str]) -> KubeletGroup | None:
    qos: Qos | None = None
    uid = ""
    depth = 0
    for part in parts:
        found = _SLICE.fullmatch(part)
        if found is None or uid:
            break
        qos = _CLASSES.get(found["qos"] or "")
        uid = (found["uid"] or "").replace("_", "-")
        depth += 1
    below = parts[depth:]
    if uid:
        return _pod(Driver.SYSTEMD, parent, qos, uid, below)
    if below:
        return None
    level = Level.ALL if qos is None else Level.QOS
    return KubeletGroup(level=level, driver=Driver.SYSTEMD, parent=parent, qos=qos)


def _pod(driver: Driver, parent: str, qos: Qos | None, uid: str, below: list[str]) -> KubeletGroup:
    return KubeletGroup(
        level=Level.CONTAINER if below else Level.POD,
        driver=driver,
        parent=parent,
        qos=qos or Qos.GUARANTEED,
        uid=uid,
        container="/".join(below),
    )


@functools.lru_cache(maxsize=1024)
def pod_groups(uid: str, parent: str | None = None) -> tuple[str, ...]:
    """List the names that the group of a pod can have, for every driver and quality of service.

    Args:
        uid: The pod's UID.
        parent: The group of the kubelet's ``--cgroup-root``; the usual ones by default.
    """
    return tuple(
        KubeletGroup(level=Level.POD, driver=driver, parent=root, qos=qos, uid=uid).name
        for root in (ROOTS if parent is None else (parent,))
        for driver in _drivers(root)
        for qos in Qos
    )


def _drivers(root: str) -> tuple[Driver, ...]:
    """The drivers that can have a tree in a group; systemd puts slices into slices only."""
    in_slice = not root or root.endswith(".slice")
    return (Driver.SYSTEMD, Driver.CGROUPFS) if in_slice else (Driver.CGROUPFS,)


def find_pod_group(
    uid: str, exists: Callable[[str], bool], parent: str | None = None
) -> str | None:
    """Find the group of a pod; ``None`` if there is none (yet, or any more).

    Args:
        uid: The pod's UID.
        exists: Says whether there is a group of a name.
        parent: The group of the kubelet's ``--cgroup-root``; the usual ones by default.
    """
    return next((name for name in pod_groups(uid, parent) if exists(name)), None)


def check_slot_group(name: str) -> None:
    """Refuse a group that cannot be a slot because the kubelet sets it itself.

    Raises:
        KubeletGroupError: If it is the group of all pods, of a quality of service or of a
            container.
    """
    group = parse_group(name)
    if group is None or group.level is Level.POD:
        return
    if group.level is Level.CONTAINER:
        cause = f"{name!r} is the group of a container, whose limits the kubelet sets again."
    else:
        cause = (
            f"{name!r} is the group of {group.level.value}, which the kubelet sets every minute "
            "and in which the pods of others are."
        )
    raise KubeletGroupError(
        cause, next_step='Select pods: pod = { selector = "app=batch" } in place of group.'
    )
