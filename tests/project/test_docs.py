"""The docs fit the code, and the site builds without a warning."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from stallward.actuator.config.load import parse_config
from stallward.actuator.lens.reference_page import trace_page
from stallward.agent.reference_pages import observation_page
from stallward.evaluation.cli.app import app

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
LINK = re.compile(r"\]\(([^)\s]+)\)")
FENCE = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
SHELL = re.compile(r"^ *```sh\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
WIDTH = 100
PACKAGES = ("proto", "agent", "models", "actuator", "env", "training", "evaluation")
PATH = re.compile(r"`([\w./-]+(?:\.py|\.toml|\.yml|\.proto|\.onnx|/))`")
EXAMPLES = ("NAME", "DATE", "pause_first", "build/")
"""Parts of paths that stand for files which the reader makes."""


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def anchors_of(page: Path) -> set[str]:
    """The anchors that GitHub and the site give the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_observation_page_is_generated() -> None:
    page = ROOT / "docs/reference/observation.md"
    assert page.read_text() == observation_page(), (
        "stale: stallward describe observation > docs/reference/observation.md"
    )


def test_the_page_of_the_columns_of_traces_is_generated() -> None:
    page = ROOT / "docs/reference/trace.md"
    assert page.read_text() == trace_page(), (
        "stale: stallward describe trace > docs/reference/trace.md"
    )


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text()):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        linked = page.parent / path if path else page
        assert linked.exists(), f"{page.name} links to {target}"
        if anchor:
            assert anchor in anchors_of(linked), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_prose_is_wrapped(page: Path) -> None:
    prose = FENCE.sub("", page.read_text()).splitlines()
    long = [s for s in prose if len(s) > WIDTH and not s.startswith(("|", "#")) and " " in s]
    assert long == []


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120


def test_the_configuration_of_the_reference_is_valid() -> None:
    page = (ROOT / "docs/reference/config.md").read_text()
    example = re.search(r"^```toml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert example is not None
    config = parse_config(example.group(1))
    assert config.control.controller == "partition"


def test_every_lab_note_has_its_four_parts() -> None:
    index = (ROOT / "docs/lab/index.md").read_text()
    for page in sorted((ROOT / "docs/lab").glob("20*.md")):
        text = page.read_text()
        assert text.startswith(f"# {page.name[:10]}: "), page.name
        for part in ("Question", "Method", "Result", "Consequence"):
            assert f"**{part}.**" in text, f"{page.name} has no {part.lower()}"
        assert f"({page.name})" in index, f"docs/lab/index.md does not list {page.name}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_command_exists_with_its_options(page: Path) -> None:
    """Commands in shell blocks exist and have the options that they are given."""
    for block in SHELL.findall(page.read_text()):
        for line in block.replace("\\\n", " ").splitlines():
            for part in re.split(r"&&|\|\||\|", line):
                words = shlex.split(part, comments=True)
                if words[:1] == ["stallward"]:
                    assert unknown_words(words[1:]) == [], f"{page.name}: {part.strip()}"


def unknown_words(words: list[str]) -> list[str]:
    """The first word that is not a command, or the options that the command does not have."""
    command = typer.main.get_command(app)
    while subcommands := getattr(command, "commands", {}):
        if not words or words[0].startswith("-"):
            break  # a group's own options
        word, *words = words
        if word not in subcommands:
            return [word]
        command = subcommands[word]
    if "--" in words:
        words = words[: words.index("--")]  # what follows is another program's
    known = {option for one in command.params for option in (*one.opts, *one.secondary_opts)}
    given = [word.partition("=")[0] for word in words if word.startswith("--")]
    return [option for option in given if option not in known]


def test_an_unknown_command_or_option_is_found() -> None:
    assert unknown_words(["compare", "x", "--arms", "none", "--no-such"]) == ["--no-such"]
    assert unknown_words(["ctl", "wach"]) == ["wach"]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_path_exists(page: Path) -> None:
    for path in PATH.findall(FENCE.sub("", page.read_text())):
        if "/" in path.rstrip("/") and not any(example in path for example in EXAMPLES):
            folders = (ROOT, *(ROOT / one / "stallward" for one in PACKAGES))
            below = tuple(ROOT / one / "stallward" / one for one in PACKAGES)
            assert any((folder / path).exists() for folder in (*folders, *below)), (
                f"{page.name} names {path}"
            )


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html"]
    done = subprocess.run(
        [*command, str(ROOT / "docs"), str(tmp_path / "site")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "site/reference/api.html").read_text()
    assert "stallward.actuator.client.ActuatorClient" in page
    architecture = (tmp_path / "site/architecture.html").read_text()
    assert 'class="diagram"' in architecture
    elsewhere = r'<(?:script|link|img)[^>]+(?:src|href)="(?:https?:)?//[^"]+"'
    assert re.findall(elsewhere, architecture) == [], "the site must work offline"


def test_every_test_that_the_threat_model_names_is_there() -> None:
    page = (ROOT / "docs/explanation/threat-model.md").read_text()
    named = re.findall(r"`([\w/]+\.py): (\w+)`", page)
    missing = [
        f"{file}: {name}"
        for file, name in named
        if f"def {name}(" not in (ROOT / "tests" / file).read_text()
    ]
    assert len(named) > 40
    assert missing == []
