"""The documentation as a site: ``make docs`` builds it in ``build/site``, offline.

The pages are plain Markdown that GitHub shows as well. What only the site needs is here: its
navigation, the pictures of Mermaid diagrams, and the Python API from the docstrings.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Final

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

if TYPE_CHECKING:
    from sphinx.application import Sphinx

HERE: Final = Path(__file__).parent
DIAGRAMS: Final = "pictures/diagrams"

project = "stallward"
html_title = "stallward"
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
]
exclude_patterns = ["conf.py"]
myst_heading_anchors = 4
myst_fence_as_directive = ["mermaid"]

html_theme = "furo"
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
    "Use it": (
        "tutorial/first-comparison",
        "how-to/protect-your-application",
        "how-to/run-in-kubernetes",
        "how-to/use-the-client",
        "how-to/roll-out-a-policy",
        "how-to/train-a-policy",
        "how-to/train-on-a-cluster",
        "how-to/search-recipes",
        "how-to/policy-for-a-node",
        "how-to/keep-many-recordings",
        "how-to/write-a-controller",
        "how-to/assign-swap",
        "how-to/trace-memory",
        "how-to/analyse-memory",
        "how-to/watch-resident-memory",
        "how-to/profile-an-application",
        "how-to/size-a-node",
        "how-to/repeat-latd",
        "how-to/repeat-dasec",
        "how-to/use-other-libraries",
    ),
    "Understand it": (
        "explanation/how-it-works",
        "explanation/when-it-helps",
        "explanation/learning",
        "explanation/twin",
        "explanation/off-policy",
        "explanation/page-cache",
        "explanation/working-set",
        "explanation/locality",
        "explanation/swap-assignment",
        "explanation/thread-scheduling",
        "explanation/latd",
        "explanation/pod-limits",
        "explanation/threat-model",
        "glossary",
    ),
    "Results": ("results", "arms", "documents", "lab/index"),
    "Reference": (
        "reference/alerts",
        "reference/config",
        "reference/controllers",
        "reference/fleet",
        "reference/guard",
        "reference/latency",
        "reference/levers",
        "reference/measures",
        "reference/metrics",
        "reference/observation",
        "reference/profile",
        "reference/recordings",
        "reference/resident",
        "reference/restoring",
        "reference/scenarios",
        "reference/signals",
        "reference/trace",
        "reference/workingset",
        "reference/api",
    ),
    "Change it": ("architecture",),
}
"""The pages on the left, by heading."""


def _add_navigation(_app: Sphinx, page: str, source: list[str]) -> None:
    """Append the tree of pages to the two pages that have one; GitHub would show it as code."""
    if page == "index":
        for heading, pages in NAVIGATION.items():
            entries = "\n".join(pages)
            source[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {heading}\n\n{entries}\n```\n"
    if page == "lab/index":
        source[0] += "\n```{toctree}\n:hidden:\n:glob:\n\n*\n```\n"


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
    app.connect("source-read", _add_navigation)
    app.add_directive("mermaid", Mermaid)
