"""The guardian process: the parent that undoes everything when the loop dies.

``python -m stallward.actuator.guardian --config FILE.toml`` is the daemon. The guardian holds
the journal of original settings, starts the loop, the service and the recorder and watches
them. When the loop dies, however it dies, everything is put back at once and a new loop is
started. When the guardian itself dies, the loop sees its socket close, restores and exits; the
journal on disk covers the death of both.

Exit status: 0 after an orderly stop, 1 when a process died too often, 2 for a user's mistake.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import select
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Final

from stallward.actuator.channels import BEAT, EXIT_USER, LOOP_DIED
from stallward.actuator.config import DaemonConfig, config_toml, load_config
from stallward.actuator.errors import DaemonError
from stallward.actuator.frames import FRAMES_NAME
from stallward.actuator.guardian_children import YOUNG_S, Child, Launch
from stallward.actuator.guardian_journal import HeldJournal
from stallward.actuator.journal_disk import Journal
from stallward.actuator.paths import Paths
from stallward.actuator.residence import run_first, stay_in_memory
from stallward.agent.errors import StallwardError

EXIT_GAVE_UP: Final = 1
SILENCE_S: Final = 5.0
"""A loop that has ticked and then is silent for so long is hung: it is killed, and restored."""
_SILENT_PERIODS: Final = 3.0
"""... or for so many of its periods, where those are long."""
_STOP_S: Final = 3.0
_MESSAGE_BYTES: Final = 65536


def say(text: str) -> None:
    """One line to standard error; never fails, never waits.

    A reader that is stopped must not keep anything from being restored: then the line is lost.
    """
    line = f"stallward guardian: {text}\n".encode("utf-8", "replace")
    poller = select.poll()
    poller.register(2, select.POLLOUT)  # a pipe is ready when it has room for a page
    if poller.poll(0):
        with contextlib.suppress(OSError):
            os.write(2, line[: select.PIPE_BUF])


def take_lock(path: Path) -> int:
    """Lock ``path`` for the life of this process; returns the descriptor.

    Raises:
        DaemonError: If another daemon has it, or it cannot be made.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise DaemonError(
            f"Another daemon uses {path}.", next_step="Stop it, or give this one other paths."
        ) from error
    except OSError as error:
        raise DaemonError(f"{path} cannot be locked: {error.strerror}.") from error
    return fd


def claim_node(paths: Paths) -> int:
    """Claim the machine's kernel settings for this daemon; returns the descriptor, -1 if none.

    They are the machine's, not a sandbox's: a second daemon would take what this one has tuned
    for the original, and restore that. The lock is on the directory of the settings itself, so
    nothing is left behind and whoever sees the same settings sees the same lock.

    Raises:
        DaemonError: If another daemon has them.
    """
    try:
        fd = os.open(paths.proc / "sys/vm", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:  # nothing to tune here
        return -1
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(fd)
        raise DaemonError(
            "Another stallward daemon runs on this machine.",
            next_step="Stop it first: both would tune the same kernel settings.",
        ) from error
    return fd


class Guardian:
    """The parent of the daemon's processes.

    Args:
        config: The daemon's configuration.
        owner_fd: A descriptor whose end (the owner died) stops the daemon; -1 for none.
    """

    def __init__(self, config: DaemonConfig, owner_fd: int = -1) -> None:
        self._config = config
        self._owner_fd = owner_fd
        self._lock_fd = take_lock(
            config.journal.path.with_name(config.journal.path.name + ".lock")
        )
        paths = config.node.paths
        self._node_fd = claim_node(paths)
        self._journal = HeldJournal(Journal(config.journal.path, paths), paths)
        self._started_s = time.monotonic()
        self._config_fd = os.memfd_create("config")
        os.write(self._config_fd, config_toml(config).encode())
        kind = socket.SOCK_SEQPACKET
        self._loop_commands, self._service_commands = socket.socketpair(socket.AF_UNIX, kind)
        self._loop_records, self._recorder_records = socket.socketpair(socket.AF_UNIX, kind)
        self._life_read, self._life_write = os.pipe()
        self._link: socket.socket | None = None
        self._beat_s: float | None = None
        self._silence_s = max(SILENCE_S, _SILENT_PERIODS * config.control.tick_period_s)
        self._stop_status: int | None = None
        policy = config.restart
        self.loop = Child(name="loop", launch=self._launch_loop, policy=policy)
        self.service = Child(name="service", launch=self._launch_service, policy=policy)
        self.recorder = Child(name="recorder", launch=self._launch_recorder, policy=policy)
        self._children = [self.loop, self.service]
        if config.record is not None:
            self._children.insert(0, self.recorder)

    def run(self) -> int:
        """Run until stopped; returns the exit status.

        Raises:
            StallwardError: If what an earlier daemon left cannot be undone.
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
            for child in self._children:
                child.start(time.monotonic())
            while self._stop_status is None:
                self._wait(wake_read)
            return self._stop_status
        finally:
            self._shut_down()

    def _on_signal(self, number: int, _frame: object) -> None:
        self._stop(0)

    def _stop(self, status: int) -> None:
        if self._stop_status is None:
            self._stop_status = status

    def _wait(self, wake_fd: int) -> None:
        """Wait for whatever happens next, and handle it."""
        poller = select.poll()
        fds = [wake_fd, *(c.pidfd for c in self._children if c.pidfd >= 0)]
        if self._link is not None:
            fds.append(self._link.fileno())
        for fd in fds:
            poller.register(fd, select.POLLIN)
        if self._owner_fd >= 0:
            poller.register(self._owner_fd, select.POLLIN)
        ready = {fd for fd, _ in poller.poll(self._timeout_ms())}
        if self._owner_fd in ready and not os.read(self._owner_fd, 1):
            self._stop(0)
            say("its owner is gone, stopping")
        if wake_fd in ready:
            os.read(wake_fd, 64)
        if self._link is not None and self._link.fileno() in ready:
            self._on_link(self._link)
        now_s = time.monotonic()
        for child in self._children:
            status = child.reap()
            if status is not None:
                self._on_death(child, status, now_s)
            elif child.due_s is not None and now_s >= child.due_s and self._stop_status is None:
                child.start(now_s)
        self._check_beat(now_s)

    def _timeout_ms(self) -> float:
        now_s = time.monotonic()
        due = [c.due_s for c in self._children if c.due_s is not None]
        if self._beat_s is not None:
            due.append(self._beat_s + self._silence_s)
        return max(0.0, (min(due) - now_s) * 1e3) + 1 if due else 60_000.0

    def _on_link(self, link: socket.socket) -> None:
        """A message of the loop: journal entries, or a sign of life."""
        try:
            message = link.recv(_MESSAGE_BYTES, socket.MSG_DONTWAIT)
        except OSError:
            return
        if message == BEAT or (message and self._beat_s is not None):
            self._beat_s = time.monotonic()  # whatever a ticking loop sends shows that it lives
        if message and message != BEAT:
            self._journal.take(message, lambda answer: _answer(link, answer))
        elif not message:  # closed: its process is ending, reaping it restores
            link.close()
            self._link = None

    def _check_beat(self, now_s: float) -> None:
        if self._beat_s is not None and now_s - self._beat_s > self._silence_s:
            self._beat_s = None
            self.loop.signal(signal.SIGKILL)
            # A process stuck in the kernel may take its time to die, and the write that it is
            # stuck in may still succeed: what is held is restored again at its death.
            self._restore(forget=False)
            say(f"the loop has not ticked for {self._silence_s:g} s, killed it")

    def _undo(self, status: int | None) -> None:
        """Put back what a loop has left that ended with ``status``.

        One that ended in order has put back what it changed, and nothing else: what somebody
        else set meanwhile stays.
        """
        if status == 0:
            self._journal.forget()
        if self._journal.entries:
            self._restore()

    def _restore(self, *, forget: bool = True) -> None:
        for problem in self._journal.restore(forget=forget):
            say(f"could not undo: {problem}")

    def _on_death(self, child: Child, status: int, now_s: float) -> None:
        if child is self.loop:
            self._undo(status)
            self._beat_s = None
            self._fail_commands()
        if self._stop_status is not None:
            return
        young = child.restarts == 0 and now_s - self._started_s < YOUNG_S
        if status == EXIT_USER and (child is not self.recorder or young):
            say(f"the {child.name} cannot run, stopping")
            self._stop(EXIT_USER)
        elif child.plan_restart(now_s):
            say(f"the {child.name} ended with status {status}, starting it again")
        else:
            say(f"the {child.name} died too often, stopping (its last status was {status})")
            self._stop(EXIT_GAVE_UP)

    def _shut_down(self) -> None:
        """Stop the children, the loop first, and put everything back."""
        if self._link is not None:
            self._answer_until_closed(self._link)
        self._undo(self.loop.end(_STOP_S))
        self.service.end(_STOP_S)
        os.close(self._life_write)
        commands = (self._loop_commands, self._service_commands)
        for end in (self._loop_records, self._recorder_records, *commands):
            end.close()
        self.recorder.end(_STOP_S, ask=False)  # it ends by itself when all is on disk
        self._journal.close()

    def _answer_until_closed(self, link: socket.socket) -> None:
        """Go on answering the loop while it stops: it may be waiting for us."""
        self.loop.signal(signal.SIGTERM)
        deadline_s = time.monotonic() + _STOP_S
        while self._link is not None and time.monotonic() < deadline_s:
            if select.select([link], [], [], 0.1)[0]:
                self._on_link(link)

    def _fail_commands(self) -> None:
        """Drop what the dead loop was asked, and tell the service that no answer will come."""
        with contextlib.suppress(OSError):
            while self._loop_commands.recv(_MESSAGE_BYTES, socket.MSG_DONTWAIT):
                pass
        with contextlib.suppress(OSError):
            self._loop_commands.send(LOOP_DIED, socket.MSG_DONTWAIT)

    def _launch_loop(self) -> Launch:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if self._link is not None:
            self._link.close()
        self._link = ours
        records = self._loop_records.fileno() if self._config.record else -1
        fds = [theirs.fileno(), self._loop_commands.fileno(), self._config_fd]
        arguments = (
            *("--config", f"/proc/self/fd/{self._config_fd}"),
            *("--guardian-fd", str(theirs.fileno())),
            *("--command-fd", str(self._loop_commands.fileno())),
            *("--record-fd", str(records)),
            *("--restarts", str(self.loop.restarts)),
            *("--daemon-start-s", repr(self._started_s)),
        )
        return Launch(
            module="stallward.actuator.loop",
            arguments=arguments,
            fds=(*fds, *([records] if records >= 0 else [])),
            handed_over=(theirs,),
        )

    def _launch_service(self) -> Launch:
        fds = (self._service_commands.fileno(), self._life_read)
        return Launch(
            module="stallward.actuator.service",
            arguments=(
                *("--socket", str(self._config.service.socket)),
                *("--command-fd", str(fds[0])),
                *("--life-fd", str(fds[1])),
            ),
            fds=fds,
        )

    def _launch_recorder(self) -> Launch:
        assert self._config.record is not None
        fd = self._recorder_records.fileno()
        path = self._config.record.dir / FRAMES_NAME
        return Launch(
            module="stallward.actuator.recorder",
            arguments=("--fd", str(fd), "--path", str(path)),
            fds=(fd,),
        )


def _answer(link: socket.socket, answer: bytes) -> None:
    with contextlib.suppress(OSError):
        link.send(answer, socket.MSG_DONTWAIT)


def main(arguments: list[str] | None = None) -> int:
    """The guardian process; returns its exit status."""
    parser = argparse.ArgumentParser(prog="stallward.actuator.guardian", description=__doc__)
    parser.add_argument("--config", type=Path, required=True, help="the daemon's TOML file")
    parser.add_argument("--owner-fd", type=int, default=-1, help="stop when this ends")
    options = parser.parse_args(arguments)
    try:
        config = load_config(options.config)
        guardian = Guardian(config, options.owner_fd)
        stay_in_memory()
        run_first()
        return guardian.run()
    except StallwardError as error:
        say(str(error))
        return EXIT_USER


if __name__ == "__main__":
    sys.exit(main())
