"""A live comparison of two protected applications that harm each other, without background."""

from __future__ import annotations

from pathlib import Path

import pytest

from stallward.env.recording.applications import application_samples
from stallward.env.recording.recording import load_recording
from stallward.evaluation.arms import parse_arms
from stallward.evaluation.comparison.compare import run_comparison
from stallward.evaluation.comparison.request import ComparisonRequest
from stallward.evaluation.results.comparison import load_result

SCENARIO = """
summary = "two servers"
[sandbox]
limit_mib = 96
ample_mib = 512
swap_mib = 128
"""
APPLICATION = """
[[protected]]
name = "NAME"
ready = "{run}/s"
[protected.server]
command = ["{python}", "SERVER", "{run}/s", "MIB"]
[protected.load]
command = [
  "{workloads}/load", "--socket", "{run}/s", "--request", "%K\\n", "--rate", "50",
  "--seed", "{seed}", "--out", "{run}/requests.lines",
]
[protected.latency]
path = "{run}/requests.lines"
start = 0
sent = 1
end = 2
ok = 3
[protected.slo]
latency_ms = 20
"""
SERVER = """
import socket, sys, threading
memory = bytearray(int(sys.argv[2]) << 20)
s = socket.socket(socket.AF_UNIX)
s.bind(sys.argv[1])
s.listen()
def serve(c):
    while text := c.recv(64):
        first = int(text) * 4096
        for place in range(first, first + 256 * 4096, 4096):
            memory[place % len(memory)] = 1
        c.sendall(b"ok" + bytes([10]))
while True:
    threading.Thread(target=serve, args=(s.accept()[0],), daemon=True).start()
"""


@pytest.mark.live
@pytest.mark.reaches
def test_two_applications_are_compared_live(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "server.py").write_text(SERVER)
    text = SCENARIO
    for name in ("left", "right"):
        one = APPLICATION.replace("NAME", name).replace("MIB", "40")
        text += one.replace("SERVER", str(tmp_path / "server.py"))
    (tmp_path / "two.toml").write_text(text)
    request = ComparisonRequest(
        scenario=str(tmp_path / "two.toml"),
        arms=parse_arms("none,partition"),
        mode="live",
        rounds=1,
        block_s=3.0,
        burn_in_s=0.5,
        seed=1,
        out=tmp_path / "out",
        repeat_disturbed=False,
    )
    result = run_comparison(request).result
    assert load_result(tmp_path / "out") == result
    assert result.table.applications is not None
    assert set(result.table.applications) == {"alone", "ample", "none", "partition"}
    for condition, applications in result.table.applications.items():
        assert [one.application for one in applications] == ["left", "right"]
        for figures in applications:
            assert figures.p95_ms.value is not None, condition
            assert figures.slo_attainment.value is not None
    blocks = sorted((tmp_path / "out" / "blocks").iterdir())
    assert len(blocks) == 4, "there is no background to run by itself"
    for path in blocks:
        recording = load_recording(path, several=True)
        assert recording.run.other_applications == ("right",)
        assert recording.others["right"].ok.sum() > 100, "50 a second for 3.5 s"
        together = recording.tick("latency_completed_total")
        seen = len(recording.requests.ok) + len(recording.others["right"].ok)
        assert together[-1] > 0.8 * seen, "the daemon reads the requests of both"
        last = application_samples(recording.ticks)[-1]
        assert [one.name for one in last] == ["left", "right"]
        assert all(one.group.memory_usage_bytes for one in last)
        asked = [0 if one.latency is None else one.latency.completed_total for one in last]
        assert sum(asked) == together[-1], "and of each"
