"""The picture of the founding documents shows the figures of their page."""

from __future__ import annotations

import csv
import re
import runpy
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "docs/pictures"
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def script() -> dict[str, object]:
    return runpy.run_path(str(ROOT / "scripts/documents_picture.py"))


def test_every_figure_that_is_drawn_stands_on_the_page() -> None:
    cells = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in (ROOT / "docs/documents.md").read_text().splitlines()
        if line.startswith("|")
    ]
    figures = [
        tuple(
            tuple(map(float, re.findall(r"-?\d+(?:\.\d+)?", cell.replace("..", " "))))
            for cell in row[1:]
        )
        for row in cells
    ]
    for row in csv.DictReader((PICTURES / "documents.csv").read_text().splitlines()):
        ours = tuple(float(row[name]) for name in ("ours", "low", "high") if row[name])
        found = [theirs for theirs, *rest in figures for one in rest if one == ours]
        assert found, row
        if row["theirs"] and row["figure"] != "a file read once":
            theirs = float(row["theirs"])
            assert any(one and abs(one[0] - theirs) < 0.06 for one in found), row


def test_the_heuristics_are_compared_by_the_counterpart_of_the_patch_that_was_profiled() -> None:
    """The thesis profiled the patch of its section 7.5, on the task that ran most."""
    counts = {
        row["arm"]: {name: float(re.sub(r"[ ,%]", "", row[name])) for name in COUNTED}
        for row in csv.DictReader(
            (ROOT / "docs/lab/working-set/marked-48-mib.csv").read_text().splitlines()
        )
    }
    ours = [counts["clear most-run"][name] / counts["unpatched"][name] for name in COUNTED]
    theirs = [patched / unpatched for patched, unpatched in TICKS]
    page = (ROOT / "docs/documents.md").read_text()
    figures = re.findall(r"^\| .*ticks in the .*\| ([0-9.]+) \| ([0-9.]+) \|$", page, re.MULTILINE)
    assert [float(one) for one, _ in figures] == pytest.approx(theirs, rel=0.02)
    assert [float(one) for _, one in figures] == [round(ratio, 2) for ratio in ours]


COUNTED = ("major faults", "disk requests", "CPUs idle")
TICKS = ((166_717, 57_954), (10_301_533, 2_481_867), (20_347_324, 5_746_605))
"""Of do_page_fault, __make_request and default_idle, in tables 1 and 2 of the thesis."""


def test_the_picture_is_that_of_its_figures(script: dict[str, object]) -> None:
    rows = script["read_rows"]((PICTURES / "documents.csv").read_text().splitlines())  # type: ignore[operator]
    drawn = script["picture"](rows) + "\n"  # type: ignore[operator]
    assert drawn == (PICTURES / "documents.svg").read_text(), "run scripts/documents_picture.py"
    image = ElementTree.fromstring(drawn)
    names = [text.text for text in image.iter(f"{SVG}text") if text.get("class") == "e"]
    assert names == [row.label for row in rows]
    filled = [one for one in image.iter(f"{SVG}circle") if one.get("fill") != "none"]
    assert len(filled) == len(rows) + 1, "one is the legend"


def test_an_interval_is_drawn_only_where_there_is_one(script: dict[str, object]) -> None:
    head = "panel,unit,figure,theirs,ours,low,high"
    rows = script["read_rows"]([head, "a,%,with,1,2,1,3", "a,%,without,,2,,"])  # type: ignore[operator]
    image = ElementTree.fromstring(script["picture"](rows))  # type: ignore[operator]
    assert len([one for one in image.iter(f"{SVG}line") if one.get("stroke-width") == "2"]) == 1
    hollow = [one for one in image.iter(f"{SVG}circle") if one.get("fill") == "none"]
    assert len(hollow) == 2, "one is the legend"
