"""The interface of controllers.

To write a controller, copy ``controllers/none.py`` and add its entry to
``controllers/__init__.py``, or declare it as an entry point of your own package. Then run
:func:`stallward.agent.testing.check_controller` on it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

from stallward.agent.desired import DEFAULT_FLOOR_BYTES, DesiredState
from stallward.agent.errors import ControllerError
from stallward.agent.file_pages import MARKS, FilePages
from stallward.agent.sample import Sample

if TYPE_CHECKING:  # a command that only shows decisions does without it
    import numpy as np
    from numpy.typing import NDArray


class Need(StrEnum):
    """What a controller may need of a node in order to do what it is for."""

    PAUSE = "pause"
    """The lever that pauses a slot."""
    LIMIT = "limit"
    """The lever that limits the memory of a slot while it runs, which a process tree has not."""
    CPU_WEIGHT = "cpu_weight"
    """The lever on the CPU weight of a slot, or the nice values that stand in for it."""
    CPU_MAX = "cpu_max"
    """The lever that limits the CPU time of a slot."""
    RECLAIM = "reclaim"
    """The lever that reclaims memory of a slot once."""
    TERMINATE = "terminate"
    """The lever that ends a slot."""
    NODE_TUNING = "node_tuning"
    """The levers on the node's vm settings: swappiness, overcommitment, and dirty ratios."""
    GROUP_SWAPPINESS = "group_swappiness"
    """A swappiness of the application's own group, which only cgroup v1 has."""
    MEMORY_STALL = "memory_stall"
    """The totals of how long tasks of the zone waited for memory (PSI)."""
    APPLICATION_STALL = "application_stall"
    """The same of the application; the zone's where the application has none of its own."""
    SLOT_STALL = "slot_stall"
    """The same of each slot, which a process tree has not."""
    IO_STALL = "io_stall"
    """The totals of how long tasks of the zone waited for a disk (PSI)."""
    SLOT_IO_STALL = "slot_io_stall"
    """The same of each slot, which a process tree has not."""
    AVAILABLE_MEMORY = "available_memory"
    """How much memory of the zone is in use, and how much of that is inactive page cache."""
    REFAULTS = "refaults"
    """How many pages came back after eviction: of the application and of each slot."""
    LATENCY = "latency"
    """The latencies of the application's requests."""
    CPU_COUNT = "cpu_count"
    """How many CPUs the node has."""
    SWAP = "swap"
    """Swap space."""
    SWAP_USE = "swap_use"
    """How much of the application and of each slot is in swap, where there is swap."""
    FILE_CACHE = "file_cache"
    """Counting the cached pages of mapped files, and writing them back."""
    REFERENCED_BITS = "referenced_bits"
    """Clearing the referenced bits of a process's file pages."""
    FILE_ADVICE = "file_advice"
    """Advice for the file pages of other processes."""
    THREAD_SLICE = "thread_slice"
    """The lever on the timeslice of single threads of the application, and consent to move it."""
    THREAD_NICE = "thread_nice"
    """The lever on their nice values, with the same consent."""
    THREAD_CPUS = "thread_cpus"
    """The lever on their CPUs, with the same consent."""
    THREAD_TIMES = "thread_times"
    """How long the application's threads ran, and waited for a CPU."""


_NEXT_STEP: Final = "Choose another controller, or give the node what is missing."

THREAD_NEEDS: Final = (Need.THREAD_SLICE, Need.THREAD_NICE, Need.THREAD_CPUS)
"""The needs that are settings of the application's threads, each with the name of its lever."""


def needs_of_file_pages(wish: FilePages) -> tuple[Need, ...]:
    """What a node must have for what is to be done to file pages."""
    needs = []
    if wish.victim == "largest-file" or wish.writeback or wish.action in {"flush", *MARKS}:
        needs.append(Need.FILE_CACHE)
    if wish.action == "clear":
        needs.append(Need.REFERENCED_BITS)
    elif wish.action not in {"flush", *MARKS}:
        needs.append(Need.FILE_ADVICE)
    return tuple(needs)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeContext:
    """What a controller may know about the node before the first tick."""

    zone_limit_bytes: int
    """Memory that the protected application and the background share."""
    slot_names: tuple[str, ...]
    """The background groups, in the order of their slots."""
    floors_bytes: tuple[int, ...] = ()
    """The lowest limit of each slot; slots without an entry have the default floor."""
    slo_ms: float = 100.0
    """The latency target of the protected application."""
    demand_bytes: int = 0
    """The memory that the protected application is known to need; 0 if that was not measured."""
    keep_available_bytes: int = 0
    """How much of the zone stays free at least."""
    watermark_min_bytes: int = 0
    """The watermark MIN of the machine's memory, where the zone is the whole machine; else 0."""
    tick_period_s: float = 0.1
    cpus: float = 0.0
    """The CPUs of the node; 0 if that is not known."""
    seed: int = 0
    """Seed of every random choice that the controller makes."""
    lacks: Mapping[Need, str] = field(default_factory=dict)
    """What the node has not, each with the reason."""

    def floor(self, slot: int) -> int:
        """The lowest limit allowed for ``slot``."""
        return self.floors_bytes[slot] if slot < len(self.floors_bytes) else DEFAULT_FLOOR_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A desired state, and why the controller chose it."""

    desired: DesiredState
    reason: str = ""
    """One short clause for the tick record."""
    action: tuple[int, ...] | None = None
    """The entry of the action table, for controllers that use it."""
    propensity: float | None = None
    """Probability with which a randomised controller chose this; ``None`` if deterministic."""
    score: float | None = None
    """Distance of the observation from the training data, where the policy knows it."""


class Controller(Protocol):
    """Maps a sample, and the observation computed from it, to a desired state.

    A decision may depend only on the arguments and on what the controller remembers of earlier
    ticks: no I/O, no sleeping, no clock other than ``sample.time_s``, no randomness other than
    the context's seed. A recorded episode then replays to the same decisions.
    """

    name: str
    needs_processes: bool
    """Whether samples must list the background's processes, which costs a walk of /proc a tick."""

    def reset(self, context: NodeContext) -> None:
        """Forget everything and prepare for a node."""

    def decide(self, sample: Sample, observation: NDArray[np.float32]) -> Decision:
        """Decide for this tick.

        Args:
            sample: The raw signals.
            observation: An array of shape ``(OBSERVATION_SIZE,)``, see
                ``stallward.agent.observation.encoder``.
        """


def needs_threads(controller: Controller) -> bool:
    """Whether samples must list the protected application's threads.

    A controller asks for them with an attribute ``needs_threads`` that is true.
    """
    return bool(getattr(controller, "needs_threads", False))


@runtime_checkable
class RetargetableController(Controller, Protocol):
    """A controller whose latency target can change without its forgetting anything.

    Any other controller is reset when the target changes.
    """

    def retarget(self, slo_ms: float) -> None:
        """Go on with another latency target."""


@runtime_checkable
class SelectiveController(Controller, Protocol):
    """A controller that does not run on every node.

    Any other controller does what it can with the signals and levers that there are, and its
    documentation says what that is.
    """

    def check(self, context: NodeContext) -> None:
        """Check that it can do on a node what it is for.

        Raises:
            ControllerError: If it cannot; the error says what is missing.
        """


def check_node(controller: Controller, context: NodeContext) -> None:
    """Check that a controller can run on a node.

    Raises:
        ControllerError: If it cannot; the error says what is missing.
    """
    if isinstance(controller, SelectiveController):
        controller.check(context)


def require_needs(name: str, needs: Sequence[Need], context: NodeContext) -> None:
    """Check that a node has all that the controller ``name`` needs.

    Raises:
        ControllerError: If something is missing; the error names it and says why.
    """
    missing = [f"{need} ({context.lacks[need]})" for need in needs if need in context.lacks]
    if missing:
        raise ControllerError(
            f"{name!r} cannot run on this node, which lacks {' and '.join(missing)}.",
            next_step=_NEXT_STEP,
        )


def require_one(name: str, needs: Sequence[Need], context: NodeContext) -> None:
    """Check that a node has at least one of what the controller ``name`` needs one of.

    Raises:
        ControllerError: If all are missing; the error names them and says why.
    """
    if needs and all(need in context.lacks for need in needs):
        missing = [f"{need} ({context.lacks[need]})" for need in needs]
        raise ControllerError(
            f"{name!r} cannot run on this node, which lacks "
            f"{' and '.join(missing)}, of which it needs one.",
            next_step=_NEXT_STEP,
        )


class IgnoresTarget:
    """Base of controllers that look at no latency target, so that another one changes nothing."""

    def retarget(self, slo_ms: float) -> None:
        """Do nothing."""


@runtime_checkable
class PolicyController(Controller, Protocol):
    """A controller that runs a policy file.

    The daemon can turn a policy off, run it in shadow mode, or apply its decisions. It applies
    them only while the policy's scores (``Decision.score``) are at most its limit.
    """

    @property
    def path(self) -> Path:
        """The policy file."""

    @property
    def sha256(self) -> str:
        """The digest of the file, in hexadecimal."""

    @property
    def schema_hash(self) -> str:
        """The hash of the schema that it was trained for."""

    @property
    def ood_limit(self) -> float:
        """The largest score of an observation that is still near the training data."""
