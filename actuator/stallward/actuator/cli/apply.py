"""``stallward ctl apply`` and ``release``: hold a desired state on a node for a time."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Final, get_args

import typer

from stallward.actuator.cli import output
from stallward.actuator.cli.connect import DEFAULT_SOCKET, Socket, connect
from stallward.actuator.guard.expressible import inexpressible
from stallward.actuator.kernel.paths import DEFAULT_PATHS
from stallward.actuator.kernel.process_table import start_time_ticks
from stallward.actuator.record.desired.text import desired_text
from stallward.actuator.record.problem_text import problem_text
from stallward.actuator.record.reasons_text import reason_notes
from stallward.actuator.runtime.addresses import is_remote
from stallward.agent.desired import (
    MIB,
    PROFILES,
    SLOT_LEVERS,
    DesiredState,
    PageAdvice,
    ProcessRef,
    SlotDesire,
    Tuning,
    slot_option,
)
from stallward.agent.errors import UsageError
from stallward.agent.file_pages import FilePages
from stallward.agent.threads import ThreadDesire, ThreadRef

CUSTOM_TUNING: Final = "custom"
"""The name of a tuning that is no profile as it stands."""
_MOST_CPUS_IN_A_RANGE: Final = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotOption:
    """One option that sets a field of single slots, written ``SLOT=VALUE``."""

    option: str
    value: str
    """What stands after the equals sign, as the help says it."""
    read: Callable[[str], Any]
    """Reads that; raises ``ValueError`` or ``OverflowError`` if it is no such value."""


def _mib(text: str) -> int:
    return int(float(text) * MIB)


def _cpus(text: str) -> tuple[int, ...]:
    """Read a list as the kernel writes it, e.g. ``0-2,8``."""
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.partition("-")
        low = int(first)
        high = int(last) if dash else low
        if not 0 <= high - low < _MOST_CPUS_IN_A_RANGE:
            raise ValueError(part)
        found.update(range(low, high + 1))
    return tuple(sorted(found))


def _advice(text: str) -> str:
    if text not in get_args(PageAdvice):
        raise ValueError(text)
    return text


_READERS: Final[Mapping[str, Callable[[str], Any]]] = {
    "cpu_max_cores": float,
    "cpus": _cpus,
    "page_advice": _advice,
}
"""What reads a value that is neither a size in MiB nor an integer."""

SLOT_OPTIONS: Final[Mapping[str, SlotOption]] = {
    name: SlotOption(
        option=slot_option(name),
        value=lever.example or lever.value,
        read=_READERS.get(name, _mib if "bytes" in name else int),
    )
    for name, lever in SLOT_LEVERS.items()
    if lever.help
}
"""The option of each field of :class:`SlotDesire` that has a value."""


THREAD_OPTIONS: Final[Mapping[str, SlotOption]] = {
    "slice_us": SlotOption(option="--thread-slice", value="MICROSECONDS", read=int),
    "nice": SlotOption(option="--thread-nice", value="-20..19", read=int),
    "cpus": SlotOption(option="--thread-cpus", value="0-2,8", read=_cpus),
}
"""The option of each field of :class:`ThreadDesire` that has a value, written ``TID=VALUE``."""


def _slot_desires(
    slots: Sequence[str], pause: str, end: str, values: Mapping[str, Texts]
) -> tuple[SlotDesire, ...]:
    """What is wanted of each slot.

    Args:
        slots: The names of the node's slots.
        pause: Names or numbers of slots, joined by commas.
        end: The same.
        values: For each field in :data:`SLOT_OPTIONS`, what was given to its option.

    Raises:
        UsageError: If a slot does not exist, or a value is none.
    """
    paused, terminated = _slots("--pause", pause, slots), _slots("--end", end, slots)
    desires = [
        SlotDesire(paused=i in paused, terminated=i in terminated) for i in range(len(slots))
    ]
    for name, texts in values.items():
        for text in texts or ():
            index, value = _slot_value(SLOT_OPTIONS[name], text, slots)
            desires[index] = replace(desires[index], **{name: value})
    return tuple(desires)


def _slot_value(option: SlotOption, text: str, slots: Sequence[str]) -> tuple[int, Any]:
    number, _, value = text.partition("=")
    read = _value(option, text, value, "SLOT")
    return _slot(option.option, number, slots), read


def _value(option: SlotOption, text: str, value: str, subject: str) -> Any:
    """The value of one option; ``subject`` is what stands before the equals sign."""
    try:
        return option.read(value)
    except (ValueError, OverflowError) as error:
        raise UsageError(
            f"{option.option} {text}: {value!r} is not {option.value}.",
            next_step=f"Write {option.option} {subject}={option.value}.",
        ) from error


def _threads(values: Mapping[str, Texts], proc: Path | None) -> tuple[ThreadDesire, ...]:
    """What is wanted of threads, each ``TID=VALUE`` or ``TID@START=VALUE``."""
    desires: dict[ThreadRef, ThreadDesire] = {}
    for name, texts in values.items():
        option = THREAD_OPTIONS[name]
        for text in texts or ():
            number, _, value = text.partition("=")
            read = _value(option, text, value, "TID")
            found = _process(option.option, number, proc)
            ref = ThreadRef(tid=found.pid, start_time_ticks=found.start_time_ticks)
            wanted = desires.get(ref, ThreadDesire(thread=ref))
            desires[ref] = replace(wanted, **{name: read})
    return tuple(desires.values())


def _slots(option: str, text: str, slots: Sequence[str]) -> set[int]:
    return {_slot(option, word, slots) for word in text.split(",") if word.strip()}


def _slot(option: str, text: str, slots: Sequence[str]) -> int:
    """The number of a slot that is given by its name, or by its number where no slot has that name."""
    word = text.strip()
    if word in slots:
        return slots.index(word)
    if not word.isdecimal() or int(word) >= len(slots):
        known = ", ".join(f"{name} ({index})" for index, name in enumerate(slots)) or "none"
        raise UsageError(
            f"{option}: there is no slot {word!r}.", next_step=f"This node has slots: {known}."
        )
    return int(word)


def _tuning(profile: str, settings: Mapping[str, float | None]) -> Tuning:
    profiles = {one.name: one for one in PROFILES}
    if profile not in profiles:
        raise UsageError(
            f"There is no profile {profile!r}.", next_step=f"Choose one of: {', '.join(profiles)}."
        )
    given: dict[str, Any] = {name: value for name, value in settings.items() if value is not None}
    if not given:
        return profiles[profile]
    return replace(profiles[profile], name=CUSTOM_TUNING, **given)


def _low(text: str) -> int:
    try:
        return _mib(text)
    except (ValueError, OverflowError) as error:
        raise UsageError(
            f"--protected-low {text}: {text!r} is not MIB.", next_step="Write --protected-low 200."
        ) from error


_FILE_PAGES_FORM: Final = "ACTION,victim=VICTIM[,scope=first|all][,grab_pages=N][,writeback=yes]"


def _file_pages(text: str) -> FilePages:
    """Read a wish; whether its words exist is checked with the whole state."""
    action, *parts = (part.strip() for part in text.split(","))
    given: dict[str, Any] = dict(part.partition("=")[::2] for part in parts)
    try:
        if "grab_pages" in given:
            given["grab_pages"] = int(given["grab_pages"])
        if "writeback" in given:
            given["writeback"] = {"yes": True, "no": False}[given["writeback"]]
        return FilePages(action=action, **given)  # type: ignore[arg-type]
    except (TypeError, ValueError, KeyError) as error:
        raise UsageError(
            f"--file-pages {text}: that is not {_FILE_PAGES_FORM}.",
            next_step="For example --file-pages clear,victim=largest-size,grab_pages=512.",
        ) from error


def _process(option: str, text: str, proc: Path | None) -> ProcessRef:
    """The process of ``PID``, which runs on this machine, or of ``PID@START``."""
    pid, at, start = text.partition("@")
    if not pid.isdecimal() or (at and not start.isdecimal()):
        raise UsageError(
            f"{option} {text}: that is no process.",
            next_step="Write PID; or PID@START with field 22 of /proc/PID/stat.",
        )
    if at:
        return ProcessRef(pid=int(pid), start_time_ticks=int(start))
    if proc is None:
        raise UsageError(
            f"{option} {text}: on another machine a process needs its start time.",
            next_step="Write PID@START with field 22 of /proc/PID/stat there.",
        )
    ticks = start_time_ticks(proc, int(pid))
    if ticks is None:
        raise UsageError(f"{option} {text}: there is no process {pid}.")
    return ProcessRef(pid=int(pid), start_time_ticks=ticks)


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
    tuning = {
        "swappiness": swappiness,
        "protected_swappiness": protected_swappiness,
        "dirty_background_ratio": dirty_background_ratio,
        "dirty_ratio": dirty_ratio,
        "overcommit_memory": overcommit_memory,
    }
    threads = {"slice_us": thread_slice, "nice": thread_nice, "cpus": thread_cpus}
    with connect(socket) as client:
        names = client.status().slots
        # On another machine processes need their start times.
        proc = None if is_remote(str(socket)) else DEFAULT_PATHS.proc
        ended = _process("--end-process", end_process, proc) if end_process else None
        desired = DesiredState(
            slots=_slot_desires(names, pause, end, slot_values),
            tuning=_tuning(profile, tuning),
            stopped=tuple(_process("--stop-process", one, proc) for one in stop_process or ()),
            terminate=ended,
            protect_from_oom=protect_from_oom,
            protected_low_bytes=_low(protected_low) if protected_low else None,
            protected_willneed=protected_willneed,
            kill_at_once=kill_at_once,
            file_pages=_file_pages(file_pages) if file_pages else None,
            protected_threads=_threads(threads, proc),
        )
        problem = inexpressible(desired, len(names))
        if problem is not None:
            raise UsageError(
                f"{problem_text(problem, names)}.",
                next_step="See stallward ctl apply --help for the units.",
            )
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
