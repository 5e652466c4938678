"""The Debian package, on the releases that it is for: from nothing to decisions, and away again.

Each release is a folder that debootstrap makes. What runs in it has its own processes and mounts,
and the groups of this machine, of which it gets two that the test makes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from stallward.actuator.kernel.hierarchies import detect
from stallward.actuator.kernel.paths import DEFAULT_PATHS

pytestmark = [pytest.mark.install, pytest.mark.timeout(1800)]

ROOT = Path(__file__).resolve().parents[2]
HOW_TO = ROOT / "docs/how-to/protect-your-application.md"
RELEASES = {"bookworm": "3.11", "trixie": "3.13"}
"""Debian 12 and 13, and the minor version of their Python."""
MOST_BYTES = 232_000_000
"""What it may take on disk, byte code included: it was 228 MB with what `fleet` needs."""
ZONE = f"node-test-{os.getpid()}"
ENTER = """
mount --make-rprivate /
mount -t proc proc "$1/proc"
mount --rbind /sys "$1/sys"
mount --rbind /dev "$1/dev"
exec chroot "$1" sh -euc "$2"
"""
PREPARE = f"""
{{ for folder in $GROUPS_OF; do echo $$ >$folder/{ZONE}/web/cgroup.procs; done; }}
nginx -g 'daemon off;' &
(
  for folder in $GROUPS_OF; do echo $(sh -c 'echo $PPID') >$folder/{ZONE}/batch/cgroup.procs; done
  exec python3 -c 'held = bytearray(64 << 20); import time; time.sleep(600)'
) &
for folder in $GROUPS_OF; do echo $$ >$folder/cgroup.procs; done
curl -sf -o /dev/null --retry 50 --retry-delay 1 --retry-connrefused http://127.0.0.1/
"""
"""A web server and a job, each in a group of its own."""
SERVE = f"""
stallward init --protect {ZONE}/web --background {ZONE}/batch --target-ms 25
stallward doctor
stallward serve >/var/log/stallward.log 2>&1 &
until stallward ctl status 2>/dev/null; do
  kill -0 $! || {{ cat /var/log/stallward.log; exit 1; }}
  sleep 0.2
done
"""
REMOVE = """
if apt remove stallward; then exit 1; fi
stallward ctl status
kill $!; wait $!
apt remove stallward
"""


def enter(root: Path, script: str) -> subprocess.CompletedProcess[str]:
    """Run a script in a release; whatever it has started ends with it."""
    inside = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
    done = subprocess.run(
        [*inside, "sh", "-euc", ENTER, "sh", str(root), script],
        env={
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "GROUPS_OF": " ".join(map(str, hierarchies())),
            "DEBIAN_FRONTEND": "noninteractive",
            "LC_ALL": "C.UTF-8",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=900,
    )
    sys.stdout.write(done.stdout)
    return done


def hierarchies() -> list[Path]:
    """The roots of the hierarchies in which a group has memory, freezer and stalls."""
    cgroup = DEFAULT_PATHS.cgroup
    if detect(DEFAULT_PATHS).kind == "v2":
        return [cgroup]
    return [path for name in ("memory", "unified") if (path := cgroup / name).is_dir()]


@pytest.fixture(scope="module", params=RELEASES)
def package(request: pytest.FixtureRequest) -> tuple[str, Path]:
    """The name of a release, and the package for it."""
    done = subprocess.run(
        [ROOT / "scripts/deb.sh", RELEASES[request.param]],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert done.returncode == 0
    return request.param, ROOT / done.stdout.strip()


@pytest.fixture(scope="module")
def root(package: tuple[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release without Stallward, and the package in its folder /root."""
    release, deb = package
    made = ROOT / "build/install" / release
    if not (made / "root").is_dir():
        made.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            [
                "debootstrap",
                "--variant=minbase",
                "--include=ca-certificates,curl,nginx-light,procps",
                release,
                made,
            ],
            check=True,
        )
    root = tmp_path_factory.mktemp(release) / "node"
    subprocess.run(["cp", "-a", made, root], check=True)
    shutil.copy(deb, root / "root")
    shutil.copy("/etc/resolv.conf", root / "etc/resolv.conf")
    (root / "usr/sbin/policy-rc.d").write_text("#!/bin/sh\nexit 101\n")
    (root / "usr/sbin/policy-rc.d").chmod(0o755)
    (root / "etc/apt/apt.conf.d/99-test").write_text('APT::Get::Assume-Yes "true";\nquiet "2";\n')
    return root


@pytest.fixture
def groups() -> Iterator[None]:
    """A zone with two groups, in which nothing is limited."""
    with ExitStack() as stack:
        for hierarchy in hierarchies():
            for name in (ZONE, f"{ZONE}/web", f"{ZONE}/batch"):
                (hierarchy / name).mkdir()
                stack.callback((hierarchy / name).rmdir)
        yield


@pytest.mark.usefixtures("groups")
def test_it_is_installed_watches_a_service_and_is_removed(root: Path) -> None:
    line = "apt install ./stallward_*.deb"
    assert f"```sh\n{line}\n```" in HOW_TO.read_text()
    installed = enter(root, f"apt-get update; cd /root; {line}")
    assert installed.returncode == 0
    files = [path for path in (root / "opt").rglob("*") if path.is_file()]
    size_bytes = sum(path.lstat().st_size for path in files)
    sys.stdout.write(f"{size_bytes / 1e6:.0f} MB with byte code\n")
    assert size_bytes < MOST_BYTES

    listed = enter(root, PREPARE + "stallward init")
    assert listed.returncode == 0
    row = next(line for line in listed.stdout.splitlines() if line.startswith(f"{ZONE}/web"))
    assert " 80 " in row
    assert "nginx" in row
    assert "/var/log/nginx/access.log" in row

    served = enter(root, PREPARE + SERVE + REMOVE)
    assert served.returncode == 0
    assert "wrote /etc/stallward/stallward.toml" in served.stdout
    assert "a daemon runs without systemd" in served.stdout
    assert not (root / "opt/stallward").exists(), "byte code goes, too"
    assert (root / "etc/stallward/stallward.toml").exists(), "the configuration stays"

    unit = root / "etc/systemd/system/stallward.service"
    unit.parent.mkdir(parents=True, exist_ok=True)
    unit.write_text("# Written by an administrator\n")
    purged = enter(root, "apt purge stallward")
    assert purged.returncode == 0
    assert not (root / "etc/stallward").exists()
    assert unit.exists(), "it was not made by `stallward unit`"


def test_commands_have_pages_and_completions(package: tuple[str, Path], tmp_path: Path) -> None:
    _, deb = package
    subprocess.run(["dpkg-deb", "-x", deb, tmp_path], check=True)
    share = tmp_path / "usr/share"
    pages = {path.name for path in (share / "man/man1").iterdir()}
    assert {"stallward.1.gz", "stallward-init.1.gz", "stallward-serve.1.gz"} <= pages
    page = share / "man/man1/stallward-init.1.gz"
    text = subprocess.run(["zcat", page], capture_output=True, text=True, check=True).stdout
    assert "Look at this node, and write a configuration to begin with." in text
    for completion in (
        "bash-completion/completions/stallward",
        "zsh/vendor-completions/_stallward",
        "fish/vendor_completions.d/stallward.fish",
    ):
        assert "stallward" in (share / completion).read_text()
    assert (share / "doc/stallward/reference/alerts.yml").exists()
