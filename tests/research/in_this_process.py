"""An executor whose jobs run here as soon as they are started, and tell it bit by bit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from stallward.training.errors import WorkerError
from stallward.training.parallel.executor import Event, Job, Kind, Session


@dataclass
class InThisProcess:
    """What they told comes one by one, in turns, so it does not matter which is faster."""

    at_once: int = 1
    flight: dict[int, list[Event]] = field(default_factory=dict)
    shares_files = True

    def workers(self, jobs: int) -> int:
        return min(self.at_once, jobs)

    def run(self, jobs: Sequence[Job[Any]], *_: Any, **__: Any) -> list[Any]:
        raise NotImplementedError

    @contextmanager
    def open(self) -> Iterator[Session]:
        yield self
        assert not self.flight

    def start(self, number: int, job: Job[Any]) -> None:
        assert number not in self.flight
        events = self.flight[number] = []

        def report(message: str, share: float) -> None:
            events.append(Event(number, Kind.PROGRESS, (message, share)))

        try:
            events.append(Event(number, Kind.DONE, job.work(report)))
        except WorkerError as error:
            events.append(Event(number, Kind.DIED, error))

    def wait(self) -> Iterator[Event]:
        for number in list(self.flight):
            event = self.flight[number].pop(0)
            if event.kind is not Kind.PROGRESS:
                del self.flight[number]
            yield event

    def end(self, number: int) -> None:
        del self.flight[number]
