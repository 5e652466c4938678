"""The pool of compressed swap is taken from the limit of a zone, up to a bound."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from stallward.actuator.kernel.cgroups import Cgroup, Hierarchy
from stallward.env.errors import SandboxError
from stallward.env.sandbox.sandbox import (
    PoolCharge,
    charged_limit_bytes,
    is_charged_by_kernel,
)
from stallward.env.scenario.scenario import CompressedSwap

MIB = 1024 * 1024
PATIENCE_S = 60.0


def zone(tmp_path: Path, kind: str) -> tuple[Cgroup, Path]:
    """A zone and the file of its limit."""
    name = "memory.max" if kind == "v2" else "memory.limit_in_bytes"
    hierarchy = Hierarchy(
        kind="v2" if kind == "v2" else "hybrid",
        memory_root=tmp_path,
        unified_root=tmp_path if kind == "v2" else tmp_path / "unified",
    )
    group = hierarchy.group("zone")
    (tmp_path / "zone").mkdir()
    (tmp_path / "zone" / name).write_text("")
    return group, tmp_path / "zone" / name


@pytest.mark.parametrize(
    ("growth_mib", "left_mib"), [(-3, 100), (0, 100), (20, 80), (50, 50), (70, 50)]
)
def test_a_limit_is_lowered_by_the_growth_up_to_a_bound(growth_mib: int, left_mib: int) -> None:
    assert charged_limit_bytes(100 * MIB, growth_mib * MIB, 50 * MIB) == left_mib * MIB


@pytest.mark.parametrize(
    ("swap", "kind", "by_kernel"),
    [("zswap", "v1", False), ("zram", "v1", False), ("zswap", "v2", True), ("zram", "v2", False)],
)
def test_the_kernel_charges_zswap_with_v2_and_nothing_else(
    tmp_path: Path, swap: str, kind: str, by_kernel: bool
) -> None:
    group, _ = zone(tmp_path, kind)
    compressed = CompressedSwap(kind="zswap" if swap == "zswap" else "zram", compressor="lzo")
    assert is_charged_by_kernel(compressed, group) is by_kernel


def until(path: Path, mib: int) -> int:
    """Wait for a limit; returns the limit in MiB."""
    deadline_s = time.monotonic() + PATIENCE_S
    while path.read_text() != str(mib * MIB) and time.monotonic() < deadline_s:
        time.sleep(0.01)
    return int(path.read_text()) // MIB


@pytest.mark.parametrize("kind", ["v1", "v2"])
def test_the_limit_follows_the_pool_and_the_limit_that_is_set(tmp_path: Path, kind: str) -> None:
    group, limit = zone(tmp_path, kind)
    pool_mib = [7]
    with PoolCharge(group, lambda: pool_mib[0] * MIB, 60 * MIB) as charge:
        charge.set_limit(100 * MIB)
        assert until(limit, 100) == 100, "what others have in the pool is not the sandbox's"
        pool_mib[0] = 37
        assert until(limit, 70) == 70
        pool_mib[0] = 17
        assert until(limit, 90) == 90
        charge.set_limit(200 * MIB)
        assert until(limit, 190) == 190


def test_a_limit_that_is_refused_is_tried_again(tmp_path: Path) -> None:
    group, limit = zone(tmp_path, "v1")
    pool_mib = [0]
    with PoolCharge(group, lambda: pool_mib[0] * MIB, 60 * MIB) as charge:
        charge.set_limit(100 * MIB)
        away = limit.rename(limit.with_name("away"))
        pool_mib[0] = 10
        time.sleep(0.3)
        away.rename(limit)
        assert until(limit, 90) == 90


def test_a_first_limit_that_is_refused_is_an_error(tmp_path: Path) -> None:
    group, limit = zone(tmp_path, "v1")
    limit.unlink()
    with pytest.raises(SandboxError, match="Cannot limit"):
        PoolCharge(group, lambda: 0, MIB).set_limit(MIB)
