"""The target of levers and sensors, a slot or the application: a cgroup or a process tree."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Protocol, TypeAlias

from stallward.actuator.kernel.cgroups import Cgroup, Hierarchy
from stallward.agent.sample import UNBOUND

if TYPE_CHECKING:
    from stallward.actuator.kernel.process_trees import ProcessTree

AnyTarget: TypeAlias = "Cgroup | ProcessTree"


class Target(Protocol):
    """A cgroup or a process tree, where only the processes matter."""

    @property
    def name(self) -> str:
        """The group's path, or the name of the tree in the configuration."""

    def pids(self, *, recursive: bool = False, most: int | None = None) -> tuple[int, ...]:
        """The pids of its processes, ascending; of at most so many groups below it."""

    def among(self, pids: AbstractSet[int]) -> frozenset[int]:
        """Which of some processes are its own; takes little time however many it has."""

    def exists(self) -> bool:
        """Whether it can have processes."""


def unbound(hierarchy: Hierarchy, name: str) -> Cgroup:
    """The group that stands for a target that is not there: it never exists.

    Args:
        hierarchy: The node's cgroup hierarchies.
        name: The name of the slot in the configuration.
    """
    return hierarchy.group(f"{UNBOUND}{name}")


def is_unbound(target: Target) -> bool:
    """Whether a target only stands for one that is not there."""
    return target.name.startswith(UNBOUND)


def protected_pids(applications: Sequence[AnyTarget]) -> frozenset[int]:
    """The processes of the protected applications, where a background group may hold one.

    Groups do not overlap; a tree's processes may be in any group.
    """
    trees = (one for one in applications if not isinstance(one, Cgroup))
    return frozenset(pid for tree in trees for pid in tree.pids())
