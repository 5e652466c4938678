"""Reading Lackey's text: what it means, and what each kind of broken input is told."""

from __future__ import annotations

import gzip
import io
import shutil
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallward.lens.errors import TraceError
from stallward.lens.workingset.analysis import AnalysisSettings, analyse
from stallward.lens.workingset.lackey import LackeyReader
from stallward.lens.workingset.pages import PageSettings
from stallward.lens.workingset.valgrind import traced_program

HEAD = b"==7== Lackey, an example Valgrind tool\n==7== \n"
REFERENCES = b"I  0401ab70,3\n S 1fff000758,8\n L 1FFF000758,8\n M 00000010,4\nI  0401ab73,5\n"
TAIL = b"==7== \n"
MEANT = [
    (0, 0x401AB70, 3),
    (2, 0x1FFF000758, 8),
    (1, 0x1FFF000758, 8),
    (3, 0x10, 4),
    (0, 0x401AB73, 5),
]


def read(text: bytes, *, chunk_bytes: int = 1 << 16) -> tuple[list[tuple[int, int, int]], object]:
    """The references, and the error that ended them."""
    found: list[tuple[int, int, int]] = []
    try:
        for some in LackeyReader(io.BytesIO(text).readinto, chunk_bytes=chunk_bytes):
            columns = (some.classes, some.addresses, some.sizes)
            found += zip(*(column.tolist() for column in columns), strict=True)
    except TraceError as error:
        return found, error
    return found, None


@pytest.mark.parametrize("chunk_bytes", [1, 2, 3, 7, 20, 1000])
@pytest.mark.parametrize("text", [REFERENCES, HEAD + REFERENCES + TAIL], ids=["bare", "whole"])
def test_chunks_of_any_size_give_the_same_references(text: bytes, chunk_bytes: int) -> None:
    assert read(text, chunk_bytes=chunk_bytes) == (MEANT, None)


BROKEN = {
    "truncated within a line": (HEAD + REFERENCES + b" L 1fff", "within line 8"),
    "truncated within a size": (REFERENCES + b"I  0401ab70,3", "within line 6"),
    "truncated between lines": (HEAD + REFERENCES, "after line 7 without Valgrind's closing"),
    "foreign": (REFERENCES + b"Hello, world\n" + REFERENCES, "Line 6 is neither"),
    "output of the program in a line": (REFERENCES + b"I  04hello01ab70,3\n", "Line 6 is neither"),
    "output of the program before a line": (
        REFERENCES + b"hiI  0401ab70,3\n",
        "Line 6 is neither",
    ),
    "two processes": (HEAD + REFERENCES + b"==8== x\n" + REFERENCES, "Line 8 is of process 8"),
    "an empty line": (REFERENCES + b"\n" + REFERENCES, "Line 6 is neither"),
    "a size of nothing": (REFERENCES + b"I  0401ab70,0\n", "Line 6 is neither"),
    "no size": (REFERENCES + b"I  0401ab70,\n", "Line 6 is neither"),
    "no address": (REFERENCES + b"I  ,3\nI  0401ab70,3\n", "Line 6 is neither"),
    "an address too long": (REFERENCES + b"I  " + b"f" * 17 + b",3\n", "Line 6 is neither"),
    "a line without end": (REFERENCES + b"I  " + b"f" * 5000, "Line 6 is neither"),
    "another without end": (REFERENCES + b"x" * 9000, "Line 6 is neither"),
    "a size too long": (REFERENCES + b"I  0401ab70,123456\n", "Line 6 is neither"),
    "carriage returns": (REFERENCES + b"I  0401ab70,3\r\n", "Line 6 is neither"),
    "an unknown class": (REFERENCES + b" X 0401ab70,3\n", "Line 6 is neither"),
    "binary": (REFERENCES + bytes(range(256)) + b"\n", "Line 6 is neither"),
}


@pytest.mark.parametrize("chunk_bytes", [13, 1 << 16])
@pytest.mark.parametrize("kind", BROKEN)
def test_broken_input_names_its_line_and_what_came_before_is_kept(
    kind: str, chunk_bytes: int
) -> None:
    text, cause = BROKEN[kind]
    found, error = read(text, chunk_bytes=chunk_bytes)
    assert found[:5] == MEANT
    assert len(found) == 5
    assert cause in str(error)


@given(
    st.lists(
        st.sampled_from([HEAD, REFERENCES, TAIL, b"I  0", b",", b"\n", b" L ", b"==", b"x"])
        | st.binary(max_size=20)
    ),
    st.integers(1, 50),
)
def test_any_text_is_read_or_refused_alike_in_any_chunks(parts: list[bytes], size: int) -> None:
    text = b"".join(parts)
    found, error = read(text)
    again, error_again = read(text, chunk_bytes=size)
    assert (again, str(error_again)) == (found, str(error))
    if error is None:
        lines = [line for line in text.splitlines() if line[:1] in (b"I", b" ")]
        assert len(found) == len(lines)


def test_an_analysis_keeps_what_was_read_and_says_why_it_ended() -> None:
    found = analyse(io.BytesIO(REFERENCES + b"Hello\n").readinto, AnalysisSettings())
    assert (found.lines, found.time, found.pages) == (5, 2, 3)
    assert "Line 6" in str(found.error)


@pytest.mark.parametrize(
    ("text", "settings_", "cause"),
    [
        (b"", AnalysisSettings(), "no references"),
        (HEAD + TAIL, AnalysisSettings(), "no references"),
        (b"Hello\n", AnalysisSettings(), "Line 1 is neither"),
        (b" L 00001000,8\n", AnalysisSettings(), "no instructions"),
        (
            b"I  00001000,8\n",
            AnalysisSettings(pages=PageSettings(classes=("load",))),
            "no references of the selected",
        ),
    ],
)
def test_nothing_to_analyse_is_an_error(
    text: bytes, settings_: AnalysisSettings, cause: str
) -> None:
    with pytest.raises(TraceError, match=cause):
        analyse(io.BytesIO(text).readinto, settings_)


@pytest.mark.parametrize(
    ("make", "cause"),
    [
        (lambda: PageSettings(page_bytes=3000), "power of two"),
        (lambda: PageSettings(classes=("instruction", "jump")), "jump is no class"),
        (lambda: PageSettings(classes=()), "Nothing is no class"),
        (lambda: PageSettings(clock="seconds"), "seconds is no clock"),
    ],
)
def test_settings_that_cannot_be_are_refused(make: Callable[[], object], cause: str) -> None:
    with pytest.raises(TraceError, match=cause):
        make()


def test_a_program_that_valgrind_lacks_is_refused() -> None:
    with (
        pytest.raises(TraceError, match="no-such-valgrind cannot be started"),
        traced_program(["true"], valgrind="no-such-valgrind"),
    ):
        pass


needs_valgrind = pytest.mark.skipif(shutil.which("valgrind") is None, reason="no valgrind")


@needs_valgrind
def test_a_real_program_is_traced_to_its_end() -> None:
    with traced_program(["/bin/true"]) as trace:
        found = analyse(trace, AnalysisSettings())
    assert found.error is None
    assert found.time == found.references["instruction"] > 10_000
    assert found.references["load"] > found.references["modify"] > 0
    assert 30 < found.pages < 1000
    assert found.working_set.faults[-1] == found.pages


@needs_valgrind
def test_what_a_program_forks_is_not_traced() -> None:
    with traced_program(["/bin/sh", "-c", "(:); (:)"]) as trace:
        found = analyse(trace, AnalysisSettings())
    assert found.error is None


@needs_valgrind
def test_a_command_that_is_not_there_is_refused() -> None:
    with (
        pytest.raises(TraceError, match="could not run /no/such/program"),
        traced_program(["/no/such/program"]) as trace,
    ):
        analyse(trace, AnalysisSettings())


@needs_valgrind
def test_a_program_ends_with_its_reader() -> None:
    with traced_program(["sleep", "1000"]) as trace:
        assert trace(memoryview(bytearray(10))) > 0
    with pytest.raises(ValueError, match="closed"):
        trace(memoryview(bytearray(10)))


def test_addresses_of_the_upper_half_are_kept() -> None:
    (found,) = LackeyReader(io.BytesIO(b"I  ffffffffff600000,5\n").readinto)
    assert found.addresses.view(np.uint64).tolist() == [0xFFFFFFFFFF600000]


@pytest.mark.parametrize(
    "packed",
    [gzip.compress(b"I  04001234,3\n", mtime=0), b"\x28\xb5\x2f\xfd\x04\0"],
    ids=["gzip", "zstd"],
)
def test_a_compressed_trace_is_named(packed: bytes) -> None:
    with pytest.raises(TraceError, match=r"compressed by (gzip|zstd)") as caught:
        list(LackeyReader(io.BytesIO(packed).readinto))
    assert "zcat" in caught.value.next_step or "unzstd" in caught.value.next_step
