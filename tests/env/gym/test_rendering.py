"""What is shown of a node is what its frame says."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from stallward.agent.desired import MIB
from stallward.agent.observation.raw import NODE, SLOT, RawFrame
from stallward.env.gym.node_view import GroupView, LatencyPoint, NodeView, Scene, view_of
from stallward.env.gym.renderer import Renderer
from stallward.env.gym.view_picture import HEIGHT, WIDTH, picture_of
from stallward.env.gym.view_text import text_of

SCENE = Scene(title="small", target_ms=20.0, slot_names=("first", "second"))
VIEW = NodeView(
    scene=SCENE,
    elapsed_s=12.4,
    latencies=(LatencyPoint(time_s=12.2, p95_ms=15.0), LatencyPoint(time_s=12.4, p95_ms=25.0)),
    zone_bytes=600.0 * MIB,
    used_bytes=580.0 * MIB,
    profile="flush",
    application=GroupView(name="application", memory_bytes=300.0 * MIB, swap_bytes=0.0),
    slots=(
        GroupView(
            name="first",
            memory_bytes=100.0 * MIB,
            swap_bytes=200.0 * MIB,
            limit_bytes=120.0 * MIB,
            paused=True,
        ),
        GroupView(name="second", memory_bytes=180.0 * MIB, swap_bytes=math.nan),
    ),
)
MET, MISSED, APPLICATION = (31, 95, 191), (179, 38, 30), (31, 95, 191)
PAUSED, GROUP = (125, 133, 144), (201, 116, 26)


def count(picture: NDArray[np.uint8], colour: tuple[int, int, int], rows: slice) -> int:
    """How many pixels of some rows have a colour."""
    return int((picture[rows] == colour).all(axis=2).sum())


def frame(time_s: float, p95_ms: float, age_s: float = 0.1) -> RawFrame:
    made = RawFrame.empty()
    for name, value in {
        "time_s": time_s,
        "latency_p95_ms": p95_ms,
        "latency_age_s": age_s,
        "zone_limit_bytes": 600.0 * MIB,
        "zone_usage_bytes": 580.0 * MIB,
        "protected_usage_bytes": 300.0 * MIB,
        "protected_swap_bytes": 0.0,
        "profile_index": 1.0,
    }.items():
        made.node[NODE[name]] = value
    for name, value in {"present": 1.0, "usage_bytes": 100.0 * MIB, "paused": 1.0}.items():
        made.slots[0][SLOT[name]] = value
    return made


def test_the_text_has_latency_memory_and_levers() -> None:
    assert text_of(VIEW).splitlines() == [
        "small at 12.4 s, tuning flush",
        "p95 25 ms, target 20 ms: missed",
        "memory 580 of 600 MiB",
        "application [###############               ]    300 MiB, swap     0 MiB",
        "first       [#####+|++++++++               ]    100 MiB, swap   200 MiB"
        "  limit 120 MiB  paused",
        "second      [#########                     ]    180 MiB, swap     - MiB",
    ]
    unknown = replace(VIEW, latencies=(LatencyPoint(time_s=12.4, p95_ms=math.nan),))
    assert "p95 - ms, target 20 ms: no request" in text_of(unknown)


def test_the_bars_of_the_picture_are_as_long_as_the_memory_and_swap() -> None:
    picture = picture_of(VIEW)
    assert picture.shape == (HEIGHT, WIDTH, 3)
    application, first, second = (slice(246 + 30 * row, 264 + 30 * row) for row in range(3))
    lengths = [
        count(picture, colour, rows) / 18.0
        for colour, rows in ((APPLICATION, application), (PAUSED, first), (GROUP, second))
    ]
    # 516 pixels are 600 MiB.
    np.testing.assert_allclose(lengths, [258.0, 86.0, 155.0], rtol=0.1)
    assert count(picture, GROUP, first) == 0, "what is paused has another colour"


def test_the_latency_has_the_colour_of_the_target_that_it_meets_or_misses() -> None:
    chart = slice(52, 204)
    met, missed = (
        replace(
            VIEW,
            latencies=tuple(
                LatencyPoint(time_s=second, p95_ms=p95_ms) for second in (0.0, 5.0, 12.4)
            ),
        )
        for p95_ms in (10.0, 40.0)
    )
    assert count(picture_of(met), MET, chart) > 0
    assert count(picture_of(missed), MET, chart) == 0
    above = picture_of(missed)
    both = [count(one, MISSED, chart) for one in (picture_of(met), above)]
    assert both[1] > both[0], "the target alone is red while it is met"


def test_what_is_unknown_can_be_drawn() -> None:
    nothing = view_of(
        frame(1.0, math.nan),
        SCENE,
        began_s=0.0,
        latencies=(LatencyPoint(time_s=1.0, p95_ms=math.nan),),
    )
    assert picture_of(nothing).shape == (HEIGHT, WIDTH, 3)
    assert "first" in text_of(nothing)
    assert "second" not in text_of(nothing), "a slot that is absent is shown"


def test_latencies_of_half_a_minute_are_remembered_until_an_episode_begins() -> None:
    renderer = Renderer("ansi")
    renderer.begin(0, SCENE, frame(5.0, 10.0))
    for step in range(1, 400):
        renderer.step(0, frame(5.0 + 0.1 * step, 10.0))
    assert str(renderer.render()).startswith("small at 39.9 s, tuning flush")
    remembered = renderer._nodes[0].latencies
    assert len(remembered) == 301
    renderer.begin(0, SCENE, frame(100.0, 10.0, age_s=3.0))
    assert len(renderer._nodes[0].latencies) == 1
    assert "no request" in str(renderer.render()), "an answer of 3 s ago says nothing of now"


@pytest.mark.parametrize("mode", [None, "ansi"])
def test_nothing_is_shown_without_a_mode_or_an_episode(mode: str | None) -> None:
    renderer = Renderer(mode)
    assert renderer.active == (mode is not None)
    assert renderer.render() is None
