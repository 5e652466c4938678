"""The dynamic oracle: what looking ahead on the twin gains over ``partition``."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stallward.env.testing import small_twin
from stallward.evaluation.comparison.look_ahead import LookAheadSettings, look_ahead

TWIN = small_twin()
BRIEF = LookAheadSettings(nodes=4, candidates=12, hold_s=8.0, choices=2, settle_s=8.0)


def test_without_other_candidates_it_is_partition() -> None:
    result = look_ahead(TWIN, replace(BRIEF, candidates=1), seed=3)
    assert result.oracle == result.partition
    assert result.deviations_share == 0.0
    assert result.partition.progress > 0.0


@pytest.mark.slow
def test_it_takes_what_comes_out_best() -> None:
    settings = LookAheadSettings(nodes=8, candidates=32, hold_s=12.0, choices=3)
    result = look_ahead(TWIN, settings, seed=1)
    before, after = result.partition, result.oracle
    worth = [
        one.progress - one.window_violated - 0.1 * one.excess - one.slow for one in (before, after)
    ]
    assert worth[1] > worth[0] + 0.01
    assert 0.0 < result.deviations_share <= 1.0
    assert result == look_ahead(TWIN, settings, seed=1), "the same seed gives the same result"
