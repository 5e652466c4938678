"""``stallward bench trace``: what tracing costs."""

from __future__ import annotations

import pytest

from stallward.actuator.kernel.paths import DEFAULT_PATHS
from stallward.benchmarks.trace_cost import MEANINGS, SIZES_MB, bench_traces

pytestmark = pytest.mark.reaches()


def test_each_way_to_trace_a_process_is_measured() -> None:
    told: list[str] = []
    figures = bench_traces(
        seconds=0.25,
        paths=DEFAULT_PATHS,
        report=lambda what, _share: told.append(what),
        sizes_mb=(8,),
    )
    assert set(figures) == {
        name.replace(f"_{SIZES_MB[0]}_mb_", "_8_mb_")
        for name in MEANINGS
        if f"_{SIZES_MB[0]}_mb_" in name
    }
    for name, value in figures.items():
        assert value is not None
        assert 0.0 <= value <= 1.0, name
    assert all(value for name, value in figures.items() if name.endswith("cpu_share"))
    assert len(told) == len(figures) / 2
