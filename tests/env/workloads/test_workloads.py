"""Programs of scenarios are compiled, started and sent requests, without pressure."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from stallward.env.errors import WorkloadError
from stallward.env.workloads.detector_data import write_model
from stallward.env.workloads.detector_images import read_image, write_images
from stallward.env.workloads.native import build
from stallward.env.workloads.native.build import PROGRAMS, build_native
from stallward.env.workloads.postgres import reads_script
from stallward.env.workloads.random_file import write_random_file


@contextlib.contextmanager
def running(*argv: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(argv, stderr=subprocess.PIPE)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def last_units(path: Path) -> float:
    lines = path.read_text().splitlines() if path.exists() else []
    return float(lines[-1].split()[1]) if lines else 0.0


def wait_for_units(path: Path, units: float) -> None:
    deadline_s = time.monotonic() + 20
    while last_units(path) < units:
        assert time.monotonic() < deadline_s, f"{path} stopped at {last_units(path)}"
        time.sleep(0.02)


def rss_mib(pid: int) -> float:
    for line in Path("/proc", str(pid), "status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise AssertionError("no VmRSS")


def test_programs_are_compiled_once(programs: Path) -> None:
    assert {path.name for path in programs.iterdir()} == set(PROGRAMS)
    before = (programs / "anon").stat().st_mtime_ns
    assert build_native(programs.parent) == programs
    assert (programs / "anon").stat().st_mtime_ns == before


def test_without_a_compiler_the_error_names_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(WorkloadError, match="apt-get install gcc"):
        build_native(tmp_path / "cache")
    assert not list(tmp_path.iterdir())


def test_machines_that_share_a_folder_do_not_share_their_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "_compile", lambda compiler, source, output: output.touch())
    here = build_native(tmp_path)
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr("platform.machine", lambda: "another")
        assert build_native(tmp_path) != here
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr("platform.libc_ver", lambda: ("glibc", "2.1"))
        assert build_native(tmp_path) != here
    compiler = tmp_path / "cc"
    compiler.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert build_native(tmp_path) == build_native(tmp_path)
    compiler.rename(tmp_path / "tcc")
    (tmp_path / "cc").symlink_to("tcc")
    assert len({*tmp_path.glob("native-*[0-9a-f]")}) == 4
    build_native(tmp_path)
    assert len({*tmp_path.glob("native-*[0-9a-f]")}) == 5


def test_anon_hog_grows_and_shrinks_with_its_program(programs: Path, tmp_path: Path) -> None:
    report = tmp_path / "lines"
    argv = ("--program", "16:64,64:128", "--rate", "320", "--report", str(report))
    seen: list[float] = []
    with running(str(programs / "anon"), *argv) as hog:
        while last_units(report) < 250:
            seen.append(rss_mib(hog.pid))
            time.sleep(0.02)
            assert hog.poll() is None
    assert min(seen[2:]) < 25
    assert 60 < max(seen) < 80


def test_a_hog_keeps_its_rate_and_reports_ten_times_a_second(
    programs: Path, tmp_path: Path
) -> None:
    report = tmp_path / "lines"
    argv = ("--program", "8", "--rate", "100", "--report", str(report))
    with running(str(programs / "anon"), *argv):
        wait_for_units(report, 80)
    times, units = np.loadtxt(report, unpack=True)
    rate = (units[-1] - units[0]) / (times[-1] - times[0])
    assert 60 < rate < 110  # a busy machine may slow it, nothing may speed it up
    assert np.median(np.diff(times)) == pytest.approx(0.1, abs=0.05)


@pytest.mark.slow
@pytest.mark.reaches("docs/", "models/", "recordings/")
def test_a_stopped_hog_resumes_where_it_was_and_does_not_catch_up(
    programs: Path, tmp_path: Path
) -> None:
    report = tmp_path / "lines"
    argv = ("--program", "8", "--rate", "200", "--report", str(report))
    with running(str(programs / "anon"), *argv) as hog:
        wait_for_units(report, 20)
        hog.send_signal(signal.SIGSTOP)
        time.sleep(0.05)
        stopped_at = last_units(report)
        time.sleep(0.4)
        assert last_units(report) == stopped_at
        hog.send_signal(signal.SIGCONT)
        time.sleep(0.15)
        # 200/s for 0.15 s, the 100 ms it may make up, and what was not yet reported; not the 80
        # of the time that it was stopped.
        assert stopped_at <= last_units(report) <= stopped_at + 85
        wait_for_units(report, stopped_at + 90)


def test_a_hog_is_not_held_up_by_a_full_fifo(programs: Path, tmp_path: Path) -> None:
    fifo, data = tmp_path / "fifo", tmp_path / "written.bin"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    writer = os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writer, bytes(4096))  # full from the start, and never read
    argv = ("--program", "4", "--rate", "100", "--file", str(data), "--report", str(fifo))
    try:
        with running(str(programs / "dirty"), *argv) as hog:
            wrote = [written_bytes(hog.pid)]
            deadline_s = time.monotonic() + 20
            while wrote[-1] < wrote[0] + (50 << 20):  # five reports are due in that work
                assert time.monotonic() < deadline_s
                time.sleep(0.05)
                wrote.append(written_bytes(hog.pid))
    finally:
        os.close(writer)
        os.close(reader)


def written_bytes(pid: int) -> int:
    text = Path("/proc", str(pid), "io").read_text()
    return int(text.partition("wchar: ")[2].split()[0])


@pytest.mark.parametrize("program", ["file_once", "file_loop", "dirty"])
def test_file_hogs_work(programs: Path, tmp_path: Path, program: str) -> None:
    data, report = tmp_path / "data.bin", tmp_path / "lines"
    write_random_file(data, mib=4, seed=1)
    argv = ("--program", "4", "--file", str(data), "--report", str(report), "--rate", "200")
    with running(str(programs / program), *argv) as hog:
        wait_for_units(report, 4)
        if program == "file_once":
            time.sleep(0.3)
            assert last_units(report) == 4
            assert hog.poll() is None
        else:
            wait_for_units(report, 12)
    assert data.stat().st_size == 4 << 20


def test_a_hog_that_touches_once_holds_what_it_was_told_to(programs: Path, tmp_path: Path) -> None:
    data = tmp_path / "data.bin"
    write_random_file(data, mib=16, seed=1)
    for program in ("anon_once", "file_once"):
        report = tmp_path / program
        argv = ("--program", "10", "--file", str(data), "--block", "4", "--report", str(report))
        with running(str(programs / program), *argv) as hog:
            wait_for_units(report, 10)
            time.sleep(0.3)
            assert last_units(report) == 10, "it goes on touching"
            status = Path(f"/proc/{hog.pid}/status").read_text()
            kind = "RssAnon" if program == "anon_once" else "RssFile"
            held_kib = int(status.partition(f"{kind}:")[2].split()[0])
            assert 10 * 1024 <= held_kib < 14 * 1024


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("--program", "x", "--report", "/dev/null"), "MiB"),
        (("--program", "8:", "--report", "/dev/null"), "MiB"),
        (("--program", "8", "--report", "/nowhere/x"), "No such file"),
        (("--program", "8"), "missing option"),
        (("--programme", "8"), "unknown option"),
    ],
)
def test_a_hog_refuses_arguments_that_it_does_not_know(
    programs: Path, argv: tuple[str, ...], message: str
) -> None:
    done = subprocess.run(
        [str(programs / "anon"), *argv], capture_output=True, text=True, check=False, timeout=20
    )
    assert done.returncode == 2
    assert message in done.stderr


def serve_slowly(path: Path, stall_s: float, seen: list[bytes] | None = None) -> threading.Thread:
    """Start a server that answers at once, but stalls before one of its answers."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()

    def serve() -> None:
        with listener:
            connection, _ = listener.accept()
            with connection, contextlib.suppress(OSError):
                for number in range(1_000_000):
                    request = connection.recv(64)
                    if not request:
                        return
                    if seen is not None:
                        seen.append(request)
                    time.sleep(stall_s if number == 5 else 0)
                    connection.sendall(b"ok\n")

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    return thread


def test_latency_counts_from_the_schedule_so_a_stall_delays_all_that_came_meanwhile(
    programs: Path, tmp_path: Path
) -> None:
    lines, path = tmp_path / "lines", tmp_path / "s"
    thread = serve_slowly(path, 0.4)
    argv = ["--socket", str(path), "--request", "%K\n", "--ok-prefix", "ok", "--rate", "100"]
    argv += ["--arrivals", "fixed", "--connections", "1", "--seconds", "0.9", "--out", str(lines)]
    subprocess.run([str(programs / "load"), *argv], check=True, timeout=20)
    thread.join(5)
    table = np.loadtxt(lines)
    gaps = np.diff(np.sort(table[:, 0]))
    np.testing.assert_allclose(gaps, 0.01, atol=1e-4)  # the schedule did not wait
    late = table[:, 2] - table[:, 0]
    # Some 40 requests were scheduled during the stall; a closed loop would have seen one.
    assert (late > 0.1).sum() >= 24
    assert table[table[:, 3] == 1].shape[0] >= 60


def test_the_schedule_comes_from_the_seed(programs: Path, tmp_path: Path) -> None:
    gaps = []
    for run in range(2):
        path, lines = tmp_path / f"s{run}", tmp_path / f"lines{run}"
        thread = serve_slowly(path, 0)
        argv = ["--socket", str(path), "--request", "%K\n", "--rate", "200", "--seed", "9"]
        argv += ["--connections", "1", "--seconds", "0.5", "--out", str(lines)]
        subprocess.run([str(programs / "load"), *argv], check=True, timeout=20)
        thread.join(5)
        gaps.append(np.diff(np.sort(np.loadtxt(lines)[:, 0])))
    n = min(len(gap) for gap in gaps)
    assert n > 50
    np.testing.assert_allclose(gaps[0][:n], gaps[1][:n], atol=1e-5)
    assert gaps[0].std() == pytest.approx(gaps[0].mean(), rel=0.4)  # Poisson


def test_each_key_of_a_request_is_drawn_anew_from_the_seed(programs: Path, tmp_path: Path) -> None:
    asked = []
    for run in range(2):
        path = tmp_path / f"k{run}"
        seen: list[bytes] = []
        thread = serve_slowly(path, 0.2 * run, seen)
        argv = ["--socket", str(path), "--request", "%K %K %K\n", "--keys", "1000"]
        argv += ["--rate", "200", "--seed", "9", "--connections", "1", "--seconds", "0.5"]
        argv += ["--out", str(tmp_path / "lines")]
        subprocess.run([str(programs / "load"), *argv], check=True, timeout=20)
        thread.join(5)
        asked.append([tuple(int(key) for key in text.split()) for text in seen])
    n = min(len(keys) for keys in asked)
    assert n > 50
    assert asked[0][:n] == asked[1][:n], "a stall of the server changed what was asked"
    assert sum(len(set(keys)) == 3 for keys in asked[0]) > 0.9 * len(asked[0])
    too_many = [*argv[:3], "%K" * 17, *argv[4:]]
    refused = subprocess.run(
        [str(programs / "load"), *too_many], capture_output=True, text=True, check=False
    )
    assert (refused.returncode, "16 times" in refused.stderr) == (2, True)


def test_requests_unfinished_at_the_end_are_written_as_not_ok(
    programs: Path, tmp_path: Path
) -> None:
    path, lines = tmp_path / "s", tmp_path / "lines"
    serve_slowly(path, 30)
    argv = ["--socket", str(path), "--request", "%K\n", "--rate", "100", "--out", str(lines)]
    with running(str(programs / "load"), *argv, "--connections", "1") as load:
        time.sleep(1.0)
        load.send_signal(signal.SIGTERM)
        assert load.wait(5) == 0
    table = np.loadtxt(lines)
    lost = table[table[:, 3] == 0]
    assert len(lost) > 50
    assert lost[:, 2] == pytest.approx(table[:, 2].max())


def test_requests_that_came_due_while_the_load_could_not_run_are_written_at_its_end(
    programs: Path, tmp_path: Path
) -> None:
    path, lines = tmp_path / "s", tmp_path / "lines"
    serve_slowly(path, 0)
    argv = ["--socket", str(path), "--request", "%K\n", "--rate", "100", "--out", str(lines)]
    argv += ["--arrivals", "fixed", "--connections", "1", "--seconds", "0.3"]
    with running(str(programs / "load"), *argv) as load:
        while not lines.exists() or not lines.read_text():
            time.sleep(0.01)
        load.send_signal(signal.SIGSTOP)
        time.sleep(0.4)
        load.send_signal(signal.SIGCONT)
        assert load.wait(5) == 0
    assert len(np.loadtxt(lines)) in (29, 30)


def test_load_without_a_server_gives_up_with_a_cause(programs: Path, tmp_path: Path) -> None:
    argv = ["--socket", str(tmp_path / "none"), "--request", "x", "--rate", "1", "--wait", "0.1"]
    done = subprocess.run(
        [str(programs / "load"), *argv, "--out", str(tmp_path / "lines")],
        capture_output=True,
        text=True,
        check=False,
        timeout=20,
    )
    assert done.returncode == 2
    assert "nobody accepts connections" in done.stderr


def test_images_come_from_the_seed_and_have_the_size_of_photographs(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        write_images(tmp_path / name, count=2, seed=3)
    first = (tmp_path / "a" / "image-00000.ppm").read_bytes()
    assert first == (tmp_path / "b" / "image-00000.ppm").read_bytes()
    assert first != (tmp_path / "a" / "image-00001.ppm").read_bytes()
    assert 100_000 <= len(first) <= 200_000
    image = read_image(tmp_path / "a" / "image-00000.ppm")
    assert image.shape == (1, 3, 224, 224)
    assert 0 <= image.min() < image.max() <= 1


def test_a_file_that_is_no_image_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.ppm"
    path.write_bytes(b"P5 1 1 255 x")
    with pytest.raises(ValueError, match="not a binary PPM"):
        read_image(path)


def test_the_detector_answers_and_its_weights_stay_pages_of_their_file(tmp_path: Path) -> None:
    write_model(tmp_path, seed=1, depth=10)
    write_images(tmp_path, count=3, seed=1)
    path = tmp_path / "s"
    module = "stallward.env.workloads.detector_server"
    argv = (sys.executable, "-m", module, "--data", str(tmp_path), "--socket", str(path))
    with running(*argv) as server:
        deadline_s = time.monotonic() + 60
        while not path.exists():
            assert server.poll() is None
            assert time.monotonic() < deadline_s
            time.sleep(0.02)
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
            client.sendall(b"1\n2")
            assert client.recv(64).startswith(b"ok ")
            client.sendall(b"\nnonsense\n")
            replies = b""
            while replies.count(b"\n") < 2:
                replies += client.recv(64)
        assert replies.splitlines()[1] == b"error ValueError"
        mapped = anonymous = 0
        here = False
        for line in Path("/proc", str(server.pid), "smaps").read_text().splitlines():
            if "-" in line.split()[0]:
                here = line.endswith("detector.weights")
            elif here and line.startswith("Rss:"):
                mapped += int(line.split()[1]) * 1024
            elif here and line.startswith("Anonymous:"):
                anonymous += int(line.split()[1]) * 1024
    size = (tmp_path / "detector.weights").stat().st_size
    assert mapped > 0.95 * size
    assert anonymous == 0


@pytest.mark.slow
@pytest.mark.reaches("docs/", "models/", "recordings/")
def test_steps_of_the_duckdb_loop_keep_a_window_larger_than_its_memory(tmp_path: Path) -> None:
    duckdb_loop = pytest.importorskip("stallward.env.workloads.duckdb_loop")
    window = duckdb_loop.Window(
        memory_mib=40, window_mib=60, rows=100_000, scratch=tmp_path, seed=1
    )
    parts = 60 * 1024 * 1024 // (24 * 100_000)
    for _ in range(2 * parts):
        window.step()
    tables = {name for (name,) in window.connection.execute("SHOW TABLES").fetchall()}
    assert tables == {f"part{n}" for n in range(parts)}
    spilled = sum(p.stat().st_size for p in tmp_path.rglob("duckdb_temp*"))
    assert spilled > 10 * 1024 * 1024, "all of it fitted"


def test_reads_of_postgres_look_up_many_accounts_of_the_whole_table() -> None:
    *variables, select, _ = reads_script(scale=3).split("\n")
    assert variables[0] == r"\set a0 random(1, 300000)"
    assert len(variables) == select.count(":a") >= 10
