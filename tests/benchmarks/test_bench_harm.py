"""Ordinary programs in the background: what is counted of them, and that none fails under us."""

from __future__ import annotations

import argparse
import json
import shutil
import socket
import struct
import urllib.request
from pathlib import Path

import pytest

from stallward.benchmarks import checked_jobs
from stallward.benchmarks.errors import BenchError
from stallward.benchmarks.harm import HarmRequest, HarmTally, JobRun, bench_harm, parse_runs
from stallward.evaluation.arms import make_arms


def line(
    job: str, ended_s: float, *, status: int = 0, right: bool = True, took_s: float = 1.0
) -> str:
    return json.dumps(
        {"job": job, "ended_s": ended_s, "took_s": took_s, "status": status, "said": "why",
         "right": right}
    )  # fmt: skip


def test_what_ended_with_its_block_or_was_cut_short_does_not_count() -> None:
    text = "\n".join(
        (line("sort", 9.0), line("gzip", 11.0, status=-9, right=False), '{"job": "ta')
    )
    assert [run.job for run in parse_runs(text, "none", until_s=10.0)] == ["sort"]


def run(arm: str, job: str, took_s: float, status: int = 0, *, right: bool = True) -> JobRun:
    return JobRun(arm=arm, job=job, took_s=took_s, status=status, right=right and status == 0)


def test_failures_kills_wrong_results_and_time_are_counted_apart() -> None:
    tally = HarmTally(
        runs=[
            run("none", "sort", 1.0),
            run("none", "gzip", 2.0),
            run("partition", "sort", 2.0),
            run("partition", "gzip", 4.0),
            run("partition", "gzip", 9.0, 2),
            run("partition", "tar", 9.0, -9),
            run("partition", "tar", 9.0, right=False),
        ],
        p95_ms={"partition": [3.0, 5.0]},
    )
    none, partition = tally.by_arm()
    assert (none.jobs, none.failed, none.slower, none.p95_ms) == (2, 0, 1.0, None)
    assert (partition.jobs, partition.failed, partition.killed, partition.wrong) == (5, 2, 1, 1)
    assert partition.slower == pytest.approx(2.0), "failures are not fast jobs"
    assert partition.p95_ms == 4.0
    assert tally.harms(["none", "partition"]) == ("partition",)


def test_an_arm_is_held_against_what_fails_without_it() -> None:
    failing = [run(arm, "sort", 1.0, 2) for arm in ("none", "partition")]
    assert HarmTally(runs=[*failing]).harms(["partition"]) == ()
    more = [*failing, run("none", "sort", 1.0)]
    assert HarmTally(runs=more).harms(["partition"]) == ("partition",)


def test_an_arm_under_which_no_job_ended_is_an_error() -> None:
    tally = HarmTally(runs=[run("none", "sort", 1.0)])
    tally.require_jobs(["none"])
    with pytest.raises(BenchError, match="No job ended under partition"):
        tally.require_jobs(["none", "partition"])
    tally.left_out["a block of partition"] = "The server ended."
    with pytest.raises(BenchError, match="partition did not run: The server ended"):
        tally.require_jobs(["none", "partition"])


@pytest.mark.parametrize(
    ("only", "installed", "message"),
    [
        (("sort", "sotr"), True, "no job 'sotr'.*The jobs are: .*sort"),
        (("sort",), False, "programs of all jobs are missing: "),
        ((), False, "programs of all jobs are missing: "),
    ],
)
def test_jobs_that_cannot_run_are_refused_before_anything_is_started(
    only: tuple[str, ...], installed: bool, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def opened(*_: object, **__: object) -> None:
        pytest.fail("A session was opened.")

    monkeypatch.setattr("stallward.benchmarks.harm.open_session", opened)
    monkeypatch.setattr(shutil, "which", lambda _: "/bin/true" if installed else None)
    request = HarmRequest(arms=make_arms(["none"]), policies={}, rounds=1, block_s=5.0, only=only)
    with pytest.raises(BenchError, match=message):
        bench_harm(HarmTally(), request)


def test_a_runner_without_a_job_ends_and_does_not_spin(tmp_path: Path) -> None:
    (tmp_path / "results.json").write_text("{}")
    options = argparse.Namespace(folder=tmp_path, only="", units=tmp_path / "units", seed=1)
    with pytest.raises(SystemExit, match="None of the jobs"):
        checked_jobs.run(options)


def test_a_job_with_a_wrong_result_is_told_from_one_that_is_right(tmp_path: Path) -> None:
    job = checked_jobs.Job(name="copy", program="sh", script='cat "$IN/data" >"$OUT"')
    (tmp_path / "in").mkdir()
    (tmp_path / "in/data").write_text("one")
    first = checked_jobs.run_job(job, tmp_path / "in", tmp_path / "scratch", "")
    again = checked_jobs.run_job(job, tmp_path / "in", tmp_path / "scratch", "")
    (tmp_path / "in/data").write_text("two")
    other = checked_jobs.run_job(job, tmp_path / "in", tmp_path / "scratch", "")
    assert first["digest"] == again["digest"] != other["digest"]
    failing = checked_jobs.Job(name="fail", program="sh", script="echo no >&2; false; echo never")
    outcome = checked_jobs.run_job(failing, tmp_path / "in", tmp_path / "scratch", "")
    assert (outcome["status"], outcome["said"], outcome["digest"]) == (1, "no", "")


def test_a_client_that_is_ended_while_it_reads_is_no_error_of_the_server(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "large").write_bytes(bytes(32 << 20))
    with checked_jobs.served(tmp_path) as url:
        host, port = url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as client:
            client.sendall(b"GET /large HTTP/1.0\r\n\r\n")
            assert client.recv(64).startswith(b"HTTP/1.0 200")
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        assert urllib.request.urlopen(f"{url}/large").read(8) == bytes(8), "it serves on"
    assert capfd.readouterr().err == ""


@pytest.mark.live
@pytest.mark.reaches
@pytest.mark.timeout(400)
def test_no_program_fails_under_the_default_rule_that_does_not_fail_without_it() -> None:
    if shutil.which("nginx", path="/usr/sbin:/usr/bin:/bin") is None:
        pytest.skip("nginx is not installed")
    tally = HarmTally()
    # Without swap, and programs of which two fill memory and one is interrupted in system calls:
    # under a limit that leaves nothing to reclaim these fail within a minute.
    bench_harm(
        tally,
        HarmRequest(
            arms=make_arms(["none", "partition"]),
            policies={},
            rounds=1,
            block_s=40.0,
            only=("sort", "readinto", "signals"),
        ),
    )
    seen = (tally.by_arm(), tally.failures(), tally.left_out)
    jobs = {row.arm: row.jobs for row in tally.by_arm()}
    assert jobs.keys() == {"none", "partition"}, seen
    assert min(jobs.values()) > 0, seen
    assert tally.harms(["partition"]) == (), seen
