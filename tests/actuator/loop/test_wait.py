"""The wait between two ticks ends at whatever comes first."""

from __future__ import annotations

import os
import select
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stallward.actuator.config.tables import Rates
from stallward.actuator.ipc.channels import GuardianLink
from stallward.actuator.kernel.memory.limit_writes import INTERRUPT
from stallward.actuator.loop.pacing import TickRate
from stallward.actuator.loop.wait import Waiter, Woken
from stallward.actuator.node.stall_watch import StallWatch

RATE = TickRate(Rates(), slo_ms=100.0)


class Case:
    """A waiter, and everything that it waits for, with real descriptors."""

    def __init__(self, psi: Path) -> None:
        self.guardian, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.wake_read, self.wake_write = os.pipe()
        self.client, self.command = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.alarm = os.eventfd(0, os.EFD_NONBLOCK)
        self.asked: list[bytes] = []
        self.psi = psi
        self.stall(0)
        self.watch = StallWatch(psi, trigger=False)
        self.link = GuardianLink(theirs)
        self.waiter = self.make_waiter()

    def make_waiter(self) -> Waiter:
        return Waiter(
            link=self.link,
            wake_fd=self.wake_read,
            command_fd=self.command.fileno(),
            answer=lambda: self.asked.append(self.command.recv(100)),
            watch=self.watch,
            alarm_fd=self.alarm,
        )

    def stall(self, total_us: int) -> None:
        self.psi.write_text(f"some avg10=0.00 avg60=0.00 avg300=0.00 total={total_us}\n")

    def until(self, seconds: float, *, watching: bool = True) -> tuple[Woken, float]:
        start_s = time.monotonic()
        woken = self.waiter.until(start_s + seconds, RATE, watching=watching)
        return woken, time.monotonic() - start_s

    def close(self) -> None:
        for end in (self.guardian, self.client, self.command, self.link.connection):
            end.close()
        os.close(self.wake_read)
        os.close(self.wake_write)
        os.close(self.alarm)
        self.watch.close()


@pytest.fixture
def case(tmp_path: Path) -> Iterator[Case]:
    made = Case(tmp_path / "memory.pressure")
    yield made
    made.close()


def test_nothing_happens_until_the_tick_is_due(case: Case) -> None:
    woken, waited_s = case.until(0.1)
    assert woken is Woken.DUE
    assert waited_s >= 0.1


def test_a_tick_that_is_overdue_is_not_waited_for(case: Case) -> None:
    assert case.until(-1.0)[0] is Woken.DUE


def test_a_stall_calls_for_a_tick(case: Case) -> None:
    timer = threading.Timer(0.1, case.stall, (1_000,))
    timer.start()
    woken, waited_s = case.until(30.0)
    timer.join()
    assert woken is Woken.STALLED
    assert waited_s < 20.0


def test_a_stall_before_the_wait_does_not_end_it(case: Case) -> None:
    case.stall(1_000)
    assert case.until(0.1)[0] is Woken.DUE


@pytest.mark.parametrize("watching", [True, False])
def test_a_slot_that_waits_for_memory_calls_for_a_tick_until_one_has_seen_it(
    case: Case, watching: bool
) -> None:
    os.eventfd_write(case.alarm, 1)
    for _ in range(2):
        assert case.until(30.0, watching=watching)[0] is Woken.OUT_OF_MEMORY
    os.eventfd_read(case.alarm)
    assert case.until(0.05, watching=watching)[0] is Woken.DUE


def test_looks_are_spread_evenly_over_the_wait(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[float] = []
    look = case.watch.has_stalled

    def counted() -> bool:
        looks.append(time.monotonic())
        return look()

    monkeypatch.setattr(case.watch, "has_stalled", counted)
    period_s = Rates().calm_watch_s
    assert case.until(4 * period_s + 0.001)[0] is Woken.DUE
    assert len(looks) <= 1 + 4, "none just before the tick is due"


def test_an_overdue_tick_does_not_hide_commands_or_a_dead_guardian(case: Case) -> None:
    case.client.send(b"hello")
    assert case.until(-1.0)[0] is Woken.DUE
    assert case.asked == [b"hello"]
    case.guardian.close()
    assert case.until(-1.0)[0] is Woken.STOPPED


def test_stalls_are_not_looked_for_when_nothing_watches(case: Case) -> None:
    timer = threading.Timer(0.05, case.stall, (1_000,))
    timer.start()
    assert case.until(0.2, watching=False)[0] is Woken.DUE
    timer.join()


def test_a_command_is_answered_and_the_waiting_goes_on(case: Case) -> None:
    case.client.send(b"hello")
    assert case.until(0.1)[0] is Woken.DUE
    assert case.asked == [b"hello"]


def test_a_signal_ends_the_waiting(case: Case) -> None:
    os.write(case.wake_write, b"\x0f")
    assert case.until(30.0)[0] is Woken.STOPPED


def test_the_death_of_the_guardian_ends_the_waiting(case: Case) -> None:
    case.guardian.close()
    assert case.until(30.0)[0] is Woken.STOPPED


def test_a_late_answer_of_the_guardian_does_not_end_the_waiting(case: Case) -> None:
    case.guardian.send(b"ok")
    assert case.until(0.1)[0] is Woken.DUE


def test_the_death_of_a_guardian_is_seen_behind_its_last_answer(case: Case) -> None:
    case.guardian.send(b"ok")
    case.guardian.close()
    assert case.until(30.0)[0] is Woken.STOPPED


class Counting:
    """A poller that counts how often it was asked."""

    def __init__(self, poller: select.epoll) -> None:
        self.asked = 0
        self.register, self.unregister, self._poll = (
            poller.register,
            poller.unregister,
            poller.poll,
        )

    def poll(self, timeout_s: float, most: int) -> list[tuple[int, int]]:
        self.asked += 1
        return self._poll(timeout_s, most)


@pytest.fixture
def trigger(case: Case) -> int:
    """The reading end of a pipe whose writing end is the watch's trigger."""
    read, case.watch.trigger_fd = os.pipe()
    case.waiter = case.make_waiter()
    return read


@pytest.fixture
def poller(case: Case) -> Counting:
    made = Counting(case.waiter._poller)
    case.waiter._poller = made  # type: ignore[assignment]
    return made


@pytest.mark.parametrize("watching", [True, False])
def test_a_trigger_whose_group_is_gone_does_not_spin(
    case: Case, trigger: int, poller: Counting, watching: bool
) -> None:
    os.close(trigger)  # from now on an error is ready at the other end, for ever
    assert case.until(0.3, watching=watching)[0] is Woken.DUE
    assert poller.asked < 40
    assert case.watch.trigger_fd == -1


def test_a_trigger_that_a_look_has_closed_does_not_spin(
    case: Case, trigger: int, poller: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*_: object) -> bytes:
        raise OSError(19, "No such device")

    monkeypatch.setattr("stallward.actuator.node.stall_watch.os.pread", gone)
    assert case.until(0.3)[0] is Woken.DUE
    assert poller.asked < 40
    os.close(trigger)


def test_a_new_trigger_with_the_descriptor_of_the_one_before_is_watched(
    case: Case, trigger: int
) -> None:
    number = case.watch.trigger_fd
    case.watch.detach()
    case.waiter._follow_trigger()
    ours, theirs = socket.socketpair()
    os.dup2(theirs.fileno(), number)
    case.watch.trigger_fd = number
    case.watch.trigger_number += 1
    with ours, theirs:
        case.waiter._follow_trigger()
        ours.send(b"!", socket.MSG_OOB)  # what the kernel reports is urgent, as a stall is
        assert case.until(30.0)[0] is Woken.STALLED
    os.close(trigger)


def test_the_files_of_a_group_made_anew_are_watched(case: Case) -> None:
    case.watch.detach()
    case.stall(5_000_000)  # the stall of the new group before it was first read does not count
    assert case.until(0.1)[0] is Woken.DUE
    case.stall(6_000_000)
    assert case.until(0.1)[0] is Woken.DUE, "that is what the tick has seen"
    timer = threading.Timer(0.1, case.stall, (7_000_000,))
    timer.start()
    assert case.until(30.0)[0] is Woken.STALLED
    timer.join()


def test_a_signal_that_only_interrupts_a_write_does_not_end_the_wait(case: Case) -> None:
    os.write(case.wake_write, bytes([INTERRUPT] * 3))
    assert case.until(0.05)[0] is Woken.DUE
    os.write(case.wake_write, bytes([INTERRUPT, signal.SIGTERM]))
    assert case.until(30.0)[0] is Woken.STOPPED
