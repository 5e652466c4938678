"""What a trace leaves where ``--out`` names, also if it is refused or ends early."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
from invented_lens import InventedProc

from stallward.actuator.kernel.paths import Paths
from stallward.agent.errors import StallwardError
from stallward.lens.cli.trace.command import run
from stallward.lens.cli.trace.request import TraceRequest
from stallward.lens.trace.kinds import Kind


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    InventedProc(tmp_path / "proc").process(7)
    return Paths(proc=tmp_path / "proc", cgroup=tmp_path / "cgroup", sys=tmp_path / "sys")


@pytest.mark.parametrize(
    "mistyped",
    [{"pid": 99}, {"cgroup": "mistyped"}, {"command": ("no-such-program",)}],
    ids=str,
)
def test_a_refused_command_leaves_an_older_trace_as_it_was(
    paths: Paths, tmp_path: Path, mistyped: dict[str, Any]
) -> None:
    out = tmp_path / "t.csv"
    out.write_text("an older trace\n" * 100)
    before = out.read_bytes()
    refused = TraceRequest(kind=Kind.PROCESS, page_cache=False, **mistyped)
    with pytest.raises(StallwardError):
        run(refused, paths, period_s=0.1, out=out, quiet=True)
    assert out.read_bytes() == before
    with pytest.raises(StallwardError):
        run(refused, paths, period_s=0.1, out=tmp_path / "new.csv", quiet=True)
    assert not (tmp_path / "new.csv").exists()
    request = TraceRequest(kind=Kind.PROCESS, pid=7, page_cache=False)
    assert run(request, paths, period_s=0.01, seconds=0.01, out=out, quiet=True) == 0
    rows = list(csv.DictReader(out.read_text().splitlines()))
    assert [row["pid"] for row in rows] == ["7"], "an accepted one writes it again"
