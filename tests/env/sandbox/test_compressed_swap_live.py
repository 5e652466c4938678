"""A sandbox with compressed swap: its pages are compressed, its zone pays for them, nothing stays."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from stallward.actuator.kernel.memory.compressed_swap import zswap_dir
from stallward.actuator.kernel.paths import Paths
from stallward.env.errors import SandboxError
from stallward.env.sandbox.compressed_swap import check_compressed_swap, foreign_swap_bytes
from stallward.env.sandbox.sandbox import Sandbox, is_charged_by_kernel, open_sandbox
from stallward.env.scenario.scenario import CompressedSwap

MIB = 1024 * 1024
PATIENCE_S = 60.0
LIMIT_MIB = 100
ZSWAP = CompressedSwap(kind="zswap", compressor="lzo")
ZRAM = CompressedSwap(kind="zram", compressor="lzo")
# Pages of which a third cannot be compressed.
FILL = """
import os, sys, time
data = bytearray(int(sys.argv[1]) << 20)
for page in range(0, len(data), 4096):
    data[page : page + 1300] = os.urandom(1300)
time.sleep(600)
"""
SCRIPT = """
import sys, time
from pathlib import Path
from stallward.env.sandbox.sandbox import open_sandbox
from stallward.env.scenario.scenario import CompressedSwap
cache = Path(sys.argv[1])
with open_sandbox(
    slots=1, limit_bytes=100 << 20, swap_bytes=256 << 20, cache_dir=cache, state_dir=cache / "state",
    compressed_swap=CompressedSwap(kind=sys.argv[2], compressor="lzo"),
) as box:
    print(box.zone.name, flush=True)
    time.sleep(600)
"""

pytestmark = pytest.mark.live


@pytest.fixture(params=[ZSWAP, ZRAM], ids=lambda swap: swap.kind)
def swap(request: pytest.FixtureRequest) -> CompressedSwap:
    """Each kind, where the machine has it."""
    kind: CompressedSwap = request.param
    try:
        check_compressed_swap(kind, Paths())
    except SandboxError as error:
        pytest.skip(error.cause)
    return kind


def settings(cache: Path) -> dict[str, str]:
    """What of the machine compressed swap changes: zswap, zram devices, and what is swapped to.

    Swap files of other sandboxes come and go.
    """
    zswap = {path.name: path.read_text() for path in sorted(zswap_dir(Paths()).glob("*"))}
    devices = sorted(path.name for path in Path("/sys/block").glob("zram*"))
    swaps = sorted(line.split()[0] for line in Path("/proc/swaps").read_text().splitlines()[1:])
    swaps = [name for name in swaps if name.startswith((str(cache), "/dev/zram"))]
    return {**zswap, "zram": " ".join(devices), "swaps": " ".join(swaps)}


def wait_until(condition: Callable[[], bool]) -> bool:
    deadline_s = time.monotonic() + PATIENCE_S
    while not condition() and time.monotonic() < deadline_s:
        time.sleep(0.05)
    return condition()


def stored_and_pool_mib(before: dict[str, str]) -> tuple[float, float]:
    """How much is swapped out to the pool, and how much memory that takes."""
    made = set(settings(Path("/none"))["zram"].split()) - set(before["zram"].split())
    for device in made:
        columns = (Path("/sys/block") / device / "mm_stat").read_text().split()
        return int(columns[0]) / MIB, int(columns[2]) / MIB
    info = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    stored, pool = (int(info[key].split()[0]) / 1024 for key in ("Zswapped", "Zswap"))
    return stored, pool


def limit_mib(sandbox: Sandbox) -> float:
    folder = sandbox.zone.memory_dir
    assert folder is not None
    name = "memory.max" if sandbox.zone.hierarchy.kind == "v2" else "memory.limit_in_bytes"
    return int((folder / name).read_text()) / MIB


def test_pages_are_compressed_the_zone_pays_for_the_pool_and_nothing_stays(
    tmp_path: Path, swap: CompressedSwap
) -> None:
    before = settings(tmp_path)
    with open_sandbox(
        slots=1,
        limit_bytes=LIMIT_MIB * MIB,
        swap_bytes=256 * MIB,
        compressed_swap=swap,
        cache_dir=tmp_path,
        state_dir=tmp_path / "state",
    ) as sandbox:
        assert settings(tmp_path) != before
        others_mib = stored_and_pool_mib(before)
        group = sandbox.slots[0]
        enter = "".join(f"echo $$ > {path}/cgroup.procs; " for path in group.member_dirs)
        command = ["sh", "-c", enter + 'exec "$@"', "sh", sys.executable, "-c", FILL, "150"]
        with subprocess.Popen(command) as program:

            def grown_mib() -> tuple[float, float]:
                stored, pool = stored_and_pool_mib(before)
                return stored - others_mib[0], pool - others_mib[1]

            def paid() -> bool:
                """Whether the limit is lower by what the pool takes; zswap is the whole machine's."""
                pool = 0.0 if is_charged_by_kernel(swap, sandbox.zone) else grown_mib()[1]
                return abs(LIMIT_MIB - min(max(pool, 0.0), 50.0) - limit_mib(sandbox)) < 2

            assert wait_until(lambda: grown_mib()[0] > 50 and paid()), limit_mib(sandbox)
            stored, pool = grown_mib()
            sys.stdout.write(f"{stored=:.0f} {pool=:.0f} limit={limit_mib(sandbox):.0f} MiB\n")
            assert 0.2 * stored < pool < 0.6 * stored
            assert sandbox.oom_kills() == 0
            sandbox.kill()
            program.wait()
        assert wait_until(lambda: grown_mib()[0] < stored / 2 and paid()), limit_mib(sandbox)
    assert settings(tmp_path) == before


def test_a_killed_owner_leaves_no_compressed_swap(tmp_path: Path, swap: CompressedSwap) -> None:
    before = settings(tmp_path)
    argv = [sys.executable, "-c", SCRIPT, str(tmp_path), swap.kind]
    before_foreign_bytes = foreign_swap_bytes(Path("/proc"))
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("stallward/")
        during, during_foreign_bytes = settings(tmp_path), foreign_swap_bytes(Path("/proc"))
        process.send_signal(signal.SIGKILL)
    changed = {name for name in during if during[name] != before[name]}
    assert changed >= ({"enabled", "swaps"} if swap is ZSWAP else {"zram", "swaps"})
    if swap is ZRAM:
        assert during["swaps"].startswith("/dev/zram")
        assert during_foreign_bytes == before_foreign_bytes, "no other sandbox may count on it"
    assert wait_until(lambda: settings(tmp_path) == before), settings(tmp_path)
