"""The loop process: at each tick it reads, observes, decides, guards, applies and records.

It ticks ten times a second under pressure, twice while the node is calm, and at once when the
protected application begins to stall. The guardian starts it as
``python -m stallward.actuator.loop OPTIONS``. Nothing in a tick waits for a disk, a log or another
process. The loop restores everything when it is stopped, when its guardian dies and when it fails;
when it is killed, the guardian restores.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.config.load import parse_config
from stallward.actuator.engine.lease import Leases
from stallward.actuator.errors import ActuatorError, JournalError
from stallward.actuator.ipc.channels import EXIT_USER, GuardianLink, MessageSocket
from stallward.actuator.ipc.options import LoopOptions
from stallward.actuator.ipc.shared_memory import PauseMemory, SharedMemory, close_journal
from stallward.actuator.journal.disk import Journal
from stallward.actuator.journal.entries import JournalEntry
from stallward.actuator.journal.restore import restore, restore_patiently
from stallward.actuator.kernel.memory.limit_writes import allow_interrupts
from stallward.actuator.kernel.paths import Paths
from stallward.actuator.levers.base.plugin import levers_of
from stallward.actuator.loop.commands import CommandHandler
from stallward.actuator.loop.policy_loader import LoadResult, PolicyLoader
from stallward.actuator.loop.tick import Ticker
from stallward.actuator.loop.wait import Waiter
from stallward.actuator.node.node import Node, make_engine
from stallward.actuator.record.tick_record import Mode
from stallward.actuator.runtime.process_setup import (
    disable_collector,
    lock_memory,
    raise_priority,
    release_code_pages,
)
from stallward.actuator.runtime.stderr_line import say
from stallward.agent.controller import PolicyController
from stallward.agent.errors import StallwardError
from stallward.agent.inference import import_runtime
from stallward.agent.registry import make_controller

# ---------- Ends a loop whose guardian is dead: a child of the loop restores everything
# A thread of the loop may be writing a limit, for which the kernel makes it reclaim, perhaps for
# seconds. Only a fatal signal ends that. So the loop forks a child and kills itself. The child
# waits until all threads of the loop are dead, so that they change nothing any more, and then undoes
# what the guardian would.

_DEATH_S: Final = 5.0
"""How long to wait for the death of a thread that is busy in the kernel."""
_PATIENCE_S: Final = 30.0
"""How long what cannot be undone is tried again. Then it is left to the next daemon, which cannot
start before."""

SelectInForce = Callable[[Iterable[JournalEntry]], Iterable[JournalEntry]]
"""Selects, of the entries of a journal, those that must be undone."""


def end_and_restore(
    entries: Callable[[], Iterable[JournalEntry]],
    paths: Paths,
    journal: Path,
    sockets: Iterable[int],
    unfinished: SelectInForce | None = None,
) -> None:
    """Kill this process by SIGKILL, and undo everything in a child; return only on failure.

    Args:
        entries: Returns the entries that the dead guardian would undo. It is called again when
            the loop is dead, since its threads may change settings until then.
        paths: The kernel's files.
        journal: The journal's file, which is removed when everything is restored.
        sockets: Descriptors that other processes take for a sign of life; the child closes them.
            It keeps the locks, so that no other daemon starts before everything is restored.
        unfinished: Given if the guardian could not undo all changes of an earlier loop; selects
            the entries in the journal's file that must be undone.

    Raises:
        OSError: If the child cannot be started.
    """
    read, write = os.pipe()
    if os.fork() == 0:
        status = 1
        try:
            os.close(write)
            for fd in sockets:
                os.close(fd)
            with contextlib.suppress(Exception):  # it is tried again below
                restore(entries(), paths)  # paused groups must not wait for a thread to die
            poller = select.poll()  # the last thread of the loop closes the other end
            poller.register(read)
            poller.poll(_DEATH_S * 1e3)
            status = _undo(entries, paths, journal, unfinished)
        finally:
            os._exit(status)
    os.close(read)
    os.kill(os.getpid(), signal.SIGKILL)


def _undo(
    entries: Callable[[], Iterable[JournalEntry]],
    paths: Paths,
    journal: Path,
    unfinished: SelectInForce | None,
) -> int:
    problems: tuple[str, ...] = ()
    earlier: tuple[JournalEntry, ...] = ()
    if unfinished is not None:
        try:
            earlier = tuple(unfinished(Journal(journal, paths).load()))
        except ActuatorError as error:
            problems = (str(error),)
    # The earliest is the original.
    left = restore_patiently(lambda: (*earlier, *entries()), paths, patience_s=_PATIENCE_S)
    problems += tuple(map(str, left))
    for problem in problems:
        say(f"could not undo: {problem}", "loop")
    if not problems:
        with contextlib.suppress(ActuatorError, OSError):
            close_journal(Journal(journal, paths))
    return 1 if problems else 0


EXIT_FAILED: Final = 1
"""The exit status after a failure, or when not everything could be restored."""
_READS: Final = 3
"""How often the configuration is read if it cannot be understood."""
_READ_AGAIN_S: Final = 0.01
_JOURNAL_START_S: Final = 10.0
"""How long the guardian may take to write the originals to disk, before the first tick."""


class Asked:
    """What the guardian has asked for by a signal; an instance is the signal's handler."""

    def __init__(self) -> None:
        self.reload = False
        """Whether the configuration is to be read again."""

    def __call__(self, number: int, frame: object) -> None:
        """Note that SIGHUP has come."""
        self.reload = True


class Loop:
    """The control loop of one node.

    Args:
        config: The daemon's configuration.
        options: The options from the guardian.
        asked: What the guardian asks for meanwhile.
    """

    def __init__(self, config: DaemonConfig, options: LoopOptions, asked: Asked) -> None:
        self._config = config
        self._asked = asked
        self._options = options
        inherited = options.inherited
        self._memory = memory = SharedMemory(inherited.memory_fd)
        self._link = GuardianLink(
            socket.socket(fileno=options.guardian_fd),
            memory=memory,
            first_place=inherited.first_place,
        )
        self._service = MessageSocket(socket.socket(fileno=options.command_fd))
        self._recorder = (
            MessageSocket(socket.socket(fileno=options.record_fd))
            if options.record_fd >= 0
            else None
        )
        self._stopping = False
        controller = make_controller(config.control.controller)
        work = options.work_fd
        self._node = Node(
            config,
            self._link.hold,
            self._link.release,
            options.daemon_start_s,
            latencies=[
                socket.socket(fileno=fd) if fd >= 0 else None for fd in options.latency_fds
            ],
            work=socket.socket(fileno=work) if work >= 0 else None,
            pods=socket.socket(fileno=options.pods_fd) if options.pods_fd >= 0 else None,
            touch_journal=self._link.touch,
            plugins=levers_of(config.control.controller, config.control.levers),
        )
        pauses = PauseMemory(memory.pauses(), len(config.background))
        self._node.remember_pauses(pauses, time.monotonic(), after_restart=inherited.after_restart)
        own_pids = frozenset({os.getpid(), os.getppid()})
        engine = make_engine(config, self._node, controller, make_controller, own_pids)
        leases = Leases()
        self._engine = engine
        commands = CommandHandler(
            engine=engine,
            leases=leases,
            loader=PolicyLoader(config.policy),
        )
        if isinstance(controller, PolicyController):
            commands.install(LoadResult(ticket=0, controller=controller))
            engine.set_mode(Mode.ACTIVE)
        self._ticker = Ticker(
            config=config,
            node=self._node,
            engine=engine,
            leases=leases,
            commands=commands,
            link=self._link,
            service=self._service,
            recorder=self._recorder,
            restarts=options.restarts,
            daemon_start_s=options.daemon_start_s,
        )

    def run(self) -> bool:
        """Tick until stopped, and then restore everything, also after a failure.

        Returns:
            Whether everything is restored; if not, the guardian restores the rest.
        """
        restored = False
        wake_read, wake_write = os.pipe()
        os.set_blocking(wake_write, False)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        allow_interrupts()
        try:
            self._journal_originals()
            release_code_pages()
            lock_memory()
            raise_priority()
            disable_collector()
            self._reload()  # what was asked for while the loop started
            waiter = Waiter(
                link=self._link,
                wake_fd=wake_read,
                command_fd=self._service.connection.fileno(),
                answer=self._ticker.answer_commands,
                watch=self._node.stall_watch(),
                alarm_fd=self._node.levers.alarm_fd,
            )
            self._ticker.run(waiter, lambda: self._stopping, self._reload)
        finally:
            restored = self._close()
        return restored

    def _close(self) -> bool:
        """Restore everything; a loop without a guardian ends here."""
        if self._link.orphaned:
            connections = (self._link.connection, self._service.connection)
            sockets = [connection.fileno() for connection in connections]
            sockets += [self._recorder.connection.fileno()] if self._recorder else []
            config = self._config
            paths, journal = config.node.paths, config.journal.path
            unfinished = self._memory.in_force if self._options.inherited.unfinished else None
            with contextlib.suppress(OSError):
                end_and_restore(lambda: self._link.held, paths, journal, sockets, unfinished)
        return self._node.close()

    def _journal_originals(self) -> None:
        """Put every original into the journal; a setting that cannot be noted is never changed.

        Raises:
            JournalError: If the guardian is gone.
        """
        try:
            self._link.hold_all(self._node.levers.originals(), timeout_s=_JOURNAL_START_S)
        except JournalError:
            if self._link.gone:
                raise
            # A full disk must not end the loop: each change asks the journal again.
            self._node.levers.uncover()

    def _stop(self, number: int, _frame: object) -> None:
        self._stopping = True

    def _reload(self) -> None:
        """Go on with the target and the budgets that the guardian has written, if it asked so."""
        if not self._asked.reload:
            return
        self._asked.reload = False
        try:
            config = _read_config(self._options.config_fd)
        except StallwardError as error:  # the guardian has read the same before
            sys.stderr.write(f"stallward loop: not reloaded: {error}\n")
            return
        before, self._config = self._config, config
        self._engine.reconfigure(
            slo_ms=config.control.slo_ms,
            budgets=config.guard,
            lacks=self._node.lacks(config.guard),
            retarget=_targets(config) != _targets(before),
        )
        self._node.reconfigure(config)
        self._ticker.reconfigure(config)


def _targets(config: DaemonConfig) -> tuple[float, ...]:
    return (config.control.slo_ms, *config.targets_ms)


def _warm_up_runtime() -> None:
    """Import ONNX Runtime now: an import at the first ``Load`` would delay ticks."""
    with contextlib.suppress(ImportError):  # optional
        import_runtime()


def _read_config(fd: int) -> DaemonConfig:
    """Read the configuration from a file that the guardian passes to each of its loops."""
    for _ in range(_READS - 1):
        try:
            return _parse_config(fd)
        except (StallwardError, UnicodeDecodeError):
            time.sleep(_READ_AGAIN_S)  # the guardian is writing it
    return _parse_config(fd)


def _parse_config(fd: int) -> DaemonConfig:
    text = os.pread(fd, os.fstat(fd).st_size, 0)  # earlier loops have moved the file position
    return parse_config(text.decode())


def main(options: LoopOptions) -> int:
    """Run the loop process; return its exit status."""
    asked = Asked()
    signal.signal(signal.SIGHUP, asked)  # first: by default it would end the process
    try:
        config = _read_config(options.config_fd)
        _warm_up_runtime()
        loop = Loop(config, options, asked)
    except StallwardError as error:
        sys.stderr.write(f"stallward loop: {error}\n")
        return EXIT_USER
    try:
        restored = loop.run()
    except StallwardError as error:
        sys.stderr.write(f"stallward loop: {error}\n")
        return EXIT_FAILED
    return 0 if restored else EXIT_FAILED
