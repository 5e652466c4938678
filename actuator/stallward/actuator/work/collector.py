"""The process that reads the counters of the background's work, so that the loop need not.

The guardian starts ``python -m stallward.actuator.work.collector`` when the configuration names a
source for a slot. Every source has a thread of its own: a file or a command that hangs delays no
other. What is known is sent to the loop after each reading. Standard library only.
"""

from __future__ import annotations

import select
import signal
import socket
import sys
import threading
import time
from typing import Final, Protocol

from stallward.actuator.errors import WorkError
from stallward.actuator.runtime.process_setup import lock_memory
from stallward.actuator.runtime.process_start import run_process
from stallward.actuator.runtime.waiting_messages import pack
from stallward.actuator.work.config import (
    CommandWork,
    FileWork,
    PrometheusWork,
    ReadWork,
    SlotWork,
    WorkOptions,
)
from stallward.actuator.work.counter import MOST_DETAIL, WorkCounter, WorkReport
from stallward.agent.by_name import load_named
from stallward.agent.sample import WorkFault

_STACK_BYTES: Final = 512 << 10
"""Of each thread: less of it is locked into memory."""


class Reader(Protocol):
    """Reads one source."""

    def read(self) -> dict[str, float]:
        """Return its counters by name.

        Raises:
            WorkError: If there are none now.
        """

    def close(self) -> None:
        """End what still runs for a reading."""


_READERS: Final = {
    FileWork: "stallward.actuator.work.read_file:FileReader",
    PrometheusWork: "stallward.actuator.work.read_prometheus:PrometheusReader",
    CommandWork: "stallward.actuator.work.read_command:CommandReader",
}


def make_reader(work: ReadWork) -> Reader:
    """Make the reader of a source; the modules of other kinds are not imported."""
    if isinstance(work, PrometheusWork):
        # Plain HTTP: OpenSSL would cost 4 MiB for nothing, and http.client does without.
        sys.modules.setdefault("ssl", None)  # type: ignore[arg-type]
    reader: Reader = load_named(_READERS[type(work)])(work)
    return reader


class SlotMeter:
    """Reads the source of one slot, and sends what is known of its work.

    Args:
        source: The slot and its source.
        reader: Reads the source.
        connection: A SOCK_SEQPACKET socket to the loop; it never blocks.
    """

    def __init__(self, source: SlotWork, reader: Reader, connection: socket.socket) -> None:
        self._source = source
        self._reader = reader
        self._connection = connection
        self._counter = WorkCounter()

    def step(self) -> None:
        """Read once, and send what is known."""
        detail = ""
        try:
            values = self._reader.read()
        except WorkError as error:
            self._counter.miss(error.fault)
            detail = error.cause
        except Exception as error:  # what nobody has thought of must not end the other sources
            self._counter.miss(WorkFault.UNREADABLE)
            detail = f"cannot be read ({type(error).__name__})"
        else:
            self._counter.take(values, time.monotonic())
        counter = self._counter
        report = WorkReport(
            slot=self._source.slot,
            sent_s=time.monotonic(),
            units=counter.units,
            known_s=counter.known_s,
            read_s=counter.read_s,
            fault=counter.fault,
            detail=detail[:MOST_DETAIL],
        )
        try:
            self._connection.send(pack(report))
        except OSError:  # the socket is full, or there is no loop: the next report has it all
            return

    def run(self, ended: threading.Event) -> None:
        """Read once a period until the process ends."""
        period_s = self._source.work.period_s
        while True:
            began_s = time.monotonic()
            self.step()
            now_s = time.monotonic()
            # It rests at least half as long as it took.
            rest_s = max(began_s + period_s - now_s, (now_s - began_s) / 2.0)
            if ended.wait(rest_s):
                return

    def close(self) -> None:
        """End what still runs for a reading."""
        self._reader.close()


def main(options: WorkOptions) -> int:
    """The process; returns its exit status."""
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    connection = socket.socket(fileno=options.fd)
    connection.setblocking(False)
    lock_memory()
    threading.stack_size(_STACK_BYTES)
    meters = [SlotMeter(one, make_reader(one.work), connection) for one in options.sources]
    try:
        for meter in meters:
            threading.Thread(target=meter.run, args=(ended,), daemon=True).start()
        select.select([options.life_fd], [], [])
    finally:
        ended.set()
        for meter in meters:
            meter.close()
    return 0


if __name__ == "__main__":
    sys.exit(run_process("work", WorkOptions, main))
