"""The rules of plain prose that ``make check`` holds docs, docstrings and help texts to.

Each rule is a construction that readers stumbled over, with what to write instead. Code is not
looked at: fenced blocks, and words in backticks.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_COMPARATIVE: Final = r"(?:longer|more|less|\w+er|worse|such|different)\b"
RULES: Final[tuple[tuple[str, str], ...]] = (
    (
        rf"(?<!there )(?<!There )\b(?:is|are|was|were|be|been) no (?!{_COMPARATIVE})",
        "'is not a X', or what it is",
    ),
    (r", too\b(?! (?:much|many|few|\w+ (?:for|to)\b))", "'also' or 'as well'"),
    (r"\b(?:go|goes|going|went|gone) on\b", "'continue'"),
    (r"\banew\b", "'again'"),
    (
        r"\bthat there (?:is|are|was|were)\b(?! (?:a|an|one|no|not|nothing|enough)\b)",
        "'existing', or nothing",
    ),
    (
        r"(?:\| |\b(?:is|are|was|were|after) )how (?:long|many|much|often|far|fast|large|late)\b",
        "a noun: 'the time for which', 'the number of'",
    ),
    (r"(?:^|[.:] )Of (?:a|an|the|each|its|one|what|those)\b", "the subject first"),
    (r"\bthat (?:is|are) none\b", "'that is not a X'"),
    (r"\b(?:it|they) (?:is|are) of\b", "'belongs to'"),
    (r"\b(?:breaks?|broke|broken) off\b", "'end early', 'interrupted'"),
    (r"\bin the mean\b(?! time)", "'on average'"),
    (r"\bthe same of\b", "'the same for'"),
    (r"\b(?:a|one|each|every) \w+ (?:more|less) (?:costs?|gains?|takes?)\b", "'a further X'"),
    (r"\bnothing without\b", "'needs'"),
    (r"\b(?:programs|persons|people) they are of\b", "'their programs'"),
)
"""A pattern that must not occur, and what to write in its place."""
_COMPILED: Final = tuple((re.compile(pattern), instead) for pattern, instead in RULES)
_FENCE: Final = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
_CODE: Final = re.compile(r"``[^`]*``|`[^`\n]*`")


@dataclass(frozen=True, slots=True)
class Finding:
    """A place where a rule is broken."""

    line: int
    words: str
    instead: str


def findings(text: str, first_line: int = 1) -> Iterator[Finding]:
    """The places in Markdown, or in a docstring, that break a rule.

    Args:
        text: The text.
        first_line: The number of its first line in its file.
    """
    plain = _FENCE.sub(lambda found: "\n" * found.group().count("\n"), text)
    plain = _CODE.sub(lambda found: "X" + "\n" * found.group().count("\n"), plain)
    # A line break is a space to the rules, but for the one before a table's row.
    flowing = re.sub(r"\n(?!\|)", " ", plain)
    for rule, instead in _COMPILED:
        for found in rule.finditer(flowing):
            line = first_line + plain.count("\n", 0, found.start())
            yield Finding(line, found.group().strip(), instead)


def spoken_texts(source: str) -> Iterator[tuple[int, str]]:
    """What a module says in words: the first paragraph of each docstring, and help texts.

    Args:
        source: The source of the module.

    Yields:
        The number of the first line, and the text.
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = ast.get_docstring(node)
            if docstring:
                yield node.body[0].lineno, docstring.partition("\n\n")[0]
        if isinstance(node, ast.keyword) and node.arg in {"help", "epilog"}:
            parts = (
                part.value
                for part in ast.walk(node.value)
                if isinstance(part, ast.Constant) and isinstance(part.value, str)
            )
            yield node.value.lineno, " ".join(parts)


def broken_rules(path: Path) -> Iterator[Finding]:
    """The places in a Markdown or Python file that break a rule."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        yield from findings(text)
        return
    for line, spoken in spoken_texts(text):
        yield from findings(spoken, line)
