"""A daemon takes what no client would send, and goes on."""

from __future__ import annotations

import pytest

from stallward.benchmarks.garbage import MEANINGS, bench_garbage

pytestmark = pytest.mark.reaches(
    "actuator/stallward/actuator/", "env/stallward/env/workloads/", "env/stallward/env/scenario/"
)


@pytest.mark.live
def test_a_daemon_survives_garbage_and_says_so() -> None:
    figures = bench_garbage(calls=600)
    assert figures.keys() == MEANINGS.keys()
    assert figures["calls"] == 600
    assert figures["service_died_share"] == 0.0, figures
    assert figures["loop_deaths"] == 0.0, figures
    refused = figures["refused_share"]
    assert refused is not None
    assert refused > 0.3, figures
    assert figures["service_growth_mib"] is not None
    assert figures["late_tick_share"] is not None, "ticks were seen meanwhile"
