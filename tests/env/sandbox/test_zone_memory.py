"""The zone's memory is limited, and its swap where it is to have none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from stallward.actuator.kernel.cgroups import Hierarchy
from stallward.env.errors import SandboxError
from stallward.env.sandbox.sandbox import open_sandbox
from stallward.env.sandbox.zone_memory import limit_memory

MIB = 1024 * 1024
UNLIMITED = "9223372036854771712"


def hierarchy(root: Path, kind: str) -> Hierarchy:
    (root / "zone").mkdir(parents=True)
    unified = root if kind == "v2" else root / "unified"
    return Hierarchy(
        kind="v2" if kind == "v2" else "hybrid", memory_root=root, unified_root=unified
    )


def written(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    writes: list[tuple[str, str]] = []

    def write(path: Path, text: str) -> None:
        path.write_text(text)
        writes.append((path.name, text))

    monkeypatch.setattr("stallward.env.sandbox.zone_memory.write_text", write)
    return writes


def test_without_swap_the_limit_of_both_is_never_the_lower_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zone = hierarchy(tmp_path, "v1").group("zone")
    (tmp_path / "zone" / "memory.memsw.limit_in_bytes").write_text(f"{UNLIMITED}\n")
    writes = written(monkeypatch)
    for size in (100, 400, 100):
        limit_memory(zone, size, swap=False)
    names = [name.removeprefix("memory.").removesuffix("limit_in_bytes") for name, _ in writes]
    assert names == ["", "memsw.", "memsw.", "", "", "memsw."]
    assert [text for _, text in writes] == ["100", "100", "400", "400", "100", "100"]


def test_without_swap_v2_has_a_limit_of_zero(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zone = hierarchy(tmp_path, "v2").group("zone")
    writes = written(monkeypatch)
    limit_memory(zone, 100, swap=False)
    limit_memory(zone, 200, swap=True)
    assert writes == [("memory.swap.max", "0"), ("memory.max", "100"), ("memory.max", "200")]


def test_a_v1_kernel_that_does_not_count_swap_is_named(tmp_path: Path) -> None:
    zone = hierarchy(tmp_path, "v1").group("zone")
    with pytest.raises(SandboxError, match=r"memory\.memsw\.limit_in_bytes") as caught:
        limit_memory(zone, 100, swap=False)
    assert "swapaccount=1" in caught.value.next_step


@pytest.mark.live
def test_a_sandbox_without_swap_swaps_nothing_out(tmp_path: Path) -> None:
    before = Path("/proc/swaps").read_text().splitlines()
    with open_sandbox(
        slots=1,
        limit_bytes=64 * MIB,
        swap_bytes=0,
        cache_dir=tmp_path,
        state_dir=tmp_path / "state",
    ) as sandbox:
        assert len(Path("/proc/swaps").read_text().splitlines()) == len(before)
        group = sandbox.slots[0]
        enter = "".join(f"echo $$ > {path}/cgroup.procs; " for path in group.member_dirs)
        # 100 MiB do not fit: there is no swap that could take the rest.
        program = f"exec {sys.executable} -c 'b = b\"x\" * ({100 * MIB})'"
        done = subprocess.run(["sh", "-c", enter + program], check=False, env=os.environ)
        assert done.returncode == -9
        assert sandbox.oom_kills() >= 1
        sandbox.kill()
        sandbox.empty()
        sandbox.set_limit(256 * MIB)
        subprocess.run(["sh", "-c", enter + program], check=True, env=os.environ)
