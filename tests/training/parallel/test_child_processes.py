"""What was started below a process ends with it, also where a process between them was killed."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import psutil

PROGRAM = textwrap.dedent("""
    import os, signal, subprocess, sys, time
    from stallward.training.parallel import ray_cluster as child_processes
    child_processes._ENDING_S = 0.5
    mine = subprocess.Popen(["sleep", "600"])
    with child_processes.processes_ended():
        script = "sleep 600 2>/dev/null & echo $!; wait"
        between = subprocess.Popen(["sh", "-c", script], stdout=-1, text=True)
        print(between.stdout.readline(), end="", flush=True)
        between.send_signal(signal.SIGKILL)
        between.wait()
    print("kept" if mine.poll() is None else "ended")
    mine.kill()
    mine.wait()
    orphan = subprocess.run(
        ["sh", "-c", "sleep 600 >/dev/null & echo $!"], stdout=-1, text=True
    ).stdout
    import psutil
    sleeper = psutil.Process(int(orphan))
    print("ours" if sleeper.ppid() == os.getpid() else "the system's")
    sleeper.kill()
""")


def test_a_process_that_lost_its_parent_is_ended_too_and_one_from_before_is_kept() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    orphan, mine, later = done.stdout.split("\n")[:3]
    left = psutil.pid_exists(int(orphan))
    if left:
        psutil.Process(int(orphan)).kill()
    assert not left
    assert mine == "kept"
    assert later == "the system's", "orphans are adopted for the time of the with alone"
