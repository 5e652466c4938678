"""The docs fit the code, and the site builds without a warning."""

from __future__ import annotations

import csv
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

from stallward.actuator.cli.lazy import LazyCommand
from stallward.actuator.config.load import parse_config
from stallward.agent.reference_pages import observation_page
from stallward.env.recording.split import load_split
from stallward.env.scenario.file import find_scenarios
from stallward.evaluation.cli.app import app
from stallward.lens.trace.reference_page import trace_page

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
LINK = re.compile(r"\]\(([^)\s]+)\)")
FENCE = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
SHELL = re.compile(r"^ *```sh\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
PACKAGES = ("proto", "agent", "models", "actuator", "env", "training", "evaluation")
PATH = re.compile(r"`([\w./-]+(?:\.py|\.toml|\.yml|\.proto|\.onnx|/))`")
EXAMPLES = ("NAME", "DATE", "pause_first", "build/")
"""Parts of paths that stand for files which the reader makes."""


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@cache
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


def test_every_link_leads_somewhere() -> None:
    """Sphinx sees neither the pages outside docs/ nor links to files that are no page."""
    links = [(page, target) for page in PAGES for target in LINK.findall(page.read_text())]
    broken = [
        f"{name(page)}: {target}"
        for page, target in links
        if "://" not in target and not leads_somewhere(page, target)
    ]
    assert broken == []


def leads_somewhere(page: Path, target: str) -> bool:
    """Whether a file has the path of a link, and a heading its anchor."""
    path, _, anchor = target.partition("#")
    linked = page.parent / path if path else page
    return linked.exists() and (not anchor or anchor in anchors_of(linked))


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
    for page in sorted({*(ROOT / "docs/lab").glob("*.md")} - {ROOT / "docs/lab/index.md"}):
        text = page.read_text()
        for part in ("Question", "Measured", "Result", "What follows"):
            assert f"**{part}.**" in text, f"{page.name} has no {part.lower()}"
        assert f"({page.name})" in index, f"docs/lab/index.md does not list {page.name}"


def test_every_command_exists_with_its_options() -> None:
    """Commands in shell blocks exist and have the options that they are given."""
    commands = [(page, words) for page in PAGES for words in commands_of(page.read_text())]
    assert len(commands) > 150
    wrong = [
        f"{name(page)}: {unknown} in {shlex.join(words)}"
        for page, words in commands
        if (unknown := unknown_words(words[1:]))
    ]
    assert wrong == []


def commands_of(text: str) -> Iterator[list[str]]:
    """The words of each command of ours in the shell blocks of a page."""
    for block in SHELL.findall(text):
        for line in block.replace("\\\n", " ").splitlines():
            for part in re.split(r"&&|\|\||\|", line):
                words = shlex.split(part, comments=True)
                if words[:1] == ["stallward"]:
                    yield words


# Building the tree of commands takes 0.02 s.
command_of = cache(typer.main.get_command)


def unknown_words(words: list[str]) -> list[str]:
    """The first word that is not a command, or the options that the command does not have."""
    command: Any = command_of(app)
    while subcommands := getattr(command, "commands", {}):
        if not words or words[0].startswith("-"):
            break  # a group's own options
        word, *words = words
        if word not in subcommands:
            return [word]
        command = subcommands[word]
        if isinstance(command, LazyCommand):
            command = command.itself
    if "--" in words:
        words = words[: words.index("--")]  # what follows is another program's
    known = {option for one in command.params for option in (*one.opts, *one.secondary_opts)}
    given = [word.partition("=")[0] for word in words if word.startswith("--")]
    return [option for option in given if option not in known]


def test_an_unknown_command_or_option_is_found() -> None:
    assert unknown_words(["compare", "x", "--arms", "none", "--no-such"]) == ["--no-such"]
    assert unknown_words(["ctl", "wach"]) == ["wach"]


def test_every_path_exists() -> None:
    namespaces = (
        *PACKAGES,
        *(str(one.relative_to(ROOT)) for one in (ROOT / "packages").iterdir()),
    )
    folders = (ROOT, *(ROOT / one / "stallward" for one in namespaces))
    below = tuple(ROOT / one / "stallward" / one for one in PACKAGES)
    missing = [
        f"{name(page)}: {path}"
        for page in PAGES
        for path in PATH.findall(FENCE.sub("", page.read_text()))
        if "/" in path.rstrip("/") and not any(example in path for example in EXAMPLES)
        if not any((folder / path).exists() for folder in (*folders, *below))
    ]
    assert missing == []


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    (tmp_path / "0.0.9").mkdir()
    (tmp_path / "0.0.9/index.html").touch()
    site = tmp_path / "unreleased"
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html"]
    done = subprocess.run(
        [*command, str(ROOT / "docs"), str(site)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    page = (site / "reference/api.html").read_text()
    assert "stallward.actuator.client.ActuatorClient" in page
    assert '<a href="../../index.html">Other versions</a>' in page
    listed = re.findall(r'href="([^"]+)"', (tmp_path / "index.html").read_text())
    assert listed == ["0.0.9/index.html", "unreleased/index.html"]
    assert "No version has been published" in (site / "releases.html").read_text()
    architecture = (site / "architecture.html").read_text()
    assert 'class="diagram"' in architecture
    elsewhere = r'<(?:script|link|img)[^>]+(?:src|href)="(?:https?:)?//[^"]+"'
    assert re.findall(elsewhere, architecture) == [], "the site must work offline"


_WITHOUT_TEST = {"start a program with the background's command line"}
"""Threats that nothing is done about, as the page says."""


def test_tests_show_every_row_of_the_threat_model() -> None:
    page = (ROOT / "docs/explanation/threat-model.md").read_text()
    with (ROOT / "tests/project/threats.csv").open(newline="") as file:
        rows = [(row["threat"], row["file"], row["test"]) for row in csv.DictReader(file)]
    tables = re.findall(r"^\| (?:what|file).*\n\| ---.*\n((?:\|.*\n)+)", page, re.MULTILINE)
    threats = [line.split("|")[1].strip() for table in tables for line in table.splitlines()]
    assert len(threats) > 60
    assert set(threats) - {threat for threat, _, _ in rows} == _WITHOUT_TEST
    assert {threat for threat, _, _ in rows} <= set(threats), "rows that the page has no more"
    named = {(file, test) for _, file, test in rows}
    named |= set(re.findall(r"`([\w/]+\.py):\s(\w+)`", page))
    missing = [
        f"{file}: {test}"
        for file, test in named
        if f"def {test}(" not in (ROOT / "tests" / file).read_text()
    ]
    assert missing == []


def test_the_table_of_scenarios_has_those_that_ship() -> None:
    split = load_split()
    rows = [
        f"| `{one.name}` | {split.part_of(one)} | {one.sandbox.limit_bytes >> 20} | {one.summary} |"
        for one in find_scenarios()
    ]
    lines = (ROOT / "docs/reference/scenarios.md").read_text().splitlines()
    start = lines.index("| scenario | part | MiB | what it is |") + 2
    assert lines[start : start + len(rows) + 1] == [*rows, ""], "as `stallward scenarios` says"
