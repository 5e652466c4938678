"""HTML pages in one file that need no network, rendered from templates."""

from __future__ import annotations

from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jinja2 import Environment


def render_template(name: str, **values: object) -> str:
    """Render a template of ``templates``; all values are escaped.

    Args:
        name: File name of the template.
        values: The values of the template's variables.
    """
    return _environment().get_template(name).render(values) + "\n"


def standalone(svg: str) -> str:
    """A picture of a page as a file of its own, with the page's style."""
    style = f"{asset('report.css')}svg {{ font-family: system-ui, sans-serif; }}"
    return svg.replace(">", f"><style>{style}</style>", 1)


def put_page(path: Path, page: str) -> None:
    """Write a page so that a reader sees either the old page or all of the new one."""
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(page, encoding="utf-8")
    temporary.replace(path)


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # noqa: PLC0415 - pages only

    environment = Environment(
        loader=FileSystemLoader(str(_assets() / "templates")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["asset"] = asset
    return environment


def asset(name: str) -> str:
    """The text of a shipped file that pages include."""
    return (_assets() / name).read_text(encoding="utf-8")


def _assets() -> Path:
    return Path(str(resources.files("stallward.evaluation.report")))
