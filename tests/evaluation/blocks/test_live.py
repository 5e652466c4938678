"""Live blocks run policies over gRPC and the remote arm, and leave nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest

from stallward.benchmarks.onset import write_reflex_policy
from stallward.env.recording.recording import Recording, load_recording
from stallward.env.scenario.file import load_scenario, shipped_files
from stallward.evaluation.arms import Arm
from stallward.evaluation.blocks.live import LiveSession, open_session
from stallward.evaluation.blocks.request import RunRequest
from stallward.evaluation.measures.block_measures import measure_recording
from stallward.models.registry import find_twin

pytestmark = [pytest.mark.live, pytest.mark.reaches]
CGROUPS = (Path("/sys/fs/cgroup/memory/stallward"), Path("/sys/fs/cgroup/unified/stallward"))


def _groups() -> set[str]:
    return {str(p) for root in CGROUPS if root.exists() for p in root.iterdir() if p.is_dir()}


def _knobs() -> dict[str, str]:
    names = (
        "swappiness",
        "dirty_bytes",
        "dirty_ratio",
        "dirty_background_bytes",
        "dirty_background_ratio",
        "overcommit_memory",
    )
    return {name: Path("/proc/sys/vm", name).read_text() for name in names}


def _swaps() -> set[str]:
    return {line.split()[0] for line in Path("/proc/swaps").read_text().splitlines()}


@pytest.fixture(scope="module")
def session() -> Iterator[LiveSession]:
    with open_session(load_scenario("detector-anon")) as opened:
        yield opened


@pytest.fixture
def reflex(tmp_path: Path) -> Path:
    path = tmp_path / "reflex.onnx"
    write_reflex_policy(path)
    return path


def _request(arm: Arm, policy: Path) -> RunRequest:
    return RunRequest(
        condition="together",
        arm=arm,
        policy=policy,
        slo_ms=100.0,
        duration_s=6.0,
        burn_in_s=4.0,
        seed=1,
    )


def _lookups(recording: Recording) -> tuple[float, float]:
    """The page-cache hits and misses of a block; NaN where nothing is counted."""
    hits, misses = (recording.tick(f"zone_page_cache_{kind}") for kind in ("hits", "misses"))
    return float(hits[-1] - hits[0]), float(misses[-1] - misses[0])


def test_a_policy_is_loaded_and_activated_over_grpc_and_pauses_the_hogs(
    session: LiveSession, tmp_path: Path, reflex: Path
) -> None:
    knobs = _knobs()
    request = _request(Arm(label="onnx", spec=f"onnx:path={reflex}"), reflex)
    session.run(request, tmp_path / "out")
    recording = load_recording(tmp_path / "out")
    assert recording.run.arm == "onnx"
    assert recording.run.policy_sha256 == request.policy_sha256 != ""
    assert "MODE_ACTIVE" in set(recording.actions["mode"])
    assert "onnx" in set(recording.actions["controller"])
    assert np.nansum(recording.tick("slot0_state_paused")) > 0, "the policy never paused anything"
    block = measure_recording(tmp_path / "out")
    assert block.latency_ms.size > 50
    assert block.paused_s.sum() > 0.0
    assert _knobs() == knobs
    refused = [one for one in recording.run.missing if "page cache by eBPF" in one]
    assert bool(refused) == bool(np.isnan(_lookups(recording)).all()), recording.run.missing
    for again in range(2):
        if refused or min(_lookups(recording)) > 0:
            break
        session.run(request, tmp_path / f"again-{again}")
        recording = load_recording(tmp_path / f"again-{again}")
    assert refused or min(_lookups(recording)) > 0, "a detector that reads files looked none up"


def test_partition_leaves_the_application_its_memory_and_everything_as_it_was(
    session: LiveSession, tmp_path: Path, reflex: Path
) -> None:
    """Two hogs want more than there is beside the detector; their limits leave room for it."""
    knobs = _knobs()
    arm = Arm(label="partition", spec="partition:far_ratio=0")
    session.run(_request(arm, reflex), tmp_path / "out")
    recording = load_recording(tmp_path / "out")
    assert "flush" in set(recording.actions["granted_profile"]), "the detector lives on files"
    limits = [recording.tick(f"slot{i}_state_limit_bytes") for i in range(2)]
    together = limits[0] + limits[1]
    settled = together[np.isfinite(together)][20:]
    assert len(settled) > 20, "the hogs were hardly ever limited"
    demand = np.nanmin(recording.tick("protected_memory_usage_bytes")[-20:])
    zone = recording.run.sandbox_bytes
    seen = f"limits together {np.median(settled):.0f}, application {demand:.0f}, zone {zone}"
    assert np.median(settled) < zone - 0.5 * demand, seen
    assert _knobs() == knobs


def test_the_remote_arm_decides_in_another_process_and_holds_a_lease(
    session: LiveSession, tmp_path: Path, reflex: Path
) -> None:
    session.run(_request(Arm(label="remote", spec="remote"), reflex), tmp_path / "out")
    recording = load_recording(tmp_path / "out")
    assert "remote" in set(recording.actions["controller"])
    assert "lease held" in set(recording.actions["reason"])
    assert np.nansum(recording.tick("slot0_state_paused")) > 0, "no remote pause was applied"


def test_the_arm_mpc_plans_beside_the_daemon_until_the_block_ends(
    session: LiveSession, tmp_path: Path
) -> None:
    """A plan that fails ends the process, and so the lease. The actions depend on the node."""
    arm = Arm(label="mpc", spec="mpc")
    session.run(_request(arm, find_twin("detector-anon")), tmp_path / "out")
    recording = load_recording(tmp_path / "out")
    reasons = [str(reason) for reason in recording.actions["reason"]]
    last = len(reasons) - reasons[::-1].index("lease held")
    planned = reasons[reasons.index("lease held") : last]
    assert len(planned) > 10
    assert set(planned) == {"lease held"}, "the lease was released before the end"


MAIN = "import sys; from stallward.evaluation.cli import main; sys.exit(main(sys.argv[1:]))"


@pytest.fixture
def temporary() -> Iterator[Path]:
    """A folder with a short name, because the path of a socket must fit into 107 bytes."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def test_a_comparison_killed_while_its_daemon_starts_leaves_no_temporary_folder(
    tmp_path: Path, temporary: Path
) -> None:
    arguments = ["compare", "detector-anon", "--arms", "static:pause=all", "--blocks", "1"]
    with subprocess.Popen(
        [sys.executable, "-c", MAIN, *arguments, "--out", str(tmp_path / "out")],
        env=os.environ | {"TMPDIR": str(temporary)},
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        guardians: list[psutil.Process] = []
        while not guardians and process.poll() is None:
            time.sleep(0.02)
            guardians = _guardians(temporary)
        time.sleep(0.3)  # its children are about to make their files
        process.kill()
        _, errors = process.communicate()
    assert guardians, errors
    assert psutil.wait_procs(guardians, timeout=20)[1] == []
    deadline_s = time.monotonic() + 10.0
    while list(temporary.iterdir()) and time.monotonic() < deadline_s:
        time.sleep(0.05)
    assert [str(path) for path in temporary.rglob("*")] == []


def _guardians(folder: Path) -> list[psutil.Process]:
    """Return the guardians whose files are below ``folder``."""
    processes = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if "stallward.actuator.guardian" in words and str(folder) in " ".join(words):
            processes.append(process)
    return processes


def test_ctrl_c_leaves_a_resumable_directory_and_nothing_else(tmp_path: Path) -> None:
    before, knobs = _groups(), _knobs()
    swaps = _swaps()
    out = tmp_path / "out"
    scenario = tmp_path / "detector-anon.toml"
    shipped = shipped_files()[scenario.stem].read_text()
    scenario.write_text(shipped.replace("calibration_s = 135", "calibration_s = 5"))
    assert scenario.read_text() != shipped
    arguments = ["compare", str(scenario), "--arms", "static:pause=all", "--blocks", "1"]
    arguments += ["--block-seconds", "4", "--burn-in-seconds", "1", "--out", str(out)]
    with subprocess.Popen(
        [sys.executable, "-c", MAIN, *arguments], stderr=subprocess.PIPE, text=True
    ) as process:
        deadline_s = time.monotonic() + 90.0
        while not list(out.glob("blocks/*/block.json")) and time.monotonic() < deadline_s:
            time.sleep(0.1)
        time.sleep(4.0)  # into the next block
        os.kill(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    finished = list(out.glob("blocks/*"))
    assert finished
    assert all((p / "block.json").exists() for p in finished)
    assert _groups() == before
    assert _knobs() == knobs
    assert _swaps() == swaps
