"""Targets: the kernel's files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import fuzz_reference as reference
from fresh_parsers import parse_stat_v1, parse_stat_v2, parse_vmstat
from fuzz_mutations import Material
from fuzz_target import Folder, Target, sound, sound_signed

from stallward.actuator.errors import KernelFileError, SensorError
from stallward.actuator.journal.restore import is_swap
from stallward.actuator.kernel.files import OpenFile, read_text
from stallward.actuator.kernel.hierarchies import detect
from stallward.actuator.kernel.paths import Paths
from stallward.actuator.sensors.files.flat import SignalFile, parse_frozen, parse_single
from stallward.actuator.sensors.files.memcg import parse_limit_v1
from stallward.actuator.sensors.files.psi import parse_psi

PATH: Final = Path("/proc/x")
SAMPLES: Final = Path(__file__).parent / "samples"
FLAT_KEYS: Final = (b"max", b"total_rss", b"anon", b"frozen", b"oom_kill")

Check = Callable[[bytes, Any], None]


def sample(*names: str) -> tuple[bytes, ...]:
    """The contents of files in ``samples``."""
    return tuple((SAMPLES / name).read_bytes() for name in names)


def same_as(read: Callable[[bytes], Any]) -> Check:
    """A check that the value is the one that the reference reads, which must not refuse."""

    def check(content: bytes, value: Any) -> None:
        sound_signed(content, value)
        expected = read(content)
        assert expected is not None, "the reference refuses it"
        assert value == expected, f"the reference reads {expected!r}"

    return check


def kernel(
    name: str,
    parse: Callable[[bytes, Path], Any],
    samples: tuple[bytes, ...],
    check: Check = sound,
    values: tuple[bytes, ...] = (),
    *,
    errors: tuple[type[KernelFileError], ...] = (SensorError,),
    slow: int = 1,
) -> Target:
    """A reader of one kernel file."""
    return Target(
        name=name,
        run=lambda content: parse(content, PATH),
        material=Material(samples=samples, values=values),
        errors=errors,
        names=str(PATH),
        check=check,
        slow=slow,
    )


def flat_check(pairs: dict[str, str], most: int = reference.MAX) -> Check:
    """A check of the fields in ``pairs``, which maps each to its key in the file.

    Where none of these is there, the value may hold other fields, and is not checked.
    """

    def check(content: bytes, value: Any) -> None:
        sound(content, value)
        values = reference.flat(content, [key.encode() for key in pairs.values()], most)
        if values is None and any(getattr(value, name) is not None for name in value.__slots__):
            values = [None] * len(pairs)
        assert values is not None, "the reference refuses it"
        for (name, key), expected in zip(pairs.items(), values, strict=True):
            assert getattr(value, name) == expected, f"{key} is {expected}"

    return check


def one_check(key: bytes, convert: Callable[[int], Any] = lambda value: value) -> Check:
    def check(content: bytes, value: Any) -> None:
        values = reference.flat(content, [key])
        assert values is not None, "the reference refuses it"
        assert value == (None if values[0] is None else convert(values[0]))

    return check


def _limit_v1(content: bytes) -> tuple[int | None] | None:
    digits = content.removesuffix(b"\n")
    if digits != content and digits.isdigit() and len(digits) <= 20:
        limit_bytes = int(digits)  # before kernel 3.19, "no limit" has all 64 bits
        if reference.MAX < limit_bytes < 1 << 64:
            return (None,)
    limit = reference.single(content)
    return limit if limit is None or (limit[0] or 0) < 1 << 62 else (None,)


def _unpacked(read: Callable[[bytes], tuple[Any] | None]) -> Check:
    """A check for readers that return None for no limit."""

    def check(content: bytes, value: Any) -> None:
        expected = read(content)
        assert expected is not None, "the reference refuses it"
        assert value == expected[0], f"the reference reads {expected[0]!r}"

    return check


def _memory_v2(content: bytes, value: Any) -> None:
    sound(content, value)
    keys = [b"anon", b"shmem", b"file", b"inactive_file", b"pgmajfault", b"file_dirty"]
    anon, shared, file, inactive, faults, dirty = of_machine(content, keys)
    assert value.inactive_file_bytes == inactive
    assert (value.major_faults, value.dirty_bytes) == (faults, dirty)
    if lost(content, b"shmem", shared):
        assert (value.file_bytes, value.anon_bytes) == (None, None)
        return
    assert value.file_bytes == (None if file is None else max(file - (shared or 0), 0))
    if lost(content, b"anon", anon):
        assert value.anon_bytes is None
        return
    assert value.anon_bytes == (shared if anon is None else anon + (shared or 0))


def of_machine(content: bytes, keys: list[bytes]) -> list[int | None]:
    """The counters of a file of which at least one other counter can be understood."""
    return reference.flat(content, keys, reference.MACHINE) or [None] * len(keys)


def lost(content: bytes, key: bytes, value: int | None) -> bool:
    """Whether a counter is or may be in the file, and cannot be understood."""
    lines, whole = reference.whole_lines(content)
    return value is None and (not whole or any(line.split(b" ")[0] == key for line in lines))


def _memory_v1(content: bytes, value: Any) -> None:
    sound(content, value)
    values = of_machine(content, [b"total_inactive_file", b"total_pgmajfault", b"total_swap"])
    assert values == [value.inactive_file_bytes, value.major_faults, value.swap_bytes]


def check_schedstat(content: bytes, value: int) -> None:
    parts = reference.words(content.replace(b"\n", b" "))
    assert len(parts) == 3
    waited = reference.count(parts[1])
    assert waited is not None
    assert value == waited // 1000


def size_lines(pairs: dict[str, bytes]) -> Check:
    """A check of the fields in ``pairs``, which maps each to the key of its line in kB."""

    def check(content: bytes, value: Any) -> None:
        sound(content, value)
        for name, key in pairs.items():
            texts = reference.keyed(content, key)
            parsed = value if name == "" else getattr(value, name)
            if parsed is None:
                parts = reference.words(texts[0]) if texts else []
                known = reference.count(parts[0]) if parts[1:] == [b"kB"] else None
                assert known is None or known * 1024 > reference.MAX, f"{name} is {known} kB"
                continue
            first = reference.words(texts[0]) if texts else []
            assert len(first) == 2, f"{key!r} is not there"
            assert first[1] == b"kB"
            size = reference.count(first[0])
            assert size is not None
            assert parsed == size * 1024

    return check


def _in_file(read: Callable[[Path], Any]) -> Callable[[bytes, Path], Any]:
    """A reader of inputs: it writes each to a real file for a reader of files."""
    folder = Folder()
    path = folder.path / "file"

    def run(content: bytes, _path: Path) -> Any:
        assert folder is not None  # keeps it
        path.write_bytes(content)
        return read(path)

    return run


def _open_file(path: Path) -> tuple[bytes | None, str | None, bytes]:
    file = OpenFile(path, SensorError)
    try:
        first = file.read()
        assert file.read() == first, "the second read differs"
        return first, read_text(path), path.read_bytes()
    finally:
        file.close()


def _whole_file(content: bytes, value: Any) -> None:
    read, text, there = value
    assert read == there == content
    assert text == content.decode("utf-8", "replace").strip()


def _psi_file(path: Path) -> Any:
    absent: tuple[int | None, int | None] = (None, None)
    file = SignalFile(path, parse_psi, absent)
    try:
        return file.read(), file.fault
    finally:
        file.close()


def _psi_file_check(content: bytes, value: Any) -> None:
    totals, fault = value
    expected = reference.psi(content)
    assert fault is not None or expected is not None
    assert fault is None or expected is None or None in expected
    assert totals == (expected or (None, None))


def _tables() -> tuple[Target, ...]:
    """The targets for the tables of mounts and swaps."""
    folder = Folder()
    root = folder.path
    (root / "proc/self").mkdir(parents=True)
    cgroup = root / "cgroup"
    for name in ("unified", "memory", "cpu"):
        (cgroup / name).mkdir(parents=True)
    paths = Paths(proc=root / "proc", cgroup=cgroup)

    def mounts(content: bytes, _path: Path) -> Any:
        assert folder is not None  # keeps it
        (root / "proc/self/mounts").write_bytes(content)
        return detect(paths)

    def check(_content: bytes, value: Any) -> None:
        assert value.kind in {"v2", "hybrid", "none"}
        assert value.why
        assert all(path.is_relative_to(cgroup) for path in value.roots)
        assert (value.kind == "none") == (value.memory_root is None)

    def swaps(content: bytes, _path: Path) -> bool:
        return is_swap(Path("/var/swap file"), content.decode("utf-8", "replace"))

    def check_swaps(content: bytes, value: bool) -> None:
        assert value == (b"/var/swap\\040file" in content and value), (
            "a swap file that is not listed"
        )

    return (
        kernel("mounts", mounts, sample("mounts.txt", "mounts-v2.txt"), check),
        kernel("swaps", swaps, sample("swaps.txt"), check_swaps),
    )


def targets() -> tuple[Target, ...]:
    """All targets of this file."""
    vmstat = sample("vmstat.txt")
    stat_v2 = sample("memory-stat-v2.txt", "memory-stat-v2-old.txt")
    stat_v1 = sample("memory-stat-v1.txt")
    vmstat_keys = {"major_faults": "pgmajfault", "swap_in_pages": "pswpin"}
    return (
        kernel(
            "psi",
            parse_psi,
            sample("psi-memory.txt", "psi-io.txt", "psi-cpu.txt"),
            same_as(reference.psi),
        ),
        kernel(
            "vmstat",
            parse_vmstat,
            vmstat,
            flat_check(vmstat_keys, reference.MACHINE),
            (b"pgmajfault",),
        ),
        kernel("memory-stat-v2", parse_stat_v2, stat_v2, _memory_v2, (b"anon", b"shmem")),
        kernel("memory-stat-v1", parse_stat_v1, stat_v1, _memory_v1, (b"total_rss",)),
        kernel(
            "cgroup-events",
            parse_frozen,
            sample("cgroup-events.txt"),
            one_check(b"frozen", bool),
            FLAT_KEYS,
        ),
        kernel(
            "single",
            parse_single,
            sample("single.txt", "single-max.txt"),
            _unpacked(reference.single),
            (b"max",),
        ),
        kernel(
            "limit-v1",
            parse_limit_v1,
            sample("single.txt", "limit-v1-none.txt"),
            _unpacked(_limit_v1),
        ),
        kernel(
            "open-file",
            _in_file(_open_file),
            sample("psi-memory.txt", "vmstat.txt"),
            _whole_file,
        ),
        kernel("psi-file", _in_file(_psi_file), sample("psi-memory.txt"), _psi_file_check),
        *_tables(),
    )
