"""The docs say what the code does today."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from stallward.agent.reference_pages import observation_page

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


def test_the_observation_page_is_generated() -> None:
    page = ROOT / "docs/reference/observation.md"
    assert page.read_text() == observation_page(), (
        "stale: python -c 'from stallward.agent.reference_pages import observation_page as p; "
        'print(p(), end="")\' > docs/reference/observation.md'
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
