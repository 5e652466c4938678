"""Charts of pages by Matplotlib."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import numpy as np

from stallward.evaluation.report.drawing import axes, draw, hue, mark, row_axes, svg_of
from stallward.evaluation.report.page import standalone

TITLE = "{http://www.w3.org/2000/svg}title"


def test_a_chart_has_the_colours_of_the_page_and_escaped_tooltips() -> None:
    drawn = row_axes(["$a$ <b>"], 0.0, 10.0, "{x:g} s")
    mark(drawn, (3.0, 0.0), "var(--c1)", "a <b> & \"c'", hollow=False)
    svg = svg_of(drawn, "A & <B>")
    assert [one.text for one in ET.fromstring(svg).iter(TITLE)] == ["A & <B>", "a <b> & \"c'"]
    assert "$a$ &lt;b&gt;</text>" in svg
    assert "var(--c1)" in svg
    assert hue("var(--c1)") not in svg
    # A style would hold for the whole page, whose font texts have.
    assert not re.search("<style|DejaVu|font-family", svg)
    assert "--c1: #" in standalone(svg)


def test_a_long_curve_is_drawn_with_its_extremes_in_few_points() -> None:
    y = np.sin(np.arange(200_000.0))
    y[123_456] = 7.0
    drawn = axes((0.0, -2.0), (200_000.0, 8.0), ("x", "y"))
    draw(drawn, np.arange(200_000.0), y, "var(--c0)")
    (curve,) = drawn.get_lines()
    x, drawn_y = (np.asarray(one) for one in curve.get_data())
    assert x.size < 1100
    assert drawn_y.max() == 7.0


def test_a_mark_beyond_the_axes_is_at_their_edge() -> None:
    drawn = axes((1.0, 1.0), (10.0, 10.0), ("x", "y"), log=(True, True))
    mark(drawn, (-5.0, 20.0), "var(--c0)", "", hollow=True)
    (circle,) = drawn.get_lines()
    assert [np.asarray(one).tolist() for one in circle.get_data()] == [[1.0], [10.0]]
