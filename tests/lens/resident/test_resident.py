"""``stallward resident``: figures, tables, page and command."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pyarrow.parquet as pq
import pytest

from stallward.actuator.errors import ProcessEndedError
from stallward.actuator.kernel.memory.mappings import Mapping
from stallward.evaluation.cli import main
from stallward.evaluation.results.serialise import load
from stallward.lens.page_tables import PAGE_BYTES, MappingPages, ProcessReading
from stallward.lens.resident.report.files import resident_result, write_resident
from stallward.lens.resident.report.result import ResidentResult
from stallward.lens.resident.report.tables import TableFormat
from stallward.lens.resident.series import ResidentSeries, SeriesBuilder

HEAP, FILE = b"[heap]", b"/lib/a.so"


def pages(name: bytes, at: int, mapped: int, present: int, touched: int | None) -> MappingPages:
    mapping = Mapping(at * PAGE_BYTES, (at + mapped) * PAGE_BYTES, b"rw-p", b"08:01", 7, name)
    file = present if name == FILE else 0
    return MappingPages(mapping=mapping, present=present, file=file, swapped=1, referenced=touched)


def series(error: ProcessEndedError | None = None) -> ResidentSeries:
    """Windows of one and two looks; a second mapping of the file goes after two looks."""
    builder = SeriesBuilder()
    for look in range(7):
        window = None if look == 0 else 0.5 * (1 + (look - 1) % 2)
        touched = None if window is None else round(8 * window)
        found = [pages(HEAP, 100, 50, 20 + look, touched), pages(FILE, 200, 10, 4, touched)]
        if look < 2:
            found.append(pages(FILE, 300, 30, 6, touched))
        reading = ProcessReading(time_s=0.5 * look, took_s=0.002, mappings=tuple(found))
        builder.add(reading, 0.5 * look, window)
    return builder.series(
        pid=42, clock="seconds", method="scan", every=0.5, ended_by="time", clear_s=0.001,
        error=error,
    )  # fmt: skip


def test_the_working_set_is_told_for_each_length_of_window() -> None:
    result = resident_result(series(), source="invented")
    windows = [(one.window, one.windows, one.mean_pages) for one in result.windows]
    assert windows[1] == (1.0, 3, 16.0)
    assert windows[0][:2] == (0.5, 3)
    assert windows[0][2] == pytest.approx((12 + 8 + 8) / 3)


def test_mappings_of_one_file_are_summed_up() -> None:
    by_name = {one.name: one for one in resident_result(series(), source="x").mappings}
    file, heap = by_name["/lib/a.so"], by_name["[heap]"]
    assert (file.mapped_pages, file.present_pages, file.peak_present_pages) == (10, 4, 10)
    assert (heap.mapped_pages, heap.present_pages, heap.peak_present_pages) == (50, 26, 26)
    assert heap.mean_referenced_pages == 8.0
    assert list(by_name) == ["[heap]", "/lib/a.so"]


@pytest.mark.parametrize("kind", list(TableFormat))
def test_every_format_has_the_same_rows(tmp_path: Path, kind: TableFormat) -> None:
    write_resident(tmp_path, series(), source="invented", kind=kind)
    path = tmp_path / f"looks.{kind.value}"
    if kind is TableFormat.PARQUET:
        rows = pq.read_table(path).to_pylist()
    elif kind is TableFormat.JSON:
        rows = json.loads(path.read_text())
    else:
        with path.open() as file:
            rows = list(csv.DictReader(file))
    assert [float(row["time"]) for row in rows] == [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0]
    assert [int(row["present_pages"]) for row in rows] == [30, 31, 26, 27, 28, 29, 30]
    assert rows[0]["referenced_pages"] in (None, "")
    assert int(rows[2]["anonymous_pages"]) == 22


def test_a_mapping_that_is_gone_has_no_pages(tmp_path: Path) -> None:
    write_resident(tmp_path, series(), source="invented", kind=TableFormat.PARQUET)
    rows = pq.read_table(tmp_path / "mappings.parquet").to_pylist()
    (gone,) = [row for row in rows if row["gone"]]
    assert (gone["time"], gone["present_pages"], gone["reserved_pages"]) == (1.0, 0, 0)


def test_the_page_and_its_pictures_say_what_was_seen(tmp_path: Path) -> None:
    error = ProcessEndedError("Process 42 has ended.")
    result = write_resident(tmp_path, series(error), source="<app>", kind=TableFormat.CSV)
    assert load(ResidentResult, tmp_path / "result.json") == result
    text = (tmp_path / "report.html").read_text("utf-8")
    assert "&lt;app&gt;" in text
    assert "Process 42 has ended." in text
    pictures = sorted((tmp_path / "pictures").glob("*.svg"))
    assert len(pictures) == 4
    for picture in pictures:
        ET.fromstring(picture.read_text("utf-8"))


def test_a_command_is_watched_to_its_end(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code = "import time; x = bytearray(8 << 20); time.sleep(0.5)"
    arguments = ["resident", "--every", "0.1", "--window", "0.2", "--json"]
    command = [sys.executable, "-c", code]
    assert main([*arguments, "--out", str(tmp_path), "--", *command]) == 0
    result = json.loads(capfd.readouterr().out)
    assert (result["ended_by"], result["error"]) == ("process", None)
    assert result["referenced_by"] == "clear_refs"
    assert result["peak_present_pages"] * PAGE_BYTES > 8 << 20
    assert result["windows"]


@pytest.mark.slow
def test_a_process_that_goes_away_is_named_and_what_was_read_is_kept(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with subprocess.Popen(["sleep", "3"]) as process:
        pid = str(process.pid)
        arguments = ["resident", "--pid", pid, "--every", "0.1", "--seconds", "60"]
        # The zombie is reaped only afterwards.
        assert main([*arguments, "--out", str(tmp_path)]) == 2
    assert f"Process {pid} has ended." in capfd.readouterr().err
    assert load(ResidentResult, tmp_path / "result.json").looks >= 2


def test_a_user_without_the_right_is_told_of_the_process() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become somebody else")
    script = (
        "import os\n"
        "from pathlib import Path\n"
        "from stallward.lens.resident.watch import WatchSettings, watch\n"
        "os.setgid(65534); os.setuid(65534)\n"
        f"watch(Path('/proc'), {os.getpid()}, WatchSettings())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert f"process {os.getpid()} cannot be read: Permission denied." in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "There is nothing to watch."),
        (["--pid", "1", "--", "true"], "There are two programs"),
        (["--pid", "1", "--step", "5"], "--step runs a command"),
        (["--window", "1", "--step", "5", "--", "true"], "--step runs a command"),
        (["--every", "2", "--window", "1", "--", "true"], "shorter than the time between"),
        (["--", "nowhere-to-be-found"], "nowhere-to-be-found cannot be started"),
        (["--pid", "4194000"], "There is no process 4194000"),
    ],
)
def test_a_mistake_is_named(
    tmp_path: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["resident", "--out", str(tmp_path / "out"), *arguments]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.reaches("docs/", "models/", "recordings/")
def test_ctrl_c_ends_the_watching_and_keeps_what_was_read(tmp_path: Path) -> None:
    code = "from stallward.evaluation.cli import main; import sys; sys.exit(main())"
    arguments = ["resident", "--every", "0.1", "--pid", str(os.getpid()), "--out", str(tmp_path)]
    with subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    result = load(ResidentResult, tmp_path / "result.json")
    assert (result.ended_by, result.pid) == ("interrupt", os.getpid())
