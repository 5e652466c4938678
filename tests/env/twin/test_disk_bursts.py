"""Bursts of reads, and a device that now and then stands still."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from stallward.env.errors import TwinError
from stallward.env.testing import small_twin
from stallward.env.twin.batch import TwinBatch
from stallward.env.twin.inputs.exogenous import SlotProgram
from stallward.env.twin.inputs.parameters import TwinParameters, to_array
from stallward.env.twin.physics.latency import pooled_quantiles
from stallward.env.twin.physics.pages import COLD

BURST_PAGES = 120_000.0
SORT = SlotProgram(
    name="sort",
    units_per_s=10.0,
    anon_pages=(20_000.0,),
    burst_pages=BURST_PAGES,
    burst_s=0.1,
    burst_every_s=5.0,
)
FULL_SPEED = 250e3
FREE = np.zeros((4, 1), dtype=bool), np.full((4, 1), np.inf)


def twin_of(program: SlotProgram, zone_mib: int = 400, **values: float) -> TwinBatch:
    scenario = replace(small_twin(program).scenario, zone_bytes=zone_mib << 20)
    protected = replace(scenario.protected, request_rate_per_s=100.0, touch_file_pages=50.0)
    scenario = replace(scenario, protected=protected)
    twin = TwinBatch([scenario], 1, seed=5)
    draws = to_array([TwinParameters(read_pages_per_s=FULL_SPEED, **values)])
    twin.reset(np.ones(1, dtype=bool), np.zeros(1, dtype=np.int64), draws)
    resident = np.array(twin.nodes.resident)
    resident[0] = twin.nodes.wanted[0]
    twin.nodes.resident = resident
    return twin


def watch(twin: TwinBatch, seconds: float, *fields: str) -> dict[str, np.ndarray[Any, Any]]:
    """Return figures of the node at every tick."""
    series: dict[str, list[float]] = {name: [] for name in fields}
    for _ in range(round(10 * seconds)):
        twin.set_levers(*FREE)
        twin.advance()
        for name in fields:
            series[name].append(float(np.ravel(getattr(twin.nodes, name))[0]))
    return {name: np.array(values) for name, values in series.items()}


def p99_ms(twin: TwinBatch, seconds: float) -> float:
    """Return the p99 of the requests of so many seconds, after a start."""
    watch(twin, 30.0)
    before = twin.pooled
    watch(twin, seconds)
    return float(pooled_quantiles(twin.pooled - before, (0.99,))[0, 0])


def test_a_burst_keeps_the_disk_busy_and_the_time_between_does_not() -> None:
    twin = twin_of(SORT)
    seen = watch(twin, 60.0, "busy_share", "bursting_per_s", "progress")
    bursting = seen["bursting_per_s"][20:] > 0.0
    assert 0.05 < bursting.mean() < 0.25, "it takes about as long as its pages take to read"
    assert seen["busy_share"][20:][bursting].max() > 0.7
    assert np.median(seen["busy_share"][20:][~bursting]) < 0.05
    assert seen["progress"][20:][~bursting].mean() > 1.2 * seen["progress"][20:][bursting].mean()
    steady = twin_of(replace(SORT, burst_pages=0.0))
    assert watch(steady, 60.0, "busy_share")["busy_share"][20:].max() < 0.05


def test_a_burst_reads_only_what_is_not_in_memory() -> None:
    cached = replace(SORT, stream_pages_per_s=1e3, stream_span_pages=BURST_PAGES)
    roomy, tight = twin_of(cached, zone_mib=4096), twin_of(cached)
    busy = [watch(twin, 60.0, "busy_share")["busy_share"][300:] for twin in (roomy, tight)]
    assert roomy.nodes.resident[1, COLD, 0] > 0.99 * BURST_PAGES
    assert busy[0].max() < 0.1
    assert busy[1].max() > 0.4
    nodes = tight.nodes
    assert nodes.resident.sum() <= nodes.zone_pages[0] * (1 + 1e-9)
    assert (nodes.resident <= nodes.wanted + 1e-6).all()


def test_an_application_that_lacks_pages_waits_for_the_bursts_of_others() -> None:
    hungry = replace(SORT, anon_pages=(60_000.0,))
    slow, usual = twin_of(hungry), twin_of(replace(hungry, burst_pages=0.0))
    assert p99_ms(slow, 120.0) > 1.3 * p99_ms(usual, 120.0)


def test_bursts_longer_than_their_period_are_refused() -> None:
    with pytest.raises(TwinError, match="bursts"):
        small_twin(replace(SORT, burst_s=6.0))


def test_a_busy_device_stands_still_as_often_and_as_long_as_its_parameters_say() -> None:
    reader = SlotProgram(name="reader", units_per_s=10.0, file_pages=(200_000.0,))
    twin = twin_of(reader, device_stalls_per_s=0.5, device_stall_s=0.3)
    seen = watch(twin, 300.0, "stuck_s", "busy_share", "progress")
    stuck, before = seen["stuck_s"], np.concatenate([[0.0], seen["stuck_s"][:-1]])
    begun = int((stuck > before).sum())
    expected = 0.5 * seen["busy_share"].sum() * 0.1
    assert begun == pytest.approx(expected, rel=0.35)
    assert stuck.max() == pytest.approx(0.2, abs=0.01), "a tick of it has passed"
    assert seen["progress"][stuck > 0.1].mean() < 0.2 * seen["progress"][stuck == 0.0].mean()


def test_an_idle_device_never_stands_still_and_by_default_no_device_does() -> None:
    idle = replace(SORT, burst_pages=0.0)
    for program, rate in ((idle, 1.0), (SORT, 0.0)):
        twin = twin_of(program, zone_mib=4096, device_stalls_per_s=rate)
        assert watch(twin, 120.0, "stuck_s")["stuck_s"].max() == 0.0


@pytest.mark.slow
def test_only_requests_that_read_wait_for_a_device_that_stands_still() -> None:
    slow = {}
    for zone_mib in (400, 4096):
        for stalls_per_s in (0.0, 1.0):
            twin = twin_of(
                replace(SORT, anon_pages=(90_000.0,), stream_span_pages=BURST_PAGES),
                zone_mib,
                device_stalls_per_s=stalls_per_s,
                device_stall_s=0.4,
            )
            slow[zone_mib, stalls_per_s] = p99_ms(twin, 240.0)
    assert slow[400, 1.0] > 1.3 * slow[400, 0.0]
    assert slow[400, 1.0] > 200.0
    assert slow[4096, 1.0] == pytest.approx(slow[4096, 0.0])
