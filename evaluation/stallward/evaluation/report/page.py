"""The frame of every page: style, script, sections."""

from __future__ import annotations

from html import escape
from importlib import resources
from pathlib import Path


def put_page(path: Path, page: str) -> None:
    """Write a page so that a reader sees all of it or the old one."""
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(page, encoding="utf-8")
    temporary.replace(path)


def asset(name: str) -> str:
    """The text of a shipped file that pages hold."""
    folder = resources.files("stallward.evaluation.report")
    return (folder / name).read_text(encoding="utf-8")


def section(title: str, what: str, content: str) -> str:
    """A titled part of a page; ``what`` says how to read it."""
    note = f'<p class="what">{escape(what)}</p>' if what else ""
    return f"<section><h2>{escape(title)}</h2>{note}{content}</section>"
