"""The kernel's type information, from files made by hand and from the kernel that runs."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from stallward.actuator.errors import SensorError
from stallward.actuator.kernel.bpf import Btf

WANTED = ("read_it", "btf_trace_hit", "outer", "colours", "nothing")
REAL = Path("/sys/kernel/btf/vmlinux")


class TypeInformation:
    """Type information made by adding types and names one after the other."""

    def __init__(self) -> None:
        self.names = b"\0"
        self.types = b""
        self.count = 0

    def name(self, text: str) -> int:
        if not text:
            return 0
        at = len(self.names)
        self.names += text.encode() + b"\0"
        return at

    def add(self, name: str, kind: int, size: int, *rest: int, count: int = 0) -> int:
        self.types += struct.pack("<III", self.name(name), kind << 24 | count, size)
        self.types += struct.pack(f"<{len(rest)}I", *rest)
        self.count += 1
        return self.count

    def content(self) -> bytes:
        sizes = (0, len(self.types), len(self.types), len(self.names))
        return struct.pack("<HBBIIIII", 0xEB9F, 1, 0, 24, *sizes) + self.types + self.names


def kernel() -> bytes:
    m = TypeInformation()
    number = m.add("int", 1, 4, 0x20)
    inner = m.add(
        "", 4, 16, m.name("near"), number, 0, m.name("far"), number, 64, count=2
    )  # struct
    constant = m.add("", 10, inner)
    m.add("outer", 4, 24, m.name("first"), number, 0, 0, constant, 64, count=2)
    proto = m.add("", 13, number, m.name("what"), number, m.name("where"), number, count=2)
    m.add("read_it", 12, proto)
    pointer = m.add("", 2, proto)
    m.add("btf_trace_hit", 8, pointer)
    m.add("colours", 6, 4, m.name("RED"), 3, m.name("GREEN"), 7, count=2)
    m.add("", 17, 0, 0)
    m.add("", 19, 8, m.name("HUGE"), 0, 1, count=1)
    return m.content()


def open_kernel(content: bytes) -> Btf:
    return Btf(content, Path("vmlinux"), WANTED)


def test_tracepoints_fields_and_constants_are_found_by_name() -> None:
    btf = open_kernel(kernel())
    tracepoint = btf.tracepoint("btf_trace_hit")
    assert tracepoint is not None
    assert (tracepoint.type_id, tracepoint.arguments) == (8, ("where",))
    assert btf.field_offset("outer", "first") == 0
    # Through an anonymous constant structure 8 bytes in.
    assert btf.field_offset("outer", "far") == 16
    assert btf.field_offset("outer", "older_name", "near") == 8
    assert btf.enumerator("colours", "GREEN") == 7


def test_a_name_that_the_kernel_does_not_have_is_none() -> None:
    btf = open_kernel(kernel())
    assert btf.tracepoint("nothing") is None
    assert btf.field_offset("outer", "nothing") is None
    assert btf.field_offset("nothing", "first") is None
    assert btf.enumerator("colours", "BLUE") is None


@pytest.mark.parametrize(
    ("content", "cause"),
    [
        (b"", "only 0 bytes"),
        (b"\x7fELF" + bytes(40), "not type information"),
        (kernel()[:-1], "are announced"),
        (kernel()[:60], "are announced"),
        (struct.pack("<HBBIIIII", 0xEB9F, 2, 0, 24, 0, 0, 0, 0), "version 2"),
        (struct.pack("<HBBIIIII", 0xEB9F, 1, 0, 24, 0, 12, 12, 0) + b"\xff" * 12, "type 1"),
        (
            struct.pack("<HBBIIIII", 0xEB9F, 1, 0, 24, 0, 12, 12, 1)
            + struct.pack("<III", 0, 4 << 24 | 9, 0)
            + b"\0",
            "cut off",
        ),
    ],
)
def test_malformed_type_information_is_an_error_with_its_path(content: bytes, cause: str) -> None:
    with pytest.raises(SensorError, match=cause) as raised:
        open_kernel(content)
    assert raised.value.path == Path("vmlinux")


def test_a_reference_to_no_type_is_an_error() -> None:
    m = TypeInformation()
    m.add("btf_trace_hit", 8, 99)
    with pytest.raises(SensorError, match="no type 99"):
        open_kernel(m.content()).tracepoint("btf_trace_hit")


@pytest.mark.skipif(not REAL.exists(), reason="this kernel has no type information")
def test_the_running_kernel_is_understood() -> None:
    name = "btf_trace_mm_filemap_add_to_page_cache"
    btf = Btf(REAL.read_bytes(), REAL, (name, "list_head"))
    tracepoint = btf.tracepoint(name)
    assert tracepoint is not None
    assert len(tracepoint.arguments) == 1
    assert btf.field_offset("list_head", "prev") == 8
