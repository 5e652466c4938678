"""The documentation as a site: ``make docs`` builds it in ``build/site``, offline.

The pages are plain Markdown that GitHub shows as well. What only the site needs is here: its
navigation, the pictures of Mermaid diagrams, the changelog, and the Python API from the docstrings.
Each version is a folder of its own, and the page above them lists those that are there.
"""

from __future__ import annotations

import hashlib
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Final

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

if TYPE_CHECKING:
    from sphinx.application import Sphinx

HERE: Final = Path(__file__).parent
DIAGRAMS: Final = "pictures/diagrams"

CHANGELOG: Final = (HERE.parent / "CHANGELOG.md").read_text("utf-8")
_VERSION: Final = tomllib.loads((HERE.parent / "pyproject.toml").read_text("utf-8"))["project"][
    "version"
]

project = "stallward"
release = "unreleased" if "\n## Unreleased\n" in CHANGELOG else _VERSION
html_title = f"stallward {release}"
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
]
exclude_patterns = ["conf.py", "_templates"]
myst_heading_anchors = 4
myst_fence_as_directive = ["mermaid"]

html_theme = "furo"
templates_path = ["_templates"]
html_sidebars = {
    "**": [
        "sidebar/brand.html",
        "versions.html",
        "sidebar/search.html",
        "sidebar/scroll-start.html",
        "sidebar/navigation.html",
        "sidebar/scroll-end.html",
    ]
}
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_copyright = False
html_show_sphinx = False

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_class_signature = "mixed"
autodoc_default_options = {"members": True, "undoc-members": True}
python_use_unqualified_type_names = True
napoleon_google_docstring = True
napoleon_use_ivar = True
maximum_signature_line_length = 80

NAVIGATION: Final = {
    "Run it on a node": (
        "explanation/when-it-helps",
        "how-to/protect-your-application",
        "how-to/run-in-kubernetes",
        "how-to/run-an-experiment",
        "how-to/roll-out-a-policy",
        "how-to/use-the-client",
        "how-to/profile-an-application",
        "how-to/size-a-node",
        "explanation/how-it-works",
        "explanation/threat-model",
        "explanation/pod-limits",
        "reference/config",
        "reference/guard",
        "reference/levers",
        "reference/signals",
        "reference/latency",
        "reference/metrics",
        "reference/alerts",
        "reference/restoring",
        "reference/fleet",
    ),
    "Research with it": (
        "tutorial/first-comparison",
        "results",
        "arms",
        "documents",
        "lab/index",
        "how-to/train-a-policy",
        "how-to/policy-for-a-node",
        "how-to/train-on-a-cluster",
        "how-to/search-recipes",
        "how-to/use-other-libraries",
        "how-to/keep-many-recordings",
        "how-to/repeat-latd",
        "how-to/repeat-dasec",
        "how-to/assign-swap",
        "how-to/trace-memory",
        "how-to/analyse-memory",
        "how-to/watch-resident-memory",
        "explanation/learning",
        "explanation/twin",
        "explanation/off-policy",
        "explanation/page-cache",
        "explanation/working-set",
        "explanation/locality",
        "explanation/swap-assignment",
        "explanation/thread-scheduling",
        "explanation/latd",
        "reference/controllers",
        "reference/scenarios",
        "reference/observation",
        "reference/recordings",
        "reference/measures",
        "reference/trace",
        "reference/workingset",
        "reference/resident",
        "reference/profile",
    ),
    "Change it": (
        "architecture",
        "glossary",
        "how-to/write-a-controller",
        "reference/api",
        "releases",
    ),
}
"""The pages on the left, by heading."""


def _complete(_app: Sphinx, page: str, source: list[str]) -> None:
    """Append what only the site has: trees of pages, which GitHub would show as code, and changes."""
    if page == "index":
        for heading, pages in NAVIGATION.items():
            entries = "\n".join(pages)
            source[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {heading}\n\n{entries}\n```\n"
    if page == "lab/index":
        source[0] += "\n```{toctree}\n:hidden:\n:glob:\n\n*\n```\n"
    if page == "releases":
        source[0] += "\n" + CHANGELOG.replace("](docs/", "](").replace("\n#", "\n##").replace(
            "# Changelog", "## Changelog", 1
        )


def _list_versions(app: Sphinx, error: Exception | None) -> None:
    """Write the page above the versions, which links to all that lie beside this one."""
    if error is not None or app.outdir.name != release:
        return
    versions = sorted(page.parent.name for page in app.outdir.parent.glob("*/index.html"))
    links = "\n".join(f'<li><a href="{one}/index.html">{one}</a></li>' for one in versions)
    (app.outdir.parent / "index.html").write_text(
        '<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>stallward</title>\n'
        f"<h1>stallward</h1>\n<p>Documentation of each version:</p>\n<ul>\n{links}\n</ul>\n",
        encoding="utf-8",
    )


class Mermaid(SphinxDirective):
    """A Mermaid diagram, as the picture that ``make diagrams`` drew of it."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        """The picture; an error if this diagram was changed since."""
        text = "\n".join(self.content).strip()
        picture = f"{DIAGRAMS}/{hashlib.sha256(text.encode()).hexdigest()[:12]}.svg"
        if not (HERE / picture).is_file():
            raise self.error(f"There is no {picture} of this diagram: run `make diagrams`.")
        return [nodes.image(uri=f"/{picture}", alt=text, classes=["diagram"])]


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("source-read", _complete)
    app.connect("build-finished", _list_versions)
    app.add_directive("mermaid", Mermaid)
