"""What may be printed, in a terminal, a log or a table: text that is text.

Names of processes, policies, nodes and slots may be anybody's. A control character in one would
colour, rename or clear the terminal of whoever looks, and a newline would begin a line of its own
in a log.
"""

from __future__ import annotations


def printable(text: str) -> str:
    """Return a text on one line, with ``?`` for what a terminal does not show."""
    if text.isprintable():
        return text
    # A name of a file or half of a surrogate pair in JSON may hold what no encoding accepts.
    encodable = text.encode("utf-8", "backslashreplace").decode()
    return "".join(c if c.isprintable() else "?" for c in encodable)


def printable_lines(text: str) -> str:
    """The same for a text of several lines, in which newlines are the program's own."""
    return "\n".join(map(printable, text.split("\n")))
