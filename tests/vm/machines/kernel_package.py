"""Downloads the package of Debian's current kernel and unpacks it, without installing it."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Final

from machines.machine import SkippedError, say

META_PACKAGE: Final = "linux-image-amd64"
# The parts of the kernel package that are unpacked: 30 MB of 400.
MODULES: Final = (
    "/kernel/arch/x86/crypto/",
    "/kernel/block/",
    "/kernel/crypto/",
    "/kernel/drivers/block/",
    "/kernel/drivers/char/",
    "/kernel/drivers/virtio/",
    "/kernel/fs/9p/",
    "/kernel/fs/ext4/",
    "/kernel/fs/fscache/",
    "/kernel/fs/jbd2/",
    "/kernel/fs/mbcache",
    "/kernel/fs/netfs/",
    "/kernel/fs/overlayfs/",
    "/kernel/lib/",
    "/kernel/net/9p/",
    "/modules.",
)


def is_unpacked(name: str) -> bool:
    """Return whether a file of the kernel package is unpacked."""
    if "/boot/" in name:
        return "/vmlinuz-" in name
    return "/lib/modules/" in name and any(part in name for part in MODULES)


def unpack(package: Path, folder: Path) -> None:
    """Unpack the image and the needed modules from a kernel package.

    Raises:
        OSError: If the package cannot be read.
    """
    command = ["dpkg-deb", "--fsys-tarfile", str(package)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        with tarfile.open(fileobj=process.stdout, mode="r|") as archive:
            for member in archive:
                if member.isfile() and is_unpacked(member.name):
                    archive.extract(member, folder)
        if process.wait() != 0:
            raise OSError(f"dpkg-deb cannot read {package}")


def kernel_package() -> str:
    """Return the name of the package with Debian's current kernel.

    Raises:
        SkippedError: If apt knows none.
    """
    listed = subprocess.run(
        ["apt-cache", "depends", "--important", META_PACKAGE],
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    names = [line.split()[-1] for line in listed.splitlines() if "Depends: linux-image" in line]
    if not names:
        raise SkippedError(f"apt knows no package {META_PACKAGE} (is this Debian?)")
    return names[0]


def fetch_kernel(folder: Path) -> Path:
    """Return the kernel image below ``folder``; the first call downloads and unpacks it.

    Raises:
        SkippedError: If it cannot be downloaded.
    """
    images = sorted(folder.glob("boot/vmlinuz-*"))
    if images:
        return images[-1]
    part = folder.with_name("kernel.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    if os.geteuid() == 0:  # an old list names packages that are gone
        subprocess.run(["apt-get", "update", "-q"], capture_output=True, check=False)
    name = kernel_package()
    say(f"downloading {name}")
    done = subprocess.run(
        ["apt-get", "download", "-q", name], cwd=part, capture_output=True, text=True, check=False
    )
    packages = list(part.glob("*.deb"))
    if done.returncode != 0 or not packages:
        raise SkippedError(f"{name} cannot be downloaded: {done.stderr.strip()[-300:]}")
    unpack(packages[0], part)
    packages[0].unlink()
    shutil.rmtree(folder, ignore_errors=True)
    part.rename(folder)
    return next(folder.glob("boot/vmlinuz-*"))
