"""What a trace leaves where ``--out`` names, also if it is refused or ends early."""

from __future__ import annotations

import csv
import errno
import itertools
import os
from pathlib import Path
from typing import Any

import pytest
from invented_lens import InventedProc

from stallward.actuator.kernel.paths import Paths
from stallward.agent.errors import StallwardError
from stallward.lens.cli.trace.command import run
from stallward.lens.cli.trace.request import TraceRequest
from stallward.lens.errors import LensError
from stallward.lens.plot.file import read_trace
from stallward.lens.trace.csv_file import rows_of
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


def test_a_full_disk_ends_a_trace_in_one_sentence_and_what_was_read_is_kept(
    paths: Paths,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    real, writes = os.write, itertools.count(1)

    def write_until_it_is_full(fd: int, data: bytes) -> int:
        number = next(writes)
        if number > 3:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(fd, data if number < 3 else data[:10])

    monkeypatch.setattr(os, "write", write_until_it_is_full)
    out = tmp_path / "t.parquet"
    request = TraceRequest(kind=Kind.PROCESS, pid=7, page_cache=False)
    with pytest.raises(LensError, match=r"t.parquet.csv cannot be written on: No space left"):
        run(request, paths, period_s=0.01, seconds=5.0, out=out, quiet=True)
    assert "ticks 2, " in (told := capsys.readouterr().err)
    assert str(rows_of(out)) in told
    assert not out.exists()
    trace = read_trace(out)
    assert (trace.torn, trace.numbers("tick").size) == (True, 2)


def test_rows_stay_where_no_parquet_file_can_be_made_of_them(paths: Paths, tmp_path: Path) -> None:
    out = tmp_path / "t.parquet"
    (tmp_path / ".t.parquet.tmp").mkdir()  # where it would be built
    request = TraceRequest(kind=Kind.PROCESS, pid=7, page_cache=False)
    with pytest.raises(
        LensError, match=r"t.parquet cannot be made.*The rows are in .*t.parquet.csv"
    ):
        run(request, paths, period_s=0.01, seconds=0.01, out=out, quiet=True)
    assert read_trace(out).numbers("tick").tolist() == [1.0]
