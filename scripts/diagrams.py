"""Draw the Mermaid diagrams of the documentation for the site: ``make diagrams``.

GitHub draws Mermaid diagrams itself. The site shows pictures of them, so that it needs neither
network nor JavaScript. Each picture is named by a hash of the text of its diagram, and
``docs/conf.py`` looks for it by that name: a diagram that was changed but not drawn again is an
error of ``make docs``.

The script needs npm and Chromium, because Mermaid lays diagrams out in a browser.
"""

from __future__ import annotations

import hashlib
import html
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
PICTURES: Final = ROOT / "docs/pictures/diagrams"
MERMAID: Final = "mermaid@11.17.2"
_DIAGRAM: Final = re.compile(r"^```mermaid\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SETTINGS: Final = """{
  startOnLoad: false, theme: "neutral", htmlLabels: false, deterministicIds: true,
  flowchart: {htmlLabels: false, wrappingWidth: 420},
  sequence: {actorMargin: 24, width: 110, height: 44, mirrorActors: false},
  themeVariables: {fontSize: "15px"}
}"""


def main() -> int:
    """Draw the new diagrams, and remove the pictures of diagrams that no page has any more."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None or shutil.which("npm") is None:
        print("diagrams: npm and Chromium are needed (apt-get install npm chromium).")
        return 2
    texts = {
        hashlib.sha256(text.encode()).hexdigest()[:12]: text
        for page in sorted((ROOT / "docs").glob("**/*.md"))
        for text in (match.strip() for match in _DIAGRAM.findall(page.read_text()))
    }
    PICTURES.mkdir(parents=True, exist_ok=True)
    for picture in PICTURES.glob("*.svg"):
        if picture.stem not in texts:
            picture.unlink()
    new = {name: text for name, text in texts.items() if not (PICTURES / f"{name}.svg").exists()}
    if new:
        with tempfile.TemporaryDirectory() as folder:
            library = _fetch(Path(folder))
            for name, text in new.items():
                (PICTURES / f"{name}.svg").write_text(_draw(browser, library, name, text) + "\n")
    print(f"diagrams: {len(texts)}, of which {len(new)} drawn now")
    return 0


def _fetch(folder: Path) -> Path:
    """Fetch Mermaid from npm into a folder; the result is its script."""
    subprocess.run(["npm", "pack", "--silent", MERMAID], cwd=folder, check=True)
    archive = next(folder.glob("mermaid-*.tgz"))
    shutil.unpack_archive(archive, folder, filter="data")
    return folder / "package/dist/mermaid.min.js"


def _draw(browser: str, library: Path, name: str, text: str) -> str:
    """Draw one diagram with Mermaid in the browser; the result is the text of its SVG."""
    page = library.parent / "page.html"
    page.write_text(
        f"<meta charset=utf-8><pre id=source hidden>{html.escape(text)}</pre>"
        f"<script src={library.name}></script><script>mermaid.initialize({_SETTINGS});"
        f'mermaid.render("d{name}", document.getElementById("source").textContent)'
        ".then(({svg}) => {const text = document.createElement('textarea');"
        "text.id = 'drawn'; text.textContent = svg; document.body.replaceChildren(text);})"
        "</script>"
    )
    command = [
        browser, "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=20000",
        "--dump-dom", page.as_uri(),
    ]  # fmt: skip
    dump = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    drawn = re.search(r'<textarea id="drawn">(.*?)</textarea>', dump, re.DOTALL)
    if drawn is None:
        raise SystemExit(f"diagrams: Mermaid could not draw this:\n{text}")
    picture = html.unescape(drawn.group(1)).strip()
    size = re.search(r'viewBox="\S+ \S+ (\S+) (\S+)"', picture)
    if size is None:
        return picture
    width, height = (f"{float(number):.0f}" for number in size.groups())
    return picture.replace('width="100%"', f'width="{width}" height="{height}"', 1)


if __name__ == "__main__":
    sys.exit(main())
