"""What a trace is asked for, and whether that can be had. Opens what it takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stallward.actuator.kernel.cgroups import Cgroup
from stallward.actuator.kernel.hierarchies import detect
from stallward.actuator.kernel.paths import Paths
from stallward.agent.errors import UsageError
from stallward.lens.trace.kinds import Key, Kind
from stallward.lens.trace.page_cache import PageCacheLens, no_counters
from stallward.lens.trace.process_reader import ROLLUP, SMAPS, check_readable
from stallward.lens.trace.targets import AllProcesses, GroupTarget, OneProcess, Target
from stallward.lens.trace.tracers.blockio import BlockIoTracer
from stallward.lens.trace.tracers.largest import LargestTracer
from stallward.lens.trace.tracers.node import NodeTracer
from stallward.lens.trace.tracers.pagecache import PageCacheTracer
from stallward.lens.trace.tracers.pagetype import PageTypeTracer
from stallward.lens.trace.tracers.process import ProcessTracer
from stallward.lens.trace.tracers.psi import PsiTracer
from stallward.lens.trace.tracers.tracer import Tracer

_OF_NODE = (Kind.NODE, Kind.PSI)
"""Kinds whose rows are of the node, and of a cgroup."""
_NEED_TARGET = (Kind.PROCESS, Kind.PAGETYPE)
"""Kinds that would be too much for all processes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRequest:
    """What to trace.

    Raises:
        UsageError: If the parts do not fit together.
    """

    kind: Kind
    pid: int | None = None
    tree: bool = False
    cgroup: str | None = None
    command: tuple[str, ...] = ()
    pss_every: int = 1
    page_cache: bool = True
    key: Key = Key.RSS
    count: int = 15

    def __post_init__(self) -> None:
        targets = (self.pid is not None, self.cgroup is not None, bool(self.command))
        if self.kind in _OF_NODE and self.pid is not None:
            raise UsageError(
                f"{self.kind} is of the whole node, not of a process.",
                next_step="Leave --pid out, or trace process or pagetype.",
            )
        if self.kind in _OF_NODE:
            return
        if sum(targets) > 1:
            raise UsageError(
                "There are several things to trace.",
                next_step="Give one of --pid, --cgroup, and -- COMMAND.",
            )
        if self.kind in _NEED_TARGET and not any(targets):
            raise UsageError(
                f"Whose {self.kind} is to be traced?",
                next_step="Give --pid, --cgroup, or -- and a command; `stallward trace largest` "
                "lists the largest processes.",
            )
        if self.tree and self.pid is None:
            raise UsageError("--tree belongs to --pid.", next_step="A command has it anyway.")


def find_target(request: TraceRequest, paths: Paths) -> Target:
    """Find what is traced, if it is not a command that is started.

    Args:
        request: What to trace.
        paths: The roots of the kernel's files.

    Raises:
        ActuatorError: If it is not there.
    """
    if request.pid is not None:
        return OneProcess(paths.proc, request.pid, tree=request.tree)
    group = _group(request, paths)
    return AllProcesses(paths.proc) if group is None else GroupTarget(group)


def _group(request: TraceRequest, paths: Paths) -> Cgroup | None:
    return None if request.cgroup is None else detect(paths).group(request.cgroup)


def open_tracer(request: TraceRequest, paths: Paths, target: Target) -> Tracer:
    """Open what is read at every tick.

    Raises:
        ActuatorError: If this machine, or this user, cannot have it.
    """
    return _OPENERS[request.kind](request, paths, target)


def _node(request: TraceRequest, paths: Paths, _target: Target) -> Tracer:
    page_cache = _page_cache(request, paths.sys)
    return NodeTracer(paths.proc, page_cache=page_cache, group=_group(request, paths))


def _psi(request: TraceRequest, paths: Paths, _target: Target) -> Tracer:
    return PsiTracer(paths.proc, _group(request, paths))


def _process(request: TraceRequest, paths: Paths, target: Target) -> Tracer:
    if target.pid is not None and request.pss_every:
        check_readable(paths.proc, target.pid, ROLLUP)
    page_cache = _page_cache(request, paths.sys)
    return ProcessTracer(paths.proc, target, maps_every=request.pss_every, page_cache=page_cache)


def _pagetype(_request: TraceRequest, paths: Paths, target: Target) -> Tracer:
    if target.pid is not None:
        check_readable(paths.proc, target.pid, SMAPS)
    return PageTypeTracer(paths.proc, target)


def _pagecache(_request: TraceRequest, paths: Paths, target: Target) -> Tracer:
    return PageCacheTracer(
        paths.proc, page_cache=PageCacheLens(paths.sys), target=_limited(target)
    )


def _blockio(_request: TraceRequest, paths: Paths, target: Target) -> Tracer:
    every = AllProcesses(paths.proc)
    return BlockIoTracer(paths.proc, paths.sys, target=_limited(target), every=every)


def _largest(request: TraceRequest, paths: Paths, target: Target) -> Tracer:
    return LargestTracer(paths.proc, target, key=request.key, count=request.count)


_OPENERS: Final[Mapping[Kind, Callable[[TraceRequest, Paths, Target], Tracer]]] = {
    Kind.NODE: _node,
    Kind.PSI: _psi,
    Kind.PROCESS: _process,
    Kind.PAGETYPE: _pagetype,
    Kind.PAGECACHE: _pagecache,
    Kind.BLOCKIO: _blockio,
    Kind.LARGEST: _largest,
}


def _limited(target: Target) -> Target | None:
    """The target; ``None`` if it is every process."""
    return None if isinstance(target, AllProcesses) else target


def _page_cache(request: TraceRequest, sys: Path) -> PageCacheLens:
    return PageCacheLens(sys) if request.page_cache else PageCacheLens(sys, open_=no_counters)
