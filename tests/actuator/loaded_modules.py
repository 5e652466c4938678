"""Starts a node of a configuration, runs some ticks, and prints the modules that were loaded.

Run: ``python loaded_modules.py FOLDER < CONFIGURATION``; the folder is an empty one, in which the
groups ``app``, ``app2``, ``batch`` and ``kubepods/pod1`` are made.
"""

from __future__ import annotations

import json
import socket
import sys
from dataclasses import replace
from pathlib import Path

import stallward.actuator.loop.__main__
import stallward.actuator.loop.loop
from stallward.actuator.config.load import parse_config
from stallward.actuator.levers.base.plugin import levers_of
from stallward.actuator.node.node import Node, make_engine
from stallward.agent.registry import make_controller

PROCESS = (stallward.actuator.loop.__main__, stallward.actuator.loop.loop)
"""What the process imports, whatever its configuration."""
TICKS = 12
"""More than the ticks in which every group has its turn."""
FILES = {
    "cgroup.freeze": "0\n",
    "cgroup.events": "populated 1\nfrozen 0\n",
    "cgroup.procs": "",
    "memory.current": "104857600\n",
    "memory.swap.current": "0\n",
    "memory.high": "max\n",
    "memory.max": "max\n",
    "memory.stat": "anon 62914560\nfile 41943040\n",
    "memory.events": "low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\n",
    "memory.pressure": "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
    "full avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
    "cpu.weight": "100\n",
    "cpu.stat": "usage_usec 0\nuser_usec 0\nsystem_usec 0\n",
}


def loaded() -> dict[str, str]:
    """The modules of our own that are loaded, each with its file; without what protoc generated."""
    return {
        name: module.__file__
        for name, module in sys.modules.items()
        if name.startswith("stallward.") and not name.endswith("_pb2") and module.__file__
    }


def make_files(folder: Path) -> None:
    """Make what a node has of /proc and of cgroups."""
    (folder / "proc/self").mkdir(parents=True)
    (folder / "proc/self/mounts").write_text("cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n")
    (folder / "proc/meminfo").write_text("MemTotal: 1024000 kB\nMemAvailable: 512000 kB\n")
    for name in ("app", "app2", "batch", "kubepods/pod1"):
        (folder / "cgroup" / name).mkdir(parents=True)
        for file, content in FILES.items():
            (folder / "cgroup" / name / file).write_text(content)
    (folder / "cgroup/cgroup.controllers").write_text("cpu io memory\n")


def main() -> None:
    """Print the modules after the start, and those that the ticks have added."""
    folder = Path(sys.argv[1])
    make_files(folder)
    config = parse_config(sys.stdin.read())
    node_config = replace(
        config.node, proc=folder / "proc", cgroup=folder / "cgroup", sys=folder / "sys"
    )
    config = replace(config, node=node_config)
    ours, _theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    controller = make_controller(config.control.controller)
    node = Node(
        config,
        lambda *_: None,
        latencies=(ours,) * len(config.latencies),
        work=ours,
        pods=ours,
        plugins=levers_of(config.control.controller, config.control.levers),
    )
    engine = make_engine(config, node, controller, make_controller, frozenset())
    started = loaded()
    for tick in range(TICKS):
        sample = node.read(tick, 1.0 + tick / 10)
        node.apply(engine.step(sample).granted, sample, 1.0 + tick / 10)
    node.release(3.0)
    added = sorted(loaded().keys() - started.keys())
    json.dump({"started": started, "added": added, "kind": node.hierarchy.kind}, sys.stdout)


if __name__ == "__main__":
    main()
