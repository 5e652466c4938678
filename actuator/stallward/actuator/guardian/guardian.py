"""The guardian process: the parent that undoes everything when the loop dies.

``python -m stallward.actuator.guardian OPTIONS`` is the daemon. The guardian holds the journal of
original settings; it starts the loop, the service and the recorder and watches them. When the loop
dies, however it dies, the guardian puts everything back at once and starts a new loop. When the
guardian itself dies, the loop sees its socket close, restores everything and exits. If both die,
the next daemon undoes what the journal on disk lists.

Exit status: 0 after an orderly stop; 1 if a process died too often, the journal cannot be used now
or something could not be undone; 2 for a user's mistake, that is, for an error at the very first start.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol

from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.config.load import load_config
from stallward.actuator.config.profiles import with_profiles
from stallward.actuator.config.reload import check_reload
from stallward.actuator.errors import ActuatorError
from stallward.actuator.guardian.children import Channels, Child, Children, Launch
from stallward.actuator.guardian.held_journal import HeldJournal
from stallward.actuator.guardian.loop_watch import (
    LOOK_S,
    LoopHealth,
    LoopMessages,
    PauseLimit,
    is_dying,
)
from stallward.actuator.guardian.sd_notify import Notifier
from stallward.actuator.ipc.channels import EXIT_USER
from stallward.actuator.ipc.options import Inheritance, Modules
from stallward.actuator.ipc.shared_memory import kept_since, longest_pauses
from stallward.actuator.journal.disk import Journal
from stallward.actuator.journal.restore import Unrestored
from stallward.actuator.runtime.locks import claim_journal_path, claim_node
from stallward.actuator.runtime.stderr_line import say
from stallward.actuator.runtime.temporary_folders import remove_folder
from stallward.agent.errors import StallwardError

# ---------- Reading the configuration again while the daemon runs, because SIGHUP asks for it


class GoOnWith(Protocol):
    """Has the daemon's processes continue with another configuration."""

    def __call__(self, config: DaemonConfig, *, target_changed: bool) -> None:
        """Go on with ``config``."""


class Reload:
    """The configuration that is in force, and the file that it may be read from again.

    Args:
        config: The configuration in force.
        path: The file; ``None`` if SIGHUP is not to read one.
        go_on_with: Puts another configuration in force.
        notifier: The connection to the service manager.
    """

    def __init__(
        self,
        config: DaemonConfig,
        path: Path | None,
        go_on_with: GoOnWith,
        notifier: Notifier,
    ) -> None:
        self._config = config
        self._path = path
        self._go_on_with = go_on_with
        self._notifier = notifier
        self._asked = False

    def ask(self) -> bool:
        """Ask for it, from a signal handler; returns whether there is a file to read."""
        self._asked = self._path is not None
        return self._asked

    def run(self) -> None:
        """Read the file if that was asked for. What cannot be put in force changes nothing."""
        asked, self._asked = self._asked, False
        if not asked or self._path is None:
            return
        self._notifier.send("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")
        try:
            config = with_profiles(load_config(self._path))
            check_reload(self._config, config)
        except StallwardError as error:
            say(f"not reloaded: {error}")
        else:
            target_changed = config.control.slo_ms != self._config.control.slo_ms
            self._config = config
            self._go_on_with(config, target_changed=target_changed)
            say("reloaded the configuration")
        self._notifier.send("READY=1")


EXIT_GAVE_UP: Final = 1
_STOP_S: Final = 3.0
_UNDO_S: Final = 10.0
"""How long a guardian that stops tries again what it could not undo. The rest is in the journal's
file, for the next daemon and for ``stallward restore``."""
_MODULES: Final = Modules()


class Guardian:
    """The parent of the daemon's processes.

    Args:
        config: The daemon's configuration.
        config_path: The file that SIGHUP makes it read again; ``None`` to stop at SIGHUP.
        owner_fd: A descriptor that is closed when the daemon's owner dies, which stops the
            daemon; -1 for none.
        owned_folder: The owner's temporary folder, which the guardian removes if the owner died.
        notifier: The connection to the service manager.
        modules: The module that each process runs.
        look_s: The time between two checks whether the loop is dying.
    """

    def __init__(
        self,
        config: DaemonConfig,
        *,
        config_path: Path | None = None,
        owner_fd: int = -1,
        owned_folder: Path | None = None,
        notifier: Notifier | None = None,
        modules: Modules = _MODULES,
        look_s: float = LOOK_S,
    ) -> None:
        self._owner_fd = owner_fd
        self._owned_folder = owned_folder
        self._notifier = notifier or Notifier("")
        self._reload = Reload(config, config_path, self._go_on_with, self._notifier)
        self._look_s = look_s
        journal, paths = config.journal.path, config.node.paths
        self._proc = paths.proc
        journal_lock = claim_journal_path(journal)
        locks = (*([journal_lock] if journal_lock >= 0 else []), *claim_node(paths))
        self._journal = HeldJournal(
            Journal(journal, paths), paths, memory_only=config.journal.memory_only
        )
        self._started_s = time.monotonic()
        self._channels = channels = Channels(config, locks, self._started_s, modules)
        self.health = LoopHealth(config, self._notifier)
        self.messages = LoopMessages(channels, self.health, self._journal)
        self._pause_limit = PauseLimit(config.guard)
        self._owner_gone = False
        self._undone_early = False
        """Whether the dying loop's changes were undone before its last thread ended."""
        self._slots = tuple(repr((s.name, s.group, s.processes, s.pod)) for s in config.background)
        self._problems: dict[str, None] = {}
        """What was said about changes that could not be undone."""
        self._stop_status: int | None = None
        self._children = Children(config, channels, self._launch_loop)
        self.loop = self._children.loop

    def _launch_loop(self) -> Launch:
        memory = self._journal.memory or self._journal.share(self._slots)
        self._undone_early = False
        inherited = Inheritance(
            memory_fd=memory.fd,
            first_place=self._journal.first_place,
            after_restart=self._journal.after_crash or self.loop.restarts > 0,
            unfinished=self._journal.unfinished,
        )
        return self._channels.launch_loop(self.loop.restarts, inherited)

    def run(self) -> int:
        """Run until stopped; returns the exit status.

        Raises:
            StallwardError: If the changes of an earlier daemon cannot be undone.
        """
        wake_read, wake_write = os.pipe()
        os.set_blocking(wake_write, False)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._on_signal)
        try:
            left = self._journal.recover()
            if left:
                say(f"undid {len(left)} settings that an earlier daemon left behind")
            for child in self._children.all:
                self._start(child, time.monotonic())
            while self._stop_status is None:
                self._wait(wake_read)
        finally:
            self._notifier.send("STOPPING=1")
            self._shut_down()
            self._notifier.close()
        return EXIT_GAVE_UP if self._journal.unfinished else self._stop_status

    def _on_signal(self, number: int, _frame: object) -> None:
        if number != signal.SIGHUP or not self._reload.ask():
            self._stop(0)

    def _stop(self, status: int) -> None:
        if self._stop_status is None:
            self._stop_status = status

    def _wait(self, wake_fd: int) -> None:
        """Wait for the next event and handle it."""
        poller = select.poll()
        fds = [wake_fd, *(c.pidfd for c in self._children.all if c.pidfd >= 0)]
        link = self._channels.link
        if link is not None:
            fds.append(link.fileno())
        for fd in fds:
            poller.register(fd, select.POLLIN)
        if self._owner_fd >= 0:
            poller.register(self._owner_fd, select.POLLIN)
        ready = {fd for fd, _ in poller.poll(self._timeout_ms())}
        if self._owner_fd in ready and not os.read(self._owner_fd, 1):
            self._stop(0)
            self._owner_gone = True
            say("its owner is gone, stopping")
        if wake_fd in ready:
            os.read(wake_fd, 64)
        if self._stop_status is None:
            self._reload.run()
        if link is not None and link.fileno() in ready:
            self.messages.take(link)
        now_s = time.monotonic()
        for child in self._children.all:
            status = child.reap() if child.pidfd in ready else None
            if status is not None:
                self._on_death(child, status, now_s)
            elif child.due_s is not None and now_s >= child.due_s and self._stop_status is None:
                self._start(child, now_s)
        self._check_dying()
        self._check_health(now_s)
        self._try_again(now_s)

    def _go_on_with(self, config: DaemonConfig, *, target_changed: bool) -> None:
        """Have the processes continue with another configuration."""
        self._channels.replace_config(config)
        self._pause_limit = PauseLimit(config.guard, in_force_s=time.monotonic())
        self.loop.signal(signal.SIGHUP)
        if target_changed:  # the service is started again, with the new one
            self._children.service.signal(signal.SIGTERM)

    def _timeout_ms(self) -> float:
        now_s = time.monotonic()
        due = [c.due_s for c in self._children.all if c.due_s is not None]
        if self.loop.process is not None and not self._undone_early:
            due.append(now_s + self._look_s)
        due += [at_s for at_s in (self.health.due_s, self._pause_due_s()) if at_s is not None]
        if self._journal.unfinished:
            due.append(self._journal.retry_at_s)
        return max(0.0, (min(due) - now_s) * 1e3) + 1 if due else 60_000.0

    def _check_dying(self) -> None:
        process = self.loop.process
        if process is not None and not self._undone_early and is_dying(self._proc, process.pid):
            self._channels.drop_link()  # messages still in it are no sign of life
            self.health.forget("The loop is dying; everything is put back.")
            self._undo_early()

    def _check_health(self, now_s: float) -> None:
        why = ""
        pause_due_s = self._pause_due_s()
        if self.health.hung(now_s):
            why = f"has not ticked for {self.health.silence_s:g} s"
        elif pause_due_s is not None and now_s > pause_due_s:
            why = "does not end a pause in time"
        if why:
            self.health.forget("The loop hung: it was killed, everything is put back.")
            self.loop.signal(signal.SIGKILL)
            self._undo_early()
            say(f"the loop {why}, killed it")

    def _pause_due_s(self) -> float | None:
        """When the loop's oldest pause will have lasted too long; ``None`` if there is none."""
        memory = self._journal.memory
        if memory is None or self.loop.process is None or self._undone_early:
            return None
        pauses, count = memory.pauses(), len(self._slots)
        return self._pause_limit.due_s(
            kept_since(pauses, count), longest_pauses(pauses, count), self.loop.started_s
        )

    def _undo_early(self) -> None:
        """Put everything back while the loop dies.

        A process that is stuck in the kernel may take long to die, and the write that it is stuck
        in may still succeed. So the entries stay held and are restored again at its death.
        """
        self._undone_early = True
        self._restore(forget=False)

    def _undo(self, status: int | None) -> None:
        """Put back the changes of a loop that ended with ``status``.

        A loop that stopped in order has put its changes back itself, so nothing is restored over
        what another program has set meanwhile.
        """
        if status == 0:
            self._journal.forget()
        if self._journal.entries:
            self._restore()

    def _restore(self, *, forget: bool = True) -> None:
        self._say_problems(self._journal.restore(forget=forget))

    def _try_again(self, now_s: float) -> None:
        """Undo what could not be undone before, whether or not a loop runs meanwhile."""
        if now_s >= self._journal.retry_at_s:
            dying = self._undone_early and self.loop.process is not None
            self._say_problems(self._journal.retry(forget=not dying))

    def _say_problems(self, problems: Sequence[Unrestored]) -> None:
        """Say what could not be undone, but the same only once, and that all of it is undone."""
        now = {str(problem): None for problem in problems}
        for text in now:
            if text not in self._problems:
                say(f"could not undo: {text} It is tried again.")
        if self._problems and not self._journal.unfinished:
            say("everything is undone now")
        self._problems = now

    def _on_death(self, child: Child, status: int, now_s: float) -> None:
        if child is self.loop:
            self._channels.drop_link()  # a heartbeat in it would count for the next loop
            self._undo(status)
            self.health.forget(f"The loop ended with status {status}; everything is put back.")
            self._channels.fail_commands()
        if self._stop_status is not None:
            return
        # A child that has run before failed for a cause that may pass, e.g. a group is missing. The
        # others are no reason to stop: what the service finds in a folder may be anybody's.
        if status == EXIT_USER and child is self.loop and child.restarts == 0:
            say(f"the {child.name} cannot run, stopping")
            self._stop(EXIT_USER)
        else:
            self._plan_restart(child, now_s, f"ended with status {status}")

    def _start(self, child: Child, now_s: float) -> None:
        try:
            child.start(now_s)
        except OSError as error:  # a full process table empties again
            self._plan_restart(child, now_s, f"cannot be started ({error.strerror})")

    def _plan_restart(self, child: Child, now_s: float, what: str) -> None:
        if child.plan_restart(now_s):
            say(f"the {child.name} {what}, starting it again")
        else:
            say(f"the {child.name} died too often, stopping (the last time it {what})")
            self._stop(EXIT_GAVE_UP)

    def _shut_down(self) -> None:
        """Stop the children, the loop first, and put everything back."""
        self.loop.signal(signal.SIGTERM)
        self.messages.take_until_closed(_STOP_S)
        self._undo(self.loop.end(_STOP_S, killed=self._undo_early))
        self._children.end_remaining(_STOP_S)
        until_s = time.monotonic() + _UNDO_S
        while self._journal.hopeful and (now_s := time.monotonic()) < until_s:
            time.sleep(max(0.0, min(self._journal.retry_at_s, until_s) - now_s))
            self._try_again(time.monotonic())
        self._journal.close()
        if self._owner_gone and self._owned_folder is not None:
            with contextlib.suppress(ActuatorError):
                remove_folder(self._owned_folder)
