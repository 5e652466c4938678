"""A User-mode Linux kernel is built from the right source, and ends with whoever booted it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import bounded_run
import pytest
from machines import kernel_source
from machines.kernel_source import Source
from machines.machine import Boot, SkippedError
from machines.user_mode import UserMode

LISTED = """
linux-source-6.12 | 6.12.90-1~bpo13+1 | http://deb.debian.org/debian trixie-backports/main
 linux-source-7.9 | 7.9.4-1~bpo13+1 | http://deb.debian.org/debian trixie-backports/main
 linux-source-7.9 | 7.9.3-1~bpo13+1 | http://deb.debian.org/debian trixie-backports/main
linux-source-7.10 | 7.10.2-1~bpo13+1 | http://deb.debian.org/debian trixie-backports/main
linux-source-7.10 | 7.10.1-1~bpo13+1 | http://deb.debian.org/debian trixie-backports/main
"""


def test_the_source_that_is_named_is_taken_although_there_is_a_newer_one() -> None:
    for version in ("7.9.3-1~bpo13+1", "7.9.4-1~bpo13+1"):
        named = Source("linux-source-7.9", version)
        assert kernel_source.chosen(LISTED, named) == named


def test_the_newest_source_is_taken_where_the_named_one_is_gone() -> None:
    gone = Source("linux-source-7.9", "7.9.2-1~bpo13+1")
    assert kernel_source.chosen(LISTED, gone) == Source("linux-source-7.10", "7.10.2-1~bpo13+1")


def test_a_source_with_one_processor_is_not_taken() -> None:
    assert kernel_source.chosen("\n".join(LISTED.splitlines()[:2]), Source("", "")) is None


def test_options_that_the_source_does_not_have_are_named() -> None:
    asked = "# Memory.\nCONFIG_A=y\n# CONFIG_B is not set\nCONFIG_C=2\n"
    assert kernel_source.lost(asked, "CONFIG_A=y\nCONFIG_C=2\nCONFIG_E=y\n") == []
    assert kernel_source.lost(asked, "CONFIG_B=y\n# CONFIG_A is not set\n") == [
        "CONFIG_A",
        "CONFIG_C",
        "CONFIG_B",
    ]


def test_the_configuration_asks_for_every_option_once() -> None:
    text = kernel_source.CONFIG.read_text()
    lines = [line for line in text.splitlines() if "CONFIG_" in line]
    assert len(kernel_source.options(text)) == len(lines)


def test_the_configuration_names_its_source() -> None:
    package, version = kernel_source.pinned(kernel_source.CONFIG.read_text())
    assert package.startswith(kernel_source.PACKAGES)
    assert version.startswith(package.removeprefix(kernel_source.PACKAGES))


def test_kernels_are_kept_in_the_users_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert kernel_source.kernel_folder() == tmp_path / "stallward" / "uml"


def test_a_kernel_of_another_configuration_is_not_taken(tmp_path: Path) -> None:
    assert kernel_source.built(tmp_path) is None
    (tmp_path / "linux-7.9.1-1-00000000").touch()
    assert kernel_source.built(tmp_path) is None
    text = kernel_source.CONFIG.read_text()
    version = kernel_source.pinned(text).version
    kernel = tmp_path / f"linux-{version}-{kernel_source.config_hash(text)}"
    kernel.touch()
    assert kernel_source.built(tmp_path) == kernel
    assert kernel_source.build_kernel(tmp_path) == kernel


def test_a_kernel_of_another_version_than_the_one_named_says_how_to_keep_to_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = kernel_source.CONFIG.read_text()
    source, digest = kernel_source.pinned(text), kernel_source.config_hash(text)
    named = tmp_path / f"linux-{source.version}-{digest}"
    newest = tmp_path / f"linux-99.1-1-{digest}"
    newest.touch()
    assert kernel_source.build_kernel(tmp_path) == newest
    (line,) = capsys.readouterr().out.splitlines()
    for part in (*source, newest.name, "'# Source:' of user_mode.config"):
        assert part in line
    newest.unlink()
    named.touch()
    assert kernel_source.build_kernel(tmp_path) == named
    assert capsys.readouterr().out == ""


def test_a_kernel_is_named_by_the_configuration_that_it_was_built_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if the file changes meanwhile."""
    config, asked_first = tmp_path / "config", "# Source: linux-source-9.1 9.1-1\nCONFIG_A=y\n"
    config.write_text(asked_first)

    def compiled(_source: Path, folder: Path, asked: str) -> Path:
        config.write_text(asked_first.replace("_A", "_B"))
        (folder / "linux").write_text(asked)
        return folder / "linux"

    monkeypatch.setattr(kernel_source, "CONFIG", config)
    monkeypatch.setattr(kernel_source, "check", lambda build: build.mkdir())
    monkeypatch.setattr(kernel_source, "run", lambda *_: "")
    monkeypatch.setattr(kernel_source.Apt, "find", lambda _, source: source)
    monkeypatch.setattr(kernel_source.Apt, "download", _downloaded)
    monkeypatch.setattr(kernel_source, "compile_kernel", compiled)
    kernel = kernel_source.build_kernel(tmp_path / "build")
    assert kernel.read_text() == asked_first
    assert kernel.name == f"linux-9.1-1-{kernel_source.config_hash(asked_first)}"
    assert kernel_source.built(tmp_path / "build") is None


def _downloaded(apt: kernel_source.Apt, source: Source) -> Path:
    folder = apt.folder / "usr" / "src"
    folder.mkdir(parents=True)
    (folder / f"{source.package}.tar.xz").touch()
    archive = apt.folder / "package.deb"
    archive.touch()
    return archive


def test_a_missing_compiler_is_named_with_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SkippedError, match=r"cc \(package gcc\).*flex \(package flex\)"):
        kernel_source.check(tmp_path)


def test_too_little_space_is_said_in_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_source, "TOOLS", {})
    monkeypatch.setattr(kernel_source, "KEYRING", tmp_path)
    monkeypatch.setattr(kernel_source, "FREE_BYTES", 1 << 60)
    with pytest.raises(SkippedError, match=r"[\d.]+ GiB are free in .*, building takes \d+"):
        kernel_source.check(tmp_path)


def test_what_fails_or_hangs_is_a_reason_to_skip(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SkippedError, match="the thing: no such luck"):
        kernel_source.run(["sh", "-c", "echo no such luck >&2; exit 3"], tmp_path, "the thing")
    monkeypatch.setattr(kernel_source, "BUILD_LIMIT_S", 0.1)
    with pytest.raises(SkippedError, match="the thing: not done after"):
        kernel_source.run(["sleep", "60"], tmp_path, "the thing")


def test_its_memory_and_its_root_are_bounded(tmp_path: Path) -> None:
    boot = Boot(
        tree=tmp_path / "tree",
        results=tmp_path / "results",
        scratch=tmp_path / "scratch",
        swap=tmp_path / "swap",
        disk=tmp_path / "disk",
        memory_mib=700,
        cpus=2,
    )
    command = UserMode(tmp_path).command(boot)
    assert {"mem=700M", "ncpus=2", "ro", "rootflags=/", f"ubd0={tmp_path}/swap"} <= set(command)
    assert command[command.index("--", command.index("init=/bin/sh")) + 2 :] == [
        str(tmp_path / "results"),
        str(tmp_path / "tree"),
        sys.base_prefix,
    ]


def ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@pytest.mark.skipif(os.geteuid() != 0, reason="not root")
def test_after_a_kill_of_whoever_booted_it_no_process_is_left(tmp_path: Path) -> None:
    """Even a process of the machine that has left its session."""
    boot = Boot(
        tree=tmp_path,
        results=tmp_path,
        scratch=tmp_path,
        swap=tmp_path / "swap",
        disk=tmp_path / "disk",
        memory_mib=64,
        cpus=1,
    )
    command = UserMode(tmp_path).command(boot)
    kernel = command.index(str(tmp_path / "none"))
    command[kernel:] = ["sh", "-c", "setsid sleep 1000 & exec sleep 1000"]
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import bounded_run, os, pathlib\n"
        "here = pathlib.Path(sys.argv[2])\n"
        "bounded_run.run_bounded(sys.argv[3:], console=here / 'c', follow=here / 'f',\n"
        "    env=dict(os.environ), limit_s=60)\n"
    )
    folder = str(Path(bounded_run.__file__).parent)
    words = [sys.executable, "-c", code, folder, str(tmp_path), *command]
    booter = subprocess.Popen(words)
    deadline_s = time.monotonic() + 20
    while len(found := descendants(booter.pid)) < 4 and time.monotonic() < deadline_s:
        time.sleep(0.02)
    assert len(found) == 4, "timeout, unshare, and two that sleep"
    booter.send_signal(signal.SIGKILL)
    booter.wait()
    deadline_s = time.monotonic() + 20
    while not all(map(ended, found)) and time.monotonic() < deadline_s:
        time.sleep(0.02)
    assert [pid for pid in found if not ended(pid)] == []


def test_what_a_killed_build_has_left_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_source, "check", lambda _: None)
    monkeypatch.setattr(kernel_source, "run", _fails)
    (tmp_path / "part-old" / "objects").mkdir(parents=True)
    with pytest.raises(SkippedError, match="no network"):
        kernel_source.build_kernel(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]


def _fails(*_: object) -> str:
    raise SkippedError("no network")


def descendants(pid: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            if parent == pid:
                found += [int(entry.name), *descendants(int(entry.name))]
    return found
