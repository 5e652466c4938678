"""``stallward workingset``: figures, files, page and command."""

from __future__ import annotations

import io
import json
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pyarrow.parquet as pq
import pytest

from stallward.evaluation.cli import main
from stallward.evaluation.results.serialise import load
from stallward.lens.cli.workingset import ending_on_interrupt
from stallward.lens.workingset.analysis import Analysis, AnalysisSettings, analyse
from stallward.lens.workingset.reference_map import AddressRange
from stallward.lens.workingset.report.figures import (
    LRU,
    VMIN,
    WORKING_SET,
    Costs,
    workingset_result,
)
from stallward.lens.workingset.report.files import write_analysis
from stallward.lens.workingset.report.result import WorkingsetResult

THETAS = (200, 2000)
CLASSES = 4


def phased_trace() -> str:
    """Phases of 10 and of 40 pages, one after the other, three times, each in new pages."""
    rng = np.random.default_rng(5)
    lines = []
    for turn in range(3):
        for first, pages in ((0x1000 + 0x100 * turn, 10), (0x9000 + 0x100 * turn, 40)):
            for page in rng.integers(0, pages, 4000).tolist():
                lines += [f"I  0040{page % 3}000,4", f" L {(first + page) << 12:08x},8"]
                if page % 4 == 0:
                    lines.append(f" S {(first + page) << 12:08x},8")
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("trace") / "trace.lk"
    path.write_text(phased_trace())
    return path


@pytest.fixture(scope="module")
def analysis() -> Analysis:
    text = io.BytesIO(phased_trace().encode())
    return analyse(text.readinto, AnalysisSettings(thetas=THETAS))


@pytest.fixture(scope="module")
def result(analysis: Analysis) -> WorkingsetResult:
    return workingset_result(analysis, Costs(), source="invented")


def test_the_working_set_has_a_mode_for_each_phase(result: WorkingsetResult) -> None:
    modes = [mode.pages for mode in result.windows[0].modes]
    assert modes == pytest.approx([13, 43], abs=2)  # 3 pages of code
    sizes = sorted({round(phase.mean_pages / 10) for phase in result.windows[0].phases})
    assert sizes == [1, 4]


def test_the_working_set_has_its_knee_at_a_smaller_size_than_lru(result: WorkingsetResult) -> None:
    """The document's finding: LRU has to hold the larger phase all the time."""
    working_set, lru = result.policies[WORKING_SET], result.policies[LRU]
    assert working_set.knee.mean_pages < 0.8 * lru.knee.mean_pages
    assert working_set.cheapest.space_time < lru.cheapest.space_time
    assert result.break_even_overhead is not None
    assert result.break_even_overhead > 0.0


def test_vmin_lives_longest_and_a_warm_knee_has_fewer_faults(result: WorkingsetResult) -> None:
    working_set, vmin = result.policies[WORKING_SET], result.policies[VMIN]
    assert vmin.knee.mean_pages < working_set.knee.mean_pages
    assert vmin.knee.lifetime / vmin.knee.mean_pages > (
        working_set.knee.lifetime / working_set.knee.mean_pages
    )
    for one in result.policies.values():
        assert one.warm_knee is not None
        assert one.warm_knee.faults > result.pages


def test_at_the_break_even_overhead_both_policies_cost_the_same(
    analysis: Analysis, result: WorkingsetResult
) -> None:
    assert result.break_even_overhead is not None
    costs = Costs(working_set_overhead=result.break_even_overhead)
    there = workingset_result(analysis, costs, source="").policies
    assert there[WORKING_SET].cheapest.space_time == pytest.approx(there[LRU].cheapest.space_time)


def test_the_size_at_faults_counts_where_faults_come_in_transitions(
    result: WorkingsetResult,
) -> None:
    """Without waiting both products are the mean size; the one with sizes at faults differs."""
    for window in result.windows:
        assert window.space_time > window.mean_pages
        assert window.space_time != pytest.approx(window.space_time_in_mean, rel=0.01)


def test_a_knee_among_first_touches_is_said_to_be_none() -> None:
    text = "".join(f"I  {page << 12:08x},4\n" for page in range(50)).encode()
    found = analyse(io.BytesIO(text).readinto, AnalysisSettings(thetas=(5,)))
    figures = workingset_result(found, Costs(), source="")
    assert figures.policies[LRU].knee_at_end


def test_the_folder_has_all_files_and_they_agree(analysis: Analysis, tmp_path: Path) -> None:
    written = write_analysis(tmp_path / "out", analysis, Costs(), source="invented")
    out = tmp_path / "out"
    assert load(WorkingsetResult, out / "result.json") == written
    curves = pq.read_table(out / "curves.parquet").to_pydict()
    lru = [i for i, name in enumerate(curves["policy"]) if name == LRU]
    assert [curves["parameter"][i] for i in lru] == list(range(1, analysis.pages + 1))
    sizes = pq.read_table(out / "sizes.parquet").to_pydict()
    assert set(sizes["theta"]) == set(THETAS)
    assert max(sizes["pages"]) == max(window.peak_pages for window in written.windows)
    drawn = pq.read_table(out / "map.parquet").to_pydict()
    assert len(drawn["address"]) == np.count_nonzero(analysis.map.cells)
    assert set(drawn["classes"]) <= {1, 2, 4, 6}
    pictures = sorted(out.glob("pictures/*.svg"))
    assert len(pictures) == 3 + 2 * len(THETAS) + CLASSES
    for picture in pictures:
        ET.fromstring(picture.read_text())


def test_the_page_shows_everything_and_needs_no_network(
    analysis: Analysis, tmp_path: Path
) -> None:
    write_analysis(tmp_path, analysis, Costs(), source="a & b <c>")
    page = (tmp_path / "report.html").read_text()
    assert "a &amp; b &lt;c&gt;" in page
    for title in ("Lifetime functions", "Space-time product", "Reference map: modify"):
        assert f"<h2>{title}</h2>" in page
    assert page.count("<svg") >= 3 + 2 * len(THETAS) + CLASSES
    assert re.findall(r'(?:src|href)="(?!data:|#)', page) == []


def test_a_zoomed_map_has_linear_addresses(tmp_path: Path) -> None:
    zoom = AddressRange(0x9000 << 12, 0x9030 << 12)
    text = io.BytesIO(phased_trace().encode())
    found = analyse(text.readinto, AnalysisSettings(thetas=(200,), zoom=zoom))
    written = write_analysis(tmp_path, found, Costs(), source="")
    assert written.settings.zoom == ("0x9000000", "0x9030000")
    assert found.map.addresses.size == 40
    (picture,) = tmp_path.glob("pictures/*map-load.svg")
    labels = re.findall(r">([0-9a-f]{7})</text>", picture.read_text())
    assert labels == ["9000000", "900c000", "9018000", "9024000", "9030000"]


def test_the_command_reads_a_file(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--theta", "200", "--out", str(tmp_path), "--lru-rate", "0"]
    assert main(["workingset", "--trace", str(trace), *options]) == 0
    text = capsys.readouterr().out
    assert "working-set, knee" in text
    assert "lru" not in text
    assert (tmp_path / "report.html").exists()


@pytest.mark.slow
@pytest.mark.reaches("docs/", "models/", "recordings/")
def test_the_command_reads_a_pipe(trace: Path, tmp_path: Path) -> None:
    program = [str(Path(sys.executable).with_name("stallward")), "workingset", "--trace", "-"]
    with trace.open("rb") as text:
        done = subprocess.run(
            [*program, "--out", str(tmp_path), "--json"],
            stdin=text,
            capture_output=True,
            check=True,
        )
    found = json.loads(done.stdout)
    assert (found["source"], found["time"]) == ("stdin", 24_000)


def test_a_sample_that_is_too_small_costs_lru_and_nothing_else(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--out", str(tmp_path), "--lru-rate", "0.5"]
    assert main(["workingset", "--trace", str(trace), *options]) == 2
    out, err = capsys.readouterr()
    assert "pages are no sample for LRU: at least 256 are needed. Give --lru-rate more" in err
    assert "Only a part" not in out
    kept = load(WorkingsetResult, tmp_path / "result.json")
    assert WORKING_SET in kept.policies
    assert LRU not in kept.policies
    assert kept.error is None


def test_what_was_read_of_a_broken_trace_is_kept(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "broken.lk"
    broken.write_text(trace.read_text()[:100_000] + "\nSegmentation fault\n")
    assert main(["workingset", "--trace", str(broken), "--out", str(tmp_path / "out")]) == 2
    out, err = capsys.readouterr()
    assert err.splitlines()[-1].startswith("stallward: Line ")
    assert "Only a part of the trace was read" in out
    kept = load(WorkingsetResult, tmp_path / "out/result.json")
    assert kept.error is not None
    assert kept.lines > 5000


def test_an_interrupt_ends_the_reading_and_what_was_read_is_kept() -> None:
    chunks = iter([b"I  00001000,4\n", b"I  00002000,4\n", b"I  00003000,4\n"])

    def read_into(view: memoryview) -> int:
        chunk = next(chunks)
        if b"2000" in chunk:
            signal.raise_signal(signal.SIGINT)
        view[: len(chunk)] = chunk
        return len(chunk)

    before = signal.getsignal(signal.SIGINT)
    with ending_on_interrupt(read_into) as until_then:
        found = analyse(until_then, AnalysisSettings(thetas=(5,)))
    assert (found.lines, str(found.error)) == (2, "The trace was interrupted.")
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.skipif(shutil.which("valgrind") is None, reason="no valgrind")
@pytest.mark.slow
@pytest.mark.reaches("docs/", "models/", "recordings/")
def test_the_command_traces_a_program(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    command = ["workingset", "--out", str(tmp_path), "--json", "--", "/bin/echo", "-n", "hello"]
    assert main(command) == 0
    out, err = capfd.readouterr()
    found = json.loads(out)
    assert found["source"] == "/bin/echo -n hello"
    assert found["error"] is None
    assert "hello" in err


@pytest.mark.parametrize(
    ("options", "cause"),
    [
        ([], "nothing to analyse"),
        (["--trace", "x", "--", "true"], "two traces"),
        (["--trace", "missing.lk"], "missing.lk"),
        (["--trace", "x", "--page-bytes", "1000"], "power of two"),
        (["--trace", "x", "--classes", "load,jump"], "jump is no class"),
        (["--trace", "x", "--zoom", "12"], "12 is no range"),
        (["--trace", "x", "--zoom", "20-10"], "no range"),
        (["--trace", "x", "--theta", "0"], "theta"),
        (["--trace", "x", "--lru-rate", "2"], "lru-rate"),
        (["--trace", "x", "--out", "/dev/null/x"], "/dev/null"),
    ],
)
def test_a_mistake_gets_one_sentence(
    options: list[str], cause: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["workingset", *options]) == 2
    assert cause in capsys.readouterr().err
