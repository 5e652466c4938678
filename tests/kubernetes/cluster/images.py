"""Container images made here, with one program each: a node has no registry to ask."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path


def _add(archive: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    archive.addfile(entry, io.BytesIO(content))


def write_image(
    path: Path, name: str, files: Mapping[str, Path | str], command: Sequence[str]
) -> None:
    """Write an image as `docker save` does.

    Args:
        path: The archive.
        name: The image's name and tag.
        files: What is in it: programs of this machine, or where a symbolic link leads.
        command: What a container of it runs.
    """
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as archive:
        for folder in ("bin", "etc", "host", "proc", "run", "sys", "tmp", "var", "var/run"):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(entry)
        for inside, source in files.items():
            if isinstance(source, Path):
                _add(archive, inside, source.read_bytes(), 0o755)
            else:
                entry = tarfile.TarInfo(inside)
                entry.type, entry.linkname = tarfile.SYMTYPE, source
                archive.addfile(entry)
    content = layer.getvalue()
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Entrypoint": list(command), "Env": [f"PATH={Path(command[0]).parent}:/bin"]},
        "rootfs": {
            "type": "layers",
            "diff_ids": [f"sha256:{hashlib.sha256(content).hexdigest()}"],
        },
    }
    manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
    with tarfile.open(path, "w") as archive:
        _add(archive, "config.json", json.dumps(config).encode())
        _add(archive, "layer.tar", content)
        _add(archive, "manifest.json", json.dumps(manifest).encode())
