"""The table of signals is complete, and the page generated from it is current."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import partial
from itertools import compress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallward.actuator.errors import PartlyReadError, SensorError
from stallward.actuator.sensors.files.flat import FlatLayout, flat_counts
from stallward.actuator.sensors.reference_page import signals_page
from stallward.actuator.sensors.signal_table import (
    GROUP_SIGNALS,
    LATENCY_SIGNALS,
    NODE_SIGNALS,
    PROCESS_SIGNALS,
    PROTECTED_THREAD_SIGNALS,
    Signal,
)
from stallward.agent.sample import (
    GroupSample,
    LatencySample,
    NodeSample,
    ProcessSample,
    PsiTotals,
)
from stallward.agent.threads import ThreadSample

PAGE = Path(__file__).parents[3] / "docs/reference/signals.md"


@pytest.mark.parametrize(
    ("signals", "part"),
    [
        (GROUP_SIGNALS, GroupSample),
        (NODE_SIGNALS, NodeSample),
        (PROCESS_SIGNALS, ProcessSample),
        (LATENCY_SIGNALS, LatencySample),
        (PROTECTED_THREAD_SIGNALS, ThreadSample),
    ],
)
def test_every_field_of_a_sample_is_in_the_table(signals: tuple[Signal, ...], part: type) -> None:
    wanted = {f.name for f in fields(part)} - {"name", "psi"}
    if part in {GroupSample, NodeSample}:
        wanted |= {f"psi.{f.name}" for f in fields(PsiTotals)}
    assert [s.name for s in signals if s.name not in wanted] == []
    assert wanted - {s.name for s in signals} == set()


def test_the_page_is_generated_from_the_table() -> None:
    assert PAGE.read_text() == signals_page(), (
        "stale: stallward describe signals > docs/reference/signals.md"
    )


KEYS = (b"aa", b"b", b"cc", b"d")
LINES = st.lists(
    st.tuples(
        st.sampled_from((*KEYS, b"a", b"", b"bb")),
        st.sampled_from((b" ", b"  ", b"\t", b"")),
        st.sampled_from((b"1", b"22", b"", b"-1", b"9" * 19, b"9" * 20, b"1 2", b"x")),
    ),
    max_size=6,
)


def as_file(lines: list[tuple[bytes, bytes, bytes]]) -> bytes:
    return b"".join(b"".join(line) + b"\n" for line in lines)


def _counts(read: Callable[[], list[int | None]]) -> list[int | None]:
    try:
        return read()
    except PartlyReadError as error:
        value: list[int | None] = error.value
        return value
    except SensorError:
        return [None] * len(KEYS)


@given(LINES, LINES, st.integers(0, 3))
def test_knowing_the_layout_changes_no_value(
    first: list[tuple[bytes, bytes, bytes]], second: list[tuple[bytes, bytes, bytes]], cut: int
) -> None:
    layout = FlatLayout(KEYS)
    path = Path("/f")
    for content in (as_file(first), as_file(second)[: -cut or None], as_file(first)):
        keys = [line.partition(b" ")[0] for line in content.split(b"\n")[:-1]]
        expected = _counts(partial(flat_counts, content, KEYS, path, 10**18 - 1))
        counts = _counts(partial(layout.counts, content, path))
        once = [keys.count(key) < 2 for key in KEYS]  # a second one may stay unseen
        assert list(compress(counts, once)) == list(compress(expected, once))
