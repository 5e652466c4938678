"""``stallward trace`` and ``stallward plot``: files, pictures and commands."""

from __future__ import annotations

import io
import itertools
import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from invented_lens import InventedProc
from PIL import Image
from rich.console import Console

from stallward.actuator.kernel.paths import Paths
from stallward.agent.errors import UsageError
from stallward.evaluation.cli import main
from stallward.lens.cli.trace.command import run
from stallward.lens.cli.trace.live import LiveTable, Shown, shown_table
from stallward.lens.cli.trace.request import TraceRequest
from stallward.lens.errors import LensError, TraceFileError
from stallward.lens.plot.file import make_parquet, read_trace
from stallward.lens.plot.largest import (
    Node,
    balanced_tree,
    largest_at,
    tidy,
    write_graphml,
    write_latex,
    write_text,
)
from stallward.lens.plot.panels import panels_of
from stallward.lens.plot.series import series_of
from stallward.lens.trace.columns import Table, Value
from stallward.lens.trace.csv_file import CsvSink, rows_of
from stallward.lens.trace.kinds import Key, Kind
from stallward.lens.trace.tables import TABLES
from stallward.lens.trace.tick import Layout, Tick

MIB = 1 << 20
ROOT = Path(__file__).parents[3]
STALLWARD = Path(sys.executable).with_name("stallward")


def table_of(kind: str) -> Table:
    return next(table for table in TABLES if table.kind == kind)


def write(
    path: Path, kind: str, ticks: list[list[dict[str, Value]]], *, step_us: int = 100_000
) -> Path:
    sink = CsvSink.create(path, Layout(table=table_of(kind)))
    for number, rows in enumerate(ticks, start=1):
        time_us = 5_000_000 + number * step_us
        sink.take(Tick(number=number, time_us=time_us, wall_us=time_us, rows=rows))
    sink.close()
    return path


def process(pid: int, **columns: Value) -> dict[str, Value]:
    return {"pid": pid, "start_time_ticks": 1, "name": f"p{pid}", **columns}


def largest(path: Path, sizes: list[int]) -> Path:
    """A trace of one tick whose processes have these sizes in MiB, in descending order."""
    rows: list[dict[str, Value]] = [
        process(100 + rank, rank=rank, ordered_by="rss", rss_bytes=size * MIB)
        for rank, size in enumerate(sizes, start=1)
    ]
    return write(path, "largest", [rows])


def test_parquet_has_what_the_rows_had(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    rows = [process(7, pss_bytes=5 * MIB), process(8, state="S")]
    rows[0]["name"] = 'a "b",\nc'
    write(rows_of(path), "process", [rows, rows[:1]])
    make_parquet(path, table_of("process"))
    assert not rows_of(path).exists()
    read = pq.read_table(path).to_pylist()
    assert [row["tick"] for row in read] == [1, 1, 2]
    assert (read[0]["name"], read[0]["pss_bytes"], read[0]["state"]) == (
        'a "b",?c',  # no name of a process acts on a terminal, whatever reads the file
        5 * MIB,
        None,
    )
    trace = read_trace(path)
    assert (trace.table.kind, trace.torn) == ("process", False)


def test_a_trace_that_was_killed_is_read_up_to_its_last_whole_line(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    rows = write(rows_of(path), "process", [[process(7)], [process(7)]])
    rows.write_bytes(rows.read_bytes()[:-9])
    trace = read_trace(path)
    assert trace.torn
    assert trace.path == rows
    assert trace.numbers("tick").tolist() == [1.0]


def test_rows_that_cannot_become_parquet_stay(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    rows = write(rows_of(path), "process", [[process(7)]])
    rows.write_text(rows.read_text() + "x,y\n")
    with pytest.raises(pa.ArrowInvalid):
        make_parquet(path, table_of("process"))
    assert [file.name for file in tmp_path.iterdir()] == [rows.name]


def test_a_file_of_something_else_is_refused_by_name(tmp_path: Path) -> None:
    other = tmp_path / "other.csv"
    other.write_text("a,b\n1,2\n")
    with pytest.raises(TraceFileError, match=r"other\.csv does not have the columns of a trace"):
        read_trace(other)
    with pytest.raises(TraceFileError, match=r"no trace .*none\.csv"):
        read_trace(tmp_path / "none.csv")
    broken = write(tmp_path / "broken.csv", "process", [[process(7)]])
    broken.write_text(broken.read_text() + "x,y\n")
    with pytest.raises(TraceFileError, match=r"broken\.csv cannot be read"):
        read_trace(broken)
    (tmp_path / "t.csv.gz").write_bytes(b"\x1f\x8b\x08\0")
    with pytest.raises(TraceFileError, match=r"t\.csv\.gz is compressed by gzip.*zcat"):
        read_trace(tmp_path / "t.csv.gz")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1")
    with pytest.raises(TraceFileError, match=r"broken\.parquet cannot be read"):
        read_trace(tmp_path / "broken.parquet")


def test_a_counter_is_shown_as_its_growth_also_over_lost_ticks(tmp_path: Path) -> None:
    ticks = [[process(7, io_read_bytes=number * MIB)] for number in range(30)]
    trace = read_trace(write(tmp_path / "t.csv", "process", ticks))
    (one,) = series_of(trace)
    rate = one.rate("io_read_bytes")
    assert np.isnan(rate[0])
    assert rate[1:] == pytest.approx(10 * MIB)
    slow = read_trace(write(tmp_path / "s.csv", "process", ticks, step_us=2_000_000))
    assert series_of(slow)[0].rate("io_read_bytes")[1:] == pytest.approx(MIB / 2)


def test_where_a_counter_fell_its_growth_is_not_known(tmp_path: Path) -> None:
    ticks = [[process(7, io_read_bytes=MIB * (n if n < 20 else n - 20))] for n in range(60)]
    (one,) = series_of(read_trace(write(tmp_path / "t.csv", "process", ticks)))
    rate = one.rate("io_read_bytes")
    assert np.isnan(rate[20])
    assert np.nanmin(rate) >= 0.0
    assert rate[[19, 59]] == pytest.approx(10 * MIB)


def test_a_counter_of_a_process_without_a_row_stays_as_it_was(tmp_path: Path) -> None:
    node: dict[str, Value] = {"name": "(node)", "page_cache_hits": 0}
    ticks = [[node], [node, process(7, page_cache_hits=80)], [node], [node]]
    del ticks[1][1]["start_time_ticks"]
    trace = read_trace(write(tmp_path / "t.csv", "pagecache", ticks))
    _, one = series_of(trace)
    assert one.label == "p7 7"
    assert one.columns["page_cache_hits"].tolist() == [0.0, 80.0, 80.0, 80.0]


def test_the_panels_of_one_process_and_of_many_differ(tmp_path: Path) -> None:
    sizes = {"rss_bytes": 9 * MIB, "pss_bytes": 5 * MIB, "anon_bytes": 4 * MIB}
    one = read_trace(write(tmp_path / "one.csv", "process", [[process(7, **sizes)]] * 3))
    memory = panels_of(one)[0]
    assert [line.label for line in memory.lines] == ["RSS", "PSS"], "no line without a value"
    assert memory.lines[1].values.tolist() == [5.0] * 3
    many = [process(pid, pss_bytes=pid * MIB) for pid in range(1, 13)]
    pss = panels_of(read_trace(write(tmp_path / "many.csv", "process", [many] * 2)))[0]
    assert [line.label for line in pss.lines] == [f"p{pid} {pid}" for pid in range(6, 13)]


def test_nothing_to_draw_is_said(tmp_path: Path) -> None:
    with pytest.raises(TraceFileError, match="nothing to draw"):
        panels_of(read_trace(write(tmp_path / "t.csv", "process", [[process(7)]])))


def test_a_recording_is_drawn_as_a_trace_of_the_node() -> None:
    """What both have in common is named alike."""
    path = next((ROOT / "recordings").glob("*-none-s1")) / "ticks.parquet"
    trace = read_trace(path)
    raw = pq.read_table(path)
    assert trace.table.kind == "node"
    total = trace.numbers("node_memory_total_bytes")
    assert total[0] == raw["node_memory_total_4kib"][0].as_py() * 4096
    stalls = trace.numbers("group_psi_memory_some_us")
    assert np.nanmax(stalls) == max(v or 0 for v in raw["zone_psi_memory_some_us"].to_pylist())
    assert "Group" in [panel.title for panel in panels_of(trace)]


def places(root: Node) -> list[tuple[int, float]]:
    return [(node.depth, node.x) for node in root.walk()]


@given(st.integers(1, 130))
def test_the_tree_of_processes_is_balanced_ordered_and_drawn_tidily(count: int) -> None:
    root = balanced_tree(count)
    assert root is not None
    nodes = list(root.walk())
    assert [node.item for node in nodes] == list(range(count))
    assert max(node.depth for node in nodes) == count.bit_length() - 1
    assert min(node.x for node in nodes) == 0.0
    for node in nodes:
        if node.left is not None and node.right is not None:
            assert node.x == pytest.approx((node.left.x + node.right.x) / 2)
        assert node.left is None or node.left.x < node.x
        assert node.right is None or node.right.x > node.x
    for depth in {node.depth for node in nodes}:
        row = [node.x for node in nodes if node.depth == depth]
        assert all(b - a >= 1.0 - 1e-9 for a, b in itertools.pairwise(row))


@st.composite
def trees(draw: st.DrawFn, depth: int = 0) -> Node:
    node = Node(item=draw(st.integers(0, 1 << 60)), depth=depth)
    if depth < 6:
        node.left = draw(st.none() | trees(depth + 1))
        node.right = draw(st.none() | trees(depth + 1))
    return node


def mirrored(node: Node | None) -> Node | None:
    if node is None:
        return None
    return Node(
        item=-node.item, depth=node.depth, left=mirrored(node.right), right=mirrored(node.left)
    )


@given(trees())
def test_any_tree_keeps_the_rules_of_reingold_and_tilford(root: Node) -> None:
    for number, node in enumerate(root.walk()):
        node.item = number
    image = mirrored(root)
    assert image is not None
    tidy(root)
    tidy(image)
    rows: dict[int, list[float]] = {}
    for depth, x in places(root):
        rows.setdefault(depth, []).append(x)
    for row in rows.values():
        assert all(b - a >= 1.0 - 1e-9 for a, b in itertools.pairwise(row))
    width = max(x for _, x in places(root))
    reflected = sorted((depth, width - x) for depth, x in places(image))
    assert np.allclose(reflected, sorted(places(root)))


def test_the_tree_goes_into_graphml_with_all_that_is_known(tmp_path: Path) -> None:
    trace = read_trace(largest(tmp_path / "l.csv", [400, 100, 90, 80, 7]))
    found = largest_at(trace, None)
    assert found.key is Key.RSS
    write_graphml(found, tmp_path / "l.graphml")
    graphml = ET.parse(tmp_path / "l.graphml").getroot()
    space = {"": "http://graphml.graphdrawing.org/xmlns"}
    types = {"long": int, "double": float, "string": str}
    keys = {
        (key.get("for"), key.get("id")): (key.get("attr.name"), types[str(key.get("attr.type"))])
        for key in graphml.findall("key", space)
    }

    def data(element: ET.Element) -> dict[str | None, object]:
        kind = element.tag.rpartition("}")[2]
        known = ((keys[kind, one.get("key")], one.text) for one in element.findall("data", space))
        return {name: read(text) for (name, read), text in known}

    nodes = {node.get("id"): data(node) for node in graphml.iterfind("graph/node", space)}
    edges = graphml.findall("graph/edge", space)
    below = {edge.get("target") for edge in edges}
    assert len(nodes) == 5
    assert len(edges) == len(below) == 4, "a tree: each node but the root is below one other"
    for edge in edges:
        sizes = [int(str(nodes[edge.get(end)]["rss_bytes"])) for end in ("source", "target")]
        assert data(edge) == {"side": "larger" if sizes[1] > sizes[0] else "smaller"}
    known = {name: value for name, value in found.processes[-1].items() if value is not None}
    assert nodes["101"] == {**known, "x": 1.5, "y": -1.0}


def test_the_tree_as_text_has_the_largest_first_indented_by_depth(tmp_path: Path) -> None:
    found = largest_at(read_trace(largest(tmp_path / "l.csv", [400, 100, 90, 80, 7])), None)
    write_text(found, tmp_path / "l.txt")
    _, *lines = (tmp_path / "l.txt").read_text().splitlines()
    sizes = [float(line.split()[0].replace(",", "")) for line in lines]
    assert sizes == [400.0, 100.0, 90.0, 80.0, 7.0]
    depths = [(len(line) - len(line.lstrip())) // 4 for line in lines]
    assert sorted(depths) == [0, 1, 1, 2, 2]
    assert depths[2] == 0, "the one in the middle is the root"


def test_neighbouring_ticks_of_a_long_trace_stay_apart(tmp_path: Path) -> None:
    """A tenth of a second is a millionth of a day."""
    sink = CsvSink.create(tmp_path / "l.csv", Layout(table=table_of("largest")))
    rows: list[dict[str, Value]] = [process(7, rank=1, ordered_by="rss", rss_bytes=MIB)]
    for number, time_us in enumerate((0, 86_400_000_000, 86_400_100_000), start=1):
        sink.take(Tick(number=number, time_us=time_us, wall_us=time_us, rows=rows))
    sink.close()
    assert len(largest_at(read_trace(tmp_path / "l.csv"), None).processes) == 1


def test_the_tree_as_latex_has_every_process_and_no_special_character(tmp_path: Path) -> None:
    found = largest_at(read_trace(largest(tmp_path / "l.csv", [400, 100, 90])), None)
    odd = [{**process, "name": "a_b&c%{}"} for process in found.processes]
    write_latex(replace(found, processes=odd), tmp_path / "l.tex")
    picture = (tmp_path / "l.tex").read_text()
    assert picture.count(r"\node ") == 3
    assert picture.count(r"\draw ") == 2
    assert picture.count(r"a\_b\&c\%\{\}\\ ") == 3


def test_plot_writes_pictures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    largest(tmp_path / "l.csv", [400, 100, 90])
    assert main(["plot", str(tmp_path / "l.csv")]) == 0
    listed = [Path(word) for word in capsys.readouterr().out.split()]
    assert [path.name for path in listed] == ["l.svg", "l.png", "l.graphml", "l.tex", "l.txt"]
    text = "".join(ET.parse(listed[0]).getroot().itertext())
    with Image.open(listed[1]) as image:
        assert len(image.getcolors(1 << 24) or ()) > 20
    assert "Date" not in text
    assert main(["plot", str(tmp_path / "none.csv")]) == 2
    assert "There is no trace" in capsys.readouterr().err


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    InventedProc(tmp_path / "proc").process(7)
    return Paths(proc=tmp_path / "proc", cgroup=tmp_path / "cgroup", sys=tmp_path / "sys")


@pytest.mark.slow
@pytest.mark.reaches("docs/", "models/", "recordings/")
def test_every_kind_is_traced_to_a_file_on_other_roots(paths: Paths, tmp_path: Path) -> None:
    requests = [
        TraceRequest(kind=kind, pid=7 if kind in ("process", "pagetype") else None)
        for kind in Kind
        if kind is not Kind.PAGECACHE
    ]
    for request in requests:
        out = tmp_path / f"{request.kind}.parquet"
        assert run(request, paths, period_s=0.01, seconds=0.05, out=out, quiet=True) == 0
        trace = read_trace(out)
        assert trace.table.kind == request.kind
        assert trace.columns.num_rows >= 1


def test_what_does_not_exist_leaves_no_file(paths: Paths, tmp_path: Path) -> None:
    for name in ("t.csv", "t.parquet"):
        out = tmp_path / name
        with pytest.raises(LensError, match="no process 99"):
            run(TraceRequest(kind=Kind.PROCESS, pid=99), paths, period_s=0.1, out=out)
        assert not out.exists()
        assert not rows_of(out).exists()


def test_a_process_that_vanishes_ends_the_trace_and_what_was_read_is_kept(
    paths: Paths, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sleeping = subprocess.Popen(["sleep", "60"])
    request = TraceRequest(kind=Kind.PROCESS, pid=sleeping.pid, page_cache=False)
    out = tmp_path / "t.csv"

    def end_it_once_it_was_read() -> None:
        deadline_s = time.monotonic() + 30.0
        while not (out.exists() and out.read_text().count("\n") > 1):
            if time.monotonic() > deadline_s:
                break
            time.sleep(0.02)
        sleeping.kill()

    with ThreadPoolExecutor(1) as pool:
        pool.submit(end_it_once_it_was_read)
        try:
            assert run(request, Paths(), period_s=0.05, out=out, quiet=True) == 0
        finally:
            sleeping.kill()
            sleeping.wait()
    assert f"process {sleeping.pid} has ended" in capsys.readouterr().err
    assert set(read_trace(out).texts("name")) == {"sleep"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": Kind.PROCESS}, "Whose process"),
        ({"kind": Kind.NODE, "pid": 1}, "node is of the whole node"),
        ({"kind": Kind.PROCESS, "pid": 1, "cgroup": "a"}, "several things"),
        ({"kind": Kind.BLOCKIO, "tree": True}, "--tree belongs to --pid"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(
    options: dict[str, object], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        TraceRequest(**options)  # type: ignore[arg-type]


def test_a_command_needs_a_file_that_is_csv_or_parquet(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["trace", "process", "--", "true"]) == 2
    assert "would mix. Give --out FILE." in capsys.readouterr().err
    out = tmp_path / "t.json"
    assert main(["trace", "process", "--out", str(out), "--", "true"]) == 2
    assert "neither CSV nor Parquet" in capsys.readouterr().err
    out = tmp_path / "t.parquet"
    rows_of(out).write_text("")
    assert main(["trace", "process", "--out", str(out), "--", "true"]) == 2
    assert "left of a trace that was killed" in capsys.readouterr().err


def test_the_exit_code_of_a_command_is_handed_on(tmp_path: Path) -> None:
    out = tmp_path / "t.csv"
    words = ["trace", "process", "--no-page-cache", "--hz", "50", "--out", str(out)]
    assert main([*words, "--", "sh", "-c", "sleep 0.2; exit 7"]) == 7
    names = read_trace(out).texts("name")
    assert {"sh", "sleep"} <= set(names), "what the command starts is traced, too"


@pytest.mark.slow
@pytest.mark.reaches("docs/", "models/", "recordings/")
def test_what_a_command_has_started_ends_with_the_trace(tmp_path: Path) -> None:
    out, pid = tmp_path / "t.csv", tmp_path / "pid"
    script = f"sleep 600 & echo $! > {pid}; wait"
    words = ["trace", "process", "--no-page-cache", "--seconds", "0.6", "--out", str(out)]
    assert main([*words, "--", "sh", "-c", script]) == 128 + signal.SIGTERM
    end_s = time.monotonic() + 60.0
    while (Path("/proc") / pid.read_text().strip()).exists():
        assert time.monotonic() < end_s, "it still runs"
        time.sleep(0.02)


@pytest.mark.slow
@pytest.mark.reaches("docs/", "models/", "recordings/")
def test_a_trace_that_is_killed_keeps_what_was_read(tmp_path: Path) -> None:
    out = tmp_path / "t.parquet"
    command = [
        str(STALLWARD),
        "trace",
        "node",
        "--no-page-cache",
        "--hz",
        "100",
        "--out",
        str(out),
    ]
    tracing = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    rows = rows_of(out)
    end_s = time.monotonic() + 60.0
    while time.monotonic() < end_s and (not rows.exists() or rows.stat().st_size < 20_000):
        time.sleep(0.05)
    os.kill(tracing.pid, signal.SIGKILL)
    tracing.wait()
    trace = read_trace(out)
    assert trace.torn
    ticks = trace.numbers("tick")
    assert ticks.size > 10
    assert (np.diff(ticks) >= 1.0).all()
    assert np.isfinite(trace.numbers("node_memory_total_bytes")).all()


def test_the_table_on_a_terminal_shows_sizes_and_rates() -> None:
    table = table_of("process")
    before = process(7, pss_bytes=3 * MIB, io_read_bytes=0, cpu_usage_us=0, major_faults=5)
    now = process(
        7, pss_bytes=5 * MIB, io_read_bytes=8 * MIB, cpu_usage_us=500_000, major_faults=5
    )
    shown_then = Shown(number=1, time_us=0, rows={(7,): before})
    shown_now = Shown(number=21, time_us=2_000_000, rows={(7,): now})
    console = Console(width=250, record=True, file=io.StringIO())
    console.print(shown_table(table, shown_now, shown_then, "process 7"))
    shown = " ".join(console.export_text().split())
    assert "process: process 7, tick 21" in shown
    for cell in ("p7", "5.0 MiB", "4.0 MiB/s", "25.0 %"):
        assert cell in shown


def test_the_table_shows_who_has_done_something_since(tmp_path: Path) -> None:
    """Between two pictures of the table a process may do something and stop."""
    console = Console(width=250, record=True, file=io.StringIO(), force_terminal=False)
    node: dict[str, Value] = {"name": "(node)", "page_cache_hits": 900}
    rows: dict[int, list[dict[str, Value]]] = {
        1: [node],
        9: [node, {"pid": 7, "name": "seven", "page_cache_hits": 40}],
        10: [node],
        20: [node, {"pid": 8, "name": "eight", "page_cache_hits": 80}],
    }
    with LiveTable(table_of("pagecache"), "all", console) as table:
        for number, some in rows.items():
            table.take(Tick(number=number, time_us=number * 100_000, wall_us=0, rows=some))
    last = console.export_text().rpartition("tick 20")[2]
    assert re.search(r"8 │ eight\s+│\s+73 │", last), "80 hits in 1.1 s"
    assert "seven" not in last
