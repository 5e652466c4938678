"""Between two ticks: whatever comes first ends the waiting."""

from __future__ import annotations

import os
import select
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stallward.actuator.config.tables import Rates
from stallward.actuator.ipc.channels import GuardianLink
from stallward.actuator.loop.pacing import TickRate
from stallward.actuator.loop.wait import Waiter, Woken
from stallward.actuator.node.stall_watch import StallWatch

RATE = TickRate(Rates(), slo_ms=100.0)


class Desk:
    """Everything that a waiter waits for, with real descriptors."""

    def __init__(self, psi: Path) -> None:
        self.guardian, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.wake_read, self.wake_write = os.pipe()
        self.client, self.command = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
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
        self.watch.close()


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    found = Desk(tmp_path / "memory.pressure")
    yield found
    found.close()


def test_nothing_happens_until_the_tick_is_due(desk: Desk) -> None:
    woken, waited_s = desk.until(0.1)
    assert woken is Woken.DUE
    assert waited_s >= 0.1


def test_a_tick_that_is_overdue_is_not_waited_for(desk: Desk) -> None:
    assert desk.until(-1.0)[0] is Woken.DUE


def test_a_stall_calls_for_a_tick(desk: Desk) -> None:
    timer = threading.Timer(0.1, desk.stall, (1_000,))
    timer.start()
    woken, waited_s = desk.until(30.0)
    timer.join()
    assert woken is Woken.STALLED
    assert waited_s < 20.0


def test_a_stall_of_before_does_not(desk: Desk) -> None:
    desk.stall(1_000)
    assert desk.until(0.1)[0] is Woken.DUE


def test_looks_are_spread_evenly_over_the_wait(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[float] = []
    look = desk.watch.has_stalled

    def counted() -> bool:
        looks.append(time.monotonic())
        return look()

    monkeypatch.setattr(desk.watch, "has_stalled", counted)
    period_s = Rates().calm_watch_s
    assert desk.until(4 * period_s + 0.001)[0] is Woken.DUE
    assert len(looks) <= 1 + 4, "none just before the tick is due"


def test_an_overdue_tick_does_not_hide_what_has_come_in(desk: Desk) -> None:
    desk.client.send(b"hello")
    assert desk.until(-1.0)[0] is Woken.DUE
    assert desk.asked == [b"hello"]
    desk.guardian.close()
    assert desk.until(-1.0)[0] is Woken.STOPPED


def test_a_stall_is_not_looked_for_in_vain(desk: Desk) -> None:
    timer = threading.Timer(0.05, desk.stall, (1_000,))
    timer.start()
    assert desk.until(0.2, watching=False)[0] is Woken.DUE
    timer.join()


def test_a_command_is_answered_and_the_waiting_goes_on(desk: Desk) -> None:
    desk.client.send(b"hello")
    assert desk.until(0.1)[0] is Woken.DUE
    assert desk.asked == [b"hello"]


def test_a_signal_ends_the_waiting(desk: Desk) -> None:
    os.write(desk.wake_write, b"\x0f")
    assert desk.until(30.0)[0] is Woken.STOPPED


def test_the_death_of_the_guardian_ends_the_waiting(desk: Desk) -> None:
    desk.guardian.close()
    assert desk.until(30.0)[0] is Woken.STOPPED


def test_a_late_answer_of_the_guardian_does_not(desk: Desk) -> None:
    desk.guardian.send(b"ok")
    assert desk.until(0.1)[0] is Woken.DUE


def test_the_death_of_a_guardian_is_seen_behind_its_last_answer(desk: Desk) -> None:
    desk.guardian.send(b"ok")
    desk.guardian.close()
    assert desk.until(30.0)[0] is Woken.STOPPED


class Counting:
    """A poller that counts how often it was asked."""

    def __init__(self, poller: select.poll) -> None:
        self.asked = 0
        self.register, self.unregister, self._poll = (
            poller.register,
            poller.unregister,
            poller.poll,
        )

    def poll(self, timeout_ms: float) -> list[tuple[int, int]]:
        self.asked += 1
        return self._poll(timeout_ms)


@pytest.fixture
def trigger(desk: Desk) -> int:
    """The reading end of a pipe whose writing end is the watch's trigger."""
    read, desk.watch.trigger_fd = os.pipe()
    desk.waiter = desk.make_waiter()
    return read


@pytest.fixture
def poller(desk: Desk) -> Counting:
    made = Counting(desk.waiter._poller)
    desk.waiter._poller = made  # type: ignore[assignment]
    return made


@pytest.mark.parametrize("watching", [True, False])
def test_a_trigger_whose_group_is_gone_does_not_spin(
    desk: Desk, trigger: int, poller: Counting, watching: bool
) -> None:
    os.close(trigger)  # from now on an error is ready at the other end, for ever
    assert desk.until(0.3, watching=watching)[0] is Woken.DUE
    assert poller.asked < 40
    assert desk.watch.trigger_fd == -1


def test_a_trigger_that_a_look_has_closed_does_not_spin(
    desk: Desk, trigger: int, poller: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*_: object) -> bytes:
        raise OSError(19, "No such device")

    monkeypatch.setattr("stallward.actuator.node.stall_watch.os.pread", gone)
    assert desk.until(0.3)[0] is Woken.DUE
    assert poller.asked < 40
    os.close(trigger)


def test_the_files_of_a_group_made_anew_are_watched(desk: Desk) -> None:
    desk.watch.detach()
    desk.stall(5_000_000)  # what the new one had waited before it was found is no news
    assert desk.until(0.1)[0] is Woken.DUE
    desk.stall(6_000_000)
    assert desk.until(0.1)[0] is Woken.DUE, "that is what the tick has seen"
    timer = threading.Timer(0.1, desk.stall, (7_000_000,))
    timer.start()
    assert desk.until(30.0)[0] is Woken.STALLED
    timer.join()
