"""Threads to judge: each example is one sentence of the source, in numbers."""

from __future__ import annotations

from stallward.agent.threads import ThreadRef, ThreadSample
from stallward.papers.scheduling import ThreadPeriod

PERIOD_US = 100_000


def ref(tid: int) -> ThreadRef:
    return ThreadRef(tid=tid, start_time_ticks=7)


def period(
    tid: int,
    *,
    ready: bool = False,
    run_us: int = 0,
    wait_us: int = 0,
    preemptions: int = 0,
    cpu: int = 0,
    timeslice_us: float = 50_000.0,
) -> ThreadPeriod:
    return ThreadPeriod(
        thread=ref(tid),
        ready=ready,
        cpu=cpu,
        run_us=run_us,
        wait_us=wait_us,
        preemptions=preemptions,
        timeslice_us=timeslice_us,
        period_us=PERIOD_US,
    )


def thread(tid: int, **values: object) -> ThreadSample:
    defaults = {
        "pid": 100,
        "start_time_ticks": 7,
        "state": "S",
        "cpu": 0,
        "run_us": 0,
        "wait_us": 0,
        "voluntary_switches": 0,
        "involuntary_switches": 0,
        "nice": 0,
        "slice_us": 3_000,
        "cpus": (0, 1),
    }
    return ThreadSample(tid=tid, **{**defaults, **values})  # type: ignore[arg-type]
