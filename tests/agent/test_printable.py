"""What is printed is text: no name colours, clears or renames a terminal, or begins a line."""

from __future__ import annotations

import pytest

from stallward.agent.errors import StallwardError
from stallward.agent.printable import printable, printable_lines

HOSTILE = "a\x1b]0;pw\x07\x1b[2J\x9b31m\rb\u202ec\x00"


def test_ordinary_text_stays() -> None:
    assert printable("größe 3 µs - ok") == "größe 3 µs - ok"


@pytest.mark.parametrize("text", [HOSTILE, "a\nb", "\udc80", "\x7f"])
def test_nothing_that_a_terminal_acts_on_is_left(text: str) -> None:
    shown = printable(text)
    assert shown.isprintable()
    assert shown.encode()


def test_the_lines_of_a_text_stay() -> None:
    assert printable_lines("a\x1b[0m\nb\n") == "a?[0m\nb\n"


def test_an_error_quotes_nothing_that_a_terminal_acts_on() -> None:
    error = StallwardError(f"no {HOSTILE}", next_step=HOSTILE)
    assert str(error).isprintable()
