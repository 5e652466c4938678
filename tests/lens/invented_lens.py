"""An invented /proc for tests of the lens, whose every number is known."""

from __future__ import annotations

from pathlib import Path

from stallward.actuator.kernel.cgroups import Hierarchy

SAMPLES = Path(__file__).parents[1] / "fuzz/samples"

ROLLUP = """55d6c8400000-7ffd00021000 ---p 00000000 00:00 0                          [rollup]
Rss:                2280 kB
Pss:                 700 kB
Pss_Dirty:           108 kB
Pss_Anon:            108 kB
Pss_File:            592 kB
Pss_Shmem:             0 kB
Shared_Clean:       1600 kB
Shared_Dirty:         40 kB
Private_Clean:       132 kB
Private_Dirty:       508 kB
Referenced:         2100 kB
Anonymous:           108 kB
LazyFree:              0 kB
AnonHugePages:         0 kB
Swap:                 60 kB
SwapPss:              30 kB
Locked:                8 kB
"""
PRESSURE = (
    "some avg10={0}.25 avg60={0}.50 avg300={0}.75 total={0}1000\n"
    "full avg10={0}.01 avg60={0}.02 avg300={0}.03 total={0}2000\n"
)
MEMINFO = """MemTotal:       16000 kB
MemFree:         4000 kB
MemAvailable:    9000 kB
Buffers:          400 kB
Cached:          5000 kB
SwapCached:         7 kB
Inactive(file):   900 kB
AnonPages:       3000 kB
Shmem:            320 kB
SReclaimable:     600 kB
Dirty:             40 kB
Writeback:          8 kB
SwapTotal:       8000 kB
SwapFree:        6000 kB
"""


class InventedProc:
    """A directory like /proc, with one processor and as many processes as a test adds."""

    def __init__(self, root: Path) -> None:
        self.path = root
        root.mkdir(exist_ok=True)
        (root / "meminfo").write_text(MEMINFO)
        (root / "vmstat").write_text(
            "nr_dirtied 77\npswpin 11\npswpout 12\npgmajfault 13\nallocstall_normal 2\n"
        )
        (root / "stat").write_text("cpu  10 0 20 300 40 0 0 0 0 0\n")
        (root / "diskstats").write_bytes((SAMPLES / "diskstats.txt").read_bytes())
        (root / "pressure").mkdir(exist_ok=True)
        for number, resource in enumerate(("memory", "cpu", "io"), start=1):
            (root / "pressure" / resource).write_text(PRESSURE.format(number))

    def process(
        self,
        pid: int,
        *,
        start: int = 1000,
        parent: int = 1,
        name: str = "yolo (v3), x",
        state: str = "S",
        rss_kib: int = 2280,
        cpu_ticks: int = 50,
        rss_pages: int = 570,
    ) -> Path:
        """Add a process, or change it; returns its directory."""
        folder = self.path / str(pid)
        folder.mkdir(exist_ok=True)
        used = f"21 0 22 0 {cpu_ticks} 3 0 0 20 0 4 0"
        fields = f"{parent} 1 1 0 -1 4194304 {used} {start} 8192000 {rss_pages}"
        (folder / "stat").write_text(f"{pid} ({name}) {state} {fields} 0 0\n")
        (folder / "status").write_text(
            f"Name:\t{name}\nState:\t{state} (is)\nVmRSS:\t{rss_kib} kB\nRssAnon:\t100 kB\n"
            "RssFile:\t1800 kB\nRssShmem:\t8 kB\nVmSwap:\t60 kB\nThreads:\t4\n"
        )
        (folder / "io").write_text("rchar: 1\nread_bytes: 4096\nwrite_bytes: 8192\n")
        (folder / "oom_score").write_text("667\n")
        (folder / "comm").write_text(f"{name}\n")
        (folder / "smaps_rollup").write_text(ROLLUP)
        (folder / "smaps").write_bytes((SAMPLES / "smaps.txt").read_bytes())
        return folder

    def end(self, pid: int) -> None:
        """Remove a process."""
        folder = self.path / str(pid)
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()


def hierarchy(root: Path, group: str, pids: tuple[int, ...]) -> Hierarchy:
    """A v2 hierarchy with one group."""
    folder = root / group
    folder.mkdir(parents=True)
    (root / "cgroup.procs").write_text("")
    (folder / "cgroup.procs").write_text("".join(f"{pid}\n" for pid in pids))
    (folder / "memory.current").write_text("40960\n")
    (folder / "memory.max").write_text("max\n")
    for number, resource in enumerate(("memory", "cpu", "io"), start=4):
        (folder / f"{resource}.pressure").write_text(PRESSURE.format(number))
    return Hierarchy(kind="v2", memory_root=root, unified_root=root)
