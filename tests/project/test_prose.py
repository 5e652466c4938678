"""Docs, docstrings and help texts are plain English, by the rules in ``prose.py``."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from prose import RULES, broken_rules, findings, spoken_texts

ROOT = Path(__file__).parents[2]
GENERATED = ("_pb2.py", "_pb2_grpc.py")


@pytest.mark.linter
def test_the_prose_is_plain() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "*.md", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    files = [
        ROOT / name
        for name in listed.stdout.splitlines()
        if not name.startswith("tests/") and not name.endswith(GENERATED)
    ]
    assert len(files) > 500
    broken = [
        f"{path.relative_to(ROOT)}:{one.line}: {one.words!r}: write {one.instead}"
        for path in files
        if path.is_file()
        for one in broken_rules(path)
    ]
    assert broken == [], "\n".join(["", *broken])


@pytest.mark.parametrize(
    "sentence",
    [
        "names a file that is no profile",
        "It works with cgroups, too.",
        "An upload goes on where it ended.",
        "The state is made anew.",
        "It moves the levers that there are.",
        "| `dwell_s` | how long each is held |",
        "Of a running program page tables tell less.",
        "It names a file that is none.",
        "published rules and the programs they are of",
        "An upload breaks off.",
        "The time of a request in the mean.",
        "the same of anonymous pages",
        "what a page less costs",
        "a controller that is nothing without some lever",
    ],
)
def test_what_readers_stumbled_over_is_found(sentence: str) -> None:
    assert list(findings(sentence)), sentence


@pytest.mark.parametrize(
    "sentence",
    [
        "There is no swap on this node.",
        "The interval is no longer than a second.",
        "Loads that come too often are refused.",
        "It knows how far the twin is off.",
        "`that is none` and `, too`",
        "```sh\nmake it anew\n```",
        "It says that there is one weight for each draw.",
    ],
)
def test_plain_sentences_and_code_are_left_alone(sentence: str) -> None:
    assert list(findings(sentence)) == []


def test_a_finding_has_its_line_and_a_sentence_may_cross_one() -> None:
    (found,) = findings("A first line.\nIt is made\nanew.\n", first_line=10)
    assert found.line == 12
    (found,) = findings("It goes\non.")
    assert found.instead == "'continue'"


def test_docstrings_and_help_texts_are_spoken_and_their_details_are_not() -> None:
    source = '"""First.\n\nSecond."""\n\nclass A:\n    """Of A."""\n\nOption(help="Say it.")\n'
    assert sorted(spoken_texts(source)) == [(1, "First."), (6, "Of A."), (8, "Say it.")]


def test_every_rule_says_what_to_write() -> None:
    assert all(instead for _, instead in RULES)
