"""No part of the code grows without a reason: each has a budget of lines (line_budgets.toml)."""

from __future__ import annotations

import tomllib
from collections import Counter
from pathlib import Path

from test_layout import FOLDERS, ROOT, shipped

BUDGETS = tomllib.loads(Path(__file__).with_name("line_budgets.toml").read_text())
BY_FOLDER = frozenset({"actuator"})
"""The packages whose folders have budgets of their own."""


def test_no_part_has_more_lines_than_its_budget() -> None:
    lines: Counter[str] = Counter()
    for path in shipped():
        package, *rest = _place(path)
        count = len(path.read_text("utf-8").splitlines())
        lines[package] += count
        if package in BY_FOLDER and len(rest) > 1:
            lines[f"{package}/{rest[0]}"] += count
    assert BUDGETS.keys() == lines.keys(), "a part without a budget, or a budget without a part"
    over = {name: (count, BUDGETS[name]) for name, count in lines.items() if count > BUDGETS[name]}
    assert over == {}, "lines, and the budget"


def _place(path: Path) -> list[str]:
    """The package of a module, and the way to it from there."""
    for package, folder in FOLDERS.items():
        root = ROOT / folder / "stallward" / package
        if root in path.parents:
            return [package, *path.relative_to(root).parts]
    raise AssertionError(path)
