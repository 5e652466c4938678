"""``stallward ctl apply`` and ``release``: hold a desired state on a node for a time."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from typing import Annotated, Final

import typer

from stallward.actuator.cli import output
from stallward.actuator.cli.connect import DEFAULT_SOCKET, Socket, connect
from stallward.actuator.cli.desired_options import ApplyOptions, parse_desired
from stallward.actuator.kernel.paths import DEFAULT_PATHS
from stallward.actuator.record.desired.text import desired_text
from stallward.actuator.record.reasons_text import reason_notes
from stallward.actuator.runtime.addresses import is_remote
from stallward.agent.desired import SLOT_LEVERS, slot_option

Holder = Annotated[str, typer.Option(help="Name of the lease's holder.")]
Texts = list[str] | None
_HOLDER: Final = "stallward ctl"


def _with_slot_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give the command an option for each field of a slot that has one, after ``--pause``."""
    declared = inspect.signature(command, eval_str=True)
    *parameters, _slot_values = declared.parameters.values()
    place = 1 + list(declared.parameters).index("pause")
    parameters[place:place] = [
        inspect.Parameter(
            name,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=None,
            annotation=Annotated[
                Texts,
                typer.Option(slot_option(name), metavar=f"SLOT={lever.value}", help=lever.help),
            ],
        )
        for name, lever in SLOT_LEVERS.items()
        if lever.help
    ]
    command.__signature__ = declared.replace(parameters=parameters)  # type: ignore[attr-defined]
    return command


@_with_slot_options
def apply(
    socket: Socket = DEFAULT_SOCKET,
    pause: Annotated[str, typer.Option(metavar="SLOTS", help="Slots to pause, as 0,2.")] = "",
    end: Annotated[
        str,
        typer.Option(metavar="SLOTS", help="Slots to end, as 0,2, if guard.allow_terminate."),
    ] = "",
    stop_process: Annotated[
        Texts, typer.Option(metavar="PID", help="A background process to stop.")
    ] = None,
    end_process: Annotated[
        str, typer.Option(metavar="PID", help="One to end, if guard.allow_terminate.")
    ] = "",
    kill_at_once: Annotated[
        bool, typer.Option("--kill-at-once", help="End it by SIGKILL, without SIGTERM before.")
    ] = False,
    protected_low: Annotated[
        str, typer.Option(metavar="MIB", help="Memory of the application to reclaim last.")
    ] = "",
    protected_willneed: Annotated[
        bool, typer.Option("--protected-willneed", help="Read its pages back from swap, once.")
    ] = False,
    file_pages: Annotated[
        str,
        typer.Option(
            metavar="ACTION,victim=VICTIM",
            help="File pages at every tick: flush, clear, cold, pageout, mark, activate, activate-mark or willneed; of "
            "largest-file, largest-size, next, most-run or protected; and scope=, grab_pages=, "
            "writeback=.",
        ),
    ] = "",
    thread_slice: Annotated[
        Texts,
        typer.Option(metavar="TID=US", help="Timeslice of one of its threads, if it is allowed."),
    ] = None,
    thread_nice: Annotated[
        Texts, typer.Option(metavar="TID=NICE", help="Nice value of one; its total share stays.")
    ] = None,
    thread_cpus: Annotated[
        Texts, typer.Option(metavar="TID=CPUS", help="CPUs that one of its threads may use.")
    ] = None,
    protect_from_oom: Annotated[
        bool, typer.Option("--protect-from-oom", help="Lower its OOM score.")
    ] = False,
    profile: Annotated[
        str, typer.Option(help="default, flush, keep-cache or keep-anon.")
    ] = "default",
    swappiness: Annotated[int | None, typer.Option(help="vm.swappiness, 0 to 200.")] = None,
    protected_swappiness: Annotated[
        int | None, typer.Option(help="The application's own on v1, 0 to 200.")
    ] = None,
    dirty_background_ratio: Annotated[
        float | None, typer.Option(help="Per cent of the memory, 0 to 100.")
    ] = None,
    dirty_ratio: Annotated[
        float | None, typer.Option(help="Per cent of the memory, 0 to 100.")
    ] = None,
    overcommit_memory: Annotated[
        int | None, typer.Option(help="vm.overcommit_memory: 0, 1 or 2.")
    ] = None,
    lease: Annotated[float, typer.Option(help="Seconds it holds, 0.1 to 60.")] = 5.0,
    hold: Annotated[bool, typer.Option("--hold", help="Renew it until Ctrl-C.")] = False,
    holder: Holder = _HOLDER,
    **slot_values: Texts,
) -> None:
    """Hold a desired state on the node for the time of a lease.

    It reaches every lever; those that the node lacks, as ctl status says, do nothing. Options with
    SLOT=, a slot's name or number, may be repeated for other slots. PID@START names a process of
    another machine, by field 22 of its /proc/PID/stat. The guard says what it does not grant.
    """
    options = ApplyOptions(
        paused=pause,
        terminated=end,
        slot_values={name: texts or () for name, texts in slot_values.items()},
        profile=profile,
        tuning={
            "swappiness": swappiness,
            "protected_swappiness": protected_swappiness,
            "dirty_background_ratio": dirty_background_ratio,
            "dirty_ratio": dirty_ratio,
            "overcommit_memory": overcommit_memory,
        },
        stopped=stop_process or (),
        terminate=end_process,
        kill_at_once=kill_at_once,
        protect_from_oom=protect_from_oom,
        protected_low=protected_low,
        protected_willneed=protected_willneed,
        file_pages=file_pages,
        thread_values={
            "slice_us": thread_slice or (),
            "nice": thread_nice or (),
            "cpus": thread_cpus or (),
        },
    )
    with connect(socket) as client:
        names = client.status().slots
        proc = None if is_remote(str(socket)) else DEFAULT_PATHS.proc
        desired = parse_desired(options, slots=names, proc=proc)
        answer = client.apply(desired, lease_s=lease, holder=holder)
        for text in reason_notes(answer.reasons, names):
            output.line(f"guard: {text}")
        output.line(f"granted: {desired_text(answer.granted, names)}")
        output.line(f"held for {answer.lease_remaining_s:.1f} s")
        try:
            while hold:
                time.sleep(lease / 3.0)
                client.apply(desired, lease_s=lease, holder=holder)
        finally:
            if hold:
                client.release(holder=holder)


def release(socket: Socket = DEFAULT_SOCKET, holder: Holder = _HOLDER) -> None:
    """Give a lease back.

    The daemon's own controller takes over at the next tick.
    """
    with connect(socket) as client:
        client.release(holder=holder)
    output.line("released")
