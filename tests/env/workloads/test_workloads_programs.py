"""Servers and programs of other projects are filled, served, repeated and measured."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
from real_programs import assert_it_answers_and_works
from workload_servers import needed, serving

from stallward.env.scenario.file import find_scenarios, load_scenario, shipped_files
from stallward.env.workloads.c_source import write_c_file
from stallward.env.workloads.key_value_fill import fill, values
from stallward.env.workloads.memcached_fill import MEMCACHED
from stallward.env.workloads.nginx_server import configuration
from stallward.env.workloads.program_loop import METERS, tree_units, user_seconds
from stallward.env.workloads.redis_fill import REDIS
from stallward.env.workloads.text_file import write_text_file
from stallward.env.workloads.web_files import LAST_NAME, LAST_TEXT, write_web_files

MIB = 1024 * 1024


def arrivals(programs: Path, folder: Path, *options: str, seconds: float) -> np.ndarray:
    """Return the scheduled times of a load without answers, relative to the first."""
    lines = folder / "lines"
    lines.unlink(missing_ok=True)
    path = folder / "s"
    server = "import socket,sys,time; s=socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); "
    server += "s.listen(); time.sleep(60)"
    path.unlink(missing_ok=True)
    with serving(path, sys.executable, "-c", server, str(path)):
        argv = [str(programs / "load"), "--socket", str(path), "--request", "x", *options]
        argv += ["--connections", "1", "--seconds", str(seconds), "--out", str(lines)]
        subprocess.run(argv, check=True, timeout=20)
    times = np.sort(np.loadtxt(lines)[:, 0])
    return np.asarray(times - times[0])


@pytest.mark.slow
@pytest.mark.reaches("docs/", "models/", "recordings/")
def test_rates_follow_their_steps_over_and_over(programs: Path, tmp_path: Path) -> None:
    steps = ("--rate", "2000:0.15,0:0.15", "--seed", "3")
    at = arrivals(programs, tmp_path, *steps, seconds=0.75)
    phase = at % 0.3
    assert (phase < 0.15).mean() > 0.97  # its first arrival is hardly later than the start
    assert len(at) == pytest.approx(2000 * 0.45, rel=0.1)
    again = arrivals(programs, tmp_path, *steps, seconds=0.2)
    np.testing.assert_allclose(at[:250], again[:250], atol=1e-5)


def test_a_wave_swings_around_the_rate(programs: Path, tmp_path: Path) -> None:
    at = arrivals(programs, tmp_path, "--rate", "2000", "--wave", "0.8:0.4", seconds=0.8)
    high, low = ((at % 0.4) < 0.2).sum(), ((at % 0.4) >= 0.2).sum()
    mean_swing = 0.8 * 2 / np.pi
    assert high / low == pytest.approx((1 + mean_swing) / (1 - mean_swing), rel=0.2)
    assert len(at) == pytest.approx(1600, rel=0.1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--rate", "0"), "--rate"),
        (("--rate", "-1"), "--rate"),
        (("--rate", "nan"), "--rate"),
        (("--rate", "5:2,"), "--rate"),
        (("--rate", "5,6"), "--rate"),
        (("--rate", "5:0"), "--rate"),
        (("--rate", "5", "--wave", "1.5:3"), "--wave"),
        (("--rate", "5", "--wave", "0.5"), "--wave"),
        (("--rate", "5:1,6:1", "--arrivals", "fixed"), "fixed"),
    ],
)
def test_schedules_with_mistakes_are_refused(
    programs: Path, tmp_path: Path, options: tuple[str, ...], message: str
) -> None:
    argv = [
        str(programs / "load"),
        "--socket",
        "s",
        "--request",
        "x",
        "--out",
        str(tmp_path / "o"),
    ]
    done = subprocess.run([*argv, *options], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert message in done.stderr


def test_values_come_from_the_seed_and_differ() -> None:
    made = dict(values(keys=500, value_bytes=100, seed=1))
    assert made == dict(values(keys=500, value_bytes=100, seed=1))
    assert {len(value) for value in made.values()} == {100}
    assert len(set(made.values())) > 50
    assert made != dict(values(keys=500, value_bytes=100, seed=2))


def test_redis_is_filled_and_gives_many_values_at_once(programs: Path, tmp_path: Path) -> None:
    server = needed("redis-server", "redis-server")
    path, lines = tmp_path / "redis.sock", tmp_path / "lines"
    argv = (server, "--port", "0", "--unixsocket", str(path), "--save", "", "--dir", str(tmp_path))
    with serving(path, *argv):
        assert fill(REDIS, path, keys=1200, value_bytes=100, seed=1) == 1200
        request = load_scenario("redis-sort").protected.load.argv
        options = [word.replace("{run}", str(tmp_path)) for word in request[1:]]
        options[options.index("--keys") + 1] = "1200"
        options[options.index("--out") + 1] = str(lines)
        options[options.index("--seed") + 1] = "1"
        load = [str(programs / "load"), *options, "--seconds", "0.5"]
        subprocess.run(load, check=True, timeout=20)
    answered = np.loadtxt(lines)
    assert len(answered) > 40
    assert answered[:-8, 3].all()


def test_memcached_is_filled(tmp_path: Path) -> None:
    server = needed("memcached", "memcached")
    path = tmp_path / "memcached.sock"
    with serving(path, server, "-s", str(path), "-u", "root"):
        assert fill(MEMCACHED, path, keys=1200, value_bytes=100, seed=1) == 1200


@pytest.mark.parametrize(
    ("name", "module", "options", "advice"),
    [
        ("memcached", "memcached_fill", ("-s", "{path}", "-u", "root", "-m", "2"), "(-m)"),
        (
            "redis-server",
            "redis_fill",
            ("--port", "0", "--unixsocket", "{path}", "--save", "", "--maxmemory", "3mb"),
            "--maxmemory",
        ),
    ],
)
def test_a_server_that_is_too_small_fails_the_filling(
    tmp_path: Path, name: str, module: str, options: tuple[str, ...], advice: str
) -> None:
    path = tmp_path / "server.sock"
    with serving(path, needed(name, name), *(word.format(path=path) for word in options)):
        argv = (sys.executable, "-m", f"stallward.env.workloads.{module}", "--socket", str(path))
        done = subprocess.run(
            [*argv, "--keys", "9000"], capture_output=True, text=True, check=False, timeout=30
        )
    assert done.returncode == 1
    assert "of 9000 values; " in done.stderr
    assert advice in done.stderr


def test_nginx_serves_the_files_and_the_last_one(programs: Path, tmp_path: Path) -> None:
    needed("nginx", "nginx-light")
    write_web_files(tmp_path / "www", files=20, kib=4, seed=1)
    argv = (sys.executable, "-m", "stallward.env.workloads.nginx_server")
    lines = tmp_path / "lines"
    with serving(
        tmp_path / "nginx.sock", *argv, "--root", str(tmp_path / "www"), "--run", str(tmp_path)
    ):
        request = load_scenario("nginx-hogs").protected.load.argv
        options = [word.replace("{run}", str(tmp_path)) for word in request[1:]]
        options[options.index("--keys") + 1] = "20"
        options[options.index("--out") + 1] = str(lines)
        options[options.index("--seed") + 1] = "1"
        load = [str(programs / "load"), *options, "--seconds", "0.5"]
        subprocess.run(load, check=True, timeout=20)
    answered = np.loadtxt(lines)
    assert len(answered) > 30
    assert answered[:-8, 3].all()


def test_web_files_have_one_that_ends_a_reply(tmp_path: Path) -> None:
    write_web_files(tmp_path, files=3, kib=2, seed=1)
    assert {path.name for path in tmp_path.iterdir()} == {"0", "1", "2", LAST_NAME}
    assert (tmp_path / "1").stat().st_size == 2048
    assert all(LAST_TEXT not in (tmp_path / name).read_bytes() for name in "012")


def test_the_configuration_of_nginx_names_only_what_it_is_given() -> None:
    text = configuration(Path("/data/www"), Path("/run/x"), "root")
    assert "listen unix:/run/x/nginx.sock;" in text
    assert "root /data/www;" in text
    assert "include" not in text


def test_a_text_has_its_size_and_comes_from_the_seed(tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        write_text_file(tmp_path / name, mib=2, seed=seed)
    texts = [(tmp_path / name).read_bytes() for name in "abc"]
    assert texts[0] == texts[1] != texts[2]
    assert 2 * MIB <= len(texts[0]) < 4 * MIB
    lines = texts[0].splitlines()
    assert {len(line) for line in lines} == {96}
    assert len(set(lines)) > 0.99 * len(lines)


def loop(tmp_path: Path, unit: str, *command: str) -> subprocess.Popen[bytes]:
    argv = [sys.executable, "-m", "stallward.env.workloads.program_loop", "--unit", unit]
    argv += ["--report", str(tmp_path / "report"), "--", *command]
    return subprocess.Popen(argv, stderr=subprocess.PIPE)


def units(tmp_path: Path) -> float:
    path = tmp_path / "report"
    lines = path.read_text().splitlines() if path.exists() else []
    return float(lines[-1].split()[1]) if lines else 0.0


def wait_for(tmp_path: Path, wanted: float) -> None:
    deadline_s = time.monotonic() + 20
    while units(tmp_path) < wanted:
        assert time.monotonic() < deadline_s, units(tmp_path)
        time.sleep(0.02)


def test_a_repeated_program_counts_what_it_reads_and_writes(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(8 * MIB))
    process = loop(tmp_path, "io", "sh", "-c", f"cat {tmp_path}/file >/dev/null; sleep 0.2")
    try:
        wait_for(tmp_path, 30.0)  # a second run began
    finally:
        process.kill()
        process.communicate()
    lines = [line.split() for line in (tmp_path / "report").read_text().splitlines()]
    steps = np.diff([float(line[1]) for line in lines])
    assert (steps >= 0).all()
    assert max(steps) == pytest.approx(16.0, abs=2.0)  # 8 MiB read and 8 MiB written


def test_a_repeated_program_counts_its_childrens_processor_time(tmp_path: Path) -> None:
    process = loop(tmp_path, "cpu", "sh", "-c", "timeout 0.3 sh -c 'while :; do :; done'; :")
    try:
        wait_for(tmp_path, 0.4)  # more than one run uses
        child = next(iter(Path(f"/proc/{process.pid}/task").glob("*/children"))).read_text()
        assert tree_units(int(child.split()[0]), user_seconds) >= 0.0
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()


@pytest.mark.slow
@pytest.mark.reaches("docs/", "models/", "recordings/")
def test_a_build_counts_its_compilers_and_outlives_the_loss_of_one(tmp_path: Path) -> None:
    needed("gcc", "gcc")
    for name in ("a", "b"):
        write_c_file(tmp_path / f"{name}.c", functions=300, seed=1)
    build = f"for f in {tmp_path}/*.c; do gcc -O1 -c $f -o {tmp_path}/compiled.o; done; true"
    process = loop(tmp_path, "cpu", "sh", "-c", build)
    try:
        wait_for(tmp_path, 0.3)
        compiler = None
        deadline_s = time.monotonic() + 20
        while compiler is None and time.monotonic() < deadline_s:
            descendants = psutil.Process(process.pid).children(recursive=True)
            compiler = next((p for p in descendants if p.name() == "cc1"), None)
        assert compiler is not None
        compiler.terminate()
        wait_for(tmp_path, units(tmp_path) + 0.3)
        assert process.poll() is None
    finally:
        for child in psutil.Process(process.pid).children(recursive=True):
            child.kill()
        process.kill()
        process.communicate()


def test_a_vanished_process_counts_nothing() -> None:
    process = subprocess.Popen(["true"])
    process.wait()
    assert [tree_units(process.pid, meter) for meter in METERS.values()] == [0.0, 0.0]


@pytest.mark.parametrize(
    ("command", "message"),
    [("false", "failed with status 1"), ("/no/such", "cannot run /no/such")],
)
def test_a_program_that_fails_ends_the_loop(tmp_path: Path, command: str, message: str) -> None:
    process = loop(tmp_path, "cpu", command)
    _, wrote = process.communicate(timeout=20)
    assert process.returncode == 1
    assert message in wrote.decode()


def test_shipped_scenarios_need_what_they_start() -> None:
    packaged = {"memcached", "redis-server", "pgbench", "stress-ng", "zstd", "sort", "gcc"}
    packaged |= {"etcd", "ffmpeg", "git", "grep", "tar", "xz"}
    modules = {
        "java_ledger": {"java", "javac"},
        "lightgbm_loop": {"python:lightgbm"},
        "mailboxes": {"/usr/sbin/dovecot"},
        "mariadb": {"/usr/sbin/mariadbd", "mariadb"},
        "node_catalogue": {"node"},
        "retained": {"/usr/sbin/mosquitto"},
        "rocksdb_server": {"python:rocksdict"},
        "routes": {"escript"},
        "ruby_library": {"ruby"},
        "spark_loop": {"java", "python:pyspark"},
        "tuples": {"tarantool"},
        "vector_search": {"python:usearch"},
        "web_cache": {"/usr/sbin/varnishd", "cc"},
    }
    for scenario in find_scenarios():
        applications = scenario.applications
        started = {word for one in applications for word in (*one.server.argv, one.load.argv[0])}
        started |= {word for group in scenario.background for word in group.command.argv}
        needs = {need.program for need in scenario.needs}
        assert started & packaged <= needs, scenario.name
        for module in {word.rpartition(".")[2] for word in started} & modules.keys():
            assert modules[module] <= needs, f"{scenario.name} runs {module}"


SMALLER = {
    "sqlite-etl": (('"300000"', '"20000"'), ('"192"', '"8"'), ('"240000"', '"4000"')),
    "python-web-matrix": (
        ('"--mib", "240"', '"--mib", "24"'),
        ('"prepare", "{data}"', '"prepare", "{data}", "--texts", "300"'),
    ),
    "redis-sort": (('"256"', '"16"'), ('"250000"', '"20000"'), ('"200M"', '"4M"')),
    "nginx-hogs": (('"6400"', '"300"'), ('"4",', '"0.5",'), ('--mib", "160', '--mib", "16')),
    "memcached-zstd": (('"256"', '"16"'), ('"300000"', '"20000"'), ('"-19"', '"-3"')),
    "redis-mix": (('"440000"', '"20000"'), ('"1500"', '"100"'), ('"8000000"', '"400000"')),
    "postgres-hogs": (('"10"', '"1"'), ('"4000"', '"200"')),
    "mariadb-build": (('"270000"', '"5000"'), ('"288"', '"32"'), ('"12"', '"2"')),
    "node-spark": (('"250000"', '"10000"'), ('"300000"', '"20000"')),
    "jvm-lightgbm": (('"140000"', '"5000"'), ('"420"', '"128"'), ('"400000"', '"20000"')),
    "nats-ffmpeg": (('"60000"', '"1000"'), ("1920x1080", "320x240")),
    "vectors-mix": (('"150000"', '"2000"'), ("1920x1080", "320x240"), ('"20"', '"80"')),
    "rocksdb-spark": (('"2400000"', '"20000"'), ('"900"', '"480"'), ('"900000"', '"20000"')),
    "etcd-mix": (('"60000"', '"500"'), ('"300000"', '"20000"'), ('"40"', '"80"')),
    "knot-images": (('"600000"', '"5000"'), ("4000x3000", "400x300")),
    "openldap-genome": (('"180000"', '"2000"'), ('"30000000"', '"300000"')),
    "php-gawk": (('"240000"', '"2000"'), ('"100"', '"4"')),
    "dovecot-zpaq": (('"4000"', '"300"'), ('"--mib", "160"', '"--mib", "4"')),
    "erlang-r": (('"300000"', '"5000"'), ("1.6e6", "1e4")),
    "mosquitto-minimap": (('"22000"', '"300"'), ('"40000000"', '"400000"')),
    "ruby-yosys": (('"220000"', '"5000"'), ('"--stages", "20"', '"--stages", "1"')),
    "tarantool-pandoc": (('"290000"', '"5000"'), ('"200"', '"4"')),
    "varnish-mix": (('"60000"', '"500"'), ("n = 450", "n = 60"), ('"160"', '"4"')),
}
"""One scenario for each new kind of server and program, small enough for a few seconds."""
SLOW_TO_START = {"etcd-mix", "jvm-lightgbm", "node-spark", "rocksdb-spark", "vectors-mix"}
"""Those with a program that imports or compiles for several seconds before its first unit."""


@pytest.mark.live
@pytest.mark.reaches
@pytest.mark.parametrize("name", SMALLER)
def test_real_programs_answer_and_work(
    name: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    durations_s = (25.0,) if name in SLOW_TO_START else (3.0, 25.0)
    cache = tmp_path_factory.mktemp("cache")
    assert_it_answers_and_works(shipped_files()[name], SMALLER[name], durations_s, tmp_path, cache)
