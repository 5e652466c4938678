"""Runs a scenario with its real server and programs, made small enough for a few seconds."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from stallward.env.errors import WorkloadError
from stallward.env.sandbox.block import make_workplace, run_block
from stallward.env.sandbox.data_cache import check_needs
from stallward.env.sandbox.sandbox import open_sandbox
from stallward.env.scenario.file import parse_scenario

MIB = 1024 * 1024


def assert_it_answers_and_works(
    file: Path,
    smaller: Sequence[tuple[str, str]],
    durations_s: Sequence[float],
    folder: Path,
    cache: Path,
) -> None:
    """Run a scenario with some texts of its file replaced; skip what is not installed.

    The server must answer, each program must do a unit of work, and no folder of the block may be
    left. On a busy host a short duration may end before the first unit, so that the next is tried.
    """
    text = file.read_text()
    for old, new in smaller:
        assert old in text, f"{file.name} has no {old}: make it small in another way"
        text = text.replace(old, new)
    path = folder / file.name
    path.write_text(text)
    scenario = parse_scenario(path)
    try:
        check_needs(scenario)
    except WorkloadError as error:
        pytest.skip(f"{error.cause} {error.next_step}")
    workplace = make_workplace(scenario, cache)
    for duration_s in durations_s:
        with open_sandbox(
            slots=len(scenario.background),
            limit_bytes=scenario.sandbox.limit_bytes,
            swap_bytes=128 * MIB,
            cache_dir=cache,
        ) as sandbox:
            result = run_block(
                sandbox,
                scenario,
                "together",
                None,
                workplace=workplace,
                duration_s=duration_s,
                burn_in_s=1.5,
                out_dir=folder,
                seed=1,
            )
        rates = {
            group.name: result.units_per_s(slot)
            for slot, group in enumerate(scenario.background)
            if group.phases[0].start_s < 2.0
        }
        if all(rates.values()) and result.measured.ok.mean() > 0.99:
            break
    assert len(result.measured.ok) > 200
    mine = f"stallward-block-{os.getpid()}-*"
    assert [path for parent in (Path("/dev/shm"), cache) for path in parent.glob(mine)] == []
    assert result.measured.ok.mean() > 0.99
    assert all(rate is not None and rate > 0 for rate in rates.values()), rates
