"""What is kept of a run of the DASEC experiment."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from invented_detector import NODE
from thread_examples import thread

from stallward.env.recording.recording import Recording, Requests, Units
from stallward.env.recording.run_info import RunInfo
from stallward.papers.errors import ReplicationError
from stallward.papers.experiments.dasec.reduce import P50, P99, reduce_run
from stallward.papers.experiments.dasec.threads import ThreadReading

BEGIN_S, MEASURED_S, END_S = 100.0, 101.0, 106.0


def recording(*, jobs: int = 2, requests: Requests | None = None) -> Recording:
    """A run of a second of burn-in and 5 s measured; each job works for half of the time."""
    run = RunInfo(
        scenario="dasec-memcached-2",
        condition="together" if jobs else "alone",
        arm="none",
        seed=1,
        start_s=BEGIN_S,
        end_s=END_S,
        burn_in_s=MEASURED_S - BEGIN_S,
        sandbox_bytes=900 << 20,
        slo_ms=5.0,
        node=NODE,
        slot_names=tuple(f"batch{number}" for number in range(jobs)),
        stolen_share=0.02,
    )
    time_s = np.array([MEASURED_S, END_S])
    return Recording(
        path=Path("nowhere"),
        run=run,
        ticks={"time_s": time_s},
        actions={"time_s": time_s, "applied": np.array(["", ""], dtype=object)},
        requests=requests or due(),
        units=Units(
            slot=np.repeat(np.arange(jobs, dtype=np.int32), 2),
            time_s=np.tile(time_s, jobs),
            units=np.tile([1.0, 3.5], jobs),
        ),
    )


def due() -> Requests:
    """One in the burn-in, four answered, one answered after the end, one never."""
    scheduled_s = np.array([100.5, 101.5, 102.0, 103.0, 104.0, 105.9, 105.95])
    took_s = np.array([0.9, 0.001, 0.002, 0.003, 0.004, 0.2, 0.05])
    return Requests(
        scheduled_s=scheduled_s,
        start_s=scheduled_s,
        end_s=scheduled_s + took_s,
        ok=np.array([True, True, True, True, True, True, False]),
    )


def test_latencies_and_rates_are_those_of_the_measured_part() -> None:
    run = reduce_run(recording(), [])
    assert run.requests == 6
    assert run.mean_ms == pytest.approx((1 + 2 + 3 + 4 + 200 + 50) / 6)
    assert run.quantiles_ms[P50] == pytest.approx(3.5)
    assert 100.0 < run.quantiles_ms[P99] < 200.0
    assert run.answered_per_s == pytest.approx(4 / 5), "late and failed ones are not served"
    assert run.batch_per_s == pytest.approx(2 * 0.5)
    assert run.stolen_share == 0.02
    assert run.threads is None


def test_alone_there_is_no_batch_work() -> None:
    assert reduce_run(recording(jobs=0), []).batch_per_s is None


def test_threads_are_judged_in_the_measured_part() -> None:
    readings = [
        ThreadReading(time_s=time_s, threads=(thread(1, run_us=run_us),))
        for time_s, run_us in ((100.2, 0), (101.2, 5_000), (102.2, 105_000), (106.2, 999_000))
    ]
    found = reduce_run(recording(), readings).threads
    assert found is not None
    assert found.running == pytest.approx(0.1)


def test_a_run_without_requests_is_an_error() -> None:
    early = replace(due(), scheduled_s=np.full(7, 100.1))
    with pytest.raises(ReplicationError, match="no request was due"):
        reduce_run(recording(requests=early), [])
