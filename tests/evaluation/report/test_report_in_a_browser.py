"""The report in a browser: nothing is wider than a phone, or than a printed page."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from example_results import arm, comparison

from stallward.evaluation.report.html import render_report
from stallward.evaluation.report.text import Opening

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
PHONE_PX = 390
A4_PX = 718
"""A sheet of A4 at 96 dots an inch, less the margins of a printer."""
# In a frame, because a window has a least width.
FRAME = """<!doctype html><iframe style="width:%dpx;height:9000px;border:0" srcdoc="%s"></iframe>
<script>
const frame = document.querySelector("iframe");
frame.onload = () => {
  const page = frame.contentDocument, width = page.documentElement.clientWidth, wide = [];
  for (const one of page.querySelectorAll("main *")) {
    const scrolled = %s && one.closest(".scroll");
    if (!scrolled && one.getBoundingClientRect().right > width + 1) wide.push(one.tagName);
  }
  document.body.dataset.seen = JSON.stringify([page.documentElement.scrollWidth, wide]);
};
</script>
"""


@pytest.fixture(scope="module")
def page() -> str:
    names = ("none", "rule", "partition", "onnx:path=build/mine.onnx", "static:limit=0.35")
    latencies = {name: np.linspace(5.0, 50.0, 200) for name in ("alone", "ample", *names)}
    opening = Opening(
        headline="The rule keeps the target.",
        headers=("arm", "p95 ms", "met", "work", "killed"),
        rows=tuple((name, "1234.5", "100 %", "100 %", "0") for name in names),
        target="Target: 60 ms.",
        notes=(),
    )
    return render_report(comparison({name: arm() for name in names}), latencies, {}, opening)


def too_wide(page: str, width_px: int, folder: Path, *, scrolled: bool) -> tuple[int, list[str]]:
    """How wide a page is in a frame, and which of its elements stick out.

    Args:
        page: The page.
        width_px: The width of the frame.
        folder: A folder for the browser.
        scrolled: Whether what stands in a box that can be scrolled may be as wide as it likes.
    """
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed (Debian package chromium)")
    file = folder / "frame.html"
    file.write_text(FRAME % (width_px, html.escape(page), json.dumps(scrolled)))
    done = subprocess.run(
        [
            CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=5000",
            f"--user-data-dir={folder / 'profile'}", "--dump-dom", file.as_uri(),
        ],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )  # fmt: skip
    seen = re.search(r'data-seen="([^"]*)"', done.stdout)
    assert seen is not None, done.stderr[-2000:]
    width, wide = json.loads(html.unescape(seen.group(1)))
    return width, wide


@pytest.mark.slow
@pytest.mark.reaches("docs/", "models/", "recordings/")
def test_a_phone_shows_the_report_without_scrolling_the_page_sideways(
    page: str, tmp_path: Path
) -> None:
    assert too_wide(page, PHONE_PX, tmp_path, scrolled=True) == (PHONE_PX, [])


@pytest.mark.slow
@pytest.mark.reaches("docs/", "models/", "recordings/")
def test_nothing_is_cut_off_where_the_report_is_printed(page: str, tmp_path: Path) -> None:
    assert "@media print" in page
    printed = page.replace("@media print", "@media screen")
    assert too_wide(printed, A4_PX, tmp_path, scrolled=False) == (A4_PX, [])
