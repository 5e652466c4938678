"""What the machine did meanwhile is counted."""

from __future__ import annotations

import os
import time
from pathlib import Path

from stallward.papers.experiments.machine_use import MachineWatch


def test_time_in_which_nothing_runs_is_idle() -> None:
    watch = MachineWatch(Path("/proc"))
    time.sleep(0.5)
    use = watch.since()
    assert 0.0 <= use.idle_s <= 1.5 * (os.cpu_count() or 1)


def test_what_is_written_and_synced_is_counted(tmp_path: Path) -> None:
    watch = MachineWatch(Path("/proc"))
    with (tmp_path / "file").open("wb") as file:
        file.write(os.urandom(8 << 20))
        os.fsync(file.fileno())
    use = watch.since()
    assert use.disk_bytes >= 8 << 20
    assert use.disk_requests >= 1


def test_major_faults_are_those_of_vmstat(tmp_path: Path) -> None:
    vmstat = tmp_path / "vmstat"
    vmstat.write_text("pgfault 12\npgmajfault 100\n")
    watch = MachineWatch(tmp_path)
    vmstat.write_text("pgfault 99\npgmajfault 142\n")
    assert watch.since().major_faults == 42
    vmstat.write_text("pgfault 99\n")
    assert watch.since().major_faults == 0
