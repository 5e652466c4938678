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

_DAEMON_IMAGE = "localhost/stallward"
_SYS_RESOURCE = 24


def _change(path: Path, folders: list[str]) -> None:
    config = json.loads(path.read_text())
    process = config["process"]
    status = Path("/proc/self/status").read_text()
    if not int(status.split("CapBnd:")[1].split()[0], 16) >> _SYS_RESOURCE & 1:
        process["oomScoreAdj"] = max(process.get("oomScoreAdj", 0), 0)
        for names in process.get("capabilities", {}).values():
            if "CAP_SYS_RESOURCE" in names:
                names.remove("CAP_SYS_RESOURCE")
    image = config.get("annotations", {}).get("io.kubernetes.cri.image-name", "")
    if image.startswith(_DAEMON_IMAGE):
        for folder in folders:
            options = ["rbind", "ro"]
            mount = {"destination": folder, "type": "bind", "source": folder, "options": options}
            config["mounts"].append(mount)
    path.write_text(json.dumps(config))


runc, places, *words = sys.argv[1:]
for word, value in itertools.pairwise(words):
    if word == "--bundle" and "create" in words:
        _change(Path(value) / "config.json", places.split(":"))
os.execv(runc, [runc, *words])
