"""The benchmark of limits keeps what it has measured, however it ends."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stallward.benchmarks.limit_kills import LimitBlock, LimitTally
from stallward.evaluation.cli import main

BLOCK = LimitBlock(
    program="file",
    limit_kills=0,
    other_kills=1,
    longest_wait_s=0.25,
    left=("memory.high is '1', was 'max'",),
)


@pytest.mark.parametrize(("finished", "printed"), [(2, 2.0), (0, None)])
def test_the_finished_blocks_are_printed_if_it_is_interrupted(
    finished: int,
    printed: float | None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def interrupted(tally: LimitTally, **_: Any) -> None:
        tally.blocks += [BLOCK] * finished
        raise KeyboardInterrupt

    monkeypatch.setattr("stallward.benchmarks.bench.bench_limits", interrupted)
    assert main(["bench", "limits", "--json"]) == 130
    out, err = capsys.readouterr()
    assert (json.loads(out)["blocks"] if out else None) == printed
    assert err.count("block 1 (file): memory.high is") == (finished > 0)
