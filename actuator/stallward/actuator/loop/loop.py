"""The loop process: sense, observe, decide, guard, apply, record.

Ten times a second under pressure, twice while the node is calm, and at once when the protected
application begins to stall. The guardian starts it as ``python -m stallward.actuator.loop
OPTIONS``. On its tick path nothing waits for a disk, a log or another process. It restores
everything when it is told to stop, when its guardian dies and when it fails; when it is killed,
the guardian restores.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import time
from typing import Final

from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.config.load import parse_config
from stallward.actuator.engine.engine import Engine
from stallward.actuator.engine.lease import Leases
from stallward.actuator.errors import JournalError
from stallward.actuator.ipc.channels import EXIT_USER, GuardianLink, MessageSocket
from stallward.actuator.ipc.options import LoopOptions
from stallward.actuator.ipc.pause_memory import PauseMemory
from stallward.actuator.ipc.shared_memory import SharedMemory
from stallward.actuator.loop.commands import CommandDesk
from stallward.actuator.loop.orphan import end_and_restore
from stallward.actuator.loop.policy_loader import Loaded, PolicyLoader
from stallward.actuator.loop.tick import Ticker
from stallward.actuator.loop.wait import Waiter
from stallward.actuator.node.node import Node
from stallward.actuator.record.tick_record import Mode
from stallward.actuator.runtime.process_setup import (
    disable_collector,
    lock_memory,
    raise_priority,
    release_code_pages,
)
from stallward.agent.controller import Controller, PolicyController
from stallward.agent.errors import StallwardError
from stallward.agent.inference import import_runtime
from stallward.agent.registry import make_controller

EXIT_FAILED: Final = 1
_JOURNAL_START_S: Final = 10.0
"""How long the guardian's disk may take for the originals, before the first tick."""


class Loop:
    """The control loop of one node.

    Args:
        config: The daemon's configuration.
        options: What the guardian hands over.
    """

    def __init__(self, config: DaemonConfig, options: LoopOptions) -> None:
        self._config = config
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
        latencies = options.latency_fd
        self._node = Node(
            config,
            self._link.hold,
            self._link.release,
            options.daemon_start_s,
            latencies=socket.socket(fileno=latencies) if latencies >= 0 else None,
            touch_journal=self._link.touch,
        )
        pauses = PauseMemory(memory.pauses(), len(config.background))
        self._node.remember_pauses(pauses, time.monotonic(), after_restart=inherited.after_restart)
        engine = _engine(config, self._node, controller)
        leases = Leases()
        desk = CommandDesk(
            engine=engine,
            leases=leases,
            loader=PolicyLoader(config.policy.dir if config.policy else None),
        )
        if isinstance(controller, PolicyController):
            desk.adopt(Loaded(ticket=0, controller=controller))
            engine.set_mode(Mode.ACTIVE)
        self._ticker = Ticker(
            config=config,
            node=self._node,
            engine=engine,
            leases=leases,
            desk=desk,
            link=self._link,
            service=self._service,
            recorder=self._recorder,
            restarts=options.restarts,
            daemon_start_s=options.daemon_start_s,
        )

    def run(self) -> bool:
        """Tick until told to stop; everything is put back whatever happens.

        Returns:
            Whether all is back; if not, the guardian does it.
        """
        restored = False
        wake_read, wake_write = os.pipe()
        os.set_blocking(wake_write, False)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._stop)
        try:
            self._journal_originals()
            release_code_pages()
            lock_memory()
            raise_priority()
            disable_collector()
            waiter = Waiter(
                link=self._link,
                wake_fd=wake_read,
                command_fd=self._service.connection.fileno(),
                answer=self._ticker.answer_commands,
                watch=self._node.stall_watch(),
            )
            self._ticker.run(waiter, lambda: self._stopping)
        finally:
            restored = self._close()
        return restored

    def _close(self) -> bool:
        """Put everything back; a loop without a guardian ends here."""
        if self._link.orphaned:
            ends = (self._link.connection, self._service.connection)
            sockets = [end.fileno() for end in ends]
            sockets += [self._recorder.connection.fileno()] if self._recorder else []
            config = self._config
            paths, journal = config.node.paths, config.journal.path
            unfinished = self._memory.in_force if self._options.inherited.unfinished else None
            with contextlib.suppress(OSError):
                end_and_restore(lambda: self._link.held, paths, journal, sockets, unfinished)
        return self._node.close()

    def _journal_originals(self) -> None:
        """Have every original in the journal; what cannot be noted is not changed.

        Raises:
            JournalError: If the guardian is gone.
        """
        try:
            self._link.hold_all(self._node.levers.originals(), timeout_s=_JOURNAL_START_S)
        except JournalError:
            if self._link.gone:
                raise
            # A full disk must not end the watching; each change asks the journal again.
            self._node.levers.uncover()

    def _stop(self, number: int, _frame: object) -> None:
        self._stopping = True


def _engine(config: DaemonConfig, node: Node, controller: Controller) -> Engine:
    default = config.control.fallback_controller
    is_policy = isinstance(controller, PolicyController)
    rule = make_controller(default) if is_policy else controller
    family = frozenset({os.getpid(), os.getppid()})
    return Engine(settings=node.settings(family), rule=rule, default=make_controller(default))


def _warm_up_runtime() -> None:
    """Import ONNX Runtime now: doing it at the first ``Load`` would hold up ticks."""
    with contextlib.suppress(ImportError):  # optional
        import_runtime()


def _read_config(fd: int) -> DaemonConfig:
    """The configuration in a file that the guardian hands to each of its loops."""
    text = os.pread(fd, os.fstat(fd).st_size, 0)  # earlier loops have the same file position
    return parse_config(text.decode())


def main(options: LoopOptions) -> int:
    """The loop process; returns its exit status."""
    try:
        config = _read_config(options.config_fd)
        _warm_up_runtime()
        loop = Loop(config, options)
    except StallwardError as error:
        sys.stderr.write(f"stallward loop: {error}\n")
        return EXIT_USER
    try:
        restored = loop.run()
    except StallwardError as error:
        sys.stderr.write(f"stallward loop: {error}\n")
        return EXIT_FAILED
    return 0 if restored else EXIT_FAILED
