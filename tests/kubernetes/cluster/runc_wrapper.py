"""Runs runc with what a root without CAP_SYS_RESOURCE may do.

Where root lacks it, as in many containers, runc starts nothing that has an OOM score below zero or
asks for that capability, so both are taken out of the container's configuration. And a container
of the image that stands for the daemon's sees folders of this machine, read-only: those in which
the daemon is installed.

usage: runc_wrapper.py RUNC FOLDER:FOLDER... ARGUMENTS-OF-RUNC
"""

import itertools
import json
import os
import sys
from pathlib import Path
from typing import Any

_DAEMON_IMAGE = "localhost/stallward"
_SYS_RESOURCE = 24


def _allow(process: Any) -> None:
    """Take out of a process what this root may not give it."""
    status = Path("/proc/self/status").read_text()
    if int(status.split("CapBnd:")[1].split()[0], 16) >> _SYS_RESOURCE & 1:
        return
    process["oomScoreAdj"] = max(process.get("oomScoreAdj") or 0, 0)
    for names in (process.get("capabilities") or {}).values():
        if names and "CAP_SYS_RESOURCE" in names:
            names.remove("CAP_SYS_RESOURCE")


def _change_container(path: Path, folders: list[str]) -> None:
    config = json.loads(path.read_text())
    _allow(config["process"])
    image = config.get("annotations", {}).get("io.kubernetes.cri.image-name", "")
    if image.startswith(_DAEMON_IMAGE):
        for folder in folders:
            options = ["rbind", "ro"]
            mount = {"destination": folder, "type": "bind", "source": folder, "options": options}
            config["mounts"].append(mount)
    path.write_text(json.dumps(config))


def _change_exec(path: Path) -> None:
    process = json.loads(path.read_text())
    _allow(process)
    path.write_text(json.dumps(process))


runc, places, *words = sys.argv[1:]
for word, value in itertools.pairwise(words):
    if word == "--bundle" and "create" in words:
        _change_container(Path(value) / "config.json", places.split(":"))
    elif word == "--process":
        _change_exec(Path(value))
os.execv(runc, [runc, *words])
