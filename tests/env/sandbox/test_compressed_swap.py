"""Compressed swap is refused where it cannot be, set up as a scenario says, and put back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from stallward.actuator.journal.entries import JournalEntry, ZramDevice
from stallward.actuator.journal.own_entries import Owner, refusal
from stallward.actuator.journal.restore import restore
from stallward.actuator.kernel.memory.compressed_swap import zswap_dir
from stallward.actuator.kernel.paths import Paths
from stallward.env.errors import SandboxError
from stallward.env.sandbox.compressed_swap import check_compressed_swap, switch_on
from stallward.env.scenario.scenario import CompressedSwap

MIB = 1024 * 1024
ZSWAP = CompressedSwap(kind="zswap", compressor="lzo")
ZRAM = CompressedSwap(kind="zram", compressor="lzo")
BEFORE = {"enabled": "N", "compressor": "zstd", "max_pool_percent": "20"}
NUMBER = "987654"
DEVICE = Path(f"/dev/zram{NUMBER}")
"""No machine has so many, so that no real device is written."""
SWAPS = "Filename\tType\tSize\tUsed\tPriority\n"


@pytest.fixture
def node(tmp_path: Path) -> Paths:
    """A node with zswap that is off, one zram device that is not ours, and no swap."""
    paths = Paths(proc=tmp_path / "proc", cgroup=tmp_path / "cgroup", sys=tmp_path / "sys")
    paths.proc.mkdir()
    (paths.proc / "meminfo").write_text("MemTotal:     8388608 kB\nZswap:     12 kB\n")
    (paths.proc / "swaps").write_text(SWAPS)
    zswap_dir(paths).mkdir(parents=True)
    for name, value in BEFORE.items():
        (zswap_dir(paths) / name).write_text(f"{value}\n")
    control = paths.sys / "class/zram-control"
    control.mkdir(parents=True)
    (control / "hot_add").write_text(f"{NUMBER}\n")
    (control / "hot_remove").write_text("")
    device = paths.sys / "block" / DEVICE.name
    device.mkdir(parents=True)
    for name in ("comp_algorithm", "mem_limit", "disksize"):
        (device / name).write_text("")
    return paths


@dataclass
class Noted:
    """Takes entries, and looks at how the node was then."""

    look: Callable[[], object]
    entries: list[JournalEntry] = field(default_factory=list)
    seen: list[object] = field(default_factory=list)

    def __call__(self, entry: JournalEntry) -> None:
        self.entries.append(entry)
        self.seen.append(self.look())


def zswap_now(node: Paths) -> dict[str, str]:
    return {name: (zswap_dir(node) / name).read_text().strip() for name in BEFORE}


def test_zswap_is_switched_on_only_once_all_of_it_is_noted_and_is_put_back(node: Paths) -> None:
    note = Noted(lambda: zswap_now(node))
    pool = switch_on(ZSWAP, size_bytes=MIB, most_bytes=840 * MIB, paths=node, note=note)
    assert note.seen == [BEFORE] * 3
    # 840 MiB are 10.25 % of 8 GiB.
    assert zswap_now(node) == {"enabled": "Y", "compressor": "lzo", "max_pool_percent": "10"}
    assert pool() == 12 * 1024
    assert [refusal(entry, node, Owner.SANDBOX) for entry in note.entries] == [""] * 3
    assert restore(note.entries, node, Owner.SANDBOX) == ()
    assert zswap_now(node) == BEFORE


def test_a_small_pool_is_rounded_to_one_percent_and_not_to_none(node: Paths) -> None:
    switch_on(ZSWAP, size_bytes=MIB, most_bytes=30 * MIB, paths=node, note=Noted(lambda: None))
    assert zswap_now(node)["max_pool_percent"] == "1"


def test_a_zram_device_is_noted_before_it_has_a_size(node: Paths) -> None:
    device = node.sys / "block" / DEVICE.name
    note = Noted((device / "disksize").read_text)
    # There is no such device to swap to.
    with pytest.raises(SandboxError, match=str(DEVICE)):
        switch_on(ZRAM, size_bytes=64 * MIB, most_bytes=30 * MIB, paths=node, note=note)
    assert (note.entries, note.seen) == ([ZramDevice(DEVICE)], [""])
    assert (device / "comp_algorithm").read_text() == "lzo"
    assert (device / "mem_limit").read_text() == str(30 * MIB)
    assert (device / "disksize").read_text() == str(64 * MIB)


def test_a_zram_device_that_cannot_be_noted_does_not_stay(node: Paths) -> None:
    def refuse(entry: JournalEntry) -> None:
        raise SandboxError(f"no room for {entry}")

    with pytest.raises(SandboxError, match="no room"):
        switch_on(ZRAM, size_bytes=MIB, most_bytes=MIB, paths=node, note=refuse)
    assert (node.sys / "class/zram-control/hot_remove").read_text() == NUMBER
    assert (node.sys / "block" / DEVICE.name / "disksize").read_text() == ""


def without_zswap(node: Paths) -> None:
    zswap_dir(node).rename(node.sys / "elsewhere")


def without_its_size(node: Paths) -> None:
    (node.proc / "meminfo").write_text("MemTotal: 8388608 kB\n")


def without_zram(node: Paths) -> None:
    (node.sys / "class/zram-control/hot_add").unlink()


def with_swap(node: Paths) -> None:
    (node.proc / "swaps").write_text(f"{SWAPS}/dev/zram0 partition 4000 0 100\n")


@pytest.mark.parametrize(
    ("swap", "change", "cause", "step"),
    [
        (ZSWAP, without_zswap, "needs zswap", "CONFIG_ZSWAP"),
        (ZSWAP, without_its_size, "needs zswap", "5.19"),
        (ZRAM, without_zram, "needs zram", "modprobe zram"),
        (ZRAM, with_swap, "beside the swap of this machine", "swapoff"),
    ],
)
def test_what_is_missing_is_named_with_a_next_step(
    node: Paths, swap: CompressedSwap, change: Callable[[Paths], None], cause: str, step: str
) -> None:
    check_compressed_swap(swap, node)
    change(node)
    with pytest.raises(SandboxError, match=cause) as caught:
        check_compressed_swap(swap, node)
    assert step in caught.value.next_step
